"""Copies: rows with a number around them, or runs of elements, by machine code for AVX-512.

NumPy takes 5 us to write a border and copy the inside, however few there are.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code, Told, told
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    R8,
    R9,
    R12,
    R13,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    Instructions,
)
from polydevice_cpu.onednn.engine import address_of

AXES = 3
"""Axes in front of the rows."""

MOST_RUNS = 32
"""Which code is told next to where they are from, and not in an array of their own."""

Side = tuple[int, int, int]
"""Elements of an axis, and how many there are before and behind."""

_OF_AXES = [f"{name}{axis}" for axis in range(AXES) for name in ("size", "first", "inside")]
_NAMES = ("source", "result", "begin", "row", "end", *_OF_AXES)
_AT = {name: number for number, name in enumerate(_NAMES)}
_ARGUMENTS = struct.Struct(f"@{len(_AT)}q64s").pack
"""Addresses; bytes before a row, in it, and behind; of each axis elements of the result, where the
inside begins, and how many of it there are; then what the border is made of, 64 bytes."""

_WHOLE = 64


def merged(sides: Sequence[Side]) -> list[Side]:
    """Join axes without a border to those in front of them, which lie in the same order.

    Args:
        sides: of a dense tensor, outermost first.
    """
    found: list[Side] = []
    size, before, behind = sides[-1]
    for outer, first, last in reversed(sides[:-1]):
        if before == 0 and behind == 0:
            size, before, behind = size * outer, size * first, size * last
        else:
            found.append((size, before, behind))
            size, before, behind = outer, first, last
    return [*found, (size, before, behind)][::-1]


def bordered(sides: Sequence[Side], number: np.generic) -> Told | None:
    """Return code that is told where a source and the result are.

    Args:
        sides: of a dense source, outermost first.
        number: in the border.

    Returns:
        None where there are too many axes with borders.
    """
    *outer, (row, before, behind) = merged(sides)
    if len(outer) > AXES:
        return None
    item = number.dtype.itemsize
    outer = [(1, 0, 0)] * (AXES - len(outer)) + outer
    axes = [n for size, first, last in outer for n in (first + size + last, first, size)]
    filling = number.tobytes() * (_WHOLE // item)
    sizes = item * before, item * row, item * behind
    return function_of(_with_border()), told(_ARGUMENTS, 0, 0, *sizes, *axes, filling)


def runs_of(index: Array) -> Array:
    """Return [runs, 2], i64: where indices begin that go up by one each, and how many these are."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(index) != 1) + 1))
    lengths = np.diff(np.append(starts, len(index)))
    return np.stack([index[starts], lengths], axis=1).astype(np.int64)


def taken(shape: Sequence[int], axis: int, index: Array, item_bytes: int) -> Code:
    """Return code that copies elements along an axis, told where a source and the result are.

    Args:
        shape: of the source, row-major, without an axis of no elements.
        axis: the axis.
        index: [results], elements of it; those that follow each other are copied at once.
        item_bytes: of an element.
    """
    runs = runs_of(index)
    if len(runs) <= MOST_RUNS:
        return in_runs(shape, axis, runs.tolist(), item_bytes)
    row = math.prod(shape[axis + 1 :]) * item_bytes
    runs *= row
    sizes = address_of(runs), math.prod(shape[:axis]), len(runs), shape[axis] * row
    return Code.of([(function_of(_in_runs()), (0, 0, *sizes))], runs)


def in_runs(
    shape: Sequence[int], axis: int, runs: Sequence[tuple[int, int]], item_bytes: int
) -> Code:
    """Return code that copies runs of elements along an axis, whose sizes may be formulas.

    Args:
        shape: of the source, row-major, without an axis of no elements.
        axis: the axis.
        runs: where each begins, and how many elements it has.
        item_bytes: of an element.
    """
    row = math.prod(shape[axis + 1 :]) * item_bytes
    sizes = 0, math.prod(shape[:axis]), len(runs), shape[axis] * row
    told = 0, 0, *sizes, *(row * number for run in runs for number in run)
    code = Code.of([(function_of(_in_runs()), told)])
    (start,) = code.starts
    return code._replace(pointers=(*code.pointers, (start + 2, start + 2 + len(sizes))))


