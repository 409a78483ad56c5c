"""The cases, one module per group of operations; each has `cases()`."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter

from ..case import Case


def _collect() -> list[Case]:
    found: list[Case] = []
    for module in pkgutil.iter_modules(__path__):
        found += importlib.import_module(f"{__name__}.{module.name}").cases()
    repeated = [name for name, count in Counter(case.id for case in found).items() if count > 1]
    assert not repeated, f"cases need names of their own: {repeated}"
    return found


CASES = _collect()
