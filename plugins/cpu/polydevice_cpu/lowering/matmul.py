"""Matrix products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.matmul import MatMul
from polydevice.symbolic_size import is_symbolic
from polydevice.symbolic_trace import chosen
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.algorithms.by_machine.rows import wide_product
from polydevice_cpu.algorithms.product import product
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.arithmetic import reshaped
from polydevice_cpu.onednn.attributes import Attributes, PostOp
from polydevice_cpu.onednn.constants import Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import Descriptor, row_major
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import convolution, matmul
from polydevice_cpu.plan.building.pending import Flow, Packed, Pending
from polydevice_cpu.plan.building.sight import Flat, Positions
from polydevice_cpu.plan.holding import hold_seen
from polydevice_cpu.plan.result_types import result_type
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, PrimitiveStep
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(MatMul, heavy=True)
def lower_matmul(builder: PlanBuilder, node: Node) -> bool:
    """Multiply matrices; transposed and strided sources are read in place where possible."""
    op = node.operation(MatMul)
    a, b = node.inputs
    (target,) = node.outputs
    if not target.desc.is_static or a.element_type not in (ElementType.f32, ElementType.f64):
        return False
    assert a.shape is not None
    assert b.shape is not None
    assert target.shape is not None
    if 0 in (*a.shape, *b.shape):
        return False  # empty products are NumPy's
    is_wide = a.element_type is ElementType.f64
    if min(len(a.shape), len(b.shape)) < 2:
        return not is_wide and _of_vector(builder, node)
    if is_wide:
        return _multiply_wide(builder, node)
    shape = target.shape.static
    rank = len(shape)
    left = matrix(builder, builder.value(a), rank, transpose=op.transpose_a)
    if not left.in_reach:
        return False
    constant = b.desc.constant
    right: Flow | Packed
    if constant is not None:
        array = np.swapaxes(constant, -1, -2) if op.transpose_b else constant
        array = array.reshape((1,) * (rank - array.ndim) + array.shape)
        if _are_few_apart(left):
            left = builder.dense(left)
        if _convolve(builder, node, left, array, shape) or _flat(builder, node, left, array, shape):
            return True
        right = Packed(array, Query.WEIGHTS)
        wanted = Descriptor.any(array.shape, builder.heavy_type(node))
    else:
        value = matrix(builder, builder.value(b), rank, transpose=op.transpose_b)
        if not value.in_reach:
            return False
        right, wanted = Flow(value, Query.WEIGHTS), value.descriptor
    return _hold(builder, node, left, right, wanted, shape)


def _of_vector(builder: PlanBuilder, node: Node) -> bool:
    """Multiply with a vector as with a matrix of one row or one column.

    Rows times a vector are one product, however many matrices they make up.
    """
    op = node.operation(MatMul)
    a, b = (builder.value(port) for port in node.inputs)
    if not (a.in_reach and b.in_reach):
        return False
    is_row, is_column = len(a.shape) == 1, len(b.shape) == 1
    rank = max(len(a.shape), len(b.shape), 2)
    transposed = op.transpose_a and not is_row, op.transpose_b and not is_column
    left = matrix(builder, a, rank, transpose=transposed[0])
    if is_column:
        terms = b.elements
        right = builder.dense(b).view((terms, 1), (1, 1))
        left = builder.dense(left).view((left.elements // terms, terms), (terms, 1))
    else:
        right = matrix(builder, b, rank, transpose=transposed[1])
    sizes = (*right.shape[:-2], left.shape[-2], right.shape[-1])
    result = Descriptor.dense(sizes)
    made = matmul(left.descriptor, right.descriptor, None, result, Attributes())
    if made is None or made.is_reference:
        return False
    output, (target,) = builder.new(made.dst), node.outputs
    arguments: dict[int, Value] = {Arg.SRC: left, Arg.WEIGHTS: right, Arg.DST: output}
    builder.emit(PrimitiveStep(node.name, node.type, made, arguments, (Arg.DST,)))
    assert target.shape is not None
    shape = target.shape.static
    builder.set(target, output.view(shape, row_major(shape)))
    return True


def _multiply_wide(builder: PlanBuilder, node: Node) -> bool:
    """Multiply f64 matrices as they lie by machine code, which oneDNN has none of."""
    op, (a, b), (target,) = node.operation(MatMul), node.inputs, node.outputs
    constant = b.desc.constant
    if op.transpose_a or (op.transpose_b and constant is None) or not has_avx512():
        return False
    assert target.shape is not None
    if constant is None:
        right = builder.array_value(b)
    elif op.transpose_b:
        right = builder.constant(builder.derived(constant, "turned", _turned))
    else:
        right = builder.constant(constant)
    result = builder.new_dense(target.shape.static, np.dtype(np.float64))
    sources = [builder.array_value(a), right]
    how = lambda _: _WIDE, sources, [result], MACHINE_CODE
    builder.emit(ArrayStep(node.name, node.type, *how, writes=True))
    builder.set(target, result)
    return True


def _turned(array: Array) -> Array:
    return np.ascontiguousarray(array.swapaxes(-1, -2))


def _compute_wide(a: Array, b: Array, result: Array) -> tuple[()]:
    product(a, b, result)
    return ()


def _prepare_wide(values: Sequence[Value]) -> Code | None:
    """Return code of dense matrices: one for each other, or one that all others meet."""
    sides, batches = [], []
    *_, (*lead, rows, columns) = shapes = [value.shape for value in values]
    terms = shapes[0][-1]
    for shape in shapes:
        batches.append(math.prod(shape[:-2]))
        matrix_bytes = 8 * shape[-2] * shape[-1]
        sides.append(wide_product.Sides(8 * shape[-1], matrix_bytes if batches[-1] > 1 else 0))
    count = math.prod(lead)
    if any(batch not in (1, count) for batch in batches):
        return None
    if batches[1] == 1 and batches[0] == count:  # rows of all of them follow each other
        count, rows = 1, count * rows
    return wide_product.code_of((count, rows, terms, columns), *sides)


_WIDE = ByMachine(_compute_wide, _prepare_wide, may_refuse=False)


def _hold(
    builder: PlanBuilder,
    node: Node,
    left: Value,
    right: Flow | Packed,
    right_layout: Descriptor,
    shape: tuple[int, ...],
) -> bool:
    heavy = builder.heavy_type(node)
    as_it_is = _typed(left, heavy), retyped(right_layout, heavy)
    dense = Descriptor.dense(left.shape, heavy), Descriptor.any(right_layout.shape, heavy)
    candidates = [as_it_is, dense]
    key = (node.name, "matmul")
    known = builder.decisions.assumed(key)
    result = Descriptor.dense(shape, result_type(builder, node, heavy))
    order: Sequence[int] = (0, 1)
    if known is not None:
        assert isinstance(known, int)
        order = (known,)
    are_many = is_symbolic(shape[-2]) or shape[-2] >= SHARED_ROWS
    if known == APART or (known is None and are_many):  # else nothing is asked of sizes
        apart = _apart(as_it_is[0]), _apart(as_it_is[1])
        candidates.append(apart)
        if known is None and apart != as_it_is:
            first, other = (
                matmul(source, weights, None, result, Attributes())
                for source, weights in (as_it_is, apart)
            )
            if _calls_each(first) and other is not None and not _calls_each(other):
                order = (APART, 0, 1)
    for number in order:
        source, weights = candidates[number]

        def make(
            post_ops: Sequence[PostOp],
            bias: bool,
            source: Descriptor = source,
            weights: Descriptor = weights,
        ) -> Primitive | None:
            made = matmul(
                source,
                weights,
                Descriptor.dense((1,) * (len(shape) - 1) + shape[-1:]) if bias else None,
                result,
                Attributes(post_ops),
            )
            return None if made is None or made.is_reference else made

        primitive = None
        if known is None:
            primitive = make([], False)
            if primitive is None:
                continue
            builder.decisions.note(key, number)
        pending = Pending(
            node,
            make,
            {Arg.SRC: Flow(left, Query.SRC), Arg.WEIGHTS: right},
            primitive,
            builder.decisions,
            dst=result,
            assumed=[key] if primitive is None else [],
            bias_shape=(1,) * (len(shape) - 1) + shape[-1:],
        )
        builder.hold(node.outputs[0], pending)
        return True
    return False


APART = 2
"""The number of the candidate whose matrices are copied."""

SHARED_ROWS = 8
"""From so many rows on, matrices are copied where oneDNN has faster code then: of 64 products of
11x8 and 8x11 whose matrices lie between others', 5 of 30 us are left, of 48 of 49x32 and 32x49
80 of 190."""


def _calls_each(primitive: Primitive | None) -> bool:
    """Whether oneDNN calls its plain product for each matrix, as where a batch has short steps."""
    return primitive is not None and primitive.implementation.startswith(("gemm", "x64:gemm"))


def _apart(layout: Descriptor) -> Descriptor:
    """The layout with each matrix behind the other; in it rows or columns stay side by side."""
    strides = layout.strides
    if strides is None or len(strides) < 3:
        return layout
    shape = layout.shape
    if strides[-1] == 1 or strides[-2] != 1:
        return Descriptor.dense(shape, layout.data_type)
    rows, columns = shape[-2:]
    steps = row_major((*shape[:-2], columns, rows))
    return Descriptor.strided(shape, (*steps[:-2], 1, rows), layout.data_type)


FEW_APART = 1 << 15
"""So many numbers, in rows of one matrix that lie apart, are copied: oneDNN multiplies dense ones
as fast, the copy included, and the same code serves other numbers of rows; of rows that lie apart,
as the first ones of texts, it generates code of 0.3 ms for each number of them."""


def _are_few_apart(value: Value) -> bool:
    """Whether a matrix of few rows has them apart."""
    *lead, rows, columns = value.shape
    if value.strides is None or value.strides[-1] != 1 or value.strides[-2] == columns:
        return False
    return chosen(lambda: rows != 1 and math.prod(lead) == 1 and rows * columns <= FEW_APART)


FEW_ROWS = 16
"""Rows below which matrices times one matrix are taken together."""


def rows_together(weights: Array, shape: tuple[int, ...]) -> bool:
    """Whether several matrices of few rows, which make up the result, meet the same weights."""
    few = chosen(lambda: math.prod(shape[:-2]) > 1 and bool(shape[-2] < FEW_ROWS))
    return few and math.prod(weights.shape[:-2]) == 1


def _flat(
    builder: PlanBuilder, node: Node, left: Value, weights: Array, shape: tuple[int, ...]
) -> bool:
    """Multiply the rows of all matrices with one matrix at once.

    Each matrix by itself, few rows wait for the weights: 32 matrices of 1x192 times 192x2000 take
    oneDNN 3.2 650 us, 32 rows 223.
    """
    if not rows_together(weights, shape):
        return False
    left = builder.dense(left)
    heavy = builder.heavy_type(node)
    flat = Flat(left.shape, shape)
    matrix_ = weights.reshape(weights.shape[-2:])
    columns = shape[-1]
    source = Descriptor.dense(flat.sizes(left.shape), heavy)
    result = Descriptor.dense(flat.sizes(shape), result_type(builder, node, heavy))

    def make(post_ops: Sequence[PostOp], bias: bool) -> Primitive | None:
        made = matmul(
            source,
            Descriptor.any(matrix_.shape, heavy),
            Descriptor.dense((1, columns)) if bias else None,
            result,
            Attributes(post_ops),
        )
        return None if made is None or made.is_reference else made

    bias_shape = (1,) * (len(shape) - 1) + (columns,)
    return hold_seen(builder, node, "all rows", make, left, matrix_, result, bias_shape, flat)


def _convolve(
    builder: PlanBuilder, node: Node, left: Value, weights: Array, shape: tuple[int, ...]
) -> bool:
    """Multiply as a convolution with windows of one element, where oneDNN's code is faster so.

    In bf16 it takes the processor's tiles where a product does not: 36 rows of 120 numbers and
    6,625 columns take 63 instead of 480 us (AMX, oneDNN 3.2). In f32 its weights are packed once
    where, without AVX-512, a product packs them each time: 32 rows of 1,024 numbers and as many
    columns take 2.3 instead of 3.1 ms, 8 of 768 0.33 instead of 0.41, 128 of 384 as long (a Zen of
    the first generation). One row takes three times as long.
    """
    heavy = builder.heavy_type(node)
    if heavy not in _CONVOLVED or math.prod(weights.shape[:-2]) != 1:
        return False
    product_, convolution_ = _CONVOLVED[heavy]
    if heavy is DataType.BF16 and any(map(is_symbolic, (*left.shape, *shape))):
        return False
    if heavy is DataType.F32 and (has_avx512() or chosen(lambda: math.prod(shape[:-1]) == 1)):
        return False
    view = Positions(left.shape, shape)
    matrix_ = weights.reshape(weights.shape[-2:])
    flat = Descriptor.dense(view.sizes(left.shape), heavy)
    product = Descriptor.dense(view.sizes(shape), result_type(builder, node, heavy))
    plain = matmul(flat, Descriptor.any(matrix_.shape, heavy), None, product, Attributes())
    if plain is None or not product_(plain.implementation):
        return False
    columns = shape[-1]
    kernel = builder.derived(matrix_, "kernel of one element", _kernel)
    source, result = view.image(flat), view.image(product)

    def make(post_ops: Sequence[PostOp], bias: bool) -> Primitive | None:
        made = convolution(
            source,
            Descriptor.any(kernel.shape, heavy),
            Descriptor.dense((columns,)) if bias else None,
            result,
            (1, 1),
            (1, 1),
            (0, 0),
            (0, 0),
            Attributes(post_ops),
        )
        return made if made is not None and convolution_(made.implementation) else None

    bias_shape = (1,) * (len(shape) - 1) + (columns,)
    dense = builder.dense(left)
    return hold_seen(builder, node, "positions", make, dense, kernel, result, bias_shape, view)


TILES = "_amx"
"""How the names of oneDNN's code end that multiplies tiles."""

