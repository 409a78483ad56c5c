"""group_convolutions: Split, N equal convolutions and Concat become one grouped convolution."""

from __future__ import annotations

import numpy as np

from polydevice.ops.arithmetic import Add
from polydevice.ops.concat import Concat
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.split import Split
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import Fate, GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fused
from polydevice_gpu.views import integers

Users = dict[Value, list[GpuNode]]


def group_convolutions(graph: GpuGraph, target: Target) -> None:
    """Replace every such group; runs before other passes fuse the biases."""
    del target  # all devices gain
    users = graph.users()
    for node in list(graph.nodes):
        if not isinstance(node.op, Split) or node.on_host:
            continue
        branches = [_branch(value, users) for value in node.outputs]
        found = [branch for branch in branches if branch is not None]
        if len(found) == len(branches) > 1 and _joined(node, found, users):
            _replace(graph, node, found, users)
            users = graph.users()


def _only_user(value: Value, users: Users) -> GpuNode | None:
    readers = users.get(value, [])
    return readers[0] if len(readers) == 1 and not value.is_output else None


def _branch(value: Value, users: Users) -> list[GpuNode] | None:
    """Return the convolution that reads a part, and its bias if there is one."""
    conv = _only_user(value, users)
    if (
        conv is None
        or type(conv.op) is not Convolution
        or conv.inputs[0] is not value
        or conv.inputs[1].constant is None
    ):
        return None
    bias = _only_user(conv.output, users)
    if bias is not None and _is_bias(bias, conv):
        return [conv, bias]
    return [conv]


def _is_bias(node: GpuNode, conv: GpuNode) -> bool:
    if not isinstance(node.op, Fused) or len(node.op.fragment.steps) != 1:
        return False
    step = node.op.fragment.steps[0]
    others = [value for value in node.inputs if value is not conv.output]
    channels = (1, conv.output.shape[1], *[1] * (conv.output.rank - 2))
    return (
        isinstance(step.op, Add)
        and len(others) == 1
        and others[0].constant is not None
        and others[0].shape in (channels, channels[1:])
    )


def _joined(split: GpuNode, branches: list[list[GpuNode]], users: Users) -> bool:
    """Whether all branches are alike and end, in order, in one Concat of channels."""
    first = branches[0][0]
    if normalize_axis(integers(split, 1)[0], split.inputs[0].rank) != 1:
        return False
    if any(len(branch) != len(branches[0]) for branch in branches):
        return False
    for conv, *_ in branches:
        alike = conv.op == first.op and conv.inputs[1].shape == first.inputs[1].shape
        if not alike or conv.inputs[1].storage is not first.inputs[1].storage:
            return False
    ends = [branch[-1].output for branch in branches]
    concat = _only_user(ends[0], users)
    return (
        concat is not None
        and isinstance(concat.op, Concat)
        and not concat.on_host
        and normalize_axis(concat.op.axis, concat.output.rank) == 1
        and concat.inputs == ends
        and all(_only_user(value, users) is concat for value in ends)
    )


def _stacked(values: list[Value], name: str, axis: int | None) -> Value:
    """Join constants, along an axis or along a new first one."""
    arrays = [np.asarray(value.constant) for value in values]
    joined = np.stack(arrays) if axis is None else np.concatenate(arrays, axis)
    made = constant_value(name, joined, values[0].element_type)
    made.storage = values[0].storage
    return made


def _replace(graph: GpuGraph, split: GpuNode, branches: list[list[GpuNode]], users: Users) -> None:
    convs = [branch[0] for branch in branches]
    concat = users[branches[0][-1].output][0]
    first = convs[0]
    weights = _stacked([conv.inputs[1] for conv in convs], f"{first.name}/groups", None)
    has_bias = len(branches[0]) > 1
    result = concat.output.like(f"{first.name}/grouped") if has_bias else concat.output
    assert isinstance(first.op, Convolution)
    op = GroupConvolution(**first.op.attributes())
    origins = [origin for conv in convs for origin in conv.origins]
    grouped = GpuNode(first.name, op, [split.inputs[0], weights], [result], origins)
    grouped.result_type = first.result_type
    graph.insert_before(concat, grouped)
    if has_bias:
        bias = branches[0][1]
        parts = [value for b in branches for value in b[1].inputs if value.constant is not None]
        stacked = _stacked(parts, f"{bias.name}/groups", parts[0].rank - first.output.rank + 1)
        inputs = [stacked if value.constant is not None else result for value in bias.inputs]
        origins = [origin for branch in branches for origin in branch[1].origins]
        graph.insert_before(concat, GpuNode(bias.name, bias.op, inputs, [concat.output], origins))
    for node in (split, concat, *(node for branch in branches for node in branch)):
        graph.nodes.remove(node)
    for node in (split, concat):
        for origin in node.origins:
            reason = f"part of the grouped convolution {first.name}"
            graph.fates[origin] = Fate("OPTIMIZED_OUT", first.name, reason)
