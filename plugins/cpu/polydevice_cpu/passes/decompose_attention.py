"""decompose_attention: ScaledDotProductAttention becomes matrix products and a softmax.

Scale and mask then are post-operations of the first product.
"""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.matmul import MatMul
from polydevice.ops.select import Select
from polydevice.ops.softmax import SoftMax
from polydevice_cpu.passes.pattern import Replacements


def decompose_attention(network: Network) -> None:
    """Decompose those in f32 whose embedding size (and, when causal, lengths) are known."""
    replacements = Replacements()
    for node in network.nodes():
        if isinstance(node.op, ScaledDotProductAttention):
            result = _decomposed(node, node.op)
            if result is not None:
                replacements.put(node.output, result)
    replacements.apply(network)


def _decomposed(node: Node, op: ScaledDotProductAttention) -> Port | None:
    query, key, value, *optional = node.inputs
    if query.element_type is not ElementType.f32 or query.shape is None or key.shape is None:
        return None
    if len(optional) > 2:  # a sink belongs inside the softmax
        return None
    name = node.name
    scale = _scale(name, query, optional)
    mask = _mask(name, op, query, key, optional)
    if scale is None or mask is False:
        return None
    scores = Node(f"{name}/scores", MatMul(transpose_b=True), [query, key]).output
    scores = Node(f"{name}/scaled", Multiply(), [scores, scale]).output
    if isinstance(mask, Port):
        scores = Node(f"{name}/masked", Add(), [scores, mask]).output
    if scores.shape is None:
        return None
    weights = Node(f"{name}/weights", SoftMax(axis=len(scores.shape) - 1), [scores])
    return Node(name, MatMul(), [weights.output, value], rt_info=node.rt_info).output


def _scale(name: str, query: Port, optional: list[Port]) -> Port | None:
    if len(optional) > 1:
        shape = optional[1].shape
        # A tensor of one element must not raise the rank of the scores.
        return optional[1] if shape is not None and len(shape) == 0 else None
    size = query.shape[-1] if query.shape else None
    if not isinstance(size, int):
        return None
    return constant(f"{name}/scale", np.float32(1 / math.sqrt(max(size, 1)))).output


def _mask(
    name: str, op: ScaledDotProductAttention, query: Port, key: Port, optional: list[Port]
) -> Port | bool | None:
    """What is added to the scores; None for nothing, False where that is not known here."""
    assert query.shape is not None
    assert key.shape is not None
    if op.causal:
        length, keys = query.shape[-2], key.shape[-2]
        if not isinstance(length, int) or not isinstance(keys, int):
            return False
        hidden = np.arange(keys) > np.arange(length)[:, np.newaxis]
        mask = np.where(hidden, -np.inf, 0).astype(np.float32)
        return constant(f"{name}/causal", mask).output
    if not optional:
        return None
    if optional[0].element_type is not ElementType.boolean:
        return optional[0]
    seen = constant(f"{name}/seen", np.float32(0)).output
    unseen = constant(f"{name}/unseen", np.float32(-np.inf)).output
    return Node(f"{name}/mask", Select(), [optional[0], seen, unseen]).output
