"""slice_inputs: what a loop reads one element of, by the iteration's number, is cut for it.

TorchScript writes `x[t]` in a loop as a Gather of all of x. Iterations are then planned anew for
each length of x; those that get their part are alike for all lengths.
"""

from __future__ import annotations

from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.network.names import namer
from polydevice.node import Node, Port
from polydevice.ops.control_flow import BodyInput, Loop, Slicing
from polydevice.ops.gather import Gather
from polydevice.ops.reshape import Squeeze
from polydevice.rewrites.facts import array_of, is_known
from polydevice.shape import Shape, normalize_axis, stay_equal
from polydevice.symbolic_size import is_symbolic


def slice_inputs(network: Network) -> int:
    """Change every loop of a network that reads inputs so; return how many inputs."""
    found = 0
    for node in network.nodes():
        if isinstance(node.op, Loop) and isinstance(node.op.body, Network):
            found += _slice_inputs(node, node.op, node.op.body)
    if found:
        network.infer()
    return found


def _slice_inputs(node: Node, op: Loop, body: Network) -> int:
    carried = {edge.parameter for edge in op.back_edges}
    cut: dict[int, int] = {}
    for tie in op.body_inputs:
        if tie.slicing is None and tie.parameter not in (*carried, op.current_iteration):
            axis = _axis(op, body, tie.parameter)
            if axis is not None and _are_within(node, node.inputs[tie.input], axis):
                cut[tie.parameter] = axis
    if not cut:
        return 0
    changed = body.clone()
    for parameter, axis in cut.items():
        _read_parts(changed, parameter, axis)
    ties = tuple(
        BodyInput(tie.input, tie.parameter, Slicing(cut[tie.parameter]))
        if tie.parameter in cut
        else tie
        for tie in op.body_inputs
    )
    node.op = op.replace(body=changed, body_inputs=ties)
    return len(cut)


def _axis(op: Loop, body: Network, parameter: int) -> int | None:
    """Return along which axis nothing but the element of the iteration's number is read."""
    if op.current_iteration is None:
        return None
    whole, number = (body.parameters[n].output for n in (parameter, op.current_iteration))
    if whole.desc.rank is None or number.desc.rank != 0:
        return None
    axes = set()
    for reader, index in body.consumers().get(whole, []):
        is_element = isinstance(reader.op, Gather) and index == 0 and not reader.op.batch_dims
        if not is_element or reader.inputs[1] is not number or not is_known(reader.inputs[2]):
            return None
        axes.add(normalize_axis(int(array_of(reader.inputs[2]).reshape(-1)[0]), whole.desc.rank))
    return axes.pop() if len(axes) == 1 else None


def _are_within(node: Node, port: Port, axis: int) -> bool:
    """Whether there are no more iterations than elements: beyond them Gather gives zeros."""
    trips = node.inputs[0].node.constant
    if trips is None or trips.size != 1 or port.shape is None:
        return False
    count, size = trips.reshape(-1).tolist()[0], port.shape[axis]
    if is_symbolic(count) or is_symbolic(size):
        return stay_equal(count, size)
    return isinstance(size, int) and 0 <= count <= size


def _read_parts(body: Network, parameter: int, axis: int) -> None:
    """Let a body read a part of one element in the place of all that a parameter had."""
    node = body.parameters[parameter]
    readers = [reader for reader, _ in body.consumers().get(node.output, [])]
    assert node.output.shape is not None
    sizes = [1 if at == axis else size for at, size in enumerate(node.output.shape)]
    node.op = node.op.replace(shape=Shape(sizes))
    node.infer()
    for reader in readers:
        build = Emitter(reader.name, origins=reader.layers)
        part = build.emit(Squeeze(), node.output, [axis])
        build.name_nodes([part], namer(body), reader)
        body.replace({reader.output: part})
