"""sink_squeeze: pointwise operations behind a squeezed convolution come before the Squeeze.

A one-dimensional convolution of TensorFlow is a two-dimensional one between Unsqueeze and Squeeze;
its bias and activation follow the Squeeze, where they could not become its post-operations.
"""

from __future__ import annotations

import numpy as np

from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.convolution import ConvolutionLike
from polydevice.ops.op import Op
from polydevice.ops.pointwise import AutoBroadcast, BinaryPointwise, UnaryPointwise
from polydevice.ops.reshape import Squeeze
from polydevice.ops.slice import Slice
from polydevice.rewrites.pattern import Replacements, Users


def sink_squeeze(network: Network) -> None:
    """Sink every Squeeze that one pointwise operation with constants reads, one after the other."""
    users = network.consumers()
    replacements = Replacements()
    for node in network.nodes():
        node.inputs = [replacements.now(port) for port in node.inputs]
        if _takes_all(node):
            source = node.inputs[0]
            left = [(user, index) for user, index in users[source] if user is not node]
            users[source] = left + users[node.output]
            replacements.put(node.output, source)
        elif isinstance(node.op, (UnaryPointwise, BinaryPointwise)):
            _sink(replacements, node, users)
    replacements.apply(network)


def _takes_all(node: Node) -> bool:
    """Whether a node slices nothing off a convolution, as JAX leaves it."""
    if not isinstance(node.op, Slice) or not isinstance(node.inputs[0].node.op, ConvolutionLike):
        return False
    source, steps = node.inputs[0].desc, node.inputs[3].node.constant
    whole = source.is_static and source.shape == node.output.shape
    return whole and steps is not None and bool((steps > 0).all())


def _sink(replacements: Replacements, node: Node, users: Users) -> None:
    main = next((port for port in node.inputs if isinstance(port.node.op, Squeeze)), None)
    if main is None or len(users[main]) > 1 or len(main.node.inputs) < 2:
        return
    squeeze, source = main.node, main.node.inputs[0]
    axes = squeeze.inputs[1].node.constant
    if axes is None or source.shape is None or not _is_convolved(source, users):
        return
    assert isinstance(squeeze.op, Squeeze)
    removed = squeeze.op.removed(source.shape, [int(axis) for axis in axes.reshape(-1)])
    if removed is None:
        return
    inputs: list[Port] = []
    for port in node.inputs:
        moved_port = source if port is main else _unsqueezed(node.op, port, main, removed)
        if moved_port is None:
            return
        inputs.append(moved_port)
    build = Emitter(node.name, origins=node.layers)
    moved = build.emit(node.op, *inputs)
    if moved.shape != source.shape:
        return  # the other operand stretches it
    moved.node.rt_info = dict(node.rt_info)
    build.origins = squeeze.layers
    result = build.emit(squeeze.op, moved, squeeze.inputs[1], name=f"{node.name}/squeezed")
    users[source] = [(moved.node, inputs.index(source))]
    users[moved] = [(result.node, 0)]
    users[result] = users[node.output]
    replacements.put(node.output, result)


def _is_convolved(port: Port, users: Users) -> bool:
    """Whether only one node reads a convolution, perhaps with operations sunk behind it."""
    while isinstance(port.node.op, (UnaryPointwise, BinaryPointwise)):
        computed = [p for p in port.node.inputs if p.node.constant is None]
        if len(computed) != 1 or len(users[port]) > 1:
            return False
        (port,) = computed
    return isinstance(port.node.op, ConvolutionLike) and len(users[port]) == 1


def _unsqueezed(op: Op, port: Port, main: Port, removed: set[int]) -> Port | None:
    """A constant operand with the removed axes; None where it is none."""
    array, rank = port.node.constant, main.desc.rank
    if array is None or rank is None or array.ndim > rank:
        return None
    if array.size == 1:
        return port
    if not isinstance(op, BinaryPointwise) or op.auto_broadcast is not AutoBroadcast.NUMPY:
        return None  # a PReLU's slopes, say, which are not aligned at the last axis
    aligned = array.reshape((1,) * (rank - array.ndim) + array.shape)
    whole = np.expand_dims(aligned, tuple(sorted(removed)))
    return constant(f"{port.node.name}/unsqueezed", whole).output