@lru_cache(maxsize=1)
def _in_runs() -> bytes:
    """R12, R9: source and result; RBX, RBP: slices and runs left; R13: the next run."""
    code = Instructions()
    code.begin(0)
    code.load(R12, RDI, 0)
    code.load(R9, RDI, 1)
    code.load(RBX, RDI, 3)
    slice_ = len(code.text)
    code.load(R13, RDI, 2)
    code.load(RBP, RDI, 4)
    run = len(code.text)
    code.load(R8, R13)
    code.add(R8, R12)
    code.load(RCX, R13, 1)
    _append_copy(code)
    code.step(R13, 16)
    code.again(RBP, run)
    code.add(R12, RDI, 5)
    code.again(RBX, slice_)
    code.end(0)
    return code.assembled()


@lru_cache(maxsize=1)
def _with_border() -> bytes:
    """R8, R9: source and result; RBX, RBP, R13: positions along the axes of the result."""
    code = Instructions()
    code.begin(0)
    code.load(R8, RDI, _AT["source"])
    code.load(R9, RDI, _AT["result"])
    code.vector(LOAD, 1, 0, RDI, offset_bytes=8 * len(_AT))
    counters = (RBX, RBP, R13)
    starts, ends = [], []
    for axis, counter in enumerate(counters):
        code.raw("31c0")  # xor eax, eax
        code.move(counter, RAX)
        starts.append(len(code.text))
        code.plain(0x3B, counter, RDI, 8 * _AT[f"size{axis}"])
        ends.append(code.ahead("0f8d"))  # jge
    outside = []
    for axis, counter in enumerate(counters):
        code.move(RAX, counter)
        code.subtract(RAX, RDI, _AT[f"first{axis}"])
        code.plain(0x3B, RAX, RDI, 8 * _AT[f"inside{axis}"])
        outside.append(code.ahead("0f83"))  # jae
    code.load(RCX, RDI, _AT["begin"])
    _append_filling(code)
    code.load(RCX, RDI, _AT["row"])
    _append_copy(code)
    code.load(RCX, RDI, _AT["end"])
    _append_filling(code)
    done = code.ahead()
    for jump in outside:
        code.here(jump)
    code.load(RCX, RDI, _AT["begin"])
    code.add(RCX, RDI, _AT["row"])
    code.add(RCX, RDI, _AT["end"])
    _append_filling(code)
    code.here(done)
    for counter, start, end in reversed(list(zip(counters, starts, ends, strict=True))):
        code.step(counter, 1)
        code.jump(start)
        code.here(end)
    code.end(0)
    return code.assembled()


def _append_filling(code: Instructions) -> None:
    """Append what writes RCX bytes of the border at R9."""
    start = len(code.text)
    code.step(RCX, -_WHOLE)
    last = code.ahead("0f88")  # js
    code.raw("62d17f487f09")  # vmovdqu8 [r9], zmm1
    code.step(R9, _WHOLE)
    code.jump(start)
    code.here(last)
    _append_rest(code)
    code.raw("62d17f497f09")  # vmovdqu8 [r9]{k1}, zmm1
    code.add(R9, RCX)


def _append_copy(code: Instructions) -> None:
    """Append what copies RCX bytes from R8 to R9."""
    start = len(code.text)
    code.step(RCX, -_WHOLE)
    last = code.ahead("0f88")  # js
    code.raw("62d17f486f00")  # vmovdqu8 zmm0, [r8]
    code.raw("62d17f487f01")  # vmovdqu8 [r9], zmm0
    code.step(R8, _WHOLE)
    code.step(R9, _WHOLE)
    code.jump(start)
    code.here(last)
    _append_rest(code)
    code.raw("62d17fc96f00")  # vmovdqu8 zmm0{k1}{z}, [r8]
    code.raw("62d17f497f01")  # vmovdqu8 [r9]{k1}, zmm0
    code.add(R8, RCX)
    code.add(R9, RCX)


def _append_rest(code: Instructions) -> None:
    """Append what makes RCX the bytes that are left, of a vector, and k1 their mask."""
    code.step(RCX, _WHOLE)
    code.raw("48c7c0ffffffff")  # mov rax, -1
    code.raw("c4e2f0f5c0")  # bzhi rax, rax, rcx
    code.raw("c4e1fb92c8")  # kmovq k1, rax
