"""Bins of regions pooled by machine code: what it is told, as a part of a plan or of arrays."""

from __future__ import annotations

import struct
from array import array
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice.symbolic_size import is_symbolic, single_bits
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_avx512, parts_of
from polydevice_cpu.algorithms.by_machine.regions.geometry import BEHIND, ENTRY, RECORD
from polydevice_cpu.algorithms.by_machine.regions.kernel import AT, LANES, Bins, Form, emitted
from polydevice_cpu.onednn.engine import address_of

MAX_COORDINATE = 1e9
"""Regions further away than this are nonsense, and would overflow an integer index."""

SAMPLES = 64
"""Samples of a bin, and axis, up to which each is looked up by itself."""

SHARED = 1 << 14
"""From so many numbers of a result on threads share the work."""

_MOST_BYTES = 1 << 22
"""Of what is kept about the bins of a region."""

_KINDS = {np.dtype(np.int64): "i8", np.dtype(np.int32): "i4"}


class Pooling(NamedTuple):
    """How regions are pooled.

    Attributes:
        bins: what is computed.
        pooled: bins along y and x.
        scale: of the regions' numbers.
        ratio: samples per bin and axis; 0 takes one per element, unless bins are of elements.
        before: is added to the numbers before they are scaled.
        behind: is subtracted then.
        least: how far a region reaches at least, in elements.
    """

    bins: Bins
    pooled: tuple[int, int]
    scale: float
    ratio: int = 0
    before: float = 0.0
    behind: float = 0.0
    least: float = -float("inf")


def code_of(
    pooling: Pooling,
    shape: tuple[int, ...],
    regions: int,
    images: np.dtype[np.generic] | None,
    threads: int = 1,
) -> Code | None:
    """Return code that is told addresses of a picture, regions, their images and the result.

    It refuses regions that are no numbers or too far away, have more than `SAMPLES` in a bin, or
    are of an image that there is not.

    Args:
        pooling: how.
        shape: [N, C, H, W] of the picture, f32 with channels next to each other.
        regions: how many there are, of f32: [x1, y1, x2, y2].
        images: type of their images' indices; None where each region begins with its own.
        threads: how many share the work.

    Returns:
        None where there is no such code.
    """
    kind = "f4" if images is None else _KINDS.get(images)
    if kind is None or not has_avx512():
        return None
    form, (rows, columns) = Form(pooling.bins, kind), pooling.pooled
    results = regions * shape[1] * rows * columns
    told, kept = list[Told](), list[Array]()
    for first, behind in parts_of(regions, threads, is_worth_it=results >= SHARED):
        room = _room(pooling, shape)
        if room is None:
            return None
        kept.append(room)
        numbers = _numbers(form, pooling, shape, (first, behind - first), room)
        told.append((function_of(emitted(form)), numbers))
    return Code.shared(told, threads, kept)


def pool(
    pooling: Pooling, picture: Array, rois: Array, images: Array | None, result: Array
) -> bool:
    """Write what `code_of` computes to the result [R, C, *pooled]; whether that was done.

    Args:
        pooling: how.
        picture: [N, C, H, W], f32.
        rois: [R, 4], or 5 where each begins with its image.
        images: [R].
        result: row-major f32.
    """
    kind = None if images is None else images.dtype
    code = code_of(pooling, picture.shape, len(rois), kind)
    if code is None:
        return False
    if not result.size:
        return True
    last = np.ascontiguousarray(np.moveaxis(picture, 1, -1))
    arrays = [last, np.ascontiguousarray(rois, np.float32), result]
    if images is not None:
        arrays.insert(2, np.ascontiguousarray(images))
    return not code.bound([address_of(each) for each in arrays])()


def _room(pooling: Pooling, shape: tuple[int, ...]) -> Array | None:
    """Room for what is kept about the bins of both axes; None where that is too much."""
    sizes = [
        bins * (RECORD + ENTRY * _entries(pooling, size))
        for bins, size in zip(pooling.pooled, shape[2:], strict=True)
    ]
    if sum(sizes) > _MOST_BYTES or pooling.ratio > SAMPLES:
        return None
    return np.empty(sum(sizes) // 8, np.int64)


def _entries(pooling: Pooling, size: int) -> int:
    """How many entries a bin has at most, along an axis."""
    if pooling.bins is Bins.MAXIMA_OF_ELEMENTS:
        return size
    return BEHIND + 2 * (pooling.ratio or SAMPLES)


def _numbers(
    form: Form,
    pooling: Pooling,
    shape: tuple[int, ...],
    part: tuple[int, int],
    room: Array,
) -> tuple[int, ...]:
    """What code is told about some regions: the first one, and how many there are."""
    first, count = part
    images, channels, height, width = shape
    rows, columns = pooling.pooled
    of_elements = form.image == "f4"
    roi, image = (20, 0) if of_elements else (16, int(form.image[1]))
    result = 4 * channels * rows * columns
    skipped = [0, first * roi, first * image, first * result]
    if of_elements:
        skipped = [0, first * roi, first * result, 0]
    start = address_of(room)
    across = start + rows * (RECORD + ENTRY * _entries(pooling, height))
    limit = float(np.float32(MAX_COORDINATE / max(abs(pooling.scale), 1)))
    is_shared = pooling.bins is Bins.SUMS
    each = 4 * channels
    behind = _of_floats(pooling.behind, pooling.least)
    numbers = (
        *(*skipped, count, channels, each * height * width, images),
        *(roi, image, result, 4 * LANES * rows * columns),
        *(8 if of_elements else 4, rows, each * width, start, height - 1),
        _of_sizes(height, height - 1),
        *(4 if of_elements else 0, columns, each, across, width - 1, _of_sizes(width, width - 1)),
        *(pooling.ratio, pooling.ratio or SAMPLES, is_shared, is_shared),
        *(_of_floats(pooling.before, pooling.scale), behind, _of_floats(limit, -limit)),
        *(_of_floats(-np.inf, 0.0), _of_floats(1.0, -1.0)),
        *(struct.unpack("<q", struct.pack("<d", 0.5))[0], _of_floats(0.5, -0.0), _PASSES_NAN),
    )
    assert len(numbers) == len(AT)
    places = np.arange(LANES, dtype=np.int32) * (rows * columns)
    return (*numbers, *array("q", places.tobytes()))


_PASSES_NAN = 0x22
"""What `vfixupimmps` does with numbers that are none: they become the result."""


def _of_sizes(low: int, high: int) -> int:
    """Two floats as a number of 8 bytes, or as a formula of what is no less than 0."""
    if is_symbolic(low) or is_symbolic(high):
        return single_bits(low) | single_bits(high) << 32
    return _of_floats(low, high)


def _of_floats(low: float, high: float) -> int:
    """Two floats as a number of 8 bytes."""
    return int(struct.unpack("<q", struct.pack("<2f", low, high))[0])
