"""Reductions: as pooling or a product with ones, of a short axis by NumPy, or as a primitive."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops import reduce
from polydevice.ops.op import Op
from polydevice.shape import normalize_axis
from polydevice.symbolic_size import is_symbolic
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.algorithms.by_machine.code import Code, has_vectors
from polydevice_cpu.algorithms.by_machine.reductions.kernel import How
from polydevice_cpu.algorithms.by_machine.reductions.loops import KINDS, code_of
from polydevice_cpu.algorithms.by_machine.rows.short_rows import extremes
from polydevice_cpu.algorithms.precision import LONGEST
from polydevice_cpu.implement import run
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.matmul import multiplied_along
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.onednn.descriptor import Descriptor, row_major
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import pooling, reduction
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute, PrimitiveStep
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

# Not the maximum and minimum: oneDNN starts them at the largest finite numbers, so that a row of
# infinities (a fully masked row of attention) would come out finite.
ALGORITHMS: dict[type[Op], Algorithm] = {
    reduce.ReduceMean: Algorithm.REDUCTION_MEAN,
    reduce.ReduceSum: Algorithm.REDUCTION_SUM,
}
_UFUNCS: dict[type[Op], np.ufunc] = {
    reduce.ReduceMean: np.add,
    reduce.ReduceSum: np.add,
    reduce.ReduceProd: np.multiply,
    reduce.ReduceMax: np.maximum,
    reduce.ReduceMin: np.minimum,
}
_POOLING: dict[type[Op], Algorithm] = {
    reduce.ReduceMean: Algorithm.POOLING_AVG_INCLUDE_PADDING,
}

ROW = 512
"""NumPy reduces axes of this length at most. 1,000 rows take it 1.4 µs of 2 numbers, 30 of 64 and
98 of 384, oneDNN 170, 182 and 215: each row costs that 0.17 µs."""

SUMMED = 128
"""Rows up to here are multiplied with ones: 197 of 192 take `reduce` 10 us and 13 so."""

COLUMNS, COMPARED = 12, 48
"""Axes up to here position by position, of sums and of what compares: to add up 64 times 4 of 16
numbers takes `reduce` 13 us and 4 so, to find the largest of 16 for 16,384 rows 1,277 and 105, of
32 1,900 and 1,161."""

_ROW_NS: dict[np.ufunc, int] = {np.add: 16, np.multiply: 16, np.maximum: 78, np.minimum: 78}
"""What `reduce` takes for a short row; a position takes 500."""


_NUMBERS = ElementType.f32, ElementType.f64, ElementType.i32, ElementType.i64
"""Types of which one element is its own sum, mean and maximum; others than f32 are else NumPy's."""

_HOW: dict[type[Op], How] = {
    reduce.ReduceMean: How.MEAN,
    reduce.ReduceSum: How.SUM,
    reduce.ReduceProd: How.PRODUCT,
    reduce.ReduceMax: How.LARGEST,
    reduce.ReduceMin: How.SMALLEST,
    reduce.ReduceL1: How.L1,
    reduce.ReduceL2: How.L2,
}

BEHIND = 16
"""From so many elements behind the reduced axes on, pooling and products read them side by side,
longer axes than `COLUMNS` from two elements on."""


@lowers(*_HOW)
def lower_reduce(builder: PlanBuilder, node: Node) -> bool:
    """Reduce along constant axes, and drop axes of one element."""
    op = node.operation(reduce.Reduction)
    source, axes_port = node.inputs
    axes_array = axes_port.desc.constant
    if axes_array is None or not source.desc.is_static or source.element_type not in _NUMBERS:
        return False
    value = builder.value(source)
    rank = len(value.shape)
    axes = {normalize_axis(int(axis), rank) for axis in axes_array.reshape(-1)}
    if not axes:
        return False
    kept = tuple(1 if d in axes else n for d, n in enumerate(value.shape))
    if kept == value.shape and type(op) in _UFUNCS:
        builder.set(node.outputs[0], value if op.keep_dims else _dropped(builder, value, axes))
        return True
    result = _reduced(builder, node, value, axes, kept)
    if result is None:
        return False
    if not op.keep_dims:
        result = _dropped(builder, result, axes)
    builder.set(node.outputs[0], result)
    return True


