"""Running sums, Fourier transforms, random numbers."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import Port
from polydevice.ops.arithmetic import (
    Add,
    Divide,
    FloorMod,
    Maximum,
    Minimum,
    Multiply,
    Subtract,
)
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.comparison import Equal
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.cumulative import CumProd
from polydevice.ops.gather import Gather
from polydevice.ops.generate import Range
from polydevice.ops.math import Cos, Exp, Floor, Log, Sqrt
from polydevice.ops.op import Op
from polydevice.ops.random import Multinomial, RandomUniform
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.signal import DFT, IDFT, IRDFT, RDFT, STFT, CumSum
from polydevice.ops.slice import Slice
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.reshape import reshaped_like, vector_of_scalar
from polydevice.readers.onnx.operators.topk import axis_size
from polydevice.readers.onnx.protos.element_types import element_type_of
from polydevice.shape import bounds


@translates("CumSum", "CumProd")
def cumulative(n: OnnxNode) -> Port:
    """Running sum or product along an axis."""
    kind = CumSum if n.op_type == "CumSum" else CumProd
    op = kind(bool(n.attribute("exclusive", 0)), bool(n.attribute("reverse", 0)))
    x = n.input(0)
    if x.desc.rank == 0:
        return reshaped_like(n, n.emit(op, vector_of_scalar(n, x), 0), x)
    return n.emit(op, x, n.input(1))


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
    if onesided and not inverse:
        if not _may_be(x, 2):
            return n.emit(RDFT(), n.emit(Squeeze(), x, [-1]), axis, *size)
        whole = n.emit(DFT(), _as_complex(n, x), axis, *size)
        return _first_half(n, whole, axis if isinstance(axis, Port) else n.value(axis))
    x = _as_complex(n, x)
    if inverse and onesided:
        return n.emit(Unsqueeze(), n.emit(IRDFT(), x, axis, *size), [-1])
    return n.emit(IDFT() if inverse else DFT(), x, axis, *size)


@translates("STFT", since=17)
def stft(n: OnnxNode) -> Port:
    """Fourier transforms of overlapping frames of a signal [B, T], [B, T, 1] or complex [B, T, 2].

    The result is [B, frames, frequencies, 2]; the second half is left out if onesided.
    """
    x, step, window, length = n.input(0), n.input(1), n.optional(2), n.optional(3)
    if length is None:
        if window is None:
            raise n.unsupported("neither a window nor a frame length is given")
        length = n.emit(Squeeze(), n.emit(ShapeOf(), window), [0])
    if window is None:
        shape = n.emit(Reshape(special_zero=False), length, [1])
        window = n.emit(Broadcast(), n.like(1, x), shape)
    if n.rank(x) == 2:  # ONNX Runtime takes it too
        x = n.emit(Unsqueeze(), x, [2])
    onesided = bool(n.attribute("onesided", 1))
    if onesided and not _may_be(x, 2):
        signal = n.emit(Squeeze(), x, [2])
        return n.emit(STFT(transpose_frames=False), signal, window, length, step)
    frames = n.emit(Multiply(), _frames(n, x, step, length), n.emit(Unsqueeze(), window, [1]))
    whole = n.emit(DFT(), _as_complex(n, frames), [2])
    return _first_half(n, whole, n.value([2])) if onesided else whole


def _first_half(n: OnnxNode, spectrum: Port, axis: Port) -> Port:
    """Keep frequencies up to half of the sampling rate, as ONNX's reference does of complex too."""
    sizes = n.emit(ShapeOf(), spectrum)
    size = n.emit(Gather(), sizes, n.emit(Convert(ElementType.i64), axis), 0)
    end = n.emit(Add(), n.emit(Divide(), size, n.like([2], size)), n.like([1], size))
    return n.emit(Slice(), spectrum, n.like([0], size), end, n.like([1], size), axis)


def _may_be(x: Port, size: int) -> bool:
    """Whether the last axis may have that size, as far as it is known."""
    if x.shape is None:
        return True
    low, high = bounds(x.shape[-1])
    return low <= size and (high is None or size <= high)


def _as_complex(n: OnnxNode, x: Port) -> Port:
    """Return numbers [..., 1] (real) or [..., 2] as complex ones [..., 2]."""
    if not (_may_be(x, 1) or _may_be(x, 2)):
        raise n.unsupported("the last axis of the input must be 1 (real) or 2 (complex)")
    if not _may_be(x, 1):
        return x
    last = n.rank(x) - 1
    both = n.emit(Concat(last), x, n.emit(Multiply(), x, n.like(0, x)))
    return n.emit(Slice(), both, [0], [2], [1], [last]) if _may_be(x, 2) else both


