"""Fourier transforms of few points by machine code, one axis after the other, in f64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.node import Port
from polydevice.ops.signal import DFT, IRDFT, RDFT, STFT, FourierTransform
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.algorithms.by_machine.fourier.transform import Line, Side, code_of
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn import openmp
from polydevice_cpu.ops.signal import centred, pairs_of, spectrum_of, stft
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

_FLOATS = np.dtype(np.float32), np.dtype(np.float64)


class _Axis(NamedTuple):
    """A transform along one axis.

    Attributes:
        place: of the axis.
        size: how many points are transformed.
        inverse: whether it is the inverse.
        of_pairs: whether its source ends in an axis of 2.
        to_pairs: whether its result does.
    """

    place: int
    size: int
    inverse: bool
    of_pairs: bool
    to_pairs: bool


@lowers(DFT, RDFT, IRDFT)
def lower_transform(builder: PlanBuilder, node: Node) -> bool:
    """Transform f32 or f64 along known axes; between two of them numbers are f64.

    Inverse transforms to pairs are NumPy's: ONNX's test_dft_inverse_opset19 asks for its rounding,
    1.9e-7 where 0 is right, within 1e-7.
    """
    op, given = node.op, node.inputs
    assert isinstance(op, FourierTransform)
    numbers = [_integers(port) for port in given[1:]]
    source = builder.array_value(given[0])
    if None in numbers or source.dtype not in _FLOATS or 0 in source.shape or not has_avx512():
        return False
    axes = _axes(op, source.shape, *(each for each in numbers if each is not None))
    if any(axis.size < 1 for axis in axes):
        return False
    for number, axis in enumerate(axes):
        is_last = number == len(axes) - 1
        dtype = node.outputs[0].element_type.dtype if is_last else np.dtype(np.float64)
        result = builder.new_dense(_shape(source.shape, axis), dtype)
        start = partial(_start, axis, openmp.thread_count())
        builder.emit(
            ArrayStep(node.name, node.type, start, [source], [result], MACHINE_CODE, writes=True)
        )
        source = result
    builder.set(node.outputs[0], source)
    return True


def _integers(port: Port) -> list[int] | None:
    constant = port.desc.constant
    return None if constant is None else [int(each) for each in constant.reshape(-1)]


def _axes(
    op: FourierTransform, shape: Sequence[int], axes: list[int], asked: list[int] | None = None
) -> list[_Axis]:
    """Return what is done along each axis, in order: real numbers come first, or last."""
    places = op.axes_of(axes, len(shape))
    sizes = [shape[place] for place in places]
    if isinstance(op, IRDFT):
        sizes[-1] = 2 * (sizes[-1] - 1)
    if asked is not None:
        sizes = [size if n == -1 else n for size, n in zip(sizes, asked, strict=True)]
    inverse = isinstance(op, IRDFT)
    found = [_Axis(*each, inverse, True, True) for each in zip(places, sizes, strict=True)]
    if isinstance(op, RDFT):
        return [found[-1]._replace(of_pairs=False), *found[:-1]]
    return [*found[:-1], found[-1]._replace(to_pairs=op.complex_output)]


def _shape(shape: tuple[int, ...], axis: _Axis) -> tuple[int, ...]:
    """Return the result's shape of a source's."""
    sizes = [*shape] if axis.of_pairs else [*shape, 2]
    sizes[axis.place] = axis.size if axis.of_pairs else axis.size // 2 + 1
    return tuple(sizes if axis.to_pairs else sizes[:-1])


def _start(axis: _Axis, threads: int, _: Context) -> Compute:
    place = axis.place

    def compute(x: Array, y: Array) -> tuple[()]:
        if not axis.of_pairs:
            y[...] = pairs_of(np.fft.rfft(x, axis.size, place), y.dtype)
        elif axis.to_pairs:
            transform = np.fft.ifft if axis.inverse else np.fft.fft
            y[...] = pairs_of(transform(spectrum_of(x), axis.size, place), y.dtype)
        else:
            y[...] = np.fft.irfft(spectrum_of(x), axis.size, place)
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        source, result = values
        before = math.prod(source.shape[:place])
        behind = math.prod(source.shape[place + 1 : len(source.shape) - axis.of_pairs])
        points, results = source.shape[place], result.shape[place]
        size, weights = axis.size, b""
        if not axis.to_pairs:  # the other half are conjugates
            points = min(points, size // 2 + 1)
            factors = np.full(points, 2.0)
            factors[:: size - size // 2] = 1
            weights = factors.tobytes()
        points = min(points, size)
        line = Line(size, points, results, axis.inverse, axis.of_pairs, axis.to_pairs, weights)
        read = _side(source.dtype, behind, source.shape[place], pairs=axis.of_pairs)
        written = _side(result.dtype, behind, results, pairs=axis.to_pairs)
        return code_of(line, before, behind, read, written, threads)

    return ByMachine(compute, prepare, may_refuse=False)


def _side(dtype: np.dtype[np.generic], behind: int, size: int, *, pairs: bool) -> Side:
    """How numbers lie, row-major."""
    each = dtype.itemsize * (1 + pairs)
    return Side(each * behind, each * behind * size, each, dtype.itemsize == 8)


@lowers(STFT)
def lower_stft(builder: PlanBuilder, node: Node) -> bool:
    """Transform frames where they lie in the signal; the window is one with the factors."""
    op, (signal, window, *numbers) = node.operation(STFT), node.inputs
    length, step = (_integers(port) for port in numbers)
    weights, source = window.desc.constant, builder.array_value(signal)
    shape = node.outputs[0].shape
    if length is None or step is None or weights is None or shape is None:
        return False
    if source.dtype not in _FLOATS or not has_avx512() or 0 in source.shape:
        return False
    if not shape.is_static or 0 in shape.static:
        return False
    if not weights.size <= length[0] or min(length[0], step[0], source.shape[-1]) < 1:
        return False
    result = builder.new_dense(shape.static, source.dtype)
    start = partial(_start_frames, op, weights, length[0], step[0], openmp.thread_count())
    builder.emit(
        ArrayStep(node.name, node.type, start, [source], [result], MACHINE_CODE, writes=True)
    )
    builder.set(node.outputs[0], result)
    return True


def _start_frames(
    op: STFT, window: Array, length: int, step: int, threads: int, _: Context
) -> Compute:
    numbers = np.array(length), np.array(step)
    weights = centred(window, length).astype(np.float64).tobytes()

    def compute(x: Array, y: Array) -> tuple[()]:
        y[...] = stft(op, x, window, *numbers)
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        source, result = values
        points, each = source.shape[-1], source.dtype.itemsize
        frames, half = result.shape[-3:-1][:: -1 if op.transpose_frames else 1]
        if points < length + (frames - 1) * step or half != length // 2 + 1:
            return None
        across = 2 * each * frames if op.transpose_frames else 2 * each
        down = 2 * each if op.transpose_frames else 2 * each * half
        wide = each == 8
        line = Line(length, length, half, False, False, True, weights)
        sides = (
            Side(each, each * points, each * step, wide),
            Side(across, 2 * each * frames * half, down, wide),
        )
        return code_of(line, math.prod(source.shape[:-1]), frames, *sides, threads)

    return ByMachine(compute, prepare, may_refuse=False)
