"""fuse_pointwise: pointwise operations move into the node that computes their input.

One rule serves activations, scale and shift, PReLU, FakeQuantize, residual sums, bias and chains of
pointwise operations: a `Fused` node is taken over by a producer when the producer's kernels fuse,
nobody else reads the value between them, and that value has the shape of the result.
"""

from __future__ import annotations

from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.kernel import kernels_of
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fragment, Fused, Step

INPUT_LIMIT = 12
"""Most inputs of a fused node: OpenCL guarantees 1024 bytes of arguments, ten or so each."""


def fuse_pointwise(graph: GpuGraph, target: Target) -> None:
    """Fuse until nothing more can be fused, in time linear in the number of nodes."""
    del target  # all devices gain
    users = graph.users()
    order = {node: position for position, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        current: GpuNode | None = node
        while current is not None and isinstance(current.op, Fused):
            # What it was merged into may have other producers that take it over in turn.
            host = _host(current, users, order)
            if host is not None:
                _forget(users, host)
                _forget(users, current)
                _merge(host, current)
                for value in host.inputs:
                    users.setdefault(value, []).append(host)
                del order[current]
            current = host
    graph.nodes = list(order)
    graph.sort()


def _forget(users: dict[Value, list[GpuNode]], node: GpuNode) -> None:
    """Take out what the node reads."""
    for value in node.inputs:
        users[value].remove(node)


def _host(
    node: GpuNode, users: dict[Value, list[GpuNode]], order: dict[GpuNode, int]
) -> GpuNode | None:
    """Return the producer that takes the node over; the last one in order, so that others are."""
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
    if node.on_host:
        return False
    kernels = kernels_of(type(node.op))
    return bool(kernels) and all(kernel.fuses(node) for kernel in kernels)


def _without_repetition(fragment: Fragment, inputs: list[Value], first: int) -> Fragment:
    """Read each value once: drop inputs, from number `first` on, that repeat an earlier one."""
    numbers: dict[int, int] = {}
    kept: list[int] = []
    seen: dict[Value, int] = {}
    for number in range(len(fragment.inputs)):
        value = inputs[number - first] if number >= first else None
        if value is not None and value in seen:
            numbers[number] = seen[value]
            continue
        numbers[number] = len(kept)
        if value is not None:
            seen[value] = len(kept)
        kept.append(number)
    for index in range(len(fragment.steps)):
        numbers[len(fragment.inputs) + index] = len(kept) + index
    steps = tuple(
        Step(step.op, tuple(numbers[a] for a in step.arguments), step.element_type)
        for step in fragment.steps
    )
    inputs[:] = list(dict.fromkeys(inputs))
    return Fragment(tuple(fragment.inputs[n] for n in kept), steps)


def _merge(host: GpuNode, node: GpuNode) -> None:
    assert isinstance(node.op, Fused)
    positions = [i for i, value in enumerate(node.inputs) if value is host.output]
    others = [value for i, value in enumerate(node.inputs) if i not in positions]
    if isinstance(host.op, Fused):
        fragment = host.op.fragment.then(node.op.fragment, positions)
        host.inputs += others
        host.op = Fused(_without_repetition(fragment, host.inputs, 0))
    else:
        before = host.epilogue or Fragment((host.output.storage,))
        own, extras = host.own_inputs, [*host.extra_inputs, *others]
        fragment = before.then(node.op.fragment, positions)
        host.epilogue = _without_repetition(fragment, extras, 1)
        host.inputs = [*own, *extras]
    host.outputs = [node.output]
    node.output.producer = host
    host.origins += node.origins
