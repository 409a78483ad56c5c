"""drop_conversions: half that becomes float is read as it is where float is stored as half.

Inputs to which a program gives the type f16 are followed by such a conversion, and so are results
in the middle of models that compute in both types.
"""

from __future__ import annotations

from polydevice.ops.convert import Convert
from polydevice_gpu.graph import GpuGraph, GpuNode
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import FLOATS
from polydevice_gpu.ops import Fused


def drop_conversions(graph: GpuGraph, target: Target) -> None:
    """Remove conversions between floats that leave every bit as it is."""
    del target  # all devices gain
    users = graph.users()
    for node in list(graph.nodes):
        if not _keeps_all_bits(node):
            continue
        if any(reader.is_opaque for reader in users.get(node.output, ())):
            continue  # a host computes with the type that the model says
        (x,) = node.inputs
        graph.replace(node.output, x)
        graph.remove(node, "OPTIMIZED_OUT", "", f"{x.name} is stored so already")


def _keeps_all_bits(node: GpuNode) -> bool:
    if not isinstance(node.op, Fused) or node.output.is_output:
        return False
    if [type(step.op) for step in node.op.fragment.steps] != [Convert]:
        return False
    x, y = node.inputs[0], node.output
    kinds = (x.element_type, y.element_type)
    # A value of a wider type may be rounded by the conversion once more.
    return all(kind in FLOATS for kind in kinds) and kinds[0] is x.storage is y.storage
