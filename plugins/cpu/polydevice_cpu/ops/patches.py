"""ExtractImagePatches and Col2Im: a loop over the kernel's elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.patches import Col2Im, ExtractImagePatches
from polydevice.shape import bounds
from polydevice_cpu.implement import implements


@implements(ExtractImagePatches)
def extract_image_patches(op: ExtractImagePatches, x: Array) -> Array:
    """Copy one strided view per element of the window."""
    batch, depth, height, width = x.shape
    window = op.window
    begin, end = window.pads((height, width))
    padded = np.pad(x, [(0, 0), (0, 0), *zip(begin, end, strict=True)])
    places = [
        max((n - bounds(e)[0]) // s + 1, 0)
        for n, e, s in zip(padded.shape[2:], window.extent, window.strides, strict=True)
    ]
    y = np.empty((batch, math.prod(op.sizes), depth, *places), x.dtype)
    for i, offset in enumerate(np.ndindex(*op.sizes)):
        rows, columns = (
            slice(o * r, o * r + s * n, s)
            for o, r, s, n in zip(offset, window.dilations, window.strides, places, strict=True)
        )
        y[:, i] = padded[:, :, rows, columns][:, :, : places[0], : places[1]]
    return y.reshape(batch, math.prod(op.sizes) * depth, *places)


@implements(Col2Im)
def col2im(op: Col2Im, x: Array, output_size: Array, kernel_size: Array) -> Array:
    """Add one strided view per element of the kernel."""
    sizes = [int(n) for n in output_size.reshape(-1)]
    kernel = [int(n) for n in kernel_size.reshape(-1)]
    window, places = op.window(kernel), op.places(sizes, kernel)
    outer = x.shape[:-2]
    columns, positions = x.shape[-2:]
    if columns % math.prod(kernel) or positions != math.prod(places):
        raise InferenceError(
            f"Col2Im: columns {x.shape} do not fit an image of {sizes} and a "
            f"kernel of {kernel} with {math.prod(places)} positions"
        )
    depth = columns // math.prod(kernel)
    data = x.reshape(*outer, depth, math.prod(kernel), *places)
    room = [n + b + e for n, b, e in zip(sizes, window.pads_begin, window.pads_end, strict=True)]
    y = np.zeros((*outer, depth, *room), x.dtype)
    for i, offset in enumerate(np.ndindex(*kernel)):
        view: tuple[Any, ...] = (
            ...,
            *(
                slice(o * d, o * d + s * (n - 1) + 1, s)
                for o, d, s, n in zip(offset, window.dilations, window.strides, places, strict=True)
            ),
        )
        y[view] += np.take(data, i, len(outer) + 1)
    crop: tuple[Any, ...] = tuple(
        slice(b, b + n) for b, n in zip(window.pads_begin, sizes, strict=True)
    )
    crop = (..., *crop)
    return np.asarray(y[crop])
