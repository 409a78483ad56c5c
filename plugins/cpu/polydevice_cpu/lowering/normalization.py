"""Normalisations over the last axis, and over neighbouring channels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.ops.normalization import (
    LRN,
    MVN,
    MVNV2,
    EpsMode,
    GroupNormalization,
    NormalizeL2,
)
from polydevice.rewrites.rule import rule_of
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512, parts_of
from polydevice_cpu.algorithms.by_machine.reductions import layer_norm as row_code
from polydevice_cpu.algorithms.by_machine.rows import norms, wide_rows
from polydevice_cpu.implement import implements
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Binary
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import Descriptor, channels_last_strides, row_major
from polydevice_cpu.onednn.primitive import Primitive, built
from polydevice_cpu.onednn.primitives import layer_normalization, lrn
from polydevice_cpu.ops.normalization import mvn, sum_of_squares
from polydevice_cpu.passes.fuse_normalization import LayerNorm, ScaledNorm
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import (
    MACHINE_CODE,
    ArrayStep,
    ByMachine,
    Compute,
    PrimitiveStep,
    Start,
)
from polydevice_cpu.plan.value import Value
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.proof import refusal

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@implements(LayerNorm)
def layer_norm(op: LayerNorm, x: Array, scale: Array, shift: Array) -> Array:
    """Normalise, scale and shift with NumPy."""
    centred = x - x.mean(axis=-1, keepdims=True)
    root = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + np.float32(op.epsilon))
    result: Array = centred / root * scale.reshape(-1) + shift.reshape(-1)
    return result


@lowers(LayerNorm)
def lower_layer_norm(builder: PlanBuilder, node: Node) -> bool:
    """Normalise the last axis with scale and shift."""
    assert isinstance(node.op, LayerNorm)
    scale, shift = (port.desc.constant for port in node.inputs[1:])
    if scale is None or shift is None:
        return False
    shape = node.outputs[0].shape
    assert shape is not None
    width = shape.static[-1]
    vectors: dict[int, Value] = {
        argument: builder.constant(builder.derived(vector, f"{width} wide", _as_wide_as(width)))
        for argument, vector in ((Arg.SCALE, scale), (Arg.SHIFT, shift))
    }
    return _normalise(builder, node, node.op.epsilon, vectors)


def _as_wide_as(width: int) -> Callable[[Array], Array]:
    """Repeat one number that stands for all: the primitive reads as many as the axis is long."""
    return lambda vector: np.ascontiguousarray(np.broadcast_to(vector.reshape(-1), width))


@lowers(MVN)
def lower_mvn(builder: PlanBuilder, node: Node) -> bool:
    """Normalise the last axes, seen as one, or channels, brought to lie last."""
    op = node.operation(MVN)
    axes, rank = node.inputs[1].desc.constant, node.inputs[0].desc.rank
    if axes is None or rank is None or not op.normalize_variance:
        return False
    places = sorted(int(a) % rank for a in axes.reshape(-1))
    if node.inputs[0].element_type is ElementType.f64:
        are_last = bool(places) and places == list(range(rank - len(places), rank))
        return are_last and _normalise_wide(builder, node, op, axes, rank - len(places))
    if places == [1] and rank > 2 and op.eps_mode is EpsMode.INSIDE_SQRT:
        return _normalise_channels(builder, node, op.eps)
    if not places or places != list(range(rank - len(places), rank)):
        return False
    return _normalise_rows(builder, node, op, rank - len(places))


def _normalise_wide(builder: PlanBuilder, node: Node, op: MVN, axes: Array, first: int) -> bool:
    """Normalise f64 over all axes from `first` on by machine code, which oneDNN has none of."""
    source = builder.array_value(node.inputs[0])
    if op.eps_mode is not EpsMode.INSIDE_SQRT or 0 in source.shape or not has_avx512():
        return False

    def compute(x: Array, y: Array) -> tuple[()]:
        np.copyto(y, mvn(op, x, axes))
        return ()

    def prepare(values: Sequence[Value]) -> Code:
        shape = values[0].shape
        return wide_rows.centred(math.prod(shape[:first]), math.prod(shape[first:]), op.eps)

    computed = ByMachine(compute, prepare, may_refuse=False)
    result = builder.new_dense(source.shape, source.dtype)
    how = lambda _: computed, [source], [result], MACHINE_CODE
    builder.emit(ArrayStep(node.name, node.type, *how, writes=True))
    builder.set(node.output, result)
    return True


@lowers(MVNV2)
def lower_mvn_v2(builder: PlanBuilder, node: Node) -> bool:
    """Normalise all axes but the first, or the first two."""
    op = node.operation(MVNV2)
    first = 1 if op.across_channels else 2
    rank = node.inputs[0].desc.rank or 0
    if not op.normalize_variance or rank <= first:
        return False
    rows = MVN(normalize_variance=True, eps=op.eps, eps_mode=EpsMode.INSIDE_SQRT)
    return _normalise_rows(builder, node, rows, first)


@lowers(GroupNormalization)
def lower_group_normalization(builder: PlanBuilder, node: Node) -> bool:
    """Normalise groups as rows, then scale and shift: [1, 16, 32, 40] take NumPy 70 us, this 12."""
    x = node.inputs[0]
    assert x.shape is not None
    if x.element_type is not ElementType.f32 or 0 in x.shape.static:
        return False
    builder.value(x)
    build = Emitter(node.name, origins=node.layers)
    rule = rule_of(GroupNormalization)
    assert rule is not None
    rule.function(build, node.op, node.inputs)
    builder.lower_instead(node.output, [each for each in build.emitted if each.constant is None])
    return True


def _normalise_rows(builder: PlanBuilder, node: Node, op: MVN, first: int) -> bool:
    """Normalise over all axes from `first` on, by machine code for as many numbers as there are.

    oneDNN generates code for each size, which takes as long or half as long again.
    """
    shape = node.outputs[0].shape
    assert shape is not None
    sizes = shape.static
    rows = (math.prod(sizes[:first]), math.prod(sizes[first:]))
    is_inside = op.eps_mode is EpsMode.INSIDE_SQRT
    if not has_avx512() or node.inputs[0].element_type is not ElementType.f32:
        return is_inside and _normalise(builder, node, op.eps, {}, rows)
    value = builder.array_value(node.inputs[0])
    result = builder.new_dense(value.shape, value.dtype)
    seen = [each.view(rows, (rows[1], 1)) for each in (value, result)]
    start = partial(_by_rows, op, openmp.thread_count())
    step = ArrayStep(*(node.name, node.type, start, seen[:1], seen[1:], MACHINE_CODE), writes=True)
    builder.emit(step)
    builder.set(node.output, result)
    return True


SHARED = 1 << 16
"""From so many numbers on, threads share rows: a core normalises ten of them in a nanosecond."""


def _by_rows(op: MVN, threads: int, _: Context) -> Compute:
    is_outside, axis = op.eps_mode is EpsMode.OUTSIDE_SQRT, np.array([1])

    def compute(x: Array, y: Array) -> tuple[()]:
        np.copyto(y, mvn(op, x, axis))
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        rows, length = values[0].shape
        told = []
        are_many = threads > 1 and rows * length >= SHARED
        for first, behind in parts_of(rows, threads, is_worth_it=are_many):
            part = row_code.prepared(
                *(behind - first, length, op.eps),
                affine=False,
                is_outside=is_outside,
                begin=first,
            )
            if part is None:
                return None
            told.append(part)
        return Code.shared(told, threads)

    return ByMachine(compute, prepare, may_refuse=False)


def _normalise_channels(builder: PlanBuilder, node: Node, epsilon: float) -> bool:
    """Normalise over axis 1, as in PyTorch's networks that normalise the channels of images."""
    source = node.inputs[0]
    if source.element_type is not ElementType.f32:
        return False
    value = builder.value(source)
    if not value.in_reach:
        return False
    value = builder.in_layout(value, Descriptor.channels_last(value.shape))
    batch, channels, *space = value.shape
    rows = Descriptor.dense((batch * math.prod(space), channels))
    made = layer_normalization(rows, rows, epsilon, Attributes(), affine=False)
    if made is None or made.is_reference:
        return False
    result = builder.new(rows)
    seen = value.view(rows.shape, (channels, 1))
    arguments: dict[int, Value] = {Arg.SRC: seen, Arg.DST: result}
    builder.emit(PrimitiveStep(node.name, node.type, made, arguments, (Arg.DST,)))
    builder.set(node.output, result.view(value.shape, channels_last_strides(value.shape)))
    return True