_Test = Callable[[str], bool]

_CONVOLVED: dict[DataType, tuple[_Test, _Test]] = {
    DataType.BF16: (lambda name: not name.endswith(TILES), lambda name: name.endswith(TILES)),
    DataType.F32: (
        lambda name: name.startswith("gemm"),
        lambda name: name.startswith("brgconv_1x1"),
    ),
}
"""Type → whether code of a product is the slower one, and that of a convolution the faster one."""


def _kernel(matrix_: Array) -> Array:
    """Weights [K, N] of a product as those of a convolution [N, K, 1, 1]."""
    return np.ascontiguousarray(matrix_.T)[:, :, np.newaxis, np.newaxis]


def _typed(value: Value, data_type: DataType) -> Descriptor:
    if value.strides is None:
        return Descriptor.dense(value.shape, data_type)
    return Descriptor.strided(value.shape, value.strides, data_type)


def retyped(descriptor: Descriptor, data_type: DataType) -> Descriptor:
    """The same layout, if it is known, of another type."""
    if descriptor.strides is None or descriptor.data_type is data_type:
        return descriptor
    return Descriptor.strided(descriptor.shape, descriptor.strides, data_type)


def matrix(builder: PlanBuilder, value: Value, rank: int, *, transpose: bool) -> Value:
    """The value with `rank` dimensions, its last two swapped if asked."""
    value = reshaped(builder, value, (1,) * (rank - len(value.shape)) + value.shape)
    if not transpose:
        return value
    if value.strides is None:
        value = builder.dense(value)
    assert value.strides is not None
    s, t = value.shape, value.strides
    return value.view((*s[:-2], s[-1], s[-2]), (*t[:-2], t[-1], t[-2]))


def multiplied_along(
    builder: PlanBuilder, node: Node, value: Value, factor: Array, axis: int
) -> Value | None:
    """Multiply a row-major value along one axis with a constant matrix [new size, size] of f32.

    Returns:
        A row-major value; None where oneDNN has no code.
    """
    before, behind = value.shape[:axis], value.shape[axis + 1 :]
    outer, inner, (count, size) = math.prod(before), math.prod(behind), factor.shape
    more = () if inner == 1 else (inner,)
    seen, sizes = (outer, size, *more), (outer, count, *more)
    values = value.view(seen, row_major(seen))
    constant = builder.constant(np.ascontiguousarray(factor.T if inner == 1 else factor[None]))
    left, right = (values, constant) if inner == 1 else (constant, values)
    made = matmul(left.descriptor, right.descriptor, None, Descriptor.dense(sizes), Attributes())
    if made is None or made.is_reference:
        return None
    result = builder.new(made.dst)
    arguments: dict[int, Value] = {Arg.SRC: left, Arg.WEIGHTS: right, Arg.DST: result}
    builder.emit(PrimitiveStep(node.name, node.type, made, arguments, (Arg.DST,)))
    shape = (*before, count, *behind)
    return result.view(shape, row_major(shape))
