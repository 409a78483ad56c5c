"""Rules for operations that mix elements along some axes and leave others alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice.ops.blocks import DepthToSpace, ShuffleChannels, SpaceToDepth
from polydevice.ops.convolution import Convolution, ConvolutionLike
from polydevice.ops.cumulative import CumProd
from polydevice.ops.interpolate import Interpolate1, InterpolateModern
from polydevice.ops.normalization import GRN, LRN, MVN, MVNV2, GroupNormalization, NormalizeL2
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad
from polydevice.ops.pooling import AdaptiveAvgPool, Pool
from polydevice.ops.recurrent import Cell, SequenceOf
from polydevice.ops.reduce import (
    ReduceL1,
    ReduceL2,
    ReduceLogicalAnd,
    ReduceLogicalOr,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    Reduction,
)
from polydevice.ops.signal import CumSum
from polydevice.ops.softmax import SoftMax
from polydevice.ops.topk import TopK
from polydevice.padding.labels import Label, Labels, symbols_of
from polydevice.padding.rules import rule
from polydevice.padding.state import Kind, State, Step, UnprovableError, data
from polydevice.shape import normalize_axis

_NEUTRAL: dict[type[Op], float | bool] = {
    ReduceSum: 0.0, ReduceMean: 0.0, ReduceL1: 0.0, ReduceL2: 0.0, ReduceProd: 1.0,
    ReduceMax: -math.inf, ReduceMin: math.inf, ReduceLogicalAnd: True, ReduceLogicalOr: False,
}  # fmt: skip
"""What padding has to be for a reduction to leave it out."""


def _axes(step: Step, index: int = 1) -> list[int]:
    rank = len(step.inputs[0].labels)
    return [normalize_axis(axis, rank) for axis in step.ints(index, "axes")]


@rule(SoftMax)
def _softmax(step: Step) -> list[State]:
    op = step.nodes[0].operation(SoftMax)
    labels = step.inputs[0].labels
    axis = normalize_axis(op.axis, len(labels))
    step.hide(0, axis, -math.inf, "compares and adds up elements")
    zeros = frozenset({axis}) if type(op) is SoftMax else frozenset()
    return [State(Kind.DATA, labels, zeros)]


@rule(Reduction)
def _reduction(step: Step) -> list[State]:
    op = step.nodes[0].operation(Reduction)
    axes, labels = _axes(step), step.inputs[0].labels
    padded = [axis for axis in axes if symbols_of(labels[axis])]
    for axis in padded:
        if type(op) not in _NEUTRAL:
            step.refuse(labels[axis], axis, "joins elements")
        means = isinstance(op, ReduceMean)
        if means and not step.nodes[0].inputs[0].element_type.is_float:
            step.refuse(labels[axis], axis, "divides integers")
        step.hide(0, axis, _NEUTRAL[type(op)], "joins elements", means=means)
    if op.keep_dims:
        return data(tuple(() if a in axes else each for a, each in enumerate(labels)))
    return data(tuple(each for a, each in enumerate(labels) if a not in axes))


@rule(MVN, NormalizeL2, LRN)
def _along_axes(step: Step) -> list[State]:
    return data(step.kept(_axes(step), "normalises elements together"))


@rule(MVNV2)
def _image(step: Step) -> list[State]:
    op = step.nodes[0].operation(MVNV2)
    first = 1 if op.across_channels else 2
    return data(step.kept(range(first, len(step.inputs[0].labels)), "normalises elements together"))


@rule(GRN)
def _channels(step: Step) -> list[State]:
    return data(step.kept([1], "normalises elements together"))


@rule(GroupNormalization, DepthToSpace, SpaceToDepth, ShuffleChannels)
def _item(step: Step) -> list[State]:
    step.only_first()
    return data(step.kept(range(1, len(step.inputs[0].labels)), "mixes elements"))


@rule(CumSum, CumProd)
def _running(step: Step) -> list[State]:
    assert isinstance(step.op, (CumSum, CumProd))
    labels = step.inputs[0].labels
    axis = _axes(step)[0] if len(step.inputs) > 1 else 0
    if step.op.reverse or len(labels[axis]) > 1:
        step.refuse(labels[axis], axis, "adds up elements")
    return data(labels)


@rule(TopK)
def _topk(step: Step) -> list[State]:
    step.only_first()
    axis = normalize_axis(int(getattr(step.op, "axis", -1)), len(step.inputs[0].labels))
    outputs = range(len(step.nodes[0].outputs))
    return data(*(step.kept([axis], "compares elements", number) for number in outputs))


@rule(ConvolutionLike, Pool, AdaptiveAvgPool)
def _window(step: Step) -> list[State]:
    step.only_first()
    outputs = range(len(step.nodes[0].outputs))
    rank = len(step.inputs[0].labels)
    return data(*(_of_items(step, range(1, rank), number) for number in outputs))


@rule(Convolution)
def _convolution(step: Step) -> list[State]:
    op = step.nodes[0].operation(Convolution)
    step.only_first()
    rank = len(step.inputs[0].labels)
    kernel = op.window(step.nodes[0].inputs[1].shape or ()).kernel
    own = op.strides, op.pads_begin, op.pads_end
    strides, *pads = (values or (default,) * (rank - 2) for values, default in zip(own, (1, 0, 0)))
    alone = [
        axis
        for axis in range(2, rank)
        if kernel[axis - 2] == strides[axis - 2] == 1 and not any(p[axis - 2] for p in pads)
    ]
    return data(_of_items(step, [axis for axis in range(1, rank) if axis not in alone], 0))


def _of_items(step: Step, mixed: Sequence[int], output: int) -> Labels:
    return step.kept(mixed, "joins neighbouring elements", output)


@rule(Interpolate1, InterpolateModern)
def _resized(step: Step) -> list[State]:
    labels = step.inputs[0].labels
    mixed = [axis for axis, label in enumerate(labels) if not symbols_of(label)]
    for axis in range(len(labels)):
        if axis > 1:
            step.refuse(labels[axis], axis, "joins neighbouring elements")
    return data(step.kept(mixed, "joins neighbouring elements"))


@rule(Pad)
def _pad(step: Step) -> list[State]:
    begin, end = step.ints(1, "pads"), step.ints(2, "pads")
    padded = [axis for axis, pads in enumerate(zip(begin, end, strict=True)) if any(pads)]
    if len(step.inputs) > 3:
        step.only_first([3])
    return data(step.kept(padded, "puts something in front or behind"))


@rule(Cell)
def _cell(step: Step) -> list[State]:
    batch = _batch(step)
    outputs = range(len(step.nodes[0].outputs))
    return data(*((batch, *_rest(step, number)) for number in outputs))


@rule(SequenceOf)
def _sequence(step: Step) -> list[State]:
    labels = step.inputs[0].labels
    step.refuse(labels[1], 1, "goes from element to element")
    return _cell(step)


def _batch(step: Step) -> Label:
    """Return the label of the batch, which is the first axis of all inputs with data."""
    label = step.inputs[0].labels[0]
    for each in step.inputs[1:]:
        if each.is_padded and (each.labels[0] != label or any(map(symbols_of, each.labels[1:]))):
            raise UnprovableError("it uses weights or states that follow the inputs in another way")
    return label


def _rest(step: Step, output: int) -> list[Label]:
    return [step.found(axis, output) for axis in range(1, step.rank(output))]