def _normalise(
    builder: PlanBuilder,
    node: Node,
    epsilon: float,
    vectors: dict[int, Value],
    rows: tuple[int, int] | None = None,
) -> bool:
    source = node.inputs[0]
    if source.element_type is not ElementType.f32:
        return False
    value = builder.value(source)
    if not value.in_reach or (rows is None and not 2 <= len(value.shape) <= 5):
        return False
    value = whole = builder.dense(value)
    if rows is not None:
        value = value.view(rows, (rows[1], 1))
    layout = value.descriptor
    made = layer_normalization(layout, layout, epsilon, Attributes(), affine=bool(vectors))
    if made is None or made.is_reference:
        return False
    reason = _refusal(made, layout, epsilon) if vectors else ""
    if reason:
        builder.refuse(node.name, reason)
        return False
    result = builder.new(layout)
    arguments: dict[int, Value] = {Arg.SRC: value, Arg.DST: result, **vectors}
    builder.emit(PrimitiveStep(node.name, node.type, made, arguments, (Arg.DST,)))
    builder.set(node.outputs[0], result.view(whole.shape, row_major(whole.shape)))
    return True


def _refusal(made: Primitive, layout: Descriptor, epsilon: float) -> str:
    """Why scale and shift must not be the primitive's; empty where they may."""

    def plain() -> Primitive:
        return built(layer_normalization(layout, layout, epsilon, Attributes(), affine=False))

    shape = (1,) * (len(layout.shape) - 1) + layout.shape[-1:]
    memory = Descriptor.dense(layout.shape[-1:])
    links = [
        Link(Binary(algorithm, memory), argument, memory, shape)
        for algorithm, argument in (
            (Algorithm.BINARY_MUL, Arg.SCALE),
            (Algorithm.BINARY_ADD, Arg.SHIFT),
        )
    ]
    return refusal(Claim(made, plain, links))