def _frames(n: OnnxNode, x: Port, step: Port, length: Port) -> Port:
    """Cut [B, T, C] into frames [B, frames, length, C] that begin every `step`; whole ones only."""
    step, length = (n.emit(Convert(ElementType.i64), port) for port in (step, length))
    end = n.emit(Add(), n.emit(Subtract(), axis_size(n, x, 1), length), 1)
    starts = n.emit(Unsqueeze(), n.emit(Range(ElementType.i64), 0, end, step), [1])
    places = n.emit(Add(), starts, n.emit(Range(ElementType.i64), 0, length, 1))
    return n.emit(Gather(), x, places, 1)


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


@translates("Multinomial")
def multinomial(n: OnnxNode) -> Port:
    """Classes drawn by unnormalised log-probabilities."""
    op = Multinomial(
        convert_type=_kind(n, ElementType.i32),
        with_replacement=True,
        log_probs=True,
        op_seed=int(n.attribute("seed", 0.0)),
    )
    return n.emit(op, n.input(0), n.attribute("sample_size", 1))


@translates("MelWeightMatrix")
def mel_weight_matrix(n: OnnxNode) -> Port:
    """Triangles over frequency bins [dft_length // 2 + 1, num_mel_bins], equal on the mel scale."""
    bins, length, rate = (n.emit(Convert(ElementType.i64), n.input(i)) for i in range(3))
    low, high = (n.emit(Convert(ElementType.f64), n.input(i)) for i in (3, 4))
    kind = _kind(n, ElementType.f32)
    f = _DoubleArithmetic(n)
    count = n.emit(Add(), bins, 2)
    first, last = (f.mel(edge) for edge in (low, high))
    step = f.div(f.sub(last, first), f.convert(count))
    edges = f.add(f.mul(f.convert(n.emit(Range(ElementType.i64), 0, count, 1)), step), first)
    hertz = f.mul(f.sub(n.emit(Exp(), f.mul(edges, math.log(10) / 2595)), 1.0), 700.0)
    scaled = f.div(f.mul(hertz, f.convert(n.emit(Add(), length, 1))), f.convert(rate))
    edges = n.emit(Floor(), scaled)
    parts = [
        n.emit(Slice(), edges, [start], [2**31 - 1 if stop is None else stop], [1], [0])
        for start, stop in ((0, -2), (1, -1), (2, None))
    ]
    lower, centre, upper = parts
    height = n.emit(Add(), n.emit(Divide(), length, 2), 1)
    rows = n.emit(Unsqueeze(), f.convert(n.emit(Range(ElementType.i64), 0, height, 1)), [1])
    # max(…, 1) keeps an empty slope from dividing by zero; its only element is the centre.
    rising = f.div(f.sub(rows, lower), f.maximum(f.sub(centre, lower), 1.0))
    falling = f.div(f.sub(upper, rows), f.maximum(f.sub(upper, centre), 1.0))
    inside = f.maximum(n.emit(Minimum(), rising, falling), 0.0)
    at_centre = n.emit(Equal(), rows, centre)
    return n.emit(Convert(kind), n.emit(Select(), at_centre, f.constant(1.0), inside))


class _DoubleArithmetic:
    """Short names for emitting arithmetic in f64."""

    def __init__(self, n: OnnxNode) -> None:
        self._n = n

    def constant(self, value: float) -> Port:
        return self._n.value(np.asarray(value), ElementType.f64)

    def convert(self, x: Port) -> Port:
        return self._n.emit(Convert(ElementType.f64), x)

    def _emit(self, op: Op, a: Port, b: Port | float) -> Port:
        return self._n.emit(op, a, b if isinstance(b, Port) else self.constant(b))

    def add(self, a: Port, b: Port | float) -> Port:
        return self._emit(Add(), a, b)

    def sub(self, a: Port, b: Port | float) -> Port:
        return self._emit(Subtract(), a, b)

    def mul(self, a: Port, b: Port | float) -> Port:
        return self._emit(Multiply(), a, b)

    def div(self, a: Port, b: Port | float) -> Port:
        return self._emit(Divide(), a, b)

    def maximum(self, a: Port, b: Port | float) -> Port:
        return self._emit(Maximum(), a, b)

    def mel(self, hertz: Port) -> Port:
        """2595 * log10(1 + hertz / 700)."""
        logarithm = self._n.emit(Log(), self.add(self.div(hertz, 700.0), 1.0))
        return self.mul(logarithm, 2595 / math.log(10))
