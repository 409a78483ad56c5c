"""Averages and maxima of bilinear samples in the bins of regions."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice_cpu.algorithms.by_machine.regions.kernel import Bins
from polydevice_cpu.algorithms.by_machine.regions.pooled import MAX_COORDINATE, Pooling, pool
from polydevice_cpu.algorithms.by_machine.resampling.sampling import FAR, sample
from polydevice_cpu.algorithms.product import product

REGIONS, NUMBERS = 64, 1 << 20
"""Regions computed at once: their results stay in a core's cache, and their weights, or samples,
are this many numbers at most. All of 1,000 with 256 channels at once take 57 ms, so 45."""

FEW_CHANNELS = 8
"""Up to so many are sampled point by point: products take as long for each region as for 32
channels. 300 regions of 3 channels, 7x7 bins of 2x2 samples, take 2.4 ms, so 0.9."""

POINT = 1e-30
"""Distance of samples that are all in one place."""


def finite_regions(what: str, rois: Array, scale: float) -> Array:
    """Return rois in f32; raises InferenceError unless they can be scaled to coordinates."""
    rois = rois.astype(np.float32)
    if not (np.abs(rois) < MAX_COORDINATE / max(abs(scale), 1)).all():
        raise InferenceError(f"{what}: a region has coordinates that are no number or too large")
    return rois


def image_of(what: str, value: float, images: int) -> int:
    """Return the index of a region's image; raises InferenceError outside the batch."""
    if not 0 <= value < images:
        raise InferenceError(f"{what}: region in image {value}, but the batch has {images}")
    return int(value)


def images_of(what: str, batches: Array, images: int) -> Array:
    """Return each region's image; raises InferenceError outside the batch."""
    outside = np.flatnonzero(~((batches >= 0) & (batches < images)))
    if outside.size:
        image_of(what, batches[outside[0]], images)
    return batches.astype(np.int64)


class Regions(NamedTuple):
    """Rectangles to be sampled: in which images, from where, how far, into how many bins."""

    images: Array
    """[R], integers: each an index of an image."""
    starts: Array
    """[R, 2]: x and y, in elements."""
    extents: Array
    """[R, 2]: along x and y."""
    pooled: tuple[int, int]
    """Bins along y and x."""
    ratio: int
    """Samples per bin and axis; 0 takes one per element."""

    @property
    def points(self) -> int:
        """Samples of a region, where all have as many."""
        return math.prod(self.pooled) * self.ratio**2

    def blocks(self, sizes: tuple[int, int]) -> list[tuple[slice, Regions]]:
        """Cut them into those that are computed at once, of images of these sizes."""
        return self.blocks_of(max(self.pooled) * (max(sizes) + self.ratio))

    def blocks_of(self, each: int) -> list[tuple[slice, Regions]]:
        """Cut them into those that are computed at once, of which each needs so many numbers."""
        return [
            (cut, Regions(self.images[cut], self.starts[cut], self.extents[cut], *self[3:]))
            for cut in _cuts(len(self.images), each)
        ]


