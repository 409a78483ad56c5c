"""What normalisations are made of: scales and shifts, and normalisations of newer opsets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.comparison import NotEqual
from polydevice.ops.math import Sqrt
from polydevice.ops.normalization import (
    GRN,
    MVN,
    MVNV2,
    BatchNormInference,
    BatchNormInferenceV1,
    EpsMode,
    GroupNormalization,
    NormalizeL2,
)
from polydevice.ops.op import Op
from polydevice.rewrites.facts import array_of, count_of, is_known, rank_of, shape_of
from polydevice.rewrites.rule import decomposes


@decomposes(BatchNormInference, BatchNormInferenceV1)
def _batch_norm(build: Emitter, op: BatchNormInference, inputs: Sequence[Port]) -> list[Port]:
    x, *parameters = _batch_norm_inputs(op, inputs)
    shape = (-1, *[1] * (rank_of(x) - 2))
    kind = x.element_type
    if all(is_known(v) for v in parameters):
        gamma, beta, mean, variance = (np.asarray(array_of(v), np.float64) for v in parameters)
        scale = gamma / np.sqrt(variance + op.epsilon)
        factor = build.value(scale.reshape(shape), kind)
        shift = build.value((beta - mean * scale).reshape(shape), kind)
        return build.emit_all(Add(), build.emit(Multiply(), x, factor), shift)
    columns = [build.reshape(v, shape) if len(shape) > 1 else v for v in parameters]
    deviation = build.emit(Sqrt(), build.emit(Add(), columns[3], op.epsilon))
    factor = build.emit(Divide(), columns[0], deviation)  # of channels: there are more elements
    centred = build.emit(Subtract(), x, columns[2])
    return build.emit_all(Add(), build.emit(Multiply(), centred, factor), columns[1])


def _batch_norm_inputs(op: Op, inputs: Sequence[Port]) -> list[Port]:
    if isinstance(op, BatchNormInferenceV1):
        gamma, beta, x, mean, variance = inputs
        return [x, gamma, beta, mean, variance]
    return list(inputs)


@decomposes(NormalizeL2, where=lambda op, x: is_known(x[1]) and not array_of(x[1]).size)
def _normalize_l2_without_axes(
    build: Emitter, op: NormalizeL2, inputs: Sequence[Port]
) -> list[Port]:
    """Every element is divided by itself: 1, and 0 for zeros."""
    x = inputs[0]
    return [build.convert(build.emit(NotEqual(), x, build.like(0, x)), x.element_type)]


@decomposes(MVNV2)
def _mvn_v2(build: Emitter, op: MVNV2, inputs: Sequence[Port]) -> list[Port]:
    (x,) = inputs
    modern = MVN(normalize_variance=op.normalize_variance, eps=op.eps, eps_mode=EpsMode.INSIDE_SQRT)
    return build.emit_all(modern, x, list(op.axes(rank_of(x))))


@decomposes(GRN)
def _grn(build: Emitter, op: GRN, inputs: Sequence[Port]) -> list[Port]:
    return build.emit_all(NormalizeL2(eps=op.bias, eps_mode=EpsMode.ADD), inputs[0], [1])


@decomposes(GroupNormalization)
def _group_norm(build: Emitter, op: GroupNormalization, inputs: Sequence[Port]) -> list[Port]:
    x, scale, bias = inputs
    rows = build.reshape(
        x, (shape_of(x)[0], op.num_groups, count_of(x) // shape_of(x)[0] // op.num_groups)
    )
    mvn = MVN(normalize_variance=True, eps=op.epsilon, eps_mode=EpsMode.INSIDE_SQRT)
    normalized = build.emit(mvn, rows, [2])
    shape = (shape_of(x)[1], *[1] * (rank_of(x) - 2))
    scaled = build.emit(
        Multiply(), build.reshape(normalized, shape_of(x)), build.reshape(scale, shape)
    )
    return build.emit_all(Add(), scaled, build.reshape(bias, shape))
