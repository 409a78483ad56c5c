"""fuse_layer_norm: scale and shift join the normalisation of the last axis before them."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.normalization import MVN, EpsMode
from polydevice.ops.op import Op, attribute, operation
from polydevice.rewrites.pattern import Replacements, made_by, per_channel
from polydevice.tensor import TensorDesc


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


def fuse_layer_norm(network: Network) -> None:
    """Fuse where scale and shift are constants; the steps of MVN were recognised before."""
    replacements = Replacements()
    for node in network.nodes():
        if isinstance(node.op, Add):
            _fuse(replacements, node)
    replacements.apply(network)


def _fuse(replacements: Replacements, node: Node) -> None:
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
            found = _normalised(normal, rank)
            if found is not None and found[0].shape == node.output.shape:
                x, epsilon = found
                replacements.put_node(node, LayerNorm(epsilon), [x, scale, shift])
                return


def _normalised(port: Port, rank: int) -> tuple[Port, float] | None:
    node = made_by(port, MVN)
    if node is None or not isinstance(node.op, MVN):
        return None
    axes = node.inputs[1].node.constant
    good = node.op.normalize_variance and node.op.eps_mode is EpsMode.INSIDE_SQRT
    if not good or axes is None or [int(a) % rank for a in axes.reshape(-1)] != [rank - 1]:
        return None
    return node.inputs[0], node.op.eps