@implements(ScaledNorm)
def scaled_norm(op: ScaledNorm, x: Array, factors: Array) -> Array:
    """Divide and multiply with NumPy."""
    total = sum_of_squares(x, (x.ndim - 1,))
    small = np.float32(op.epsilon)
    total = total + small if op.is_added else np.maximum(total, small)
    result: Array = x / np.sqrt(total) * factors
    return result


@lowers(ScaledNorm)
def lower_scaled_norm(builder: PlanBuilder, node: Node) -> bool:
    """Divide rows by their norms, and multiply by constants, in one go."""
    op, factors = node.operation(ScaledNorm), node.inputs[1].node.constant
    shape = node.output.shape
    if not has_avx512() or factors is None or shape is None or 0 in shape.static:
        return False
    limits = (op.epsilon, 0.0) if op.is_added else (0.0, op.epsilon)
    start = partial(_by_machine, limits, openmp.thread_count(), factors)
    return _divide(builder, node, start, MACHINE_CODE)


@lowers(NormalizeL2)
def lower_normalize_l2(builder: PlanBuilder, node: Node) -> bool:
    """Divide rows by their norms with NumPy, straight into the result."""
    op = node.operation(NormalizeL2)
    source, axes = node.inputs[0], node.inputs[1].desc.constant
    if source.element_type is not ElementType.f32 or axes is None or source.shape is None:
        return False
    shape = source.shape.static
    if [int(axis) % len(shape) for axis in axes.reshape(-1)] != [len(shape) - 1] or 0 in shape:
        return False
    is_added = op.eps_mode is EpsMode.ADD
    if has_avx512():
        limits = (op.eps, 0.0) if is_added else (0.0, op.eps)
        start = partial(_by_machine, limits, openmp.thread_count(), None)
        return _divide(builder, node, start, MACHINE_CODE)
    return _divide(builder, node, partial(_dividing_by_norms, op.eps, is_added), "numpy")


def _divide(builder: PlanBuilder, node: Node, start: Start, code: str) -> bool:
    """Emit the step that divides rows; False where they are not of f32."""
    value = builder.dense(builder.value(node.inputs[0]))
    if value.dtype != np.float32:
        return False
    result = builder.new_dense(value.shape, value.dtype)
    sizes = (math.prod(value.shape[:-1]), value.shape[-1])
    seen = [each.view(sizes, row_major(sizes)) for each in (value, result)]
    builder.emit(ArrayStep(node.name, node.type, start, seen[:1], seen[1:], code, writes=True))
    builder.set(node.output, result)
    return True


def _by_machine(
    limits: tuple[float, float], threads: int, factors: Array | None, _: Context
) -> Compute:
    def write(x: Array, y: Array) -> tuple[()]:
        norms.divide_by_norms(x, y, *limits, factors)
        return ()

    def prepare(values: Sequence[Value]) -> Code:
        return norms.code(values[0].shape, *limits, threads, factors)

    return ByMachine(write, prepare, may_refuse=False)


def _dividing_by_norms(epsilon: float, added: bool, _: Context) -> Compute:
    small, with_small = np.float32(epsilon), np.add if added else np.maximum

    def write(x: Array, y: Array) -> tuple[()]:
        total = sum_of_squares(x, (x.ndim - 1,))
        with_small(total, small, out=total)
        np.divide(x, np.sqrt(total, out=total), out=y)
        return ()

    return write


@lowers(LRN)
def lower_lrn(builder: PlanBuilder, node: Node) -> bool:
    """Normalise across channels."""
    op = node.operation(LRN)
    axes, source = node.inputs[1].desc.constant, node.inputs[0]
    if axes is None or [int(a) for a in axes.reshape(-1)] != [1] or op.size % 2 == 0:
        return False
    if source.element_type is not ElementType.f32:
        return False
    value = builder.value(source)
    if not value.in_reach or len(value.shape) != 4:
        return False
    candidates = (value.descriptor, Descriptor.channels_last(value.shape))
    for layout in candidates:
        made = lrn(
            layout,
            layout,
            op.size,
            op.alpha,
            op.beta,
            op.bias,
            Attributes(),
            across_channels=True,
        )
        if made is None or made.is_reference:
            continue
        result = builder.new(layout)
        arguments: dict[int, Value] = {
            Arg.SRC: builder.in_layout(value, layout),
            Arg.DST: result,
        }
        builder.emit(PrimitiveStep(node.name, node.type, made, arguments, (Arg.DST,)))
        builder.set(node.outputs[0], result)
        return True
    return False