def _reduced(
    builder: PlanBuilder, node: Node, value: Value, axes: set[int], kept: tuple[int, ...]
) -> Value | None:
    """Reduce to the kept sizes, whichever way takes least; None where NumPy may do it."""
    is_f32 = node.inputs[0].element_type is ElementType.f32
    if is_f32 and value.strides is None:  # in blocks of channels, as convolutions leave them
        result = _as_pooling(builder, node, value, axes, kept)
        if result is not None:
            return result
    result = _by_code(builder, node, value, axes)
    if result is None and is_f32 and value.in_reach and type(node.op) in _UFUNCS:
        result = _as_pooling(builder, node, value, axes, kept)
        result = result or _in_memory_order(builder, node, value, axes)
    return result


def _has_code(value: Value, axes: set[int], how: How) -> bool:
    """Whether there is machine code; how it reads is found out for each size."""
    trace = current_trace()
    with contextlib.nullcontext() if trace is None else trace.silent():
        return code_of(value.shape, axes, value.dtype, how) is not None


def _by_code(builder: PlanBuilder, node: Node, value: Value, axes: set[int]) -> Value | None:
    """Reduce by machine code, in whichever order the axes lie; the result keeps the order."""
    how, op, threads = _HOW[type(node.op)], node.op, openmp.thread_count()
    if 0 in value.shape or not has_vectors():
        return None
    if value.dtype not in KINDS:
        value = builder.wide(value)
    if value.strides is None or not value.has_no_gaps:
        value = builder.dense(value)
    ordered, places = value.in_memory_order()
    along = {places.index(axis) for axis in axes}
    if value.dtype not in KINDS or not _has_code(ordered, along, how):
        return None
    kept = tuple(1 if axis in along else size for axis, size in enumerate(ordered.shape))
    result = builder.new_dense(kept, value.dtype)
    numbers = np.array(sorted(along))

    def write(x: Array, y: Array) -> tuple[()]:
        np.copyto(y, run(op, [x, numbers])[0].reshape(y.shape))
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        return code_of(values[0].shape, along, values[0].dtype, how, threads)

    computed = ByMachine(write, prepare, may_refuse=False)

    def start(_: Context) -> Compute:
        return computed

    step = ArrayStep(node.name, node.type, start, [ordered], [result], MACHINE_CODE, writes=True)
    builder.emit(step)
    return result.from_memory_order(places)


def _as_pooling(
    builder: PlanBuilder, node: Node, value: Value, axes: set[int], kept: tuple[int, ...]
) -> Value | None:
    rank = len(value.shape)
    algorithm = _POOLING.get(type(node.op))
    if algorithm is None or not 3 <= rank <= 5 or axes != set(range(2, rank)):
        return None
    kernel = value.shape[2:]
    ones, zeros = (1,) * len(kernel), (0,) * len(kernel)
    made = pooling(
        algorithm,
        value.descriptor,
        Descriptor.any(kept, value.descriptor.data_type),
        kernel,
        kernel,
        ones,
        zeros,
        zeros,
        Attributes(),
    )
    return _emitted(builder, node, value, made)


def _in_memory_order(
    builder: PlanBuilder, node: Node, value: Value, axes: set[int]
) -> Value | None:
    """Reduce what lies in another order of axes without moving it; the result keeps the order.

    The largest of 16 columns of 64x16 images with 64 channels next to each other: 24 instead of
    237 us.
    """
    # Sums in bf16 would lose what they are made of, and NumPy and oneDNN take 20 times as long.
    value, places = builder.wide(value).in_memory_order()
    axes = {places.index(axis) for axis in axes}
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(value.shape))
    result = (
        _as_columns(builder, node, value, axes, kept)
        or _as_rows(builder, node, value, axes, kept)
        or _as_reduction(builder, node, value, kept)
    )
    return None if result is None else result.from_memory_order(places)


def _as_columns(
    builder: PlanBuilder, node: Node, value: Value, axes: set[int], kept: tuple[int, ...]
) -> Value | None:
    """Reduce neighbouring axes of what has many elements, or none, behind them.

    A mean is pooled, what lies behind being channels next to each other; a sum is a product with
    ones. Of NumPy's `reduce` and these, in us: 16 times 20 of 100 numbers 8.9, 2.3 and 5.4; 8 times
    40 of 192 13, 3.1 and 4.2; 64 times 27 of 8 28, 6 and 7; 4,096 rows of 16 (sums only) 79 and 22.
    """
    first, behind = min(axes), max(axes) + 1
    if type(node.op) not in ALGORITHMS or len(axes) != behind - first:
        return None
    is_mean = isinstance(node.op, reduce.ReduceMean)
    before, count, inner = map(
        math.prod, (value.shape[:first], value.shape[first:behind], value.shape[behind:])
    )
    if (inner == 1 or not is_mean) and is_symbolic(count):  # ones are as many as numbers say
        return None
    summed = count <= SUMMED and not (is_mean and inner > 1)
    if inner < BEHIND and not (count > COLUMNS and (inner > 1 or summed)):
        return None
    source = builder.dense(value)
    if source.dtype != np.float32:  # sums in bf16 would lose what they are made of
        return None
    if is_mean and inner > 1:
        result = _pooled_columns(builder, node, source, (before, count, inner))
    else:
        sizes = (before, count, inner)
        seen = source.view(sizes, row_major(sizes))
        parts = np.full((1, count), 1 / count if is_mean else 1, np.float32)
        result = multiplied_along(builder, node, seen, parts, 1)
    return None if result is None else result.view(kept, row_major(kept))


