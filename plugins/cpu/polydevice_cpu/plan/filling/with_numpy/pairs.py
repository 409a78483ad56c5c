"""Sums, differences, products and quotients of two tensors by NumPy."""

from __future__ import annotations

from functools import partial

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_size import is_within
from polydevice_cpu.onednn.constants import Algorithm
from polydevice_cpu.plan.step import Compute
from polydevice_cpu.plan.value import Value

MOST_NS = 80_000.0
"""How long NumPy may take: oneDNN's code takes 10 us less, and 0.3 to 0.4 ms to choose, make and
bind. Where several threads would share it, each takes a part of the time."""

_ELEMENT_NS, _RUN_NS = 0.2, 15.0

FUNCTIONS = {
    Algorithm.BINARY_ADD: np.add,
    Algorithm.BINARY_SUB: np.subtract,
    Algorithm.BINARY_MUL: np.multiply,
    Algorithm.BINARY_DIV: np.divide,
}
"""Those that IEEE 754 rounds once: they are the same to the bit, whoever computes them."""


def pairing(
    algorithm: int, first: Value, second: Value, target: Value, threads: int = 1
) -> Compute | None:
    """Return what computes one of `FUNCTIONS` of f32; None where that takes long."""
    run = _run(first, second, target)
    if not is_within(target.elements * (_ELEMENT_NS + _RUN_NS / run) * threads, MOST_NS):
        return None
    return partial(_pair, FUNCTIONS[Algorithm(algorithm)])


def _pair(function: np.ufunc, first: Array, second: Array, target: Array) -> tuple[()]:
    function(first, second, target)
    return ()


def _run(first: Value, second: Value, target: Value) -> int:
    """Elements that follow each other in memory in all three; a single number is anywhere."""
    run = 1
    sides = [target, *(each for each in (first, second) if each.elements > 1)]
    axes = zip(*((each.shape, each.strides or ()) for each in sides), strict=True)
    sizes, steps = axes
    by_step = sorted(range(len(target.shape)), key=lambda d: (steps[0][d], target.shape[d]))
    for axis in by_step:
        size = target.shape[axis]
        if size == 1:
            continue
        if any(n[axis] != size or step[axis] != run for n, step in zip(sizes, steps, strict=True)):
            break
        run *= size
    return run
