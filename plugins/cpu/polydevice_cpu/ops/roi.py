"""ROIPooling, PSROIPooling, DeformablePSROIPooling, ROIAlign and ROIAlignRotated."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.roi import (
    AlignedMode,
    DeformablePSROIPooling,
    PSROIPooling,
    ROIAlign,
    ROIAlignRotated,
    RoiMode,
    ROIPooling,
)
from polydevice_cpu.algorithms.bilinear import bilinear_grid, bilinear_points
from polydevice_cpu.algorithms.by_machine.regions.kernel import Bins
from polydevice_cpu.algorithms.by_machine.regions.pooled import Pooling, pool
from polydevice_cpu.algorithms.roi_align import (
    aligned,
    finite_regions,
    image_of,
    images_of,
    interpolated,
)
from polydevice_cpu.implement import implements


def _round(x: Array) -> Array:
    """Round halves away from zero, as C's round()."""
    return np.asarray(np.trunc(x + np.copysign(np.float32(0.5), x)))


@implements(ROIPooling)
def roi_pooling(op: ROIPooling, x: Array, rois: Array) -> Array:
    """Pool all at once, or region by region."""
    if op.method == "max" and x.dtype == rois.dtype == np.float32:
        y = np.empty((len(rois), x.shape[1], op.pooled_h, op.pooled_w), np.float32)
        if pool(pooling(op), x, rois, None, y):
            return y
    regions = finite_regions("ROIPooling", rois, op.spatial_scale)
    images, boxes = images_of("ROIPooling", regions[:, 0], len(x)), regions[:, 1:]
    if op.method == "bilinear":
        rows = _between(boxes[:, 1], boxes[:, 3], op.pooled_h, x.shape[2])
        columns = _between(boxes[:, 0], boxes[:, 2], op.pooled_w, x.shape[3])
        return interpolated(x, images, rows, columns).astype(x.dtype, copy=False)
    y = np.zeros((len(rois), op.pooled_h, op.pooled_w, x.shape[1]), x.dtype)
    maps = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    for image, box, into in zip(images, boxes, y, strict=True):
        _max_bins(op, maps[image], box, into)
    return np.moveaxis(y, -1, 1)


def pooling(op: ROIPooling) -> Pooling:
    """Return how ROIPooling pools the maxima of elements."""
    return Pooling(Bins.MAXIMA_OF_ELEMENTS, (op.pooled_h, op.pooled_w), op.spatial_scale)


def _max_bins(op: ROIPooling, x: Array, box: Array, y: Array) -> None:
    """Put the maximum of each bin of x [H, W, C] into y; bins may share elements."""
    scaled = _round(box * np.float32(op.spatial_scale)).astype(np.int64)
    rows = _bins(scaled[1], scaled[3], op.pooled_h, x.shape[0])
    columns = _bins(scaled[0], scaled[2], op.pooled_w, x.shape[1])
    first, last = columns[0][0], columns[-1][1]
    strips = np.zeros((op.pooled_h, max(last - first, 0), x.shape[2]), x.dtype)
    for (top, bottom), strip in zip(rows, strips, strict=True):
        if bottom > top:
            x[top:bottom, first:last].max(axis=0, out=strip)
    for j, (left, right) in enumerate(columns):
        if right > left:
            strips[:, left - first : right - first].max(axis=1, out=y[:, j])


def _bins(start: int, end: int, count: int, size: int) -> list[tuple[int, int]]:
    """Return first and last + 1 element of `count` bins from start to end, within the axis."""
    width = np.float32(max(end - start + 1, 1)) / np.float32(count)
    edges = np.arange(count + 1, dtype=np.float32) * width
    low = np.clip(np.floor(edges[:-1]).astype(np.int64) + start, 0, size)
    high = np.clip(np.ceil(edges[1:]).astype(np.int64) + start, 0, size)
    return [(int(a), int(b)) for a, b in zip(low, high, strict=True)]


def _between(start: Array, end: Array, count: int, size: int) -> Array:
    """Return [R, count] positions from start to end [R], which are parts of an axis of `size`."""
    last = np.float32(size - 1)
    if count == 1:
        return np.asarray((np.float32(0.5) * (start + end) * last)[:, None])
    step = (end - start) * last / np.float32(count - 1)
    positions = np.arange(count, dtype=np.float32) * step[:, None] + start[:, None] * last
    positions[:, -1] = last * end
    return np.asarray(positions)


@implements(PSROIPooling)
def psroi_pooling(op: PSROIPooling, x: Array, rois: Array) -> Array:
    """Pool region by region."""
    regions = finite_regions("PSROIPooling", rois, op.spatial_scale)
    size = op.group_size
    y = np.zeros((len(rois), op.output_dim, size, size), np.float32)
    pool = _average_bins if op.mode == "average" else _average_samples
    for i, (image, *box) in enumerate(regions):
        data = x[image_of("PSROIPooling", float(image), len(x))].astype(np.float32)
        y[i] = pool(op, data, np.array(box, np.float32))
    return y.astype(x.dtype)


