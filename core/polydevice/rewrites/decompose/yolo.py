"""What the layers of YOLO are made of: parts with functions of their own, and a rearrangement."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.activation import Sigmoid
from polydevice.ops.concat import Concat
from polydevice.ops.softmax import SoftMax
from polydevice.ops.split import VariadicSplit
from polydevice.ops.yolo import RegionYolo, ReorgYolo
from polydevice.rewrites.facts import result_shapes, shape_of
from polydevice.rewrites.rule import decomposes


@decomposes(RegionYolo, where=lambda op, _: op.coords >= 2)  # else x and y are no part of them
def _region_yolo(build: Emitter, op: RegionYolo, inputs: Sequence[Port]) -> list[Port]:
    (x,) = inputs
    batch, _, height, width = shape_of(x)
    regions = build.reshape(x, (batch, op.regions, op.coords + 1 + op.classes, height * width))
    # Position, size, objectness and classes; the second part may be empty.
    sizes = [2, op.coords - 2, 1, op.classes]
    kept = [size for size in sizes if size > 0]
    parts = build.emit_all(VariadicSplit(), regions, 2, kept)
    functions = [Sigmoid(), None, Sigmoid(), SoftMax(axis=2) if op.do_softmax else Sigmoid()]
    used = [f for f, size in zip(functions, sizes, strict=True) if size > 0]
    done = [p if f is None else build.emit(f, p) for p, f in zip(parts, used, strict=True)]
    y = build.emit(Concat(axis=2), *done)
    (shape,) = result_shapes(op, inputs)
    return [build.reshape(y, shape)]


@decomposes(ReorgYolo)
def _reorg_yolo(build: Emitter, op: ReorgYolo, inputs: Sequence[Port]) -> list[Port]:
    # Darknet reads the input as if it were [N, C / s², H × s, W × s] and gathers blocks of s × s.
    (x,) = inputs
    n, c, h, w = shape_of(x)
    s = op.stride
    split = build.reshape(x, (n, c // s**2, h, s, w, s))
    moved = build.transpose(split, [0, 3, 5, 1, 2, 4])
    return [build.reshape(moved, (n, c * s**2, h // s, w // s))]
