"""Constants behind normalisations join them: scale and shift of the last axis, factors of norms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.normalization import MVN, EpsMode, NormalizeL2
from polydevice.ops.op import Op, attribute, operation
from polydevice.rewrites.pattern import Replacements, made_by, per_channel
from polydevice.tensor import TensorDesc
from polydevice_cpu.algorithms.by_machine.code import has_avx512


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


@operation("ScaledNorm", domain="polydevice.cpu")
class ScaledNorm(Op):
    """y = x / sqrt(sum(x²) + ε) * factors, over the last axis; or the maximum of both for the sum.

    Inputs:  x        [..., n], f32
             factors  [n], f32
    Outputs: y        shape and type of x
    Source:  as NormalizeL2 of OpenVINO's opset1 times constants
    """

    epsilon: float = attribute()
    is_added: bool = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        return [inputs[0].without_value()]


def fuse_scaled_norm(network: Network) -> None:
    """Let constants that rows are multiplied by join the division by their norms, where code does.

    So a root mean square normalisation is one step: of its number of elements, and its weights. A
    product whose step others read stays one.
    """
    if not has_avx512():
        return
    users = network.consumers()
    replacements = Replacements()
    for node in network.nodes():
        readers = users.get(node.outputs[0], []) if node.outputs else []
        if not isinstance(node.op, Multiply) or (
            len(readers) == 1 and _factor(readers[0][0], node.output) is not None
        ):
            continue  # the last product takes all before it along
        factors, port = [], node.output
        while (found := _product(port.node)) is not None:
            factors.append(found[1])
            port = found[0]
            if len(users[port]) > 1:
                break
        fused = _fused(port, factors)
        if fused is not None and port.shape == node.output.shape:
            op, x, scale = fused
            replacements.put_node(node, op, [x, constant(f"{node.name}/factors", scale).output])
    replacements.apply(network)


def _product(node: Node) -> tuple[Port, Array] | None:
    """The value that a node multiplies by a constant, and that."""
    if not isinstance(node.op, Multiply):
        return None
    for value in node.inputs:
        factor = _factor(node, value)
        if factor is not None:
            return value, factor
    return None


def _factor(node: Node, value: Port) -> Array | None:
    """The constant that a node multiplies rows of a value by; None for others."""
    if not isinstance(node.op, Multiply) or value not in node.inputs:
        return None
    rank = node.output.desc.rank
    if rank is None:
        return None
    if value.shape != node.output.shape or value.element_type is not ElementType.f32:
        return None
    other = node.inputs[1 - node.inputs.index(value)]
    return per_channel(other, rank - 1, rank)


def _fused(port: Port, factors: list[Array]) -> tuple[ScaledNorm, Port, Array] | None:
    """The operation, what it reads, and all factors as one; None where rows are no norm's."""
    op = port.node.op
    if not factors or not isinstance(op, NormalizeL2) or port.shape is None:
        return None
    x, axes, width = port.node.inputs[0], port.node.inputs[1].node.constant, port.shape[-1]
    rank = len(port.shape)
    if axes is None or [int(axis) % rank for axis in axes.reshape(-1)] != [rank - 1]:
        return None
    if not isinstance(width, int):
        return None
    scale: Array = np.ones(width, np.float32)
    for factor in reversed(factors):  # in the model's order
        scale = scale * factor
    return ScaledNorm(op.eps, op.eps_mode is EpsMode.ADD), x, scale
