# ruff: noqa: ARG001, ARG005 - every decomposition takes builder, operation and inputs
"""decompose: what an operation is made of, where simpler operations say the same.

A decomposition is used when it is registered for the operation and its condition holds. It returns
the values that take the place of the operation's outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.ops.activation import PRelu, slope_shape
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.convert import Convert, ConvertLike
from polydevice.ops.normalization import BatchNormInference, BatchNormInferenceV1
from polydevice.ops.op import Op
from polydevice.ops.pointwise import AutoBroadcast, BinaryPointwise, pdpd_aligned
from polydevice.ops.reshape import Reshape
from polydevice.shape import Shape
from polydevice_gpu.graph import Value

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder

Decomposition = Callable[["Builder", Any, Sequence[Value]], Sequence[Value]]
Condition = Callable[[Any, Sequence[Value]], bool]

_TABLE: dict[type[Op], tuple[Decomposition, Condition]] = {}


def find_decomposition(op: Op, inputs: Sequence[Value]) -> Decomposition | None:
    """Return how to decompose an operation on these inputs; None to keep it whole."""
    for cls in type(op).__mro__:
        if cls in _TABLE:
            function, condition = _TABLE[cls]
            return function if condition(op, inputs) else None
    return None


def decomposes(
    *ops: type[Op], when: Condition = lambda op, inputs: True
) -> Callable[[Decomposition], Decomposition]:
    """Register how operations are decomposed, and on what condition."""

    def register(function: Decomposition) -> Decomposition:
        for op in ops:
            _TABLE[op] = (function, when)
        return function

    return register


def reshape(build: Builder, x: Value, shape: Sequence[int]) -> Value:
    """Show a value in another shape; itself when it has that shape."""
    if x.shape == tuple(shape):
        return x
    if x.constant is not None:
        value = build.constant(np.asarray(x.constant).reshape(shape), x.element_type)
        value.storage = x.storage
        return value
    pattern = build.constant(np.asarray(shape, np.int64))
    return build.one(Reshape(special_zero=False), x, pattern)


@decomposes(Convert, when=lambda op, x: op.destination_type is x[0].element_type)
def _same_type(build: Builder, op: Convert, inputs: Sequence[Value]) -> list[Value]:
    return [inputs[0]]


@decomposes(ConvertLike)
def _convert_like(build: Builder, op: ConvertLike, inputs: Sequence[Value]) -> list[Value]:
    x, like = inputs
    if x.element_type is like.element_type:
        return [x]
    return build.add(Convert(destination_type=like.element_type), x)


@decomposes(PRelu, when=lambda op, x: len(slope_shape(x[0].shape, Shape(x[1].shape))) != x[1].rank)
def _prelu(build: Builder, op: PRelu, inputs: Sequence[Value]) -> list[Value]:
    x, slope = inputs
    aligned = slope_shape(x.shape, Shape(slope.shape)).static
    return build.add(op, x, reshape(build, slope, aligned))


@decomposes(BinaryPointwise, when=lambda op, x: op.auto_broadcast is AutoBroadcast.PDPD)
def _pdpd(build: Builder, op: BinaryPointwise, inputs: Sequence[Value]) -> list[Value]:
    a, b = inputs
    aligned = pdpd_aligned(Shape(a.shape), Shape(b.shape), op.broadcast_axis).static
    numpy = op.replace(auto_broadcast=AutoBroadcast.NUMPY, broadcast_axis=-1)
    return build.add(numpy, a, reshape(build, b, aligned))


@decomposes(
    BatchNormInference, BatchNormInferenceV1, when=lambda op, x: all(
        v.constant is not None for v in _batch_norm_inputs(op, x)[1:]
    )
)  # fmt: skip
def _batch_norm(build: Builder, op: BatchNormInference, inputs: Sequence[Value]) -> list[Value]:
    x, *parameters = _batch_norm_inputs(op, inputs)
    gamma, beta, mean, variance = (np.asarray(v.constant, np.float64) for v in parameters)
    scale = gamma / np.sqrt(variance + op.epsilon)
    shape = (-1, *[1] * (x.rank - 2))
    kind = x.element_type
    factor = build.constant(scale.reshape(shape).astype(kind.dtype), kind)
    shift = build.constant((beta - mean * scale).reshape(shape).astype(kind.dtype), kind)
    return build.add(Add(), build.one(Multiply(), x, factor), shift)


def _batch_norm_inputs(op: Op, inputs: Sequence[Value]) -> list[Value]:
    if isinstance(op, BatchNormInferenceV1):
        gamma, beta, x, mean, variance = inputs
        return [x, gamma, beta, mean, variance]
    return list(inputs)
