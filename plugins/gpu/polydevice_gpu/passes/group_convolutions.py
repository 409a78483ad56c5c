"""group_convolutions: Split, N equal convolutions and Concat become one grouped convolution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.ops.concat import Concat
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.split import Split, VariadicSplit
from polydevice.shape import normalize_axis
from polydevice_gpu import views
from polydevice_gpu.graph import Fate, GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.views import integers

Users = dict[Value, list[GpuNode]]


def group_convolutions(graph: GpuGraph, target: Target) -> None:
    """Replace every such group; biases and activations have joined the convolutions already."""
    del target  # all devices gain
    users = graph.users()
    for node in list(graph.nodes):
        if not isinstance(node.op, (Split, VariadicSplit)) or not _cuts_channels(node):
            continue
        found = [conv for value in node.outputs if (conv := _branch(value, users)) is not None]
        if len(found) == len(node.outputs) > 1 and _joined(found, users):
            extras = _stacked_extras(found)
            if extras is not None:
                _replace(graph, node, found, extras, users)
                users = graph.users()


def _cuts_channels(node: GpuNode) -> bool:
    """Whether a split makes equal parts of the channels."""
    if node.on_host or not views.is_view(node) or node.inputs[0].rank < 3:
        return False
    if normalize_axis(integers(node, 1)[0], node.inputs[0].rank) != 1:
        return False
    return all(value.shape == node.outputs[0].shape for value in node.outputs)


def _only_user(value: Value, users: Users) -> GpuNode | None:
    readers = users.get(value, [])
    return readers[0] if len(readers) == 1 and not value.is_output else None


def _branch(value: Value, users: Users) -> GpuNode | None:
    """Return the convolution that reads a part."""
    conv = _only_user(value, users)
    good = (
        conv is not None
        and type(conv.op) is Convolution
        and not conv.on_host
        and conv.inputs[0] is value
        and conv.inputs[1].constant is not None
    )
    return conv if good else None


def _joined(convs: list[GpuNode], users: Users) -> bool:
    """Whether all are alike and end, in order, in one Concat of channels."""
    first = convs[0]
    for conv in convs:
        weights, others = conv.inputs[1], first.inputs[1]
        alike = conv.op == first.op and conv.epilogue == first.epilogue
        if not alike or weights.shape != others.shape or weights.storage is not others.storage:
            return False
    ends = [conv.output for conv in convs]
    concat = _only_user(ends[0], users)
    return (
        concat is not None
        and isinstance(concat.op, Concat)
        and not concat.on_host
        and normalize_axis(concat.op.axis, concat.output.rank) == 1
        and concat.inputs == ends
        and all(_only_user(value, users) is concat for value in ends)
    )


def _stacked_extras(convs: list[GpuNode]) -> list[Value] | None:
    """Join what the epilogues read; None when that is not constant."""
    stacked = []
    for values in zip(*(conv.extra_inputs for conv in convs), strict=True):
        if any(value.constant is None for value in values):
            return None
        stacked.append(_stacked_extra(values, convs))
    return stacked


def _stacked_extra(values: Sequence[Value], convs: list[GpuNode]) -> Value:
    first, (_, channels, *rest) = values[0], convs[0].output.shape
    rank = len(rest) + 2
    arrays = [np.asarray(value.constant) for value in values]
    arrays = [array.reshape((1,) * (rank - array.ndim) + array.shape) for array in arrays]
    if arrays[0].shape[1] == 1 and all(np.array_equal(arrays[0], other) for other in arrays):
        return first
    shape = np.broadcast_shapes(*(array.shape for array in arrays), (1, channels, *[1] * len(rest)))
    joined = np.concatenate([np.broadcast_to(array, shape) for array in arrays], 1)
    return _constant(first, joined)


def _constant(like: Value, array: np.ndarray) -> Value:  # type: ignore[type-arg, unused-ignore]
    made = constant_value(f"{like.name}/groups", array, like.element_type)
    made.storage = like.storage
    return made


def _replace(
    graph: GpuGraph, split: GpuNode, convs: list[GpuNode], extras: list[Value], users: Users
) -> None:
    first, concat = convs[0], users[convs[0].output][0]
    weights = np.stack([np.asarray(conv.inputs[1].constant) for conv in convs])
    op = GroupConvolution(**first.operation(Convolution).attributes())
    inputs = [split.inputs[0], _constant(first.inputs[1], weights), *extras]
    origins = [origin for conv in convs for origin in conv.origins]
    grouped = GpuNode(first.name, op, inputs, [concat.output], dict.fromkeys(origins))
    grouped.result_type, grouped.epilogue = first.result_type, first.epilogue
    graph.insert_before(concat, grouped)
    for node in (split, concat, *convs):
        graph.nodes.remove(node)
    for node in (split, concat):
        for origin in node.origins:
            reason = f"part of the grouped convolution {first.name}"
            graph.fates[origin] = Fate("OPTIMIZED_OUT", first.name, reason)
