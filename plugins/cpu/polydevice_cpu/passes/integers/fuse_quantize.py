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
from polydevice.ops.pad import Pad
from polydevice.ops.pointwise import broadcast_onto
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.movement import data_inputs, moves
from polydevice.rewrites.integers.quantised import NARROW
from polydevice.rewrites.pattern import Replacements
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_cpu.processor import has_int8


@operation("QuantizeDequantize", domain="polydevice.cpu")
class QuantizeDequantize(Op):
    """clip(round(x / divisor), least - zero, most - zero) * factor, halves rounded to even.

    That is what ONNX's pair computes, to the last bit, where both are its scale; zeros are +0.

    Inputs:  x        any shape, f32
             divisor  one number, or one per channel [1, C, 1...], f32
             zero     zero point, in the shape of the divisor, f32
             factor   in the shape of the divisor, f32
    Outputs: y        shape and type of x
    Source:  ONNX QuantizeLinear-13 and DequantizeLinear-13
    """

    least: int = attribute()
    most: int = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x; raises ShapeError where it has another number of channels."""
        x, scale, *_ = inputs
        if x.shape is not None and scale.shape is not None:
            broadcast_onto(x.shape, Shape([1] * (len(x.shape) - len(scale.shape)) + [*scale.shape]))
        return [x.without_value()]


_RANGES = {
    ElementType.u4: (0, 15),
    ElementType.i4: (-8, 7),
    ElementType.u8: (0, 255),
    ElementType.i8: (-128, 127),
    ElementType.u16: (0, 65535),
    ElementType.i16: (-32768, 32767),
}
"""The integers whose sums with a zero point f32 holds exactly."""


def fuse_quantize(network: Network) -> None:
    """Replace pairs with the same constant scale and zero point, of integers of up to 16 bits."""
    made: dict[Port, Port] = {}
    rounded: dict[Port, _Steps] = {}
    replacements = Replacements()
    users = network.consumers()
    for node in network.nodes():
        inner = node.inputs[0].node if node.inputs else node
        if moves(node):
            rounded |= _moved(node, rounded)
        if not isinstance(node.op, DequantizeLinear) or not isinstance(inner.op, QuantizeLinear):
            continue
        if not all(isinstance(reader.op, DequantizeLinear) for reader, _ in users[node.inputs[0]]):
            continue  # the integers are wanted
        if has_int8() and len(users[node.output]) > 1 and inner.output.element_type in NARROW:
            continue  # and worth to be kept: bytes are read faster than f32
        parameters = _parameters(node, inner)
        if parameters is None:
            continue
        quantised = node.inputs[0]
        op = QuantizeDequantize(*_RANGES[inner.output.element_type])
        if parameters[0].size == 1:
            scale, zero = (float(array.item()) for array in parameters)
            rounded[node.output] = (op, scale, zero)
            if rounded.get(inner.inputs[0]) == rounded[node.output]:
                made[quantised] = inner.inputs[0]  # which rounding so once more changes nothing in
        if quantised not in made:
            ports = [
                constant(f"{node.name}/{name}", array).output
                for name, array in zip(("scale", "zero"), parameters, strict=True)
            ]
            given = [inner.inputs[0], *ports, ports[0]]
            made[quantised] = replacements.put_node(node, op, given)
        else:
            replacements.put(node.output, made[quantised])
    replacements.apply(network)


_Steps = tuple[QuantizeDequantize, float, float]
"""How all elements of a value were rounded: the range, scale and zero point."""


def _moved(node: Node, rounded: dict[Port, _Steps]) -> dict[Port, _Steps]:
    """What is known of the results of a node that moves elements and adds none."""
    steps = {rounded.get(port) for port in data_inputs(node)}
    found = steps.pop() if len(steps) == 1 else None
    if found is None or isinstance(node.op, Pad):
        return {}
    return {port: found for port in node.outputs if port.element_type is ElementType.f32}


def _parameters(dequantise: Node, quantise: Node) -> tuple[Array, Array] | None:
    """Scale and zero point of the pair as the operation takes them; None for another pair."""
    op, x = quantise.op, quantise.inputs[0]
    assert isinstance(op, QuantizeLinear)
    kind, rank = quantise.output.element_type, x.desc.rank
    if kind not in _RANGES or x.element_type is not ElementType.f32 or rank is None:
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
