"""pad_early: what is quantised at run time gets its border before that, as zeros.

Kernels pad a zero point that they are built with. Zeros become whatever it is, by the launch that
quantises; what it then adds to each sum is the same everywhere, see `integer_product`.
"""

from __future__ import annotations

from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.pad import Pad
from polydevice.ops.quantize_linear import QuantizeLinear
from polydevice.ops.window import PadType
from polydevice.rewrites.integers.integer_product import IntegerProduct


def pad_early(network: Network) -> None:
    """Let convolutions of bytes whose zero point is no constant pad nothing."""
    for node in network.nodes():
        if isinstance(node.op, IntegerProduct) and node.inputs[3].node.constant is None:
            _pad(node, node.op)


def borders_of(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the borders that a product of quantised values pads; None where none are known."""
    if not isinstance(node.op, IntegerProduct):
        return None
    product, (x, w) = node.op.product, node.inputs[:2]
    if type(product) not in (Convolution, GroupConvolution) or w.shape is None:
        return None
    assert isinstance(product, Convolution)
    sizes, same = x.shape, product.auto_pad.is_same
    if not w.shape.is_static or sizes is None or (same and not sizes.is_static):
        return None
    begin, end = product.window(w.shape).pads(sizes.static[2:] if same else ())
    return (tuple(begin), tuple(end)) if any((*begin, *end)) else None


def _pad(node: Node, op: IntegerProduct) -> None:
    product, quantiser, borders = op.product, node.inputs[0].node, borders_of(node)
    if not isinstance(quantiser.op, QuantizeLinear) or borders is None:
        return
    (begin, end), (source, *parameters) = borders, quantiser.inputs
    build = Emitter(f"{node.name}/border", origins=quantiser.layers)
    padded = build.emit(Pad(), source, [0, 0, *begin], [0, 0, *end], build.like(0, source))
    whole = build.emit(quantiser.op, padded, *parameters)
    none = (0,) * len(begin)
    plain = product.replace(pads_begin=none, pads_end=none, auto_pad=PadType.EXPLICIT)
    node.op, node.inputs = IntegerProduct(plain), [whole, *node.inputs[1:]]
