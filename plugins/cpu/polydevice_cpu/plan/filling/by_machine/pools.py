"""Pools by machine code for all sizes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from polydevice.symbolic_size import is_within
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.algorithms.by_machine.windows.integers import Held, Integers
from polydevice_cpu.algorithms.by_machine.windows.sums import (
    Constants,
    Functions,
    TileCalls,
    code_of,
    divided_by,
    taken_us,
)
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.onednn.constants import Algorithm
from polydevice_cpu.onednn.primitive import SymbolicPrimitive
from polydevice_cpu.plan.filling.by_machine.integers import pool_of_bytes
from polydevice_cpu.plan.filling.by_machine.suitable_windows import MOST_POOLS_US, OF_POOLS

_LEAST = float(np.finfo(np.float32).min)
_OF_MEANS = Constants(None, None, None, [(1.0, 0.0)])
_LARGEST = Constants(None, None, None, [], (_LEAST, _LEAST))
_LARGEST_OF_BYTES = Constants(None, None, None, [], (-0.0, -0.0))
"""-0.0 has the bits of the least integer."""


def is_of_largest(given: SymbolicPrimitive) -> bool:
    """Whether a pool takes the largest number of each window, and not their mean."""
    return bool(given.arguments[OF_POOLS[0]] == Algorithm.POOLING_MAX)


def code_of_pool(given: SymbolicPrimitive, told: TileCalls, elements: int) -> Code | None:
    """Return what is told addresses of source and result; None where oneDNN computes it.

    Args:
        given: a pool; of means, windows lie within the pictures.
        told: what code is told of sizes.
        elements: of a window.
    """
    threads, held = given.threads, pool_of_bytes(given)
    if not is_within(taken_us(told), threads * MOST_POOLS_US):
        return None
    if held is not None:
        return code_of(_of_bytes(held), told, _LARGEST_OF_BYTES, threads)
    if is_of_largest(given):
        return code_of(_of_floats(Terms.LARGEST), told, _LARGEST, threads)
    code = _of_floats(Terms.PLAIN, Function.QUOTIENT)
    made = code_of(code, told, _OF_MEANS, threads)
    return None if made is None else divided_by(made, elements)


@lru_cache
def _of_bytes(held: Held) -> Functions:
    integers = Integers(held, held)
    return Functions((), terms=Terms.LARGEST, has_bias=False, integers=integers)


@lru_cache
def _of_floats(terms: Terms, *chain: Function) -> Functions:
    return Functions(chain, terms=terms, has_bias=False)
