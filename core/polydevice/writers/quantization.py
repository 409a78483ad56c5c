"""ONNX's QuantizeLinear and DequantizeLinear, said in operations that IR files have."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add, Divide, Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.math import Round
from polydevice.ops.quantize_linear import (
    DequantizeLinear,
    LinearQuantization,
    QuantizeLinear,
)
from polydevice.ops.reshape import Reshape
from polydevice.shape import normalize_axis

_RANGES = {
    kind: (float(np.iinfo(kind.dtype).min), float(np.iinfo(kind.dtype).max))
    for kind in (ElementType.i8, ElementType.u8, ElementType.i16, ElementType.u16)
}


def expand_quantization(network: Network, node: Node) -> None:
    """Replace a quantising node by arithmetic; one with blocks or narrower types stays."""
    op = node.op
    assert isinstance(op, LinearQuantization)
    scale = node.inputs[1]
    if op.block_size or scale.shape is None or not scale.element_type.is_float:
        return
    if isinstance(op, QuantizeLinear):
        made = _quantize(node)
    elif isinstance(op, DequantizeLinear):
        made = _dequantize(node)
    else:
        return
    if made is not None:
        made.rt_info.update(node.rt_info)
        network.replace({node.outputs[0]: made.output})


def _quantize(node: Node) -> Node | None:
    x, kind = node.inputs[0], node.outputs[0].element_type
    if kind not in _RANGES or x.element_type is not node.inputs[1].element_type:
        return None
    aligned = [_aligned(node, port) for port in node.inputs[1:]]
    if any(port is None for port in aligned):
        return None
    scale, *zero_point = [port for port in aligned if port is not None]
    value = Node(f"{node.name}/quotient", Divide(), [x, scale])
    value = Node(f"{node.name}/round", Round(), [value.output])
    for zero in zero_point:
        wide = Node(f"{node.name}/zero_point", Convert(destination_type=x.element_type), [zero])
        value = Node(f"{node.name}/shift", Add(), [value.output, wide.output])
    low, high = _RANGES[kind]
    value = Node(f"{node.name}/clamp", Clamp(min=low, max=high), [value.output])
    return Node(node.name, Convert(destination_type=kind), [value.output])


def _dequantize(node: Node) -> Node | None:
    x, kind = node.inputs[0], node.inputs[1].element_type
    whole = x.element_type is ElementType.i32
    if not (whole or x.element_type in _RANGES) or node.outputs[0].element_type is not kind:
        return None
    aligned = [_aligned(node, port) for port in node.inputs[1:]]
    if any(port is None for port in aligned):
        return None
    scale, *zero_point = [port for port in aligned if port is not None]
    # Sums of products have more digits than f32, so they are computed in f64.
    wide = ElementType.f64 if whole else kind
    value = Node(f"{node.name}/convert", Convert(destination_type=wide), [x])
    for zero in zero_point:
        shift = Node(f"{node.name}/zero_point", Convert(destination_type=wide), [zero])
        value = Node(f"{node.name}/shift", Subtract(), [value.output, shift.output])
    if not whole:
        return Node(node.name, Multiply(), [value.output, scale])
    factor = Node(f"{node.name}/scale", Convert(destination_type=wide), [scale])
    value = Node(f"{node.name}/product", Multiply(), [value.output, factor.output])
    return Node(node.name, Convert(destination_type=kind), [value.output])


def _aligned(node: Node, port: Port) -> Port | None:
    """Return a scale or zero point in a shape that broadcasts along the axis; None if unknown."""
    op, rank, shape = node.op, node.inputs[0].desc.rank, port.shape
    assert isinstance(op, LinearQuantization)
    if shape is None or rank is None:
        return None
    if len(shape) == 0:
        return port
    sizes = [1] * rank
    if shape != (1,):
        sizes[normalize_axis(op.axis, rank)] = -1
    target = constant(f"{port.name}/shape", np.array(sizes, np.int64))
    name = f"{port.name}/aligned"
    return Node(name, Reshape(special_zero=False), [port, target.output]).output
