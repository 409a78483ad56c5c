"""dynamic_products: products in i32 of what was quantised at run time become products of bytes."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Evaluate, Node, Port, constant
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.rewrites.integers.products import fits, shift_of
from polydevice.rewrites.integers.quantised import NARROW, integers_of

_F32 = Convert(destination_type=ElementType.f32)


def dynamic_products(network: Network) -> None:
    """Replace MatMulInteger and ConvInteger whose results are all converted to f32.

    What a zero point of a matrix product adds is taken off in f32, so only where every sum is below
    2^24 and f32 has it exactly: differences of larger ones would lose what they are about.
    """
    users = network.consumers()
    new: dict[Port, Port] = {}
    for node in network.nodes():
        node.inputs = [new.get(port, port) for port in node.inputs]
        if not isinstance(node.op, (MatMul, Convolution)):
            continue
        readers = [reader for reader, _ in users[node.output]]
        if node.output.element_type is not ElementType.i32 or not all(
            isinstance(reader.op, Convert) and reader.op.destination_type is ElementType.f32
            for reader in readers
        ):
            continue
        made = _made(node, network.evaluate)
        for reader in readers if made is not None else []:
            assert made is not None
            made.names |= reader.output.names
            new[reader.output] = made


def _made(node: Node, evaluate: Evaluate | None) -> Port | None:
    found = _source(node.inputs[0])
    weights = integers_of(node.inputs[1], evaluate)
    if found is None or weights is None or not fits(node, weights):
        return None
    x, zero = found
    inputs = [
        x,
        constant(f"{node.name}/weights", weights).output,
        constant(f"{node.name}/scale", np.float32(1)).output,
    ]
    none = constant(f"{node.name}/zero", np.int32(0)).output
    op = IntegerProduct(node.op)
    if zero is None or isinstance(node.op, Convolution):
        return Node(node.name, op, [*inputs, none if zero is None else zero]).output
    most = np.abs(weights.astype(np.int64)).sum(axis=_terms_axis(node, weights)).max(initial=0)
    if most * 255 >= 1 << 24 or node.inputs[0].desc.rank is None:
        return None
    made = Node(node.name, op, [*inputs, none])
    sums = shift_of(node, weights, -1, np.float32(1))
    wide = Node(f"{node.name}/zero_f32", _F32, [zero])
    added = Node(
        f"{node.name}/shift",
        Multiply(),
        [wide.output, constant(f"{node.name}/sums", sums).output],
    )
    return Node(f"{node.name}/shifted", Subtract(), [made.output, added.output]).output


def _terms_axis(node: Node, weights: Array) -> int:
    """The axis of a matrix along which products are summed."""
    assert isinstance(node.op, MatMul)
    return -1 if node.op.transpose_b or weights.ndim == 1 else -2


def _source(port: Port) -> tuple[Port, Port | None] | None:
    """The bytes that a port's i32 values are, and their zero point in i32, one number."""
    node, zero = port.node, None
    if isinstance(node.op, Subtract):
        zero = node.inputs[1]
        node = node.inputs[0].node
        shape = zero.shape
        if shape is None or any(size != 1 for size in shape) or len(shape) > 1:
            return None
        if zero.element_type is not ElementType.i32:
            return None
    if not isinstance(node.op, Convert) or node.inputs[0].element_type not in NARROW:
        return None
    x = node.inputs[0]
    return None if x.node.constant is not None else (x, zero)
