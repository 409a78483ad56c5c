"""fuse_quantize: quantising and dequantising at once becomes one operation in f32.

As such it can be a post-operation of what computes its input. It is not FakeQuantize, whose limits
are those of the range: with them a zero comes out as a rounding error (-128 * s + 128 * s), and
Sign, Floor and Sqrt behind it turn that into another number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import broadcast_onto
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.pattern import Replacements
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc


@operation("QuantizeDequantize", domain="polydevice.cpu")
class QuantizeDequantize(Op):
    """clip(round(x / scale), least - zero, most - zero) * scale, halves rounded to even.

    That is what ONNX's pair computes, to the last bit; zeros are +0.

    Inputs:  x      any shape, f32
             scale  one number, or one per channel [1, C, 1...], f32
             zero   zero point, in the shape of scale, f32
    Outputs: y      shape and type of x
    Source:  ONNX QuantizeLinear-13 and DequantizeLinear-13
    """

    least: int = attribute()
    most: int = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x; raises ShapeError where it has another number of channels."""
        x, scale, _ = inputs
        if x.shape is not None and scale.shape is not None:
            broadcast_onto(x.shape, Shape([1] * (len(x.shape) - len(scale.shape)) + [*scale.shape]))
        return [x.without_value()]


def fuse_quantize(network: Network) -> None:
    """Replace pairs with the same constant scale and zero point, of u8 or i8."""
    made: dict[Port, Port] = {}
    replacements = Replacements()
    users = network.consumers()
    for node in network.nodes():
        inner = node.inputs[0].node if node.inputs else node
        if not isinstance(node.op, DequantizeLinear) or not isinstance(inner.op, QuantizeLinear):
            continue
        readers = [reader for reader, _ in users[node.inputs[0]]]
        if len(users[node.output]) > 1 or not all(
            isinstance(reader.op, DequantizeLinear) for reader in readers
        ):
            continue  # the integers are wanted, or worth to be kept
        parameters = _parameters(node, inner)
        if parameters is None:
            continue
        quantised = node.inputs[0]
        if quantised not in made:
            scale, zero = (
                constant(f"{node.name}/{name}", array).output
                for name, array in zip(("scale", "zero"), parameters, strict=True)
            )
            signed = inner.output.element_type is ElementType.i8
            op = QuantizeDequantize(least=-128, most=127) if signed else QuantizeDequantize(0, 255)
            made[quantised] = replacements.put_node(node, op, [inner.inputs[0], scale, zero])
        else:
            replacements.put(node.output, made[quantised])
    replacements.apply(network)


def _parameters(dequantise: Node, quantise: Node) -> tuple[Array, Array] | None:
    """Scale and zero point of the pair as the operation takes them; None for another pair."""
    op, x = quantise.op, quantise.inputs[0]
    assert isinstance(op, QuantizeLinear)
    kind, rank = quantise.output.element_type.value, x.desc.rank
    if kind not in ("u8", "i8") or x.element_type.value != "f32" or rank is None:
        return None
    if op.block_size or dequantise.output.element_type.value != "f32":
        return None
    values = []
    for one, other in zip(quantise.inputs[1:], dequantise.inputs[1:], strict=False):
        first, second = one.node.constant, other.node.constant
        if first is None or second is None or not np.array_equal(first, second):
            return None
        values.append(first)
    if not values or len(quantise.inputs) != len(dequantise.inputs):
        return None
    scale = np.asarray(values[0], np.float64)
    zero = np.asarray(values[1], np.float64) if len(values) > 1 else np.zeros_like(scale)
    if scale.size != 1:
        same_axis = isinstance(dequantise.op, DequantizeLinear) and dequantise.op.axis == op.axis
        if scale.ndim != 1 or not same_axis:
            return None
        shape = [1] * rank
        shape[op.axis % rank] = -1
        scale, zero = scale.reshape(shape), zero.reshape(shape)
    if not (scale > 0).all():
        return None
    return scale.astype(np.float32), zero.astype(np.float32)
