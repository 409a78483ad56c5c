"""Running sums, Fourier transforms, random numbers."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import ElementType
from polydevice.network import Port
from polydevice.ops.arithmetic import Add, FloorMod, Multiply
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.cumulative import CumProd
from polydevice.ops.math import Cos, Log, Sqrt
from polydevice.ops.random import RandomUniform
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.signal import DFT, IDFT, IRDFT, RDFT, STFT, CumSum
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.element_types import element_type_of
from polydevice.readers.onnx.node import OnnxNode


@translates("CumSum", "CumProd")
def cumulative(n: OnnxNode) -> Port:
    """Running sum or product along an axis."""
    kind = CumSum if n.op_type == "CumSum" else CumProd
    op = kind(bool(n.attribute("exclusive", 0)), bool(n.attribute("reverse", 0)))
    return n.emit(op, n.input(0), n.input(1))


@translates("DFT", since=17)
def dft(n: OnnxNode) -> Port:
    """Fourier transform along one axis; the last axis holds 1 (real) or 2 (complex) numbers."""
    x = n.input(0)
    rank = n.rank(x)
    axis_input = n.optional(2) if n.version >= 20 else None
    if axis_input is None:
        default = -2 if n.version >= 20 else 1
        axis: Port | list[int] = [n.attribute("axis", default) % rank]
    else:
        flat = n.emit(Reshape(special_zero=False), axis_input, [1])
        axis = n.emit(FloorMod(), flat, n.like([rank], flat))
    inverse, onesided = bool(n.attribute("inverse", 0)), bool(n.attribute("onesided", 0))
    length = n.optional(1)
    size = [] if length is None else [n.emit(Reshape(special_zero=False), length, [1])]
    numbers = None if x.shape is None else x.shape[-1]
    if numbers not in (1, 2):
        raise n.unsupported("the last axis of the input must be known to be 1 or 2")
    if numbers == 1 and onesided and not inverse:
        return n.emit(RDFT(), n.emit(Squeeze(), x, [-1]), axis, *size)
    if numbers == 1:
        imaginary = n.emit(Multiply(), x, n.like(0, x))
        x = n.emit(Concat(rank - 1), x, imaginary)
    if inverse and onesided:
        return n.emit(Unsqueeze(), n.emit(IRDFT(), x, axis, *size), [-1])
    if onesided:
        raise n.unsupported("onesided is for real input")
    return n.emit(IDFT() if inverse else DFT(), x, axis, *size)


@translates("STFT", since=17)
def stft(n: OnnxNode) -> Port:
    """Fourier transforms of overlapping frames of a real signal."""
    x, step, window, length = n.input(0), n.input(1), n.optional(2), n.optional(3)
    if x.shape is None or x.shape[-1] != 1 or not n.attribute("onesided", 1):
        raise n.unsupported("only real signals with onesided=1 are supported")
    if length is None:
        if window is None:
            raise n.unsupported("neither a window nor a frame length is given")
        length = n.emit(Squeeze(), n.emit(ShapeOf(), window), [0])
    if window is None:
        shape = n.emit(Reshape(special_zero=False), length, [1])
        window = n.emit(Broadcast(), n.like(1, x), shape)
    signal = n.emit(Squeeze(), x, [-1])
    return n.emit(STFT(transpose_frames=False), signal, window, length, step)


def _kind(n: OnnxNode, default: ElementType) -> ElementType:
    code = n.attribute("dtype")
    return default if code is None else element_type_of(code)


def _shape(n: OnnxNode) -> tuple[Port, ElementType]:
    """Return the shape to fill, and its type, from the attribute or another value."""
    if n.op_type.endswith("Like"):
        model = n.input(0)
        return n.emit(ShapeOf(), model), _kind(n, model.element_type)
    return n.value(list(n.required("shape"))), _kind(n, ElementType.f32)


def _uniform(
    n: OnnxNode, shape: Port, kind: ElementType, low: float, high: float, seed: int
) -> Port:
    wide = kind if kind is not ElementType.f64 else ElementType.f32
    limits = (n.value(np.asarray(limit), wide) for limit in (low, high))
    made = n.emit(RandomUniform(wide, global_seed=0, op_seed=seed), shape, *limits)
    return made if wide is kind else n.emit(Convert(kind), made)


@translates("RandomUniform", "RandomUniformLike")
def random_uniform(n: OnnxNode) -> Port:
    """Numbers between low and high."""
    shape, kind = _shape(n)
    low, high = n.attribute("low", 0.0), n.attribute("high", 1.0)
    return _uniform(n, shape, kind, low, high, int(n.attribute("seed", 0.0)))


@translates("RandomNormal", "RandomNormalLike")
def random_normal(n: OnnxNode) -> Port:
    """Normally distributed numbers, from two uniform ones each (Box and Muller)."""
    shape, kind = _shape(n)
    seed = int(n.attribute("seed", 0.0))
    tiny = 1e-7  # keeps the logarithm finite
    radius_seed, angle_seed = (2 * seed + 1, 2 * seed + 2) if seed else (0, 0)
    first = _uniform(n, shape, kind, tiny, 1.0, radius_seed)
    second = _uniform(n, shape, kind, 0.0, 2 * math.pi, angle_seed)
    radius = n.emit(Sqrt(), n.emit(Multiply(), n.emit(Log(), first), n.like(-2, first)))
    normal = n.emit(Multiply(), radius, n.emit(Cos(), second))
    scaled = n.emit(Multiply(), normal, n.like(n.attribute("scale", 1.0), normal))
    return n.emit(Add(), scaled, n.like(n.attribute("mean", 0.0), normal))
