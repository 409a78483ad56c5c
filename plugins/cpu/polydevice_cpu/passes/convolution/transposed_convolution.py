"""What transposed convolutions of few results are made of: a convolution with more channels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.blocks import DepthMode, DepthToSpace
from polydevice.ops.convolution import Convolution, ConvolutionBackpropData
from polydevice.ops.op import Op
from polydevice.ops.window import PadType
from polydevice.rewrites.facts import array_of, is_known, shape_of
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.rewrites.rule import Rule

FEW = 8
"""Results up to here leave half of a register of 16 numbers empty, where oneDNN computes each."""


def _has_few_results(op: Op, inputs: Sequence[Port]) -> bool:
    return inputs[0].element_type is ElementType.f32 and _is_made_of_phases(op, inputs)


def _has_few_integer_results(op: IntegerProduct, inputs: Sequence[Port]) -> bool:
    x, w, scale, _, _, *rest = inputs
    return is_known(scale) and _is_made_of_phases(op.product, (x, w, *rest))


def _is_made_of_phases(op: Op, inputs: Sequence[Port]) -> bool:
    """Whether steps are longer than 1, known, and the results as many as positions times steps."""
    if not isinstance(op, ConvolutionBackpropData) or op.grouped or len(inputs) != 2:
        return False
    if not is_known(inputs[1]):
        return False
    weights = shape_of(inputs[1])
    window = op.window(weights)
    if weights[1] > FEW or math.prod(window.strides) == 1 or max(window.dilations) > 1:
        return False
    if op.auto_pad is not PadType.EXPLICIT or window.kernel == window.strides:
        return False
    if not inputs[0].desc.is_static and len(set(window.strides)) > 1:
        return False
    more = op.added(window.rank)
    return all(
        isinstance(kernel, int) and (kernel - begin - end + added) % step == 0 and min(pads) >= 0
        for kernel, begin, end, added, step, pads in zip(
            window.kernel, window.pads_begin, window.pads_end, more, window.strides,
            _pads(op, weights), strict=True,
        )
    )  # fmt: skip


def _taps(kernel: int, begin: int, step: int) -> tuple[int, int]:
    """The first and last source position, backwards, that meets a result of any phase."""
    return -((step - 1 + begin) // step), (kernel - 1 - begin) // step


def _pads(op: ConvolutionBackpropData, weights: tuple[int, ...]) -> list[tuple[int, int]]:
    window = op.window(weights)
    pads = []
    for kernel, begin, end, added, step in zip(
        window.kernel, window.pads_begin, window.pads_end, op.added(window.rank), window.strides,
        strict=True,
    ):  # fmt: skip
        assert isinstance(kernel, int)
        first, last = _taps(kernel, begin, step)
        pads.append((last, (kernel - begin - end + added) // step - 1 - first))
    return pads


def phases(weights: Array, begin: Sequence[int], steps: Sequence[int]) -> Array:
    """Weights [C, O, kernel...] as those of a convolution, [steps... * O, C, taps...].

    Result i * step + phase is the sum, over taps u, of source i - u times weight
    u * step + phase + begin.
    """
    made: Array = np.moveaxis(weights, 1, 0)  # [O, C, kernel...]
    for axis, (start, step) in enumerate(zip(begin, steps, strict=True)):
        at = 2 + axis * 2  # behind O, C and [taps, phases] of the axes before
        kernel = made.shape[at]
        first, last = _taps(kernel, start, step)
        before = -(first * step + start)  # zeros in front of the first weight
        behind = (last + 1) * step + start - kernel
        pads = [(0, 0)] * made.ndim
        pads[at] = before, behind
        made = np.pad(made, pads)
        shape = made.shape
        made = made.reshape(*shape[:at], last - first + 1, step, *shape[at + 1 :])
        made = np.flip(made, at)
    rank = len(steps)
    order = [3 + 2 * n for n in range(rank)] + [0, 1] + [2 + 2 * n for n in range(rank)]
    made = made.transpose(order)
    sizes = made.shape
    channels = math.prod(sizes[: rank + 1])
    return made.reshape(channels, *sizes[rank + 1 :])


def _as_convolution(build: Emitter, op: Op, inputs: Sequence[Port]) -> list[Port]:
    x, w = inputs
    convolution, weights, steps = _of_phases(op, w)
    made = build.emit(convolution, x, build.value(weights))
    return [_side_by_side(build, made, shape_of(w)[1], steps)]


def _as_integer_convolution(
    build: Emitter, op: IntegerProduct, inputs: Sequence[Port]
) -> list[Port]:
    x, w, scale, *rest = inputs
    convolution, weights, steps = _of_phases(op.product, w)
    numbers = array_of(scale)
    if numbers.size > 1:  # one for each result, and so for each phase
        numbers = np.tile(numbers.reshape(-1), math.prod(steps)).reshape(-1, *[1] * len(steps))
    given = [build.value(weights), build.value(numbers), *rest]
    made = build.emit(IntegerProduct(convolution), x, *given)
    return [_side_by_side(build, made, shape_of(w)[1], steps)]


def _of_phases(op: Op, w: Port) -> tuple[Convolution, Array, tuple[int, ...]]:
    """The convolution to every phase, its weights, and how many phases each axis has."""
    assert isinstance(op, ConvolutionBackpropData)
    shape = shape_of(w)
    window = op.window(shape)
    rank, steps = window.rank, window.strides
    pads = _pads(op, shape)
    convolution = Convolution(
        strides=(1,) * rank,
        dilations=(1,) * rank,
        pads_begin=tuple(begin for begin, _ in pads),
        pads_end=tuple(end for _, end in pads),
        auto_pad=PadType.EXPLICIT,
    )
    return convolution, phases(array_of(w), window.pads_begin, steps), steps


def _side_by_side(build: Emitter, x: Port, channels: int, steps: Sequence[int]) -> Port:
    """[N, steps... * O, spatial...] as [N, O, spatial * steps...]."""
    rank = len(steps)
    if not x.desc.is_static:
        return build.emit(DepthToSpace(mode=DepthMode.BLOCKS_FIRST, block_size=steps[0]), x)
    batch, _, *sizes = shape_of(x)
    cut = build.reshape(x, [batch, *steps, channels, *sizes])
    order = [0, rank + 1]
    for axis in range(rank):
        order += [rank + 2 + axis, 1 + axis]
    longer = [size * step for size, step in zip(sizes, steps, strict=True)]
    return build.reshape(build.transpose(cut, order), [batch, channels, *longer])


FEW_RESULTS = Rule(_as_convolution, _has_few_results)
"""Of a `ConvolutionBackpropData` in f32 with few output channels."""

FEW_INTEGER_RESULTS = Rule(_as_integer_convolution, _has_few_integer_results)
"""Of an `IntegerProduct` that is one of bytes."""
