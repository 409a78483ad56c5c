"""fuse_pointwise: pointwise operations move into the node that computes their input.

One rule serves activations, scale and shift, PReLU, FakeQuantize, residual sums, bias and chains of
pointwise operations: a `Fused` node is taken over by a producer when the producer's kernels fuse,
nobody else reads the value between them, and that value has the shape of the result.
"""

from __future__ import annotations

from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.kernel import kernels_of
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fragment, Fused

INPUT_LIMIT = 12
"""Most inputs of a fused node: OpenCL guarantees 1024 bytes of arguments, ten or so each."""


def fuse_pointwise(graph: GpuGraph, target: Target) -> None:
    """Fuse until nothing more can be fused."""
    users = graph.users()
    for node in list(graph.nodes):
        if not isinstance(node.op, Fused):
            continue
        host = _host(node, users, graph)
        if host is not None:
            _merge(graph, host, node)
            users = graph.users()
    graph.sort()


def _host(node: GpuNode, users: dict[Value, list[GpuNode]], graph: GpuGraph) -> GpuNode | None:
    """Return the producer that takes the node over; the last one in order, so that others are."""
    order = {n: i for i, n in enumerate(graph.nodes)}
    candidates = [
        value.producer
        for value in node.inputs
        if value.producer is not None
        and value.producer in order
        and value is value.producer.output
        and value.shape == node.output.shape
        and not value.is_output
        and all(user is node for user in users.get(value, []))
        and len(value.producer.inputs) + len(node.inputs) <= INPUT_LIMIT
        and _fuses(value.producer)
    ]
    # Work that a heavy producer's epilogue hides is free; a plain copy or sum is a launch saved.
    return max(candidates, key=lambda n: (not isinstance(n.op, Fused), order[n]), default=None)


def _fuses(node: GpuNode) -> bool:
    kernels = kernels_of(type(node.op))
    return bool(kernels) and all(kernel.fuses(node) for kernel in kernels)


def _merge(graph: GpuGraph, host: GpuNode, node: GpuNode) -> None:
    assert isinstance(node.op, Fused)
    positions = [i for i, value in enumerate(node.inputs) if value is host.output]
    others = [value for i, value in enumerate(node.inputs) if i not in positions]
    if isinstance(host.op, Fused):
        host.op = Fused(host.op.fragment.then(node.op.fragment, positions))
    else:
        before = host.epilogue or Fragment((host.output.storage,))
        host.epilogue = before.then(node.op.fragment, positions)
    host.inputs += others
    host.outputs = [node.output]
    node.output.producer = host
    graph.nodes.remove(node)
    host.origins += node.origins
