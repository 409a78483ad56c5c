"""What ExtractImagePatches and RegionYolo are made of: strided parts, put together again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.ops.activation import Sigmoid
from polydevice.ops.concat import Concat
from polydevice.ops.pad import Pad
from polydevice.ops.patches import ExtractImagePatches
from polydevice.ops.slice import Slice
from polydevice.ops.softmax import SoftMax
from polydevice.ops.split import VariadicSplit
from polydevice.ops.yolo import RegionYolo
from polydevice_gpu.graph import Value
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder


@decomposes(ExtractImagePatches, when=lambda _, inputs: inputs[0].elements > 0)
def _patches(build: Builder, op: ExtractImagePatches, inputs: Sequence[Value]) -> list[Value]:
    (x,) = inputs
    window = op.window
    begin, end = window.pads(x.shape[2:])
    if any(begin) or any(end):
        pads = (build.constant(np.array([0, 0, *pad], np.int64)) for pad in (begin, end))
        zero = build.constant(np.zeros((), x.element_type.dtype), x.element_type)
        x = build.one(Pad(), x, *pads, zero)
    (described,) = build.layer.outputs
    assert described.shape is not None
    shape = described.shape.static
    axes = build.constant(np.array([2, 3], np.int64))
    steps = build.constant(np.array(window.strides, np.int64))
    parts = []
    for tap in itertools.product(*(range(size) for size in op.sizes)):
        first = [t * d for t, d in zip(tap, window.dilations, strict=True)]
        last = [
            f + (n - 1) * s + 1 for f, n, s in zip(first, shape[2:], window.strides, strict=True)
        ]
        limits = (build.constant(np.array(v, np.int64)) for v in (first, last))
        parts.append(build.one(Slice(), x, *limits, steps, axes))
    return [parts[0] if len(parts) == 1 else build.one(Concat(axis=1), *parts)]


@decomposes(RegionYolo)
def _region_yolo(build: Builder, op: RegionYolo, inputs: Sequence[Value]) -> list[Value]:
    (x,) = inputs
    batch, _, height, width = x.shape
    regions = reshape(build, x, (batch, op.regions, op.coords + 1 + op.classes, height * width))
    # Position, size, objectness and classes; the second part may be empty.
    sizes = [2, op.coords - 2, 1, op.classes]
    kept = [size for size in sizes if size > 0]
    axis, lengths = (build.constant(np.asarray(v, np.int64)) for v in (2, kept))
    parts = build.add(VariadicSplit(), regions, axis, lengths)
    functions = [Sigmoid(), None, Sigmoid(), SoftMax(axis=2) if op.do_softmax else Sigmoid()]
    used = [f for f, size in zip(functions, sizes, strict=True) if size > 0]
    done = [p if f is None else build.one(f, p) for p, f in zip(parts, used, strict=True)]
    y = build.one(Concat(axis=2), *done)
    (described,) = build.layer.outputs
    assert described.shape is not None
    assert math.prod(described.shape.static) == y.elements
    return [reshape(build, y, described.shape.static)]
