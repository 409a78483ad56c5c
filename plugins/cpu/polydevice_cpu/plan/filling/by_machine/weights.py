"""Weights as machine code reads them: those of oneDNN wherever it has them so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.windows.tiles import BLOCK
from polydevice_cpu.algorithms.by_machine.windows.window_code import Bundle, lanes
from polydevice_cpu.onednn.descriptor import Descriptor, row_major
from polydevice_cpu.onednn.primitive import SymbolicPrimitive
from polydevice_cpu.plan.filling.recipe import Packing

ROWS = 64, 48, 32, 24, 16, 8
"""Channels next to each other in oneDNN's weights."""

MOST_PARTS = 512
"""Parts of weights, each of which is told of by itself: with AVX2 oneDNN has rows of 16 channels,
so that a product of BERT's has 192, and of BERT-large's 256."""

FEW_BYTES = 1 << 17
"""Weights that are kept once more where oneDNN has rows of one vector: two and three at once take
5 to 15 % less (from 3 to 64 channels of 224x224, 7x7: 1.39 instead of 1.65 ms, oneDNN 1.57)."""


def dense(packing: Packing, array: Array) -> Array:
    """Return numbers as they lie one behind the other, kept once for the network."""
    packed = packing(array, Descriptor.dense(array.shape)).storage.array
    assert packed is not None
    return packed.view(array.dtype)[: array.size].reshape(array.shape)


def of_windows(
    array: Array, axes: int, given: SymbolicPrimitive, packing: Packing
) -> tuple[Array | None, int]:
    """Return weights by elements of a window, and how many channels of the result are in a row.

    Args:
        array: [channels of the result, groups or of the source, elements of a window, by axes].
        axes: of these.
        given: what multiplies by them.
        packing: returns a constant in a layout.

    Returns:
        Those of oneDNN, by parts of the result's channels where it has several, or packed once
        more; 0 where all channels are in one row.
    """
    if array.ndim > axes + 2 and array.shape[1:3] != (1, 1):
        return _of_groups(array, axes, given, packing)
    order = *range(array.ndim - axes, array.ndim), *range(1, array.ndim - axes), 0
    wanted = array.transpose(order)
    theirs = packing(array, given.witness.weights).storage.array
    if theirs is not None and np.array_equal(theirs.reshape(-1).view(array.dtype), wanted.flat):
        return theirs, 0
    plain = wanted.reshape(-1, len(array))
    parts = in_rows(theirs, plain) if array.ndim == axes + 2 else None
    if parts is not None and (parts.shape[-1] > BLOCK or array.nbytes > FEW_BYTES):
        return parts, parts.shape[-1]
    row = min(ROWS[0], -(-len(array) // lanes()) * lanes())
    if array.ndim == axes + 2 and (len(array) > row or (len(array) < row and not has_avx512())):
        return dense(packing, _in_rows_of(plain, row)), row
    return packing(array, _by_elements(array.shape, axes)).storage.array, 0


def _in_rows_of(plain: Array, row: int) -> Array:
    """[elements, channels of the result] as [parts, elements, some of these]: zeros are the rest.

    Longer rows lie too far apart: 1,024 to 2,048 channels of 7x7 took 4.3 instead of 1.7 ms.
    """
    elements, results = plain.shape
    parts = -(-results // row)
    padded = np.zeros((elements, parts * row), plain.dtype)
    padded[:, :results] = plain
    return np.ascontiguousarray(padded.reshape(elements, parts, row).swapaxes(0, 1))


def bundle_of(shape: Sequence[int]) -> Bundle:
    """Return which groups are computed at once, by the shape of weights: [groups, O, C, …]."""
    groups, results, given, *_ = shape
    return Bundle.of(groups, given, results)


def _of_groups(
    array: Array, axes: int, given: SymbolicPrimitive, packing: Packing
) -> tuple[Array | None, int]:
    """The same of [groups, channels of the result, of the source, elements of a window, by axes].

    Those of one group are behind those of the one before, and side by side where several groups
    are computed at once.
    """
    bundle = bundle_of(array.shape)
    if bundle.size > 1:
        grouped = array.reshape(-1, bundle.size, *array.shape[1:])
        order = 0, *range(4, 4 + axes), 3, 1, 2
        return dense(packing, np.ascontiguousarray(grouped.transpose(order))), 0
    wanted = array.transpose(0, *range(3, 3 + axes), 2, 1)
    theirs = packing(array, given.witness.weights).storage.array
    found = np.empty(0, array.dtype) if theirs is None else theirs.reshape(-1).view(array.dtype)
    if np.array_equal(found, wanted.reshape(-1)):
        return theirs, 0
    groups, results, source = array.shape[:3]
    elements = source * int(np.prod(array.shape[3:]))
    for row in ROWS:
        parts = -(-results // row)
        if found.size != groups * parts * elements * row or parts > MOST_PARTS:
            continue
        seen = found.reshape(groups, parts, elements, row)
        plain = seen.transpose(0, 2, 1, 3).reshape(groups, elements, -1)[..., :results]
        if np.array_equal(plain, wanted.reshape(groups, elements, results)):
            return seen, row
    steps = row_major(wanted.shape)
    own = Descriptor.strided(array.shape, (steps[0], 1, steps[-2], *steps[1:-2]))
    return packing(array, own).storage.array, 0


def _by_elements(shape: tuple[int, ...], axes: int) -> Descriptor:
    """The layout of weights with channels of the result next to each other, and behind windows."""
    results, *groups = shape[:-axes]
    steps = row_major((*shape[-axes:], *groups, results))
    return Descriptor.strided(shape, (1, *steps[axes:-1], *steps[:axes]))


def in_rows(packed: Array | None, plain: Array) -> Array | None:
    """Return weights as oneDNN has them: [parts, of the source, some channels of the result].

    Args:
        packed: their bytes.
        plain: [elements and channels of the source, channels of the result].

    Returns:
        None where they lie otherwise.
    """
    source, results = plain.shape
    found = None if packed is None else packed.reshape(-1).view(plain.dtype)
    for row in ROWS if found is not None else ():
        parts = -(-results // row)
        assert found is not None
        if found.size % (parts * row) or found.size < parts * row * source or parts > MOST_PARTS:
            continue
        seen = found.reshape(parts, -1, row)
        pieces = [plain[:, number * row : number * row + row] for number in range(parts)]
        if all(
            np.array_equal(own[:source, : piece.shape[1]], piece)
            for own, piece in zip(seen, pieces, strict=True)
        ):
            return seen
    return None
