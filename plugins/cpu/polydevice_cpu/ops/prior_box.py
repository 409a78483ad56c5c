"""PriorBox and PriorBoxClustered."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.prior_box import PriorBox, PriorBoxClustered
from polydevice_cpu.implement import implements

Prior = tuple[float, float, float, float, bool]
"""Shift of the centre in x and y, half width, half height, whether it is cut at the image."""


@implements(PriorBox)
def prior_box(op: PriorBox, layer_shape: Array, image_shape: Array) -> Array:
    """Compute the priors of one cell and put them at every cell's centre."""
    height, width = _cells(layer_shape)
    image_height, image_width = (int(n) for n in image_shape.reshape(-1))
    step, sizes = op.step, list(op.min_size)
    if not op.scale_all_sizes:  # steps and sizes are parts of the image's height
        step = image_height / height if step == -1 else step * image_height
        sizes = [size * image_height for size in sizes]
    real = np.float32
    if step == 0:
        x = (np.arange(width, dtype=real) + real(0.5)) * real(image_width / max(width, 1))
        y = (np.arange(height, dtype=real) + real(0.5)) * real(image_height / max(height, 1))
    else:
        x = (np.arange(width, dtype=real) + real(op.offset)) * real(step)
        y = (np.arange(height, dtype=real) + real(op.offset)) * real(step)
    priors = [*_fixed(op), *_scaled(op, sizes)]
    shift_x, shift_y, half_w, half_h, cut = (
        np.array([prior[i] for prior in priors], real) for i in range(5)
    )
    boxes = np.empty((height, width, len(priors), 4), real)
    boxes[..., 0] = (x[:, None] + shift_x - half_w) / real(image_width)
    boxes[..., 1] = (y[:, None, None] + shift_y - half_h) / real(image_height)
    boxes[..., 2] = (x[:, None] + shift_x + half_w) / real(image_width)
    boxes[..., 3] = (y[:, None, None] + shift_y + half_h) / real(image_height)
    inside = cut.astype(bool)
    boxes[:, :, inside, :2] = np.maximum(boxes[:, :, inside, :2], 0)
    boxes[:, :, inside, 2:] = np.minimum(boxes[:, :, inside, 2:], 1)
    return _with_variance(np.clip(boxes, 0, 1) if op.clip else boxes, op.variance)


def _cells(layer_shape: Array) -> tuple[int, int]:
    height, width = (int(n) for n in layer_shape.reshape(-1))
    if height < 0 or width < 0:
        raise InferenceError(f"a layer shape of {height} × {width} is not possible")
    return height, width


def _fixed(op: PriorBox) -> Iterator[Prior]:
    """Yield the priors of fixed_size, on a denser grid by density."""
    for size, density in zip(op.fixed_size, op.density, strict=True):
        count = int(density)
        shift, whole = int(size / count), int(size)
        # With fixed_ratio its ratios alone; else the square one first, of the truncated size.
        shapes = [(size / 2 * ratio**0.5, size / 2 / ratio**0.5) for ratio in op.fixed_ratio]
        if not shapes:
            shapes = [(whole / 2, whole / 2)] + [
                (size / 2 * ratio**0.5, size / 2 / ratio**0.5) for ratio in op.ratios[1:]
            ]
        for half_w, half_h in shapes:
            for row in range(count):
                for column in range(count):
                    start = shift / 2 - whole // 2
                    yield start + column * shift, start + row * shift, half_w, half_h, True


def _scaled(op: PriorBox, sizes: list[float]) -> Iterator[Prior]:
    """Yield the priors of min_size, max_size and aspect_ratio."""
    for i, size in enumerate(sizes):
        yield 0, 0, size / 2, size / 2, False
        largest: list[Prior] = []
        if i < len(op.max_size):
            half = (size * op.max_size[i]) ** 0.5 / 2
            largest.append((0, 0, half, half, False))
        shaped: list[Prior] = []
        if op.scale_all_sizes or i == len(sizes) - 1:
            of = size if op.scale_all_sizes else sizes[0]
            roots = [ratio**0.5 for ratio in op.ratios[1:]]
            shaped = [(0, 0, of / 2 * root, of / 2 / root, False) for root in roots]
        yield from largest + shaped if op.min_max_aspect_ratios_order else shaped + largest


def _with_variance(boxes: Array, variance: tuple[float, ...]) -> Array:
    """Return [2, n]: the boxes, and for each number of them its variance."""
    values = np.resize(np.array(variance or (0.1,), np.float32), boxes.size)
    return np.stack([boxes.reshape(-1), values])


@implements(PriorBoxClustered)
def prior_box_clustered(op: PriorBoxClustered, layer_shape: Array, image_shape: Array) -> Array:
    """Put boxes of the given sizes at every cell's centre."""
    height, width = _cells(layer_shape)
    image_height, image_width = (int(n) for n in image_shape.reshape(-1))
    step_w, step_h = op.step_w or op.step, op.step_h or op.step
    if step_w == 0 and step_h == 0:
        step_w, step_h = image_width / max(width, 1), image_height / max(height, 1)
    real = np.float32
    x = ((np.arange(width, dtype=real) + real(op.offset)) * real(step_w))[:, None]
    y = ((np.arange(height, dtype=real) + real(op.offset)) * real(step_h))[:, None, None]
    half_w, half_h = np.array(op.width, real) / 2, np.array(op.height, real) / 2
    boxes = np.empty((height, width, len(op.width), 4), real)
    boxes[..., 0] = (x - half_w) / real(image_width)
    boxes[..., 1] = (y - half_h) / real(image_height)
    boxes[..., 2] = (x + half_w) / real(image_width)
    boxes[..., 3] = (y + half_h) / real(image_height)
    return _with_variance(np.clip(boxes, 0, 1) if op.clip else boxes, op.variance)
