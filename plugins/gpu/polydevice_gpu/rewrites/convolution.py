"""Convolutions that cut an image of few channels into patches become products of whole patches.

Vision transformers begin so: 16x16 pixels at strides of 16. Terms of few channels cannot be read in
pieces, while a patch, laid out once, is a row like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice.rewrites.facts import is_known, shape_of

FEW_CHANNELS = 8
"""From here on kernels read the channels of a pixel in pieces."""

LEAST_TERMS = 48
"""Smaller patches take longer to lay out than to multiply: 4x4 pixels of three colours."""


def cuts_patches(op: Convolution, inputs: Sequence[Port]) -> bool:
    """Whether windows lie side by side and cover all of an image of few channels."""
    x, w = inputs[:2]
    if op.grouped or not is_known(w) or not x.element_type.is_float:
        return False
    channels, *sizes = shape_of(x)[1:]
    window = op.window(shape_of(w))
    begin, end = window.pads(tuple(sizes))
    kernel = shape_of(w)[2:]
    return (
        channels < FEW_CHANNELS
        and channels * math.prod(kernel) >= LEAST_TERMS
        and tuple(window.strides) == kernel
        and all(step == 1 for step in window.dilations)
        and not any((*begin, *end))
        and all(size % part == 0 for size, part in zip(sizes, kernel, strict=True))
    )


def of_patches(build: Emitter, op: Convolution, inputs: Sequence[Port]) -> list[Port]:
    """Lay out patches as rows, multiply, and put channels first again, which is a view."""
    del op
    x, w = inputs
    count, channels, *sizes = shape_of(x)
    outputs, kernel = shape_of(w)[0], shape_of(w)[2:]
    across = [size // part for size, part in zip(sizes, kernel, strict=True)]
    split = [n for pair in zip(across, kernel, strict=True) for n in pair]
    axes = range(len(kernel))
    order = (0, *(2 + 2 * axis for axis in axes), 1, *(3 + 2 * axis for axis in axes))
    terms = channels * math.prod(kernel)
    cut = build.transpose(build.reshape(x, (count, channels, *split)), order)
    rows = build.reshape(cut, (count, *across, terms))
    y = build.emit(MatMul(transpose_b=True), rows, build.reshape(w, (outputs, terms)))
    return [build.transpose(y, (0, len(kernel) + 1, *range(1, len(kernel) + 1)))]
