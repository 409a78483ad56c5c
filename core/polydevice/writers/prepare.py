"""prepare: a copy of a network that consists of what IR files can express."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.interpolate import Interpolate, InterpolateMode
from polydevice.ops.matmul import Einsum
from polydevice.ops.op import Op
from polydevice.ops.pooling import MaxPool, MaxPoolWithIndices
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.ops.window import RoundingType
from polydevice.passes.apply_port_settings import apply_port_settings
from polydevice.rewrites import Wishes
from polydevice.rewrites.decomposition import decompose
from polydevice.rewrites.integers.limits import Quantisation, by_limits
from polydevice.rewrites.integers.quantised import quantiser
from polydevice.rewrites.rule import rules
from polydevice.rewrites.wishes import When
from polydevice.writers.obstacles import obstacle


def prepared_copy(network: Network) -> Network:
    """Return a copy in which settings of inputs and outputs are operations of their own.

    MaxPool with what opset1 lacks (dilations, rounding as PyTorch does) becomes that of opset14,
    whose second output nothing reads. ONNX's linear quantisation becomes what OpenVINO makes of
    ONNX files where one scale serves all, and arithmetic elsewhere. What else IR does not have
    becomes what it is made of, where there is a rule. So do bodies of loops and branches. Constants
    that are resized along one axis are, in a mode in which OpenVINO computes them.
    """
    copy = network.clone()
    apply_port_settings(copy)
    fixed: set[int] = set()  # nodes that no input of the network tells anything
    for node in copy.nodes():
        attributes = node.op.attributes().items()
        bodies = {name: prepared_copy(v) for name, v in attributes if isinstance(v, Network)}
        if bodies:
            node.op = node.op.replace(**bodies)
        if type(node.op) is MaxPool:
            _write_max_pool(copy, node, node.op)
        elif isinstance(node.op, QuantizeLinear):
            _write_quantise(copy, node)
        elif isinstance(node.op, DequantizeLinear):
            _write_dequantise(copy, node, node.op)
        elif isinstance(node.op, Einsum):  # OpenVINO takes no blanks
            node.op = node.op.replace(equation="".join(node.op.equation.split()))
        elif isinstance(node.op, Interpolate) and id(node.inputs[0].node) in fixed:
            node.op = _folded_by_openvino(node.op, node)
        if node.constant is not None or _reads_only(node, fixed):
            fixed.add(id(node))
    decompose(copy, _wishes())
    return copy


def _is_written(node: Node) -> bool:
    """Whether files have the types of an ONNX quantisation, narrow ones only in constants."""
    if isinstance(node.op, QuantizeLinear):
        return node.outputs[0].element_type in _BYTES
    x = node.inputs[0]
    return x.element_type in _WHOLE or (x.node.constant is not None and x.element_type in _HALVES)


_BYTES = (ElementType.i8, ElementType.u8, ElementType.i16, ElementType.u16)
_WHOLE = (*_BYTES, ElementType.i32)
_HALVES = (ElementType.i4, ElementType.u4)


def _cannot_be_written(node: Node) -> bool:
    return obstacle(node) is not None


def _wishes() -> Wishes:
    """What files have no operation for is written as what it is made of."""
    others: dict[type[Op], When] = dict.fromkeys(rules(), _cannot_be_written)
    return Wishes({**others, QuantizeLinear: _is_written, DequantizeLinear: _is_written})


def _write_quantise(network: Network, node: Node) -> None:
    """Write FakeQuantize and Convert, without which OpenVINO computes products in f32."""
    numbers = quantiser(node)
    if numbers is None or node.inputs[0].node.constant is not None:
        return
    build = Emitter(node.name, origins=node.layers)
    integers = by_limits(build, node, node.inputs[0], Quantisation(*numbers))
    network.replace({node.output: integers})


def _write_dequantise(network: Network, node: Node, op: DequantizeLinear) -> None:
    """Write the zero point as an integer that is converted.

    That, too, is what OpenVINO makes of ONNX files. With one of f32 it fuses other layers, and
    answers otherwise: a classifier of orientations was off by 0.32 instead of 0.03.
    """
    x, scale, *zeros = node.inputs
    if op.block_size or not zeros or node.output.element_type is not ElementType.f32:
        return
    if x.element_type not in _BYTES or x.desc.rank is None:
        return
    numbers = []
    for port in (zeros[0], scale):
        array = port.node.constant
        if array is None:
            return
        shape = [1] * x.desc.rank if array.size != 1 else []
        if shape:
            shape[op.axis] = -1
        numbers.append(array.reshape(shape))
    build = Emitter(node.name, origins=node.layers)
    zero = build.convert(build.value(numbers[0]), ElementType.f32)
    difference = build.emit(Subtract(), build.convert(x, ElementType.f32), zero)
    network.replace({node.output: build.replacement(node, Multiply(), difference, numbers[1])})


def _reads_only(node: Node, fixed: set[int]) -> bool:
    return bool(node.inputs) and all(id(port.node) in fixed for port in node.inputs)


def _folded_by_openvino(op: Interpolate, node: Node) -> Interpolate:
    """Return the same along one axis in the mode in which OpenVINO computes constants so.

    In mode `linear_onnx` it refuses a network with the words "Axes are not correct!".
    """
    axes = node.inputs[-1].desc.static_ints if len(node.inputs) > 2 else None
    one = axes is not None and len(axes) == 1 and not op.antialias
    is_linear = op.mode is InterpolateMode.LINEAR_ONNX
    return op.replace(mode=InterpolateMode.LINEAR) if one and is_linear else op


def _write_max_pool(network: Network, node: Node, op: MaxPool) -> None:
    plain = all(step == 1 for step in op.dilations)
    if plain and op.rounding_type is not RoundingType.CEIL_TORCH:
        node.op = op.replace(dilations=())
        return
    dilations = op.dilations or (1,) * len(op.kernel)
    attributes = {**op.attributes(), "dilations": dilations}
    build = Emitter(node.name, origins=node.layers)
    newer = build.replacement(node, MaxPoolWithIndices(**attributes), *node.inputs)
    network.replace({node.outputs[0]: newer})
