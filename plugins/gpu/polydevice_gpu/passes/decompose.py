# ruff: noqa: ARG001, ARG005 - every decomposition takes builder, operation and inputs
"""decompose: what an operation is made of, where simpler operations say the same.

A decomposition is used when it is registered for the operation and its condition holds. It returns
the values that take the place of the operation's outputs.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.ops.activation import PRelu, slope_shape
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.comparison import NotEqual
from polydevice.ops.convert import Convert, ConvertLike, ConvertPromoteTypes
from polydevice.ops.interpolate import (
    Interpolate,
    Interpolate1,
    Interpolate4,
    InterpolateMode,
    Resize,
    ShapeCalculation,
)
from polydevice.ops.math import Identity, Sqrt
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
from polydevice.ops.pad import Pad
from polydevice.ops.pointwise import AutoBroadcast, BinaryPointwise, pdpd_aligned
from polydevice.ops.resampling import AxisTable, interpolate_table, resize_table
from polydevice.ops.reshape import Reshape
from polydevice.shape import Shape, normalize_axis
from polydevice.tensor import TensorDesc
from polydevice_gpu.graph import Value
from polydevice_gpu.ops import Resample

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder

Decomposition = Callable[["Builder", Any, Sequence[Value]], Sequence[Value]]
Condition = Callable[[Any, Sequence[Value]], bool]

_TABLE: dict[type[Op], tuple[Decomposition, Condition]] = {}


def find_decomposition(op: Op, inputs: Sequence[Value]) -> Decomposition | None:
    """Return how to decompose an operation on these inputs; None to keep it whole."""
    _load()
    for cls in type(op).__mro__:
        if cls in _TABLE:
            function, condition = _TABLE[cls]
            return function if condition(op, inputs) else None
    return None


def decomposition_of(op: type[Op]) -> Decomposition | None:
    """Return the decomposition that is registered for an operation, whatever its condition."""
    _load()
    return next((_TABLE[cls][0] for cls in op.__mro__ if cls in _TABLE), None)


@functools.cache
def _load() -> None:
    """Import the modules that register decompositions: those named ``decompose_<family>``."""
    package = importlib.import_module("polydevice_gpu.passes")
    for module in pkgutil.iter_modules(package.__path__):
        if module.name.startswith("decompose_"):
            importlib.import_module(f"{package.__name__}.{module.name}")


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


@decomposes(Identity)
def _identity(build: Builder, op: Identity, inputs: Sequence[Value]) -> list[Value]:
    return [inputs[0]]


@decomposes(ConvertLike)
def _convert_like(build: Builder, op: ConvertLike, inputs: Sequence[Value]) -> list[Value]:
    x, like = inputs
    if x.element_type is like.element_type:
        return [x]
    return build.add(Convert(destination_type=like.element_type), x)


@decomposes(ConvertPromoteTypes)
def _promote(build: Builder, op: ConvertPromoteTypes, inputs: Sequence[Value]) -> list[Value]:
    a, b = map(_desc, inputs)
    kind = op.promoted(a, b)
    return [
        v if v.element_type is kind else build.one(Convert(destination_type=kind), v)
        for v in inputs
    ]


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


@decomposes(BatchNormInference, BatchNormInferenceV1)
def _batch_norm(build: Builder, op: BatchNormInference, inputs: Sequence[Value]) -> list[Value]:
    x, *parameters = _batch_norm_inputs(op, inputs)
    shape = (x.shape[1], *[1] * (x.rank - 2))
    kind = x.element_type
    if all(v.constant is not None for v in parameters):
        gamma, beta, mean, variance = (np.asarray(v.constant, np.float64) for v in parameters)
        scale = gamma / np.sqrt(variance + op.epsilon)
        factor = build.constant(scale.reshape(shape).astype(kind.dtype), kind)
        shift = build.constant((beta - mean * scale).reshape(shape).astype(kind.dtype), kind)
        return build.add(Add(), build.one(Multiply(), x, factor), shift)
    small = build.constant(np.asarray(op.epsilon, kind.dtype), kind)
    columns = [reshape(build, v, shape) for v in parameters]
    deviation = build.one(Sqrt(), build.one(Add(), columns[3], small))
    centred = build.one(Divide(), build.one(Subtract(), x, columns[2]), deviation)
    return build.add(Add(), build.one(Multiply(), centred, columns[0]), columns[1])


def _batch_norm_inputs(op: Op, inputs: Sequence[Value]) -> list[Value]:
    if isinstance(op, BatchNormInferenceV1):
        gamma, beta, x, mean, variance = inputs
        return [x, gamma, beta, mean, variance]
    return list(inputs)


@decomposes(NormalizeL2, when=lambda op, x: x[1].constant is not None and not x[1].constant.size)
def _normalize_l2_without_axes(
    build: Builder, op: NormalizeL2, inputs: Sequence[Value]
) -> list[Value]:
    """Every element is divided by itself: 1, and 0 for zeros."""
    x = inputs[0]
    zero = build.constant(np.zeros((), x.element_type.dtype), x.element_type)
    return build.add(Convert(destination_type=x.element_type), build.one(NotEqual(), x, zero))


@decomposes(MVNV2)
def _mvn_v2(build: Builder, op: MVNV2, inputs: Sequence[Value]) -> list[Value]:
    (x,) = inputs
    modern = MVN(normalize_variance=op.normalize_variance, eps=op.eps, eps_mode=EpsMode.INSIDE_SQRT)
    return build.add(modern, x, build.constant(np.asarray(op.axes(x.rank), np.int64)))


@decomposes(GRN)
def _grn(build: Builder, op: GRN, inputs: Sequence[Value]) -> list[Value]:
    axes = build.constant(np.array([1], np.int64))
    return build.add(NormalizeL2(eps=op.bias, eps_mode=EpsMode.ADD), inputs[0], axes)


@decomposes(GroupNormalization)
def _group_norm(build: Builder, op: GroupNormalization, inputs: Sequence[Value]) -> list[Value]:
    x, scale, bias = inputs
    rows = reshape(build, x, (x.shape[0], op.num_groups, x.elements // x.shape[0] // op.num_groups))
    mvn = MVN(normalize_variance=True, eps=op.epsilon, eps_mode=EpsMode.INSIDE_SQRT)
    normalized = build.one(mvn, rows, build.constant(np.array([2], np.int64)))
    shape = (x.shape[1], *[1] * (x.rank - 2))
    scaled = build.one(
        Multiply(), reshape(build, normalized, x.shape), reshape(build, scale, shape)
    )
    return build.add(Add(), scaled, reshape(build, bias, shape))


# -- interpolation --------------------------------------------------------------------------------


def _known(op: Op, inputs: Sequence[Value]) -> bool:
    return all(value.constant is not None for value in inputs[1:])


def resample(
    build: Builder, x: Value, tables: Sequence[AxisTable], *, half_away: bool = False
) -> list[Value]:
    """Apply the tables of an interpolation."""
    if not tables:
        return [x]
    parameters = []
    for table in tables:
        parameters.append(build.constant(table.index.astype(np.int32)))
        weight = np.ones(table.index.shape) if table.weight is None else table.weight
        if table.outside is not None:
            weight = np.where(table.outside[:, None], 0.0, weight)
        # Halves are common where integers are resampled; in f32 they would round either way.
        exact = half_away and x.element_type.is_integer
        parameters.append(build.constant(weight.astype(np.float64 if exact else np.float32)))
    op = Resample(axes=tuple(table.axis for table in tables), half_away=half_away)
    return build.add(op, x, *parameters)


@decomposes(Interpolate1, when=_known)
def _interpolate_1(build: Builder, op: Interpolate1, inputs: Sequence[Value]) -> Sequence[Value]:
    x, sizes = inputs
    axes = build.constant(np.asarray(op.axes, np.int64))
    return _interpolate(build, op.modern(x.rank), [x, sizes, axes])


@decomposes(Interpolate4, when=_known)
def _interpolate_4(build: Builder, op: Interpolate4, inputs: Sequence[Value]) -> Sequence[Value]:
    x, sizes, scales = inputs[:3]
    by_sizes = op.shape_calculation_mode is ShapeCalculation.SIZES
    return _interpolate(build, op.modern(), [x, sizes if by_sizes else scales, *inputs[3:]])


@decomposes(Interpolate, when=_known)
def _interpolate(build: Builder, op: Interpolate, inputs: Sequence[Value]) -> Sequence[Value]:
    x, target = inputs[:2]
    given = np.asarray(inputs[2].constant).reshape(-1) if len(inputs) > 2 else range(x.rank)
    axes = [normalize_axis(int(axis), x.rank) for axis in given]
    (out,) = op.infer([_desc(value) for value in inputs])
    assert out.shape is not None
    x = _padded(build, op, x)
    shape = out.shape.static
    if op.shape_calculation_mode is ShapeCalculation.SIZES:
        scales = [shape[a] / x.shape[a] if x.shape[a] else 1.0 for a in axes]
    else:
        scales = [float(s) for s in np.asarray(target.constant).reshape(-1)]
    shrinks = any(scale < 1 for scale in scales)
    tables = [
        interpolate_table(op, axis, x.shape[axis], shape[axis], scale, shrinks=shrinks)
        for axis, scale in zip(axes, scales, strict=True)
        if x.shape[axis] and (shape[axis] != x.shape[axis] or scale != 1)
    ]
    if op.mode in (InterpolateMode.BILINEAR_PILLOW, InterpolateMode.BICUBIC_PILLOW):
        # Pillow rounds integers after each axis, the last one first.
        for table in reversed(tables):
            (x,) = resample(build, x, [table], half_away=True)
        return [x]
    return resample(build, x, tables, half_away=op.mode is InterpolateMode.LINEAR)


def _padded(build: Builder, op: Interpolate, x: Value) -> Value:
    missing = (0,) * x.rank
    begin, end = (*op.pads_begin, *missing)[: x.rank], (*op.pads_end, *missing)[: x.rank]
    if not any(begin) and not any(end):
        return x
    pads = [build.constant(np.asarray(pad, np.int64)) for pad in (begin, end)]
    return build.one(Pad(), x, *pads)


@decomposes(Resize, when=lambda op, x: _known(op, x) and op.extrapolation_value == 0)
def _resize(build: Builder, op: Resize, inputs: Sequence[Value]) -> Sequence[Value]:
    x, target = inputs[:2]
    axes = [normalize_axis(a, x.rank) for a in (range(x.rank) if op.axes is None else op.axes)]
    (out,) = op.infer([_desc(value) for value in inputs])
    assert out.shape is not None
    numbers = np.asarray(target.constant).reshape(-1)
    if numbers.dtype.kind == "f":
        scales = [float(s) for s in numbers]
    else:
        scales = op.fitted(x.shape, [int(n) for n in numbers])[1]
    region = [0.0] * len(axes) + [1.0] * len(axes)
    given = np.asarray(inputs[2].constant).reshape(-1) if len(inputs) > 2 else np.empty(0)
    if given.size == len(region):
        region = [float(v) for v in given]
    tables = [
        resize_table(
            op, axis, x.shape[axis], out.shape.static[axis], scale,
            (region[i], region[i + len(axes)]),
        )
        for i, (axis, scale) in enumerate(zip(axes, scales, strict=True))
        if x.shape[axis]
        and (out.shape.static[axis] != x.shape[axis] or scale != 1 or len(inputs) > 2)
    ]  # fmt: skip
    return resample(build, x, tables)


def _desc(value: Value) -> TensorDesc:
    return TensorDesc(value.element_type, Shape(value.shape), value.constant)
