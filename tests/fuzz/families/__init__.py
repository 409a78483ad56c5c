"""What the generator draws from: functions that add an operator or a pattern to a network."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import NamedTuple

from tests.fuzz.builder import Builder

Adds = Callable[[Builder], object]


class Generator(NamedTuple):
    """A function that adds something, and how often it is drawn."""

    name: str
    add: Adds
    weight: float


GENERATORS: list[Generator] = []


def generates(weight: float) -> Callable[[Adds], Adds]:
    """Enter a function into the table; the weight is about the number of operators it covers."""

    def register(function: Adds) -> Adds:
        module = function.__module__.rpartition(".")[2]
        GENERATORS.append(Generator(f"{module}.{function.__name__}", function, weight))
        return function

    return register


def load_families() -> list[Generator]:
    """Return all generators, in an order that does not depend on imports."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return sorted(GENERATORS)
