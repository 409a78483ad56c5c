"""Whether functions that steps run have caught sizes that are formulas."""

from __future__ import annotations

import dataclasses
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.symbolic_size import is_symbolic

_PLAIN = (
    *(int, float, complex, bool, str, bytes, type(None), type, range, Enum, ElementType),
    *(np.generic, np.dtype, np.ufunc, BuiltinFunctionType),
    Network,  # a body, which copies of the network around it share
)


def serves_all_sizes(function: object) -> bool:
    """Whether nothing that a function has caught is a formula, as far as can be told."""
    return _is_plain(function, set())


def _is_plain(thing: Any, seen: set[int]) -> bool:
    if is_symbolic(thing):
        return False
    if isinstance(thing, _PLAIN) or id(thing) in seen:
        return True
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.dtype != object or all(_is_plain(each, seen) for each in thing.flat)
    parts = _parts(thing)
    return parts is not None and all(_is_plain(part, seen) for part in parts)


def _parts(thing: Any) -> list[Any] | None:
    """What a thing consists of; None where that is not known."""
    if isinstance(thing, FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or ()]
        return [*cells, *(thing.__defaults__ or ()), *(thing.__kwdefaults__ or {}).values()]
    if isinstance(thing, partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    if isinstance(thing, (tuple, list, set, frozenset)):
        return list(thing)
    if isinstance(thing, dict):
        return [*thing, *thing.values()]
    if isinstance(thing, slice):
        return [thing.start, thing.stop, thing.step]
    if dataclasses.is_dataclass(thing):
        return [getattr(thing, field.name) for field in dataclasses.fields(thing)]
    return None
