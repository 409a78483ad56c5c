"""prepare: a copy of a network that consists of what IR files can express."""

from __future__ import annotations

from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.pooling import MaxPool, MaxPoolWithIndices
from polydevice.ops.quantize_linear import LinearQuantization
from polydevice.passes.apply_port_settings import apply_port_settings
from polydevice.window import RoundingType
from polydevice.writers.quantization import expand_quantization


def prepared_copy(network: Network) -> Network:
    """Return a copy in which settings of inputs and outputs are operations of their own.

    MaxPool with what opset1 lacks (dilations, rounding as PyTorch does) becomes that of opset14,
    whose second output nothing reads; ONNX's linear quantisation becomes arithmetic.
    """
    copy = network.clone()
    apply_port_settings(copy)
    for node in copy.nodes():
        if type(node.op) is MaxPool:
            _write_max_pool(copy, node, node.op)
        elif isinstance(node.op, LinearQuantization):
            expand_quantization(copy, node)
    return copy


def _write_max_pool(network: Network, node: Node, op: MaxPool) -> None:
    plain = all(step == 1 for step in op.dilations)
    if plain and op.rounding_type is not RoundingType.CEIL_TORCH:
        node.op = op.replace(dilations=())
        return
    dilations = op.dilations or (1,) * len(op.kernel)
    attributes = {**op.attributes(), "dilations": dilations}
    newer = Node(node.name, MaxPoolWithIndices(**attributes), node.inputs, rt_info=node.rt_info)
    network.replace({node.outputs[0]: newer.outputs[0]})
