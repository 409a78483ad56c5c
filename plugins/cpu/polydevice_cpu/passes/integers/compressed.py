"""Products with matrices of 4 or 8 bits: the matrix stays as small as the model has it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.node import ACCURACY_LEVEL, EIGHT_BITS, Node, Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.reshape import Reshape
from polydevice.rewrites.integers.compressed import Compressed, compressed
from polydevice.rewrites.pattern import Replacements
from polydevice.tensor import TensorDesc
from polydevice_cpu.algorithms.by_machine.code import has_avx512

LEAST_ELEMENTS, LEAST_IN_TILES = 1 << 14, 1 << 20
"""Smaller matrices of f32 are read from the cache; where there is no machine code for them, taking
their blocks apart takes longer with larger ones as well."""

LEAST_BLOCK = 16
"""Terms of the smallest block that is worth a call."""


@operation("CompressedMatMul", domain="polydevice.cpu")
class CompressedMatMul(Op):
    """Product with a matrix of 4 or 8 bits: y = x @ ((q - center) * scales)^T, by blocks of terms.

    Attributes:
        bits: of the integers: 4 or 8.
        center: what is subtracted from all of them; then they fit into signed ones of as many bits.
        rounds_rows: whether rows of x may be rounded to 8 bits, with a factor for each block.

    Inputs:  x       [..., K], f32
             q       [N, K], u8 or i8, one number a byte
             scales  [N, G] f32, G divides K
    Outputs: y       [..., N], f32
    Source:  made from MatMul whose second factor is dequantised
    """

    bits: int = attribute()
    center: int = attribute()
    rounds_rows: bool = attribute(default=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's rows with N columns."""
        x, q = inputs[:2]
        assert x.shape is not None
        assert q.shape is not None
        return [x.with_shape([*x.shape[:-1], q.shape[0]]).without_value()]


def compress_products(network: Network, row_group: int = 0) -> None:
    """Put CompressedMatMul in the place of products with large dequantised matrices.

    Zero points that are not all in the middle of the integers' range are a second, small product:
    of the sums of x over each block.

    Args:
        network: what to rewrite, in place.
        row_group: of how many terms rows may be rounded together at most; 0 where the model alone
            says which are.
    """
    replacements = Replacements()
    kept = KeptLayers.of(network)
    for node in network.nodes():
        if not isinstance(node.op, MatMul) or kept.has(node.layers) or not _is_wanted(node):
            continue
        found = compressed(node.inputs[1], turned=node.op.transpose_b)
        if found is not None and found.q.shape[1] // found.scales.shape[1] >= LEAST_BLOCK:
            x = replacements.now(node.inputs[0])
            replacements.put(node.output, _emitted(node, x, found, row_group))
    replacements.apply(network)


def _is_wanted(node: Node) -> bool:
    """Whether a product has a large matrix."""
    x, w = (port.desc for port in node.inputs)
    if not w.is_static or x.shape is None or node.operation(MatMul).transpose_a:
        return False
    assert w.shape is not None
    is_f32 = x.element_type is w.element_type is ElementType.f32
    sizes, least = w.shape.static, LEAST_ELEMENTS if has_avx512() else LEAST_IN_TILES
    return is_f32 and len(x.shape) > 1 and len(sizes) == 2 and math.prod(sizes) >= least


def _emitted(node: Node, x: Port, found: Compressed, row_group: int) -> Port:
    bits = found.kind.bits
    center = found.least + (1 << (bits - 1))
    build = Emitter(node.name, origins=node.layers)
    rounds_rows = row_group > 0 or node.rt_info.get(ACCURACY_LEVEL) == EIGHT_BITS
    op = CompressedMatMul(bits=bits, center=center, rounds_rows=rounds_rows)
    scales = _in_groups(found, row_group)
    if (found.zeros == center).all():
        return build.replacement(node, op, x, found.q, scales)
    product = build.emit(op, x, found.q, scales, name=f"{node.name}/center")
    shifts = np.ascontiguousarray(((center - found.zeros) * found.scales).T, np.float32)
    assert x.shape is not None
    blocks, terms = len(shifts), found.q.shape[1] // len(shifts)
    target = np.array([*[0] * (len(x.shape) - 1), blocks, terms], np.int64)
    parted = build.emit(Reshape(special_zero=True), x, target, name=f"{node.name}/blocks")
    sums = build.emit(ReduceSum(keep_dims=False), parted, [-1], name=f"{node.name}/sums")
    shift = build.emit(MatMul(), sums, shifts, name=f"{node.name}/shift")
    return build.replacement(node, Add(), shift, product)


def _in_groups(found: Compressed, most: int) -> Array:
    """Scales for blocks of so many terms at most, as far as whole groups of 8 make up a block."""
    block = found.q.shape[1] // found.scales.shape[1]
    if not most or block <= most or block % _GROUP:
        return found.scales
    sizes = range(max(most // _GROUP, 1) * _GROUP, 0, -_GROUP)
    size = next(each for each in sizes if block % each == 0)
    return found.scales.repeat(block // size, axis=1)


_GROUP = 8
"""Terms of which blocks that are multiplied on integers are made up."""