def _average_bins(op: PSROIPooling, x: Array, box: Array) -> Array:
    """Return [output_dim, group, group]: bin (i, j) averages a channel of its own."""
    size, scale = op.group_size, np.float32(op.spatial_scale)
    start = _round(box[:2]) * scale
    step = ((_round(box[2:]) + 1) * scale - start) / np.float32(size)
    y = np.zeros((op.output_dim, size, size), np.float32)
    grouped = x.reshape(op.output_dim, size, size, *x.shape[1:])
    limits = []
    for axis, length in ((1, x.shape[1]), (0, x.shape[2])):
        edges = start[axis] + np.arange(size + 1, dtype=np.float32) * step[axis]
        low = np.clip(np.floor(edges[:-1]), 0, length - 1).astype(np.int64)
        high = np.clip(np.ceil(edges[1:]), 0, length).astype(np.int64)
        limits.append(list(zip(low, high, strict=True)))
    for i, (top, bottom) in enumerate(limits[0]):
        for j, (left, right) in enumerate(limits[1]):
            if bottom > top and right > left:
                y[:, i, j] = grouped[:, i, j, top:bottom, left:right].mean(axis=(1, 2))
    return y


def _average_samples(op: PSROIPooling, x: Array, box: Array) -> Array:
    """Return [output_dim, group, group]: the mean over sub-bins, each with its own channels."""
    size, (height, width) = op.group_size, x.shape[1:]
    box = box * np.float32(op.spatial_scale)
    step = (box[2:] - box[:2]) / np.array([op.spatial_bins_x, op.spatial_bins_y], np.float32)
    total = np.zeros((op.output_dim, size, size), np.float32)
    grouped = x.reshape(-1, op.output_dim, height, width)
    for index in range(op.spatial_bins_x * op.spatial_bins_y):
        row, column = divmod(index, op.spatial_bins_x)
        start = box[:2] + np.array([column, row], np.float32) * step
        rows = _spread(start[1], step[1], size, height)
        columns = _spread(start[0], step[0], size, width)
        total += _samples_within(grouped[index], rows, columns)
    return total / (op.spatial_bins_x * op.spatial_bins_y)


def _spread(start: float, length: float, count: int, size: int) -> Array:
    """Return [count] positions over `length` from `start`, both parts of an axis of `size`."""
    if count == 1:
        return np.array([(start + start + length) * (size - 1) / 2], np.float32)
    step = np.float32(length) * (size - 1) / (count - 1)
    return np.asarray(np.arange(count, dtype=np.float32) * step + np.float32(start) * (size - 1))


def _samples_within(x: Array, rows: Array, columns: Array) -> Array:
    """Return bilinear samples; zeros from `size` on, and before the image."""
    y = bilinear_grid(x, rows, columns)
    for axis, positions in ((1, rows), (2, columns)):
        outside = (positions >= x.shape[axis]) | (positions <= -1)
        y[(slice(None),) * axis + (outside,)] = 0
    return y


@implements(DeformablePSROIPooling)
def deformable_psroi_pooling(
    op: DeformablePSROIPooling, x: Array, rois: Array, offsets: Array | None = None
) -> Array:
    """Pool region by region; every bin may stand elsewhere."""
    regions = finite_regions("DeformablePSROIPooling", rois, op.spatial_scale)
    size = op.group_size
    y = np.zeros((len(rois), op.output_dim, size, size), np.float32)
    for i, (image, *box) in enumerate(regions):
        if image < 0:
            continue
        data = x[image_of("DeformablePSROIPooling", float(image), len(x))].astype(np.float32)
        moved = None if offsets is None else offsets[i].astype(np.float32)
        y[i] = _deformed_bins(op, data, np.array(box, np.float32), moved)
    return y.astype(x.dtype)


