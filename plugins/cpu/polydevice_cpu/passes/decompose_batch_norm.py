"""decompose_batch_norm: BatchNormInference becomes a multiplication and an addition."""

from __future__ import annotations

import numpy as np

from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.normalization import BatchNormInference, BatchNormInferenceV1
from polydevice_cpu.passes.pattern import Replacements


def decompose_batch_norm(network: Network) -> None:
    """Compute scale and shift of batch normalisations with constant statistics."""
    replacements = Replacements()
    for node in network.nodes():
        if not isinstance(node.op, BatchNormInference):
            continue
        x, gamma, beta, mean, variance = node.inputs
        if isinstance(node.op, BatchNormInferenceV1):
            gamma, beta, x, mean, variance = node.inputs
        values = [port.node.constant for port in (gamma, beta, mean, variance)]
        rank = x.desc.rank
        if rank is None or any(v is None or v.dtype != np.float32 for v in values):
            continue
        g, b, m, v = (np.asarray(value, np.float64) for value in values)
        scale = g / np.sqrt(v + node.op.epsilon)
        shape = (1, -1, *[1] * (rank - 2))
        parts = [array.astype(np.float32).reshape(shape) for array in (scale, b - m * scale)]
        names = [f"{node.name}/scale", f"{node.name}/shift"]
        first, second = (constant(n, part) for n, part in zip(names, parts, strict=True))
        scaled = Node(f"{node.name}/scaled", Multiply(), [x, first.output])
        shifted = Node(node.name, Add(), [scaled.output, second.output], rt_info=node.rt_info)
        replacements.put(node.output, shifted.output)
    replacements.apply(network)
