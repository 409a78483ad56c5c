"""SoftMax and LogSoftmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.symbolic_size import is_symbolic
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512, has_vectors
from polydevice_cpu.algorithms.by_machine.rows import wide_rows
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.concat import ordered
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Eltwise
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import Descriptor, row_major
from polydevice_cpu.onednn.primitives import softmax
from polydevice_cpu.ops import softmax as numpys
from polydevice_cpu.ops.softmax import FEW_TERMS, MANY_ROWS
from polydevice_cpu.plan.joined.attention import SharesOfRows
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, PrimitiveStep
from polydevice_cpu.plan.value import Value
from polydevice_cpu.proof.proof import inaccuracy

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

SIDE_BY_SIDE, MOVED = 8, 4096
"""Of fewer columns side by side, so many elements are moved first: 16 terms of 4 columns take
machine code 2 ns for an element, as rows 0.5."""


@lowers(SoftMax, LogSoftmax)
def lower_softmax(builder: PlanBuilder, node: Node) -> bool:
    """Normalise along the axis; it must lie contiguously for oneDNN to be fast.

    A sure prediction is the logarithm of a sum near 1, so oneDNN's logarithm must be right there.
    Its exponential of NaN is infinity, which all others of the row are divided by; those are made
    NaN behind it.
    """
    op = node.operation(SoftMax)
    source = node.inputs[0]
    if source.element_type is ElementType.f64:
        return _rows_of_wide(builder, node)
    if source.element_type is not ElementType.f32:
        return False
    value = builder.value(source)
    if not value.in_reach:
        return False
    axis = op.axis % len(value.shape)
    if _by_machine(builder, node, value, axis):
        return True
    if isinstance(op, LogSoftmax) and (reason := inaccuracy(Eltwise(Algorithm.LOG))):
        builder.refuse(node.name, reason)
        return False
    rows = math.prod(value.shape) // max(value.shape[axis], 1)
    if _is_short(rows, value.shape[axis], 1) and not isinstance(op, LogSoftmax):
        return False
    layouts = [value.descriptor, Descriptor.dense(value.shape, value.descriptor.data_type)]
    layouts.append(_along(value, axis))  # along any other axis oneDNN is slow
    spread = partial(_spread_nan, axis)
    for layout in layouts:
        if layout.strides is None:  # NaN is looked for by NumPy, which reads no blocks
            continue
        made = softmax(layout, layout, axis, Attributes(), logarithm=isinstance(op, LogSoftmax))
        if made is None or made.is_reference:
            continue
        candidate = builder.in_layout(value, layout)
        result = builder.new(layout)
        builder.emit(
            PrimitiveStep(
                node.name, node.type, made, {Arg.SRC: candidate, Arg.DST: result}, (Arg.DST,)
            )
        )
        builder.emit(ArrayStep("", "SpreadNaN", lambda _: spread, [result], [result], writes=True))
        builder.set(node.outputs[0], result)
        return True
    return False


def _spread_nan(axis: int, y: Array, _: Array) -> tuple[()]:
    """Make all numbers along an axis NaN where one is, in place.

    Whether there is any is asked of all at once, a tenth of what oneDNN takes before.
    """
    if y.size and np.isnan(np.minimum.reduce(y, axis=None)):
        np.copyto(y, np.nan, where=np.isnan(y).any(axis, keepdims=True))
    return ()


def _rows_of_wide(builder: PlanBuilder, node: Node) -> bool:
    """Normalise rows of f64 by machine code, which oneDNN has none of."""
    op, source = node.operation(SoftMax), builder.array_value(node.inputs[0])
    rank, logarithm = len(source.shape), isinstance(op, LogSoftmax)
    if not rank or op.axis % rank != rank - 1 or 0 in source.shape or not has_avx512():
        return False

    def compute(x: Array, y: Array) -> tuple[()]:
        if isinstance(op, LogSoftmax):
            np.copyto(y, numpys.log_softmax(op, x))
        else:
            np.copyto(y, numpys.softmax(op, x))
        return ()

    def prepare(values: Sequence[Value]) -> Code:
        *rows, length = values[0].shape
        return wide_rows.shares(math.prod(rows), length, logarithm=logarithm)

    computed = ByMachine(compute, prepare, may_refuse=False)
    result = builder.new_dense(source.shape, source.dtype)
    how = lambda _: computed, [source], [result], MACHINE_CODE
    builder.emit(ArrayStep(node.name, node.type, *how, writes=True))
    builder.set(node.outputs[0], result)
    return True


def _by_machine(builder: PlanBuilder, node: Node, value: Value, axis: int) -> bool:
    """Normalise by our own machine code, whichever order the axes lie in, for all sizes alike.

    It computes in f32: from bfloat16 its rows of 130 numbers take 0.4 times as long as oneDNN's,
    what makes them f32 included.
    """
    if value.strides is None or not value.has_no_gaps or not has_vectors():
        return False
    value = builder.wide(value)
    sizes = _around(value, axis)
    logarithm = isinstance(node.op, LogSoftmax)
    if 1 < sizes[2] < SIDE_BY_SIDE and value.elements >= MOVED:
        value = builder.in_layout(value, _along(value, axis))
        sizes = _around(value, axis)
    elif not logarithm and _is_short(*sizes):
        return False
    result = builder.new(value.descriptor)
    seen, target = (each.view(sizes, row_major(sizes)) for each in (value, result))
    start = SharesOfRows(openmp.thread_count(), logarithm)
    step = ArrayStep(node.name, node.type, start, [seen], [target], MACHINE_CODE, writes=True)
    builder.emit(step)
    builder.set(node.outputs[0], result)
    return True


def _is_short(before: int, length: int, behind: int) -> bool:
    """Whether there are many rows of few terms; not of terms whose number may be any."""
    if is_symbolic(length):
        return False
    return behind == 1 and 1 < length <= FEW_TERMS and before >= MANY_ROWS


def _around(value: Value, axis: int) -> tuple[int, int, int]:
    """How many elements lie before the axis, along it and behind it in memory."""
    strides, places = value.strides, list(range(len(value.shape)))
    assert strides is not None
    if not value.is_dense:
        places.sort(key=lambda place: -strides[place])
    shape, at = [value.shape[place] for place in places], places.index(axis)
    return math.prod(shape[:at]), shape[at], math.prod(shape[at + 1 :])


def _along(value: Value, axis: int) -> Descriptor:
    """A layout in which the axis lies contiguously."""
    rank = len(value.shape)
    inner = tuple(0 if d == axis else rank - d for d in range(rank))
    return ordered(value.shape, inner, value.descriptor.data_type)