def _deformed_bins(
    op: DeformablePSROIPooling, x: Array, box: Array, offsets: Array | None
) -> Array:
    size, (height, width) = op.group_size, x.shape[1:]
    scale = np.float32(op.spatial_scale)
    start = _round(box[:2]) * scale - np.float32(0.5)
    extent = np.maximum((_round(box[2:]) + 1) * scale - np.float32(0.5) - start, np.float32(0.1))
    step = extent / np.float32(size)
    channel, row, column = np.meshgrid(
        np.arange(op.output_dim), np.arange(size), np.arange(size), indexing="ij"
    )
    left, top = start[0] + column * step[0], start[1] + row * step[1]
    if offsets is not None:
        groups = offsets.shape[0] // 2
        group = channel // max(op.output_dim // groups, 1)
        at = (row * op.part_size // size, column * op.part_size // size)
        left = left + offsets[group * 2, at[0], at[1]] * np.float32(op.trans_std) * extent[0]
        top = top + offsets[group * 2 + 1, at[0], at[1]] * np.float32(op.trans_std) * extent[1]
    source = (channel * size + row) * size + column
    total = np.zeros(source.shape, np.float32)
    count = np.zeros(source.shape, np.int64)
    for i in range(op.spatial_bins_y):
        for j in range(op.spatial_bins_x):
            sample_y = top + i * step[1] / op.spatial_bins_y
            sample_x = left + j * step[0] / op.spatial_bins_x
            inside = (sample_y >= -0.5) & (sample_y <= height - 0.5)
            inside &= (sample_x >= -0.5) & (sample_x <= width - 0.5)
            total += np.where(inside, bilinear_points(x, source, sample_y, sample_x), 0)
            count += inside
    return np.asarray(np.divide(total, count, out=np.zeros_like(total), where=count > 0))


@implements(ROIAlign)
def roi_align(op: ROIAlign, x: Array, rois: Array, batches: Array) -> Array:
    """Align all regions at once."""
    return aligned("ROIAlign", aligning(op), x, rois, batches.reshape(-1)).astype(
        x.dtype, copy=False
    )


def aligning(op: ROIAlign) -> Pooling:
    """Return how ROIAlign pools."""
    bins = Bins.SUMS
    if op.mode is RoiMode.MAX:
        bins = Bins.MAXIMA if op.onnx_maximum else Bins.MAXIMA_OF_SAMPLES
    is_whole = op.aligned_mode is AlignedMode.ASYMMETRIC
    return Pooling(
        bins,
        (op.pooled_h, op.pooled_w),
        op.spatial_scale,
        op.sampling_ratio,
        before=0.5 if op.aligned_mode is AlignedMode.HALF_PIXEL else 0.0,
        behind=0.0 if is_whole else 0.5,
        least=1.0 if is_whole else -math.inf,
    )


@implements(ROIAlignRotated)
def roi_align_rotated(op: ROIAlignRotated, x: Array, rois: Array, batches: Array) -> Array:
    """Sample region by region on a turned grid."""
    regions = finite_regions("ROIAlignRotated", rois, op.spatial_scale)
    y = np.zeros((len(rois), x.shape[1], op.pooled_h, op.pooled_w), np.float32)
    for i, (centre_x, centre_y, width, height, angle) in enumerate(regions):
        data = x[image_of("ROIAlignRotated", float(batches.reshape(-1)[i]), len(x))]
        scale = op.spatial_scale
        y[i] = _turned(
            op,
            data.astype(np.float32),
            (centre_x * scale - 0.5, centre_y * scale - 0.5),
            (width * scale, height * scale),
            -angle if op.clockwise_mode else angle,
        )
    return y.astype(x.dtype)


def _turned(
    op: ROIAlignRotated,
    x: Array,
    centre: tuple[float, float],
    size: tuple[float, float],
    angle: float,
) -> Array:
    """Return [C, h, w]: averages over the bins of a rectangle turned about its centre."""
    height, width = x.shape[1:]
    bin_w, bin_h = size[0] / op.pooled_w, size[1] / op.pooled_h
    across = op.sampling_ratio or math.ceil(bin_w)
    down = op.sampling_ratio or math.ceil(bin_h)
    y = np.zeros((len(x), op.pooled_h, op.pooled_w), np.float32)
    if across <= 0 or down <= 0:
        return y
    if across * down > 4 * (height + 2) * (width + 2) + 4096:
        raise InferenceError(
            f"ROIAlignRotated: a region of {size[0]} × {size[1]} elements is too "
            f"large for a feature map of {height} × {width}"
        )
    local_x = ((np.arange(across) + 0.5) / across * bin_w).astype(np.float32)
    local_y = ((np.arange(down) + 0.5) / down * bin_h).astype(np.float32)
    cos, sin = math.cos(angle), math.sin(angle)
    for i in range(op.pooled_h):
        for j in range(op.pooled_w):
            px = (-size[0] / 2 + j * bin_w + local_x)[None, :]
            py = (-size[1] / 2 + i * bin_h + local_y)[:, None]
            sample_y = py * cos - px * sin + centre[1]
            sample_x = py * sin + px * cos + centre[0]
            inside = (sample_y >= -1) & (sample_y <= height)
            inside &= (sample_x >= -1) & (sample_x <= width)
            if inside.any():
                points = bilinear_points(
                    x, np.arange(len(x))[:, None], sample_y[inside], sample_x[inside]
                )
                y[:, i, j] = points.sum(axis=1) / (across * down)
    return y