def _pooled_columns(
    builder: PlanBuilder, node: Node, source: Value, sizes: tuple[int, int, int]
) -> Value | None:
    before, count, inner = sizes
    seen = source.seen_as(Descriptor.channels_last((before, inner, count, 1)))
    made = pooling(
        Algorithm.POOLING_AVG_INCLUDE_PADDING,
        seen.descriptor,
        Descriptor.channels_last((before, inner, 1, 1)),
        (count, 1),
        (count, 1),
        (1, 1),
        (0, 0),
        (0, 0),
        Attributes(),
    )
    return _emitted(builder, node, seen, made)


def _as_rows(
    builder: PlanBuilder, node: Node, value: Value, axes: set[int], kept: tuple[int, ...]
) -> Value | None:
    """Let NumPy reduce a short axis, or several that follow each other; of maxima long ones too."""
    first, behind = min(axes), max(axes) + 1
    count = math.prod(value.shape[first:behind])
    if len(axes) < behind - first or (type(node.op) in ALGORITHMS and count > ROW):
        return None
    source = builder.dense(value)
    if source.dtype != np.float32:  # sums in bf16 would lose what they are made of
        return None
    result = builder.new_dense(kept, source.dtype)
    axis = first
    sizes, left = ((*value.shape[:first], size, *value.shape[behind:]) for size in (count, 1))
    seen, target = source.view(sizes, row_major(sizes)), result.view(left, row_major(left))
    is_mean = isinstance(node.op, reduce.ReduceMean)
    ufunc = _UFUNCS[type(node.op)]
    longest = COLUMNS if ufunc in (np.add, np.multiply) else COMPARED

    is_last = axis == len(sizes) - 1
    is_extreme = is_last and ufunc in (np.maximum, np.minimum)

    def write(x: Array, y: Array) -> Sequence[Array]:
        count = x.shape[axis]
        if is_extreme and y.size > 1:
            rows, total = x.reshape(-1, count), y.reshape(-1)
            if extremes(rows, total, largest=ufunc is np.maximum):
                return ()
        if count > longest or _ROW_NS[ufunc] * y.size < 500 * count:  # ns that either way takes
            ufunc.reduce(x, axis=axis, keepdims=True, out=y)
        else:
            rows, total = x.swapaxes(0, axis), y.swapaxes(0, axis)[0, ...]  # no scalar
            ufunc(rows[0], rows[1], out=total)
            for position in range(2, count):
                ufunc(total, rows[position], out=total)
        if is_mean:
            np.divide(y, count, out=y)
        return ()

    builder.emit(ArrayStep(node.name, node.type, lambda _: write, [seen], [target], writes=True))
    return result


def _as_reduction(
    builder: PlanBuilder, node: Node, value: Value, kept: tuple[int, ...]
) -> Value | None:
    algorithm = ALGORITHMS.get(type(node.op))
    if algorithm is None or math.prod(value.shape) > LONGEST * math.prod(kept):
        return None
    source = value if value.is_dense else builder.dense(value)
    made = reduction(
        algorithm,
        source.descriptor,
        Descriptor.dense(kept, source.descriptor.data_type),
        Attributes(),
    )
    return _emitted(builder, node, source, made)


def _emitted(
    builder: PlanBuilder, node: Node, value: Value, made: Primitive | None
) -> Value | None:
    if made is None or made.is_reference:
        return None
    result = builder.new(made.dst)
    builder.emit(
        PrimitiveStep(node.name, node.type, made, {Arg.SRC: value, Arg.DST: result}, (Arg.DST,))
    )
    return result


def _dropped(builder: PlanBuilder, value: Value, axes: set[int]) -> Value:
    """The value without the axes, whose sizes are 1."""
    if value.strides is None:
        value = builder.dense(value)
    assert value.strides is not None
    left = [d for d in range(len(value.shape)) if d not in axes]
    return value.view(tuple(value.shape[d] for d in left), tuple(value.strides[d] for d in left))
