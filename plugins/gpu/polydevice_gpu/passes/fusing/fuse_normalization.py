"""fuse_normalization: products with constant weights normalise the rows that they read.

Of x normalised, scaled and shifted, times W the scale can be in W and the shift behind the product;
then (x - mean) W = x W - mean * (the sums of W's columns), so that the matrix units need not know
the mean before they begin. A launch less, and nothing between it and the product in memory.
"""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.matmul import MatMul
from polydevice.ops.normalization import MVN, EpsMode
from polydevice.processor.halves import as_halves
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.kernels.gemm.gemm import Product
from polydevice_gpu.kernels.kernel import kernels_of
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import NormalizedMatMul
from polydevice_gpu.passes.select_kernels import choose_kernel
from polydevice_gpu.views import integers

_LAUNCH_US, _BYTES_PER_US = 3.5, 2.2e6
"""Of a normalisation on an H200: 197 rows of 768 in half, and 6304."""
_AT_ONCE = min(8, os.cpu_count() or 1)
"""Products whose weights are scaled at the same time: BERT-base's took 0.63 s one by one there."""


def fuse_normalization(graph: GpuGraph, target: Target) -> None:
    """Let products that read a normalisation compute it where that is expected to take less time.

    Others that read it, as the residual sums behind it in BERT, still need it: that pays in one
    launch, where the normalisation then runs beside the product instead of before it.
    """
    if target.sizes_vary:
        return  # weights would be made anew for each size
    users = graph.users()
    normalised: list[tuple[GpuNode, Array, Array]] = []
    for node in list(graph.nodes):
        factors = _factors(node)
        readers = list(dict.fromkeys(users.get(node.output, ()))) if factors else []
        if factors is None or node.output.is_output or not readers:
            continue
        others = [reader for reader in readers if not _multiplies(reader, node.output)]
        if others and not graph.side_by_side:
            continue
        readers = [reader for reader in readers if reader not in others]
        if not readers:
            continue
        saved = _LAUNCH_US + 4.0 * node.output.elements / _BYTES_PER_US
        if not all(_gains(reader, node, target, saved / len(readers)) for reader in readers):
            continue
        for reader in readers:
            _normalise(reader, node)
            normalised.append((reader, *factors))
            users.setdefault(node.inputs[0], []).append(reader)
        if not others:
            readers[0].origins += node.origins
            graph.nodes.remove(node)
    with ThreadPoolExecutor(_AT_ONCE, "polydevice-weights") as pool:
        made = pool.map(lambda given: _constants(*given), normalised)
        for (reader, *_), constants in zip(normalised, made, strict=True):
            x, _, *extras = reader.inputs
            reader.inputs = [x, *constants, *extras]


def _factors(node: GpuNode) -> tuple[Array, Array] | None:
    """Return scale and shift of a normalisation along the last axis; None for all other nodes."""
    op = node.op
    if not isinstance(op, MVN) or not op.normalize_variance or node.is_opaque:
        return None
    x = node.inputs[0]
    if op.eps_mode is not EpsMode.INSIDE_SQRT or node.inputs[1].constant is None or x.rank < 2:
        return None
    axes = {normalize_axis(axis, x.rank) for axis in integers(node, 1)}
    if axes != {x.rank - 1}:
        return None
    scale, shift = np.ones(x.shape[-1]), np.zeros(x.shape[-1])
    steps = () if node.epilogue is None else node.epilogue.steps
    now = 0
    for number, step in enumerate(steps, 1 + len(node.extra_inputs)):
        others = [argument - 1 for argument in step.arguments if argument != now]
        if len(others) != 1 or len(step.arguments) != 2 or not 0 <= others[0] < number - 1:
            return None
        if others[0] >= len(node.extra_inputs):
            return None
        columns = _columns(node.extra_inputs[others[0]], x.shape[-1])
        if columns is None or type(step.op) not in (Add, Multiply):
            return None
        if type(step.op) is Add:
            shift = shift + columns
        else:
            scale, shift = scale * columns, shift * columns
        now = number
    return scale, shift


def _columns(value: Value, count: int) -> Array | None:
    """Return a constant as a number for each column; None if it is none."""
    if value.constant is None:
        return None
    array = np.asarray(value.constant, np.float64)
    if array.size == 1:
        return np.full(count, array.reshape(-1)[0])
    return array.reshape(-1) if array.size == array.shape[-1] == count else None


def _multiplies(reader: GpuNode, value: Value) -> bool:
    """Whether a node is a product of the value's rows with a constant matrix, and no more."""
    return (
        type(reader.op) is MatMul
        and not reader.is_opaque
        and not reader.op.transpose_a
        and reader.inputs[0] is value
        and reader.inputs.count(value) == 1
        and reader.inputs[1].constant is not None
        and reader.inputs[1].rank == 2
    )


def _gains(reader: GpuNode, node: GpuNode, target: Target, saved_us: float) -> bool:
    """Whether a product that normalises is expected to take less time than both."""
    plain, _ = choose_kernel(reader, target)
    if not isinstance(plain, Product):
        return False
    before = plain.expected_us(reader, plain.default_mode(reader, target), target)
    op, inputs = reader.op, reader.inputs
    columns = Value(f"{reader.name}/columns", ElementType.f32, reader.output.shape[-1:])
    own, extras = reader.own_inputs, reader.extra_inputs
    reader.op = NormalizedMatMul(**op.attributes())
    reader.inputs = [node.inputs[0], own[1], columns, columns, *extras]
    try:
        able = (
            each
            for each in kernels_of(NormalizedMatMul)
            if isinstance(each, Product)
            and not each.refuses(reader, target)
            and not each.yields(reader, target)
        )
        after = min(
            (each.expected_us(reader, each.default_mode(reader, target), target) for each in able),
            default=math.inf,
        )
    finally:
        reader.op, reader.inputs = op, inputs
    return after < before + saved_us


def _normalise(reader: GpuNode, node: GpuNode) -> None:
    """Let a product read what a normalisation read; its constants are made later."""
    op, mvn = reader.operation(MatMul), node.op
    assert isinstance(mvn, MVN)
    assert len(reader.own_inputs) == 2
    reader.op = NormalizedMatMul(**op.attributes(), eps=mvn.eps)
    reader.inputs = [node.inputs[0], *reader.inputs[1:]]


def _constants(reader: GpuNode, scale: Array, shift: Array) -> list[Value]:
    """Return a product's weights times the scale, the sums of their columns, and its shift."""
    weights, op = reader.inputs[1], reader.operation(NormalizedMatMul)
    matrix = np.asarray(weights.constant)
    by_term = scale if op.transpose_b else scale[:, None]
    with np.errstate(all="ignore"):  # of this thread
        scaled = (matrix * by_term.astype(np.float32)).astype(matrix.dtype, copy=False)
        kind = weights.storage
        stored = as_halves(scaled) if kind is ElementType.f16 else scaled.astype(kind.dtype)
        sums = stored.sum(1 if op.transpose_b else 0, np.float64)
        # BLAS would have threads of its own beside those that call it: 24 such products of 768x3072
        # took 431 ms of CPU, and take 24 (2 cores of a Xeon with AMX).
        moved = np.einsum("ck,k->c" if op.transpose_b else "kc,k->c", matrix, shift)
    scaled.flags.writeable = False  # so that it needs not be read to know that it is the same
    made = constant_value(f"{weights.name}/scaled", scaled, weights.element_type)
    made.storage = kind
    columns = (
        constant_value(f"{weights.name}/{name}", array.astype(np.float32))
        for name, array in (("sums", sums), ("shift", moved))
    )
    return [made, *columns]