def _cuts(regions: int, each: int) -> list[slice]:
    """Cut regions that need so many numbers each into those that are computed at once."""
    step = min(max(NUMBERS // each, 1), REGIONS)
    return [slice(start, start + step) for start in range(0, regions, step)]


class _Samples(NamedTuple):
    """Samples along the axes of regions that lie within [-1, size], in the order of the axes.

    Axis 2 * r is region r's from top to bottom, 2 * r + 1 the one from left to right.
    """

    axis: Array
    """[samples]: the axis that it is of."""
    bin: Array
    """[samples]"""
    position: Array
    """[samples], in elements, cut to those that there are."""
    last: Array
    """[samples]: the last element of the axis."""
    per_bin: Array
    """[axes]: samples that a bin has, counting those outside."""


def _sample(regions: Regions, sizes: tuple[int, int]) -> _Samples:
    start: Array = regions.starts[:, ::-1].astype(np.float64).ravel()
    extent = regions.extents[:, ::-1].astype(np.float64).ravel()
    size: Array = np.tile(np.array(sizes, np.float64), len(regions.images))
    bins = np.tile(regions.pooled, len(regions.images))
    width = extent / bins
    per_bin = np.full(len(width), float(regions.ratio)) if regions.ratio else np.ceil(width)
    taken = per_bin > 0
    per_bin[~taken] = 1
    distance = np.where(width == 0, POINT, width / per_bin)
    # Sample i lies at start + (i + 0.5) * distance; only a range of i can be inside.
    ends = (-1 - start) / distance - 0.5, (size - start) / distance - 0.5
    first = np.maximum(np.floor(np.minimum(*ends)), 0)
    last = np.minimum(np.ceil(np.maximum(*ends)), per_bin * bins - 1)
    count = np.where(taken & (last >= first), last - first + 1, 0).astype(np.int64)
    axis = np.arange(len(count)).repeat(count)
    index = np.arange(len(axis)) + (first - (count.cumsum() - count)).take(axis)
    position: Array = start.take(axis) + (index + 0.5) * distance.take(axis)
    position = position.astype(np.float32)
    size = size.take(axis)
    inside = (position >= -1) & (position <= size)
    if not inside.all():
        axis, index, position, size = (a[inside] for a in (axis, index, position, size))
    at = np.clip(position, 0, size - 1)
    bin_ = (index // per_bin.take(axis)).astype(np.int64)
    return _Samples(axis, bin_, at, size.astype(np.int64) - 1, per_bin)


class _Weights(NamedTuple):
    """How the bins of axes average the elements of a part of each axis."""

    matrices: Array
    """[axes, bins, elements], f32; behind the part are zeros."""
    start: Array
    """[axes]: the first element of the part."""
    length: Array
    """[axes]: how many elements it has."""


def _averaging(samples: _Samples, bins: int) -> _Weights:
    axis, axes = samples.axis, len(samples.per_bin)
    low = samples.position.astype(np.int64)
    high = np.minimum(low + 1, samples.last)
    start = np.full(axes, np.iinfo(np.int64).max)
    np.minimum.at(start, axis, low)
    end = np.zeros(axes, np.int64)
    np.maximum.at(end, axis, high + 1)
    length = np.maximum(end - start, 0)
    longest = int(length.max(initial=0))
    row = (axis * bins + samples.bin) * longest - start.take(axis)
    share = 1 / samples.per_bin.take(axis)
    behind = (samples.position - low) * share
    numbers = axes * bins * longest
    total = np.bincount(row + low, share - behind, numbers)
    total += np.bincount(row + high, behind, numbers)
    return _Weights(total.astype(np.float32).reshape(axes, bins, longest), start, length)


def aligned(what: str, pooling: Pooling, x: Array, rois: Array, images: Array) -> Array:
    """Return [R, C, *pooled], f32: what becomes of the samples in the bins of regions.

    Args:
        what: whose regions they are, for errors.
        pooling: how; not of elements.
        x: [N, C, H, W].
        rois: [R, 4]: x1, y1, x2, y2.
        images: [R], integers: an index of an image for each.

    Raises:
        InferenceError: a region is of an image that there is not, or has coordinates that are no
            number or too large.
    """
    if x.dtype == np.float32 and rois.dtype == np.float32:
        y = np.empty((len(rois), x.shape[1], *pooling.pooled), np.float32)
        if pool(pooling, x, rois, images, y):
            return y
    boxes = finite_regions(what, rois, pooling.scale) + np.float32(pooling.before)
    boxes = boxes * np.float32(pooling.scale) - np.float32(pooling.behind)
    extents = np.maximum(boxes[:, 2:] - boxes[:, :2], np.float32(pooling.least))
    numbers = images_of(what, images, len(x))
    regions = Regions(numbers, boxes[:, :2], extents, pooling.pooled, pooling.ratio)
    if pooling.bins is Bins.SUMS:
        return averages(x, regions)
    return maxima(x, regions, onnx=pooling.bins is Bins.MAXIMA)


def averages(x: Array, regions: Regions) -> Array:
    """Return [R, C, *pooled], f32: averages over the bins; samples outside x [N, C, H, W] are 0.

    Samples form a grid, so averaging is a product with one matrix per axis, of as many elements
    as the region covers: samples outside cost nothing, whatever the region's size.
    """
    channels, height, width = x.shape[1:]
    y = np.empty((len(regions.images), channels, *regions.pooled), np.float32)
    are_few = channels <= FEW_CHANNELS and 0 < regions.points * channels <= NUMBERS
    if are_few and _average_samples(x, regions, y):
        return y
    maps = np.moveaxis(x, 1, -1)
    read = np.minimum(np.abs(regions.extents) + 1, (width, height)).prod(axis=1).sum()
    if x.dtype != np.float32 or 2 * read > len(x) * height * width:
        # Each region would else put the channels behind one another for itself.
        maps = np.ascontiguousarray(maps, np.float32)
    for cut, part in regions.blocks((height, width)):
        samples = _sample(part, (height, width))
        weights = _averaging(samples, max(regions.pooled))
        y[cut] = _average(maps, part.images, regions.pooled, weights)
    return y


def _average_samples(x: Array, regions: Regions, y: Array) -> bool:
    """Write the averages of samples taken one by one to y; False where no code takes them so."""
    (rows, columns), ratio = regions.pooled, regions.ratio
    images = np.ascontiguousarray(x, np.float32)
    for cut, part in regions.blocks_of(max(regions.points * x.shape[1], 1)):
        down, across = (
            _positions(part.starts[:, axis], part.extents[:, axis], bins * ratio, size)
            for axis, bins, size in ((1, rows, x.shape[2]), (0, columns, x.shape[3]))
        )
        shape = (len(down), rows * ratio, columns * ratio)
        points = [
            np.ascontiguousarray(np.broadcast_to(at, shape))
            for at in (across[:, np.newaxis, :], down[:, :, np.newaxis])
        ]
        for image in np.unique(part.images).tolist():
            of_image = np.flatnonzero(part.images == image)
            places = (each[of_image].reshape(1, -1) for each in points)
            made = sample(images[image : image + 1], *places)
            if made is None:
                return False
            bins_ = made.reshape(-1, len(of_image), rows, ratio, columns, ratio)
            total = np.add.reduce([bins_[:, :, :, i, :, j] for i, j in np.ndindex(ratio, ratio)])
            total /= ratio * ratio
            y[cut][of_image] = total.swapaxes(0, 1)
    return True


def _positions(start: Array, extent: Array, count: int, size: int) -> Array:
    """Where samples [R, count] of regions lie along an axis, as `sample` takes them."""
    step = extent.astype(np.float64) / count
    at = start[:, np.newaxis] + (np.arange(count) + 0.5) * step[:, np.newaxis]
    inside = (at >= -1) & (at <= size)
    return np.where(inside, np.clip(at, 0, size - 1), FAR).astype(np.float32)


def interpolated(x: Array, images: Array, rows: Array, columns: Array) -> Array:
    """Return [R, C, P, Q], f32: bilinear samples of x [N, C, H, W]; those outside of it are 0.

    Args:
        x: the images.
        images: [R], integers: the image of each region.
        rows: [R, P], where they lie, in elements.
        columns: [R, Q]
    """
    pooled = (rows.shape[1], columns.shape[1])
    y = np.empty((len(images), x.shape[1], *pooled), np.float32)
    maps = np.ascontiguousarray(np.moveaxis(x, 1, -1), np.float32)
    of_axis = np.repeat([0, 1], pooled)
    last = np.repeat(np.array(x.shape[2:]) - 1, pooled)
    bins = np.concatenate([np.arange(count) for count in pooled])
    for cut in _cuts(len(images), max(pooled) * max(x.shape[2:])):
        position = np.concatenate([rows[cut], columns[cut]], axis=1)
        number, place = np.nonzero((position >= 0) & (position <= last))
        samples = _Samples(
            2 * number + of_axis[place],
            bins[place],
            position[number, place],
            last[place],
            np.ones(2 * len(position)),
        )
        y[cut] = _average(maps, images[cut], pooled, _averaging(samples, max(pooled)))
    return y


def _average(maps: Array, images: Array, pooled: tuple[int, int], weights: _Weights) -> Array:
    """Return [R, C, *pooled] from maps [N, H, W, C]."""
    (rows, columns), channels = pooled, maps.shape[-1]
    y = np.empty((len(images), rows, columns, channels), np.float32)
    down, across = weights.matrices[::2, :rows], weights.matrices[1::2, :columns]
    starts, lengths = (a.reshape(-1, 2).tolist() for a in weights[1:])
    of_regions = zip(images.tolist(), starts, lengths, down, across, y, strict=True)
    for image, (top, left), (height, width), vertical, horizontal, result in of_regions:
        data = maps[image, top : top + height, left : left + width]
        data = data.reshape(height, width * channels)
        strips = np.empty((rows, width * channels), np.float32)
        product(vertical[:, :height], data, strips)
        product(horizontal[:, :width], strips.reshape(rows, width, channels), result)
    return np.moveaxis(y, -1, 1)


def maxima(x: Array, regions: Regions, *, onnx: bool = False) -> Array:
    """Return [R, C, *pooled], f32: the maximum of 0 and the samples of each bin.

    With `onnx` it is that of the four weighted elements around each sample, and of 0 only for
    samples outside x [N, C, H, W].
    """
    sizes = x.shape[2], x.shape[3]
    y = np.zeros((len(regions.images), *regions.pooled, x.shape[1]), np.float32)
    maps = np.ascontiguousarray(np.moveaxis(x, 1, -1), np.float32)
    for cut, part in regions.blocks(sizes):
        samples = _sample(part, sizes)
        ends = samples.axis.searchsorted(np.arange(len(samples.per_bin) + 1))
        for number, (image, into) in enumerate(zip(part.images, y[cut], strict=True)):
            rows, columns = (slice(*ends[i : i + 2]) for i in (2 * number, 2 * number + 1))
            if rows.start < rows.stop and columns.start < columns.stop:
                _put_maxima(maps[image], samples, (rows, columns), onnx, into)
    return np.moveaxis(y, -1, 1)


def _put_maxima(
    data: Array, samples: _Samples, axes: tuple[slice, slice], onnx: bool, y: Array
) -> None:
    """Put the maxima of the samples of a region of data [H, W, C] into y [*pooled, C]."""
    for number, axis in enumerate(axes):
        data = _between(data, samples.position[axis], number, np.maximum if onnx else np.add)
    places: list[Array] = []
    complete: list[Array] = []
    for number, axis in enumerate(axes):
        place, first, count = np.unique(samples.bin[axis], return_index=True, return_counts=True)
        # Several takes of what a bin has; `reduceat` takes 4 to 10 times as long.
        nth = np.minimum(np.arange(count.max()), count[:, None] - 1)
        data = data.take(first[:, None] + nth, number).max(axis=number + 1)
        places.append(place)
        complete.append(count == samples.per_bin[samples.axis[axis.start]])
    inside = np.outer(*complete)[..., None] if onnx else False
    y[places[0][:, None], places[1]] = np.where(inside, data, np.maximum(data, 0))


def _between(data: Array, position: Array, axis: int, join: np.ufunc) -> Array:
    """Join the two weighted elements around each position along an axis of data [H, W, C]."""
    low = position.astype(np.int64)
    high = np.minimum(low + 1, data.shape[axis] - 1)
    part = (position - low).astype(np.float32).reshape(-1, *(1,) * (2 - axis))
    return np.asarray(join(data.take(low, axis) * (1 - part), data.take(high, axis) * part))
