"""Reductions along any axes as loops: what the code of `kernel` is told about them."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from polydevice.processor.machine_code import function_of
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_vectors, parts_of
from polydevice_cpu.algorithms.by_machine.reductions.kernel import (
    KEPT,
    REDUCED,
    Form,
    How,
    Kind,
    Read,
    emitted,
)

SHARED = 1 << 14
"""From so many numbers on threads share the work."""

SHORT, APART = 12, 8
"""Rows up to so long are read for several results at once, one number of each, if there are so many
rows: 8,400 rows of 4 take 9 us so."""

KINDS: dict[np.dtype[Any], Kind] = {
    np.dtype(np.float32): Kind("f", 4),
    np.dtype(np.float64): Kind("f", 8),
    np.dtype(np.int32): Kind("i", 4),
    np.dtype(np.int64): Kind("i", 8),
}
_OF_FLOATS = How.MEAN, How.L1, How.L2
_PASSES_NAN = 0x22
"""What `vfixupimm` does with numbers that are none: they become the result."""


class _Loop(NamedTuple):
    """Numbers that lie equally far apart.

    Attributes:
        size: how many.
        step: from one to the next, in numbers.
        is_reduced: whether they are reduced to one.
    """

    size: int
    step: int
    is_reduced: bool


def code_of(
    shape: Sequence[int],
    axes: Collection[int],
    dtype: np.dtype[Any],
    how: How,
    threads: int = 1,
) -> Code | None:
    """Return code that is told addresses of numbers and of what they are reduced to.

    Args:
        shape: of numbers, row-major, none of 0.
        axes: along which they are reduced.
        dtype: f32, f64, i32 or i64.
        how: what becomes of them; of integers not all.
        threads: how many share the work.

    Returns:
        None where there is no such code.
    """
    kind = KINDS.get(dtype)
    if kind is None or not has_vectors() or (kind.letter == "i" and how in _OF_FLOATS):
        return None
    loops = _loops(shape, axes)
    read, left, inner = _read(loops, kind)
    kept = [loop for loop in loops[: len(loops) - inner] if not loop.is_reduced]
    reduced = [loop for loop in loops[: len(loops) - inner] if loop.is_reduced]
    if read is Read.APART:  # which goes over the numbers of its rows
        reduced.append(loops[-1])
    if len(kept) > KEPT or len(reduced) > REDUCED:
        return None
    form = Form(how, kind, read, left)
    function = function_of(emitted(form))
    if function is None:  # of numbers of 8 bytes, without AVX-512
        return None
    lines = loops[len(loops) - inner :]
    if read is Read.APART:
        lines = lines[:1]
    told = list[Told]()
    for first, some in _parts(kept, math.prod(shape), threads):
        at = first * kept[0].step if kept else 0
        count = first * math.prod([loop.size for loop in kept[1:]], start=1)
        count *= math.prod([line.size for line in lines if not line.is_reduced])
        numbers = _numbers(form, some, reduced, lines)
        places = kind.item_bytes * at, kind.item_bytes * count
        told.append((function, (*places, *numbers)))
    return Code.shared(told, threads)


def _loops(shape: Sequence[int], axes: Collection[int]) -> list[_Loop]:
    """Loops over numbers, the outermost first, of which neighbours differ in what they do."""
    sizes = [(size, axis in axes) for axis, size in enumerate(shape) if size != 1]
    joined = [
        (math.prod([size for size, _ in group]), is_reduced)
        for is_reduced, group in itertools.groupby(sizes, key=lambda each: each[1])
    ]
    found, step = list[_Loop](), 1
    for size, is_reduced in reversed(joined):
        found.insert(0, _Loop(size, step, is_reduced))
        step = step * size
    return found or [_Loop(1, 1, is_reduced=True)]


def _read(loops: Sequence[_Loop], kind: Kind) -> tuple[Read, int, int]:
    """How the innermost loops are read: the way, numbers left of a row, and how many loops."""
    last = loops[-1]
    before = loops[-2] if len(loops) > 1 else None
    if last.is_reduced:
        is_short = kind.item_bytes == 4 and last.size <= SHORT
        if before is not None and is_short and before.size >= APART:
            return Read.APART, 1, 2
        return Read.ROWS, 1, 1
    if before is not None and last.size < kind.lanes and last.size in (2, 4, 8):
        return Read.ROWS, int(last.size), 2
    return Read.COLUMNS, 1, 1


def _parts(kept: Sequence[_Loop], numbers: int, threads: int) -> list[tuple[int, list[_Loop]]]:
    """Parts of the outermost loop over what is kept: the first place, and all these loops."""
    if not kept or current_trace() is not None:
        return [(0, [*kept])]
    return [
        (first, [kept[0]._replace(size=behind - first), *kept[1:]])
        for first, behind in parts_of(kept[0].size, threads, is_worth_it=numbers >= SHARED)
    ]


def _numbers(
    form: Form, kept: Sequence[_Loop], reduced: Sequence[_Loop], lines: Sequence[_Loop]
) -> tuple[int, ...]:
    """What code is told behind the addresses."""
    item, kind = form.kind.item_bytes, form.kind
    length = math.prod([line.size for line in lines])
    distance = lines[0].step if form.read is Read.APART else 1
    gone = 0
    if form.read is Read.ROWS:
        gone = length
    of_reduced = _stepped(reduced, REDUCED, gone)
    of_kept = _stepped(kept, KEPT, 0)
    count = math.prod([loop.size for loop in reduced])
    if form.read is Read.ROWS:
        count = count * length // form.left
    return (
        *(size for size, _ in of_kept),
        *(item * step for _, step in of_kept),
        *(size for size, _ in of_reduced),
        *(item * step for _, step in of_reduced),
        *(length, 64 * distance, _begin(form.how, kind), count, _PASSES_NAN),
        *_places(form, distance),
    )


def _stepped(loops: Sequence[_Loop], most: int, gone: int) -> list[tuple[int, int]]:
    """Sizes of loops and steps to their next part, less what inner ones have gone; inner first."""
    found = []
    for loop in reversed(loops):
        found.append((loop.size, loop.step - gone))
        gone = loop.size * loop.step
    return found + [(1, 0)] * (most - len(found))


def _begin(how: How, kind: Kind) -> int:
    """What a result begins with, as bits."""
    is_float = kind.letter == "f"
    number: float = 0
    if how is How.PRODUCT:
        number = 1
    elif how in (How.LARGEST, How.SMALLEST):
        number = math.inf if is_float else (1 << 8 * kind.item_bytes - 1) - 1
        if how is How.LARGEST:
            number = -math.inf if is_float else -number - 1
    letter = {("f", 4): "f", ("f", 8): "d", ("i", 4): "i", ("i", 8): "q"}[kind]
    return int.from_bytes(struct.pack(f"<{letter}", number), "little", signed=kind.item_bytes == 8)


def _places(form: Form, distance: int) -> list[int]:
    """Places of numbers that lie so far apart, two of them in one of 8 bytes."""
    lanes = form.kind.lanes if form.read is Read.APART else 0
    return [distance * (lane | (lane + 1) << 32) for lane in range(0, lanes, 2)]
