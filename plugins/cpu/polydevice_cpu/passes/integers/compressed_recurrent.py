"""LSTMs with weights of 8 bits, which stay as small as the model has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.node import FLOAT_REASON, Node, Port
from polydevice.ops.op import operation
from polydevice.ops.quantize_linear import DequantizeLinear
from polydevice.ops.recurrent import LSTMSequence
from polydevice.rewrites.pattern import Replacements
from polydevice.tensor import TensorDesc

LEAST_ELEMENTS = 300_000
"""Of recurrent weights, those of 274 states: a step of fewer takes as long in f32."""


@operation("CompressedLSTM", domain="polydevice.cpu")
class CompressedLSTM(LSTMSequence):
    """LSTMSequence with weights of 8 bits, and a scale for each of their rows.

    Inputs:  those of LSTMSequence up to B, of which W and R are i8; then the scales of W and R
             [D, 4H]
    Outputs: those of LSTMSequence
    Source:  made from LSTMSequence whose weights are dequantised
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what LSTMSequence returns."""
        given = [*inputs[:7]]
        for index in (4, 5):
            given[index] = TensorDesc(ElementType.f32, inputs[index].shape)
        return super().infer(given)


def compress_recurrent(network: Network) -> None:
    """Put CompressedLSTM in the place of LSTMs with large weights of 8 bits."""
    replacements = Replacements()
    kept = KeptLayers.of(network)
    for node in network.nodes():
        if not isinstance(node.op, LSTMSequence) or kept.has(node.layers) or not _is_plain(node):
            continue
        w, r = (_signed(port) for port in node.inputs[4:6])
        if w is None or r is None or r[0].size // len(r[0]) < LEAST_ELEMENTS:
            continue
        build = Emitter(node.name, origins=node.layers)
        fields = {f.name: getattr(node.op, f.name) for f in dataclasses.fields(node.op)}
        x, h, c, lengths, *_, bias = map(replacements.now, node.inputs)
        op = CompressedLSTM(**fields)
        made = build.emit_all(op, x, h, c, lengths, w[0], r[0], bias, w[1], r[1], name=node.name)
        notes = node.rt_info.items()
        made[0].node.rt_info = {key: note for key, note in notes if key != FLOAT_REASON}
        for old, new in zip(node.outputs, made, strict=True):
            replacements.put(old, new)
    replacements.apply(network)


def _is_plain(node: Node) -> bool:
    op, x = node.operation(LSTMSequence), node.inputs[0]
    ordered = op.weights_format == "fico" and op.functions == op.default_activations
    plain = ordered and not op.clip and not op.input_forget and len(node.inputs) == 7
    return plain and x.element_type is ElementType.f32


def _signed(port: Port) -> tuple[Array, Array] | None:
    """Constant weights [D, 4H, C] as integers with a sign, and their scales [D, 4H]."""
    op, given = port.node.op, [source.desc.constant for source in port.node.inputs]
    if not isinstance(op, DequantizeLinear) or any(array is None for array in given):
        return None
    q, scales, *zeros = [array for array in given if array is not None]
    types = port.node.inputs[0].element_type, port.node.inputs[1].element_type
    if types[0] not in (ElementType.i8, ElementType.u8) or types[1] is not ElementType.f32:
        return None
    points = (zeros[0] if zeros else np.zeros_like(scales, np.int8)).astype(np.int16)
    if scales.ndim < 2:
        scales, points = scales.reshape(-1, 1, 1), points.reshape(-1, 1, 1)
    if op.block_size == q.shape[2] and op.axis in (2, -1):
        fits = scales.shape == (*q.shape[:2], 1)
    else:
        fits = not op.block_size and op.axis in (0, -3) and len(scales) in (1, len(q))
    if not fits or scales.ndim != 3 or not np.isfinite(scales).all():
        return None
    signed = q.astype(np.int16) - points
    if signed.size and not -128 <= signed.min() <= signed.max() <= 127:
        return None
    spread = np.broadcast_to(scales[:, :, 0], q.shape[:2])
    return signed.astype(np.int8), np.ascontiguousarray(spread)
