"""drop_unused: results that nobody reads are not computed.

Exporters write operations with more results than a network uses: MaxPool with indices, states of
recurrent layers. Without its indices, pooling has faster kernels and takes pointwise layers along.
"""

from __future__ import annotations

import dataclasses

from polydevice.ops.pooling import MaxPool, MaxPoolWithIndices
from polydevice_gpu.graph import GpuGraph
from polydevice_gpu.kernels.target import Target


def drop_unused(graph: GpuGraph, target: Target) -> None:
    """Remove nodes of which nothing is used, and the indices of pooling that are not."""
    del target  # all devices gain
    used = set(graph.outputs.values())
    for node in reversed(list(graph.nodes)):
        wanted = [value in used for value in node.outputs]
        if node.outputs and not any(wanted):
            graph.remove(node, "OPTIMIZED_OUT", "", "nobody reads its result")
            continue
        if type(node.op) is MaxPoolWithIndices and not node.on_host and not wanted[1]:
            shared = {f.name: getattr(node.op, f.name) for f in dataclasses.fields(MaxPool)}
            node.op = MaxPool(**shared)
            node.outputs = node.outputs[:1]
        used.update(node.inputs)
