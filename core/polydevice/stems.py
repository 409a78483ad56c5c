"""Catalogues: packages with a module for each stem of operations, which is its address there.

A module is imported where an operation of its stem occurs: what a process needs of code for some
hundred operations is a third of it or less, and all of it takes longer to read than most models.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from functools import cache


def stem_of(cls: type | Callable[..., object]) -> str:
    """Return the stem of a class of operations, or of a function for one: its module's own name."""
    return cls.__module__.rpartition(".")[2]


@cache
def stems_in(package: str) -> frozenset[str]:
    """Return the stems for which a catalogue has a module."""
    found = importlib.import_module(package)
    return frozenset(module.name for module in pkgutil.iter_modules(found.__path__))


def import_stems(package: str, stems: Iterable[str]) -> None:
    """Import those modules of a catalogue that there are for these stems."""
    for stem in sorted(stems_in(package).intersection(stems)):
        importlib.import_module(f"{package}.{stem}")
