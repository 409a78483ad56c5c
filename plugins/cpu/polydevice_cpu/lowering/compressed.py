"""Products with matrices of 4 or 8 bits, which are read as they are kept."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.emitter import Emitter
from polydevice.ops.matmul import MatMul
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.compressed import packing
from polydevice_cpu.algorithms.by_machine.compressed import product as on_integers
from polydevice_cpu.algorithms.by_machine.panels import product as in_floats
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.convolution.digits import layer_of, may_be_digits
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Binary, Quantisation, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.primitive import Primitive, built
from polydevice_cpu.onednn.primitives import matmul
from polydevice_cpu.passes.integers.compressed import LEAST_BLOCK, CompressedMatMul
from polydevice_cpu.passes.integers.grids import grid_of
from polydevice_cpu.plan.array_steps.compressed import BYTES, TiledProduct
from polydevice_cpu.plan.array_steps.compressed_code import of_digits, of_floats
from polydevice_cpu.plan.array_steps.unpacked import UnpackedProduct
from polydevice_cpu.plan.building.tiles import Tiling
from polydevice_cpu.plan.step import IN_TILES, MACHINE_CODE, ArrayStep, CodeStep
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.proof import refusal

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

MOST_ROWS = 16
"""Rows at once, three times as many of bytes: with their sums over 4,096 columns they stay in a
cache of 1 MiB."""

MOST_COLUMNS = 4096
MOST_TERMS = {4: 128, 8: 1024}
"""Of a tile, by bits; one of 4 bits is made 8 first, and should stay in the cache then."""

TILE_ELEMENTS = 1 << 19
_COLUMN_BLOCK = 64
_BYTE = 8

_WHOLE = 64
"""Terms of a tile below which oneDNN's layout has gaps. Smaller blocks share a tile, which is made
8 bits at once and multiplied for each of them, with zeros for the others' terms: one row by
4096x4096 in blocks of 32 took 3.4 ms with gaps and 2.7 without."""


INTEGERS_MS, FLOATS_MS, UNPACKING_MS = 0.36, 0.31, 7.5
"""What a row by 4096x4096 takes on integers and in f32, and to make the matrix one of f32, on one
thread (AMD EPYC with AVX-512 VNNI). 64 rows by one of 4 bits in blocks of 32: 45 and 28 ms."""

UNPACKED_TERMS, UNPACKED_COLUMNS = 512, 512
"""Of a tile of f32 at most: it stays in a cache of 1 MiB."""


@lowers(CompressedMatMul, heavy=True)
def lower_compressed_matmul(builder: PlanBuilder, node: Node) -> bool:
    """Multiply bytes of x with tiles of integers; without code that is right for it, in f32."""
    q, scales = (port.desc.constant for port in node.inputs[1:])
    shape = node.output.shape
    if q is None or scales is None or shape is None or not shape.is_static or 0 in shape.static:
        return False
    rows = math.prod(shape.static[:-1])
    if has_avx512():
        if not _emit_digits(builder, node, q, scales):
            _emit_code(builder, node, q, scales)
        return True
    unpacked = _unpacked(builder, node, q, scales, rows)
    if unpacked is not None:
        _emit_unpacked(builder, node, unpacked)
        return True
    at_once = -(-rows // -(-rows // MOST_ROWS))
    found = _product(builder, node, q, scales, at_once)
    if isinstance(found, str):
        builder.refuse(node.name, found)
        _lower_in_float(builder, node, q, scales)
        return True
    tiling, byte, number = found.tiling, np.dtype(np.uint8), np.dtype(np.float32)
    x, y = builder.array_value(node.inputs[0]), builder.new_dense(shape.static, number)
    room = [
        builder.new_dense((found.calls, BYTES, at_once, tiling.terms), byte),
        builder.new_dense((tiling.layout.size_bytes,), byte),
        builder.new_dense((BYTES, at_once, tiling.columns), number),
    ]
    code = f"tiles of {tiling.bits} bits by {found.primitive.implementation}"
    step = ArrayStep(node.name, node.type, found.start, [x], [y, *room], code, writes=True)
    builder.emit(step)
    builder.set(node.output, y)
    return True


def _emit_digits(builder: PlanBuilder, node: Node, q: Array, scales: Array) -> bool:
    """Multiply rows that have been rounded to 16 bits as two digits; False for others, and few."""
    op, target, grid = node.operation(CompressedMatMul), node.output.shape, grid_of(node.inputs[0])
    if grid is None or op.bits != _BYTE or scales.shape[1] > 1 or op.rounds_rows:
        return False
    assert target is not None
    rows = math.prod(target.static[:-1])
    if not may_be_digits(builder, node) or rows <= on_integers.MOST_FEW:
        return False
    integers = q
    if op.center:
        name = f"with a sign, less {op.center}"
        integers = builder.derived(q, name, lambda a: (a - np.int16(op.center)).astype(np.int8))
    layer = layer_of(grid, integers, np.ascontiguousarray(scales[:, 0]), None, [])
    code = layer.code(rows, openmp.thread_count())
    if code is None:
        return False
    read = builder.array_value(node.inputs[0])
    result = builder.new_dense(target.static, np.dtype(np.float32))
    room = builder.new_dense((layer.room(rows),), np.dtype(np.uint8))
    inputs = [read, read, builder.constant(layer.zero)]
    builder.emit(CodeStep(node.name, node.type, code, inputs, [result, room], (), IN_TILES))
    builder.set(node.output, result)
    return True


def _emit_code(builder: PlanBuilder, node: Node, q: Array, scales: Array) -> None:
    """Multiply by machine code: on integers where the processor multiplies bytes, else in f32."""
    op, threads, shape = node.operation(CompressedMatMul), openmp.thread_count(), node.output.shape
    assert shape is not None
    (columns, terms), rows = q.shape, math.prod(shape.static[:-1])
    block = terms // scales.shape[1]
    is_on_integers = on_integers.has_code(op.bits, block)
    kind = packing if is_on_integers else in_floats
    name = f"{kind.__name__} {op.bits} {op.center} {address_of(scales)}"
    integers = builder.derived(q, name, lambda array: kind.packed(array, op.bits, op.center))
    if is_on_integers:
        spread = builder.derived(scales, name, lambda array: packing.spread(array, block))
        matrix = packing.Matrix(op.bits, integers, spread, columns, terms)
        code = of_digits(matrix, threads, rounds_rows=op.rounds_rows)
    else:
        spread = builder.derived(scales, name, in_floats.spread)
        code = of_floats(in_floats.Panels(op.bits, integers, spread, columns), threads)
    y = builder.new_dense(shape.static, np.dtype(np.float32))
    read, written = (
        each.view((rows, size), (size, 1))
        for each, size in ((builder.array_value(node.inputs[0]), terms), (y, columns))
    )
    room = builder.new_dense((code.room(rows),), np.dtype(np.uint8))
    how = lambda _: code.computed, [read] * code.reads, [written, room], MACHINE_CODE
    builder.emit(ArrayStep(node.name, node.type, *how, writes=True))
    builder.set(node.output, y)


def _product(
    builder: PlanBuilder, node: Node, q: Array, scales: Array, rows: int
) -> TiledProduct | str:
    """What computes the node, so many rows at once; or why nothing does."""
    op = node.operation(CompressedMatMul)
    (columns, terms), blocks = q.shape, scales.shape[1]
    length = _divisor(terms // blocks, MOST_TERMS[op.bits])
    if length < LEAST_BLOCK:
        return f"blocks of {terms // blocks} terms have no divisor that is worth a call"
    shared = _WHOLE // length if _WHOLE % length == 0 and terms % _WHOLE == 0 else 1
    length *= max(shared, 1)
    width = min(MOST_COLUMNS, TILE_ELEMENTS // length, columns)
    width = -(-columns // -(-columns // width))
    width = -(-width // _COLUMN_BLOCK) * _COLUMN_BLOCK
    make = partial(_primitive, length, width)
    with openmp.threads(1):  # threads would meet after every block
        few = make(1, Descriptor.any((length, width), DataType.S8))
        layout = None if few is None else few.weights
        made = None if layout is None else make(rows, layout)
    tiling = None if layout is None else Tiling.of(length, width, op.bits, layout)
    if made is None or tiling is None:
        return "oneDNN has no code for these integers"
    with openmp.threads(1):
        reason = refusal(_claim(made, length, width, rows))
    if reason:
        return reason
    made.compile()
    name = f"{layout.layout if layout else ''} {length}x{width} {op} {address_of(scales)}"
    return TiledProduct(
        op,
        made,
        rows,
        max(shared, 1),
        tiling,
        builder.derived(q, f"tiles {name}", lambda array: tiling.cut(array, op.center)),
        builder.derived(scales, f"scales {name}", tiling.spread),
        builder.derived(q, f"offsets {name}", lambda array: _offsets(array, scales, op.center)),
        q,
        scales,
    )


def _unpacked(
    builder: PlanBuilder, node: Node, q: Array, scales: Array, rows: int
) -> UnpackedProduct | None:
    """What computes the node in f32, a tile after the other, where that takes less time."""
    op, threads = node.operation(CompressedMatMul), openmp.thread_count()
    (columns, terms), blocks = q.shape, scales.shape[1]
    block = terms // blocks
    together = 1 if block % _WHOLE == 0 else _WHOLE // math.gcd(block, _WHOLE)
    if rows * INTEGERS_MS * together < UNPACKING_MS + rows * FLOATS_MS / threads:
        return None
    length = _divisor(block, UNPACKED_TERMS)
    if length == block:
        length *= _divisor(blocks, UNPACKED_TERMS // block)
    width = _COLUMN_BLOCK * _divisor(columns // _COLUMN_BLOCK, UNPACKED_COLUMNS // _COLUMN_BLOCK)
    if columns % _COLUMN_BLOCK or length < _WHOLE:
        return None
    source = Descriptor.strided((rows, length), (terms, 1), DataType.F32)
    tile = Descriptor.dense((length, width))
    target = Descriptor.strided((rows, width), (columns, 1), DataType.F32)
    made = matmul(source, tile, None, target, Attributes([Sum()]))
    tiling = Tiling.of(length, width, op.bits, Descriptor.dense((length, width), DataType.S8))
    if made is None or made.is_reference or tiling is None:
        return None
    plain = partial(matmul, source, tile, None, target, Attributes())
    if refusal(Claim(made, lambda: built(plain()), [Link(Sum())], 0, "matmul")):
        return None
    made.compile()
    name = f"{length}x{width} row by row {op} {address_of(scales)}"
    return UnpackedProduct(
        made,
        threads,
        tiling,
        builder.derived(q, f"tiles {name}", lambda array: tiling.cut(array, op.center)),
        builder.derived(scales, f"scales {name}", tiling.spread),
    )


def _emit_unpacked(builder: PlanBuilder, node: Node, found: UnpackedProduct) -> None:
    tiling, shape = found.tiling, node.output.shape
    assert shape is not None
    sizes, number = (tiling.terms, tiling.columns), np.dtype(np.float32)
    x, y = builder.array_value(node.inputs[0]), builder.new_dense(shape.static, number)
    room = [
        builder.new_dense((math.prod(sizes),), np.dtype(np.uint8)),
        builder.new_dense(sizes, number),
    ]
    code = f"tiles of {tiling.bits} bits in f32 by {found.primitive.implementation}"
    step = ArrayStep(node.name, node.type, found.start, [x], [y, *room], code, writes=True)
    builder.emit(step)
    builder.set(node.output, y)


def _divisor(number: int, most: int) -> int:
    """The largest divisor that is at most so much."""
    return next(each for each in range(min(number, most), 0, -1) if number % each == 0)


def _primitive(length: int, width: int, rows: int, weights: Descriptor) -> Primitive | None:
    made = matmul(
        Descriptor.dense((BYTES * rows, length), DataType.U8),
        weights,
        None,
        Descriptor.dense((BYTES * rows, width)),
        Attributes([Sum()], [Quantisation(Arg.WEIGHTS, 2)]),
    )
    return None if made is None or made.is_reference else made


def _claim(made: Primitive, length: int, width: int, rows: int) -> Claim:
    def base() -> Primitive:
        return built(
            matmul(
                Descriptor.dense((BYTES * rows, length)),
                Descriptor.any((length, width)),
                None,
                Descriptor.dense((BYTES * rows, width)),
                Attributes(),
            )
        )

    memory = Descriptor.dense((width,))
    place = Arg.ATTR_SCALES | Arg.WEIGHTS
    scale = Link(Binary(Algorithm.BINARY_MUL, memory), place, memory, (1, width))
    return Claim(made, base, [scale, Link(Sum())], 0, "matmul")


def _offsets(q: Array, scales: Array, center: int) -> Array:
    """128 times the sum of each column of the matrix."""
    sums = q.reshape(*scales.shape, -1).sum(axis=2, dtype=np.int64)
    sums -= center * (q.shape[1] // scales.shape[1])
    return np.asarray(128 * (sums * scales.astype(np.float64)).sum(axis=1), np.float32)


def _lower_in_float(builder: PlanBuilder, node: Node, q: Array, scales: Array) -> None:
    """Make numbers of f32 of the matrix once."""
    center = node.operation(CompressedMatMul).center

    def floats(array: Array) -> Array:
        wide = array.astype(np.float32) - np.float32(center)
        parted = wide.reshape(*scales.shape, -1) * scales[:, :, None]
        return np.asarray(parted.reshape(q.shape))

    build = Emitter(node.name, origins=node.layers)
    matrix = build.value(builder.derived(q, f"floats {address_of(scales)}", floats))
    build.emitted.clear()
    build.emit(MatMul(transpose_b=True), node.inputs[0], matrix)
    builder.lower_instead(node.output, build.emitted)
