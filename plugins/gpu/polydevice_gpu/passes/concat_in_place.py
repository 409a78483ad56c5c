"""concat_in_place: what is going to be concatenated is computed right where it belongs.

A value moves into its part of the concatenation when it has memory of its own and all who write
and read it accept the wider pitches; the others are copied by the concatenation's kernel.
"""

from __future__ import annotations

from polydevice.ops.concat import Concat
from polydevice_gpu.graph import GpuGraph, GpuNode, Place, Value
from polydevice_gpu.kernels.concat import parts
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout


def concat_in_place(graph: GpuGraph, target: Target) -> None:
    """Move values into concatenations; a concatenation of none but such costs nothing."""
    users = graph.users()
    shared: dict[object, int] = {}
    values = {v for node in graph.nodes for v in (*node.inputs, *node.outputs)}
    for value in values | set(graph.inputs.values()):
        shared[value.memory] = shared.get(value.memory, 0) + 1
    for node in graph.nodes:
        if not isinstance(node.op, Concat) or node.on_host or node.is_view:
            continue
        for value, layout in zip(node.inputs, parts(node), strict=True):
            if (
                shared[value.memory] == 1
                and node.inputs.count(value) == 1
                and value.storage is node.output.storage
                and _may_move(value, node, users[value], layout, target)
            ):
                value.layout, value.memory = layout, node.output.memory


def _may_move(
    value: Value, concat: GpuNode, users: list[GpuNode], layout: Layout, target: Target
) -> bool:
    producer = value.producer
    if (
        producer is None
        or producer.choice is None
        or producer.choice.kernel.fixes_layout
        or isinstance(producer.op, Concat)
        or value.is_output
        or value.memory is None
        or value.memory.place is not Place.ARENA
    ):
        return False
    for user in users:
        if user is concat:
            continue
        if user.choice is None:
            return False
        for index, read in enumerate(user.inputs):
            accepts = user.choice.kernel.accepts_layout(user, index, layout, target)
            if read is value and not accepts:
                return False
    return True
