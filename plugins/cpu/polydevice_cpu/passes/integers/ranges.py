"""round_to_ranges: what is quantised at run time and back becomes one operation in f32."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.op import Op, operation
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice.rewrites.pattern import Replacements
from polydevice.tensor import TensorDesc


@operation("RoundedToRange", domain="polydevice.cpu")
class RoundedToRange(Op):
    """clip(round(x / scale), -zero, 255 - zero) * scale, the two being those of x's range.

    Halves are rounded to even; zeros are +0. All is NaN where an element is no number, or infinite.

    Inputs:  x  any shape, f32
    Outputs: y  shape and type of x
    Source:  ONNX DynamicQuantizeLinear-11 and DequantizeLinear-13
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        (x,) = inputs
        return [x.without_value()]


def round_to_ranges(network: Network) -> None:
    """Replace pairs whose scale and zero point are those of the range of what they round."""
    replacements = Replacements()
    for node in network.nodes():
        if isinstance(node.op, DequantizeLinear) and _is_of_range(node):
            x = node.inputs[0].node.inputs[0]
            replacements.put_node(node, RoundedToRange(), [x])
    replacements.apply(network)


def _is_of_range(dequantise: Node) -> bool:
    quantise = dequantise.inputs[0].node
    if not isinstance(quantise.op, QuantizeLinear) or quantise.op.block_size:
        return False
    parameters = quantise.inputs[1:]
    if len(parameters) != 2 or parameters != dequantise.inputs[1:]:
        return False
    ranges = parameters[0].node
    are_its = isinstance(ranges.op, DynamicRange) and parameters == ranges.outputs
    return are_its and ranges.inputs[0] is quantise.inputs[0]
