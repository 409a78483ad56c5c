"""recognise_layer_norm: normalisation over the last axis, whole or spelled out in steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Add, Divide, Multiply, Power, Subtract
from polydevice.ops.math import Sqrt
from polydevice.ops.normalization import MVN, EpsMode
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.reduce import ReduceMean
from polydevice.tensor import TensorDesc
from polydevice_cpu.passes.pattern import Replacements, is_scalar, made_by, per_channel, scalar


@operation("LayerNorm", domain="polydevice.cpu")
class LayerNorm(Op):
    """Normalise the last axis, then scale and shift it; what this device's primitive computes.

    Inputs:  x             any shape, f32
             scale, shift  one item per index of the last axis, f32
    Outputs: y             shape and type of x
    Source:  oneDNN layer normalisation
    """

    epsilon: float = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        return [inputs[0].without_value()]


def recognise_layer_norm(network: Network) -> None:
    """Bring all forms to LayerNorm; needs constant scale and shift."""
    replacements = Replacements()
    for node in network.nodes():
        if isinstance(node.op, Add):
            _recognise(replacements, node)
    replacements.apply(network)


def _recognise(replacements: Replacements, node: Node) -> None:
    rank = node.output.desc.rank
    if rank is None:
        return
    for scaled, shift in (node.inputs, node.inputs[::-1]):
        product = made_by(scaled, Multiply)
        if product is None or per_channel(shift, rank - 1, rank) is None:
            continue
        for normal, scale in (product.inputs, product.inputs[::-1]):
            width = per_channel(scale, rank - 1, rank)
            if width is None or width.size != per_channel(shift, rank - 1, rank).size:  # type: ignore[union-attr]
                continue
            found = _whole(normal, rank) or _spelled_out(normal, rank)
            if found is not None and found[0].shape == node.output.shape:
                x, epsilon = found
                replacements.put_node(node, LayerNorm(epsilon), [x, scale, shift])
                return


def _whole(port: Port, rank: int) -> tuple[Port, float] | None:
    node = made_by(port, MVN)
    if node is None or not isinstance(node.op, MVN):
        return None
    axes = node.inputs[1].node.constant
    good = node.op.normalize_variance and node.op.eps_mode is EpsMode.INSIDE_SQRT
    if not good or axes is None or [int(a) % rank for a in axes.reshape(-1)] != [rank - 1]:
        return None
    return node.inputs[0], node.op.eps


def _spelled_out(port: Port, rank: int) -> tuple[Port, float] | None:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon)."""
    quotient = made_by(port, Divide)
    if quotient is None:
        return None
    centred, root = quotient.inputs
    difference, sqrt = made_by(centred, Subtract), made_by(root, Sqrt)
    addition = None if sqrt is None else made_by(sqrt.inputs[0], Add)
    if difference is None or addition is None:
        return None
    for variance, eps in (addition.inputs, addition.inputs[::-1]):
        epsilon, mean_square = scalar(eps), _mean_of(variance, rank)
        if epsilon is None or mean_square is None:
            continue
        x, mean = difference.inputs
        if _mean_of(mean, rank) is x and _squared(mean_square) is centred:
            return x, epsilon
    return None


def _mean_of(port: Port, rank: int) -> Port | None:
    """The x of its mean over the last axis."""
    node = made_by(port, ReduceMean)
    if node is None or not node.op.keep_dims:  # type: ignore[attr-defined]
        return None
    axes = node.inputs[1].node.constant
    if axes is None or [int(a) % rank for a in np.reshape(axes, -1)] != [rank - 1]:
        return None
    return node.inputs[0]


def _squared(port: Port) -> Port | None:
    power, square = made_by(port, Power), made_by(port, Multiply)
    if power is not None and is_scalar(power.inputs[1], 2.0):
        return power.inputs[0]
    if square is not None and square.inputs[0] is square.inputs[1]:
        return square.inputs[0]
    return None
