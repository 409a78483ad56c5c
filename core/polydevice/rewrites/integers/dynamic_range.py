"""DynamicRange: scale and zero point that fit the numbers of a tensor when it is computed."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Port
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Divide, Maximum, Minimum, Subtract
from polydevice.ops.comparison import Equal
from polydevice.ops.convert import Convert
from polydevice.ops.math import Round, RoundMode
from polydevice.ops.op import Op, operation
from polydevice.ops.quantize_linear import QuantizeLinear
from polydevice.ops.reduce import ReduceMax, ReduceMin
from polydevice.ops.select import Select
from polydevice.rewrites.pattern import Replacements, other_input, scalar
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc


@operation("DynamicRange", domain="polydevice")
class DynamicRange(Op):
    """The range of a tensor and 0 in 255 steps, as DynamicQuantizeLinear quantises it.

    scale = (max(x, 0) - min(x, 0)) / 255, and 1 where that is 0;
    zero  = round(clip(-min(x, 0) / scale, 0, 255)), halves to even.

    Inputs:  x      any shape, f32
    Outputs: scale  f32, one number without axes
             zero   u8, one number without axes
    Source:  ONNX DynamicQuantizeLinear-11
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return two numbers."""
        del inputs
        return [TensorDesc(kind, Shape([])) for kind in (ElementType.f32, ElementType.u8)]


def recognise_dynamic_ranges(network: Network) -> None:
    """Put one operation in the place of those that DynamicQuantizeLinear is spelled with."""
    replacements = Replacements()
    for node in network.nodes():
        if not isinstance(node.op, QuantizeLinear) or len(node.inputs) < 3:
            continue
        x, scale, zero = node.inputs
        if x.element_type is ElementType.f32 and _is_range(x, scale, zero):
            build = Emitter(f"{node.name}/range", origins=dict.fromkeys(_layers(scale, zero)))
            made = build.emit(DynamicRange(), x).node
            for before, after in zip((scale, zero), made.outputs, strict=True):
                replacements.put(before, after)
    replacements.apply(network)


def _is_range(x: Port, scale: Port, zero: Port) -> bool:
    """Whether scale and zero point are computed as the operation does it."""
    step = _unless_nothing(scale)
    if zero.element_type is not ElementType.u8 or step is None:
        return False
    extent, steps = step.node.inputs
    if scalar(steps) != 255 or not isinstance(extent.node.op, Subtract):
        return False
    high, low = extent.node.inputs
    if not (_is_limit(high, x, Maximum, ReduceMax) and _is_limit(low, x, Minimum, ReduceMin)):
        return False
    steps_of_zero = _behind(zero, (Convert, Round, Clamp))
    if steps_of_zero is None or not isinstance(steps_of_zero.node.op, Subtract):
        return False
    nothing, quotient = steps_of_zero.node.inputs
    if scalar(nothing) != 0 or not isinstance(quotient.node.op, Divide):
        return False
    return quotient.node.inputs == [low, scale]


def _unless_nothing(scale: Port) -> Port | None:
    """The quotient that is the scale where it is not 0, in whose place 1 comes; None for others."""
    if not isinstance(scale.node.op, Select):
        return None
    is_nothing, one, quotient = scale.node.inputs
    if scalar(one) != 1 or not isinstance(quotient.node.op, Divide):
        return None
    if not isinstance(is_nothing.node.op, Equal):
        return None
    return quotient if other_input(is_nothing.node, 0.0) is quotient else None


def _layers(scale: Port, zero: Port) -> list[str]:
    """The model's layers that the operation computes."""
    is_nothing, _, quotient = scale.node.inputs
    extent = quotient.node.inputs[0].node
    nodes = [
        scale.node,
        is_nothing.node,
        quotient.node,
        extent,
        *(port.node for port in extent.inputs),
    ]
    nodes += [made.node for port in extent.inputs for made in port.node.inputs]
    while not isinstance(zero.node.op, Subtract):
        nodes.append(zero.node)
        zero = zero.node.inputs[0]
    nodes += [zero.node, zero.node.inputs[1].node]
    return [layer for node in nodes if node.constant is None for layer in node.layers]


def _is_limit(port: Port, x: Port, joined: type[Op], reduced: type[Op]) -> bool:
    """Whether a port is the largest (least) of all elements of `x` and 0."""
    if not isinstance(port.node.op, joined):
        return False
    found = other_input(port.node, 0.0)
    if found is None or not isinstance(found.node.op, reduced) or found.desc.rank != 0:
        return False
    return found.node.inputs[0] is x


def _behind(port: Port, kinds: Sequence[type[Op]]) -> Port | None:
    """What these operations are computed of, the last one first; None for others."""
    for kind in kinds:
        op = port.node.op
        if not isinstance(op, kind):
            return None
        if isinstance(op, Clamp) and (op.min, op.max) != (0, 255):
            return None
        if isinstance(op, Round) and op.mode is not RoundMode.HALF_TO_EVEN:
            return None
        port = port.node.inputs[0]
    return port
