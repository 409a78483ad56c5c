"""fold_scale: a factor per output channel after a convolution or matrix product joins its weights.

``(conv(x, w) + b) * s`` becomes ``conv(x, w * s) + b * s``, which is what batch normalisation after
a convolution comes to.
"""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.convolution import ConvolutionBackpropData, ConvolutionLike
from polydevice.ops.matmul import MatMul
from polydevice.rewrites.pattern import Replacements, Users, per_channel
from polydevice_cpu.algorithms.precision import fits_f32


def fold_scale(network: Network) -> None:
    """Fold every factor that can be folded; runs of them are folded one after the other."""
    users = network.consumers()
    replacements = Replacements()
    for node in network.nodes():
        node.inputs = [replacements.now(port) for port in node.inputs]
        if isinstance(node.op, Multiply):
            _fold(replacements, node, users)
    replacements.apply(network)


def _fold(replacements: Replacements, node: Node, users: Users) -> None:
    for data, factor in (node.inputs, node.inputs[::-1]):
        addition = data.node if isinstance(data.node.op, Add) else None
        chain = _chain(data, addition)
        if chain is None or data.shape != node.output.shape:
            continue
        heavy, bias = chain
        axis, rank = _channel_axis(heavy)
        scale = per_channel(factor, axis, rank)
        shift = None if bias is None else per_channel(bias, axis, rank)
        if scale is None or (bias is not None and shift is None):
            continue
        inner = heavy.output
        if len(users[inner]) > 1 or len(users[data]) > 1 or len(users[heavy.inputs[1]]) > 1:
            continue
        wide = _scaled(heavy, scale.astype(np.float64))
        moved = np.zeros(1) if shift is None else shift.astype(np.float64) * scale
        if wide is None or not (fits_f32(wide) and fits_f32(moved)):
            continue
        weights = wide.astype(np.float32)
        scaled = constant(f"{heavy.inputs[1].node.name}/scaled", weights).output
        users[scaled] = users[heavy.inputs[1]]
        heavy.inputs[1] = scaled
        if addition is None or shift is None:
            replacements.put(node.output, heavy.output)
            users[heavy.output] = users[node.output]
        else:
            shape = [1] * rank
            shape[axis] = -1
            summand = constant(f"{node.name}/shift", moved.astype(np.float32).reshape(shape))
            result = replacements.put_node(node, Add(), [heavy.output, summand.output])
            users[result] = users[node.output]
            users[heavy.output] = [(result.node, 0)]
        return


def _chain(data: Port, addition: Node | None) -> tuple[Node, Port | None] | None:
    """(the heavy node, the constant added to it) behind a port."""
    if addition is None:
        return (data.node, None) if _is_heavy(data.node) else None
    a, b = addition.inputs
    for main, bias in ((a, b), (b, a)):
        if _is_heavy(main.node) and bias.node.constant is not None:
            return main.node, bias
    return None


def _is_heavy(node: Node) -> bool:
    return (
        isinstance(node.op, (ConvolutionLike, MatMul))
        and node.inputs[1].node.constant is not None
        and node.inputs[1].node.constant.dtype == np.float32
        and node.output.desc.rank is not None
        and (not isinstance(node.op, MatMul) or node.inputs[1].desc.rank == 2)
    )


def _channel_axis(heavy: Node) -> tuple[int, int]:
    rank = heavy.output.desc.rank
    assert rank is not None
    return (rank - 1 if isinstance(heavy.op, MatMul) else 1), rank


def _scaled(heavy: Node, scale: Array) -> Array | None:
    """The weights times a factor per output channel (or one factor for all), in f64."""
    weights = heavy.inputs[1].node.constant
    assert weights is not None
    op = heavy.op
    if scale.size == 1:
        return np.asarray(weights * scale[0])
    if isinstance(op, MatMul):
        return weights * (scale[:, None] if op.transpose_b else scale[None, :])
    assert isinstance(op, ConvolutionLike)
    transposed = isinstance(op, ConvolutionBackpropData)
    lead = weights.shape[: 3 if op.grouped else 2]
    shape = [1] * weights.ndim
    if op.grouped:
        output_axis = 2 if transposed else 1
        shape[0], shape[output_axis] = lead[0], lead[output_axis]
    else:
        output_axis = 1 if transposed else 0
        shape[output_axis] = lead[output_axis]
    if scale.size != np.prod(shape):
        return None
    return weights * scale.reshape(shape)
