"""LSTM, GRU (both reset variants) and plain RNN layers.

Sources are [T, N, C], states [L, D, N, H], weights [L, D, C, gates, H], bias [L, D, gates, H];
here L is always 1. Gate order is oneDNN's: LSTM i f c o; GRU u r o.
"""

from __future__ import annotations

from dataclasses import dataclass

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import FORWARD_INFERENCE, Algorithm, Direction
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import Primitive


@dataclass(frozen=True)
class RecurrentDescriptors:
    """Descriptors shared by the recurrent primitives; `cell` only for LSTM."""

    src: Descriptor
    state: Descriptor
    weights: Descriptor
    recurrence: Descriptor
    bias: Descriptor
    dst: Descriptor
    cell: Descriptor | None = None


def lstm(direction: Direction, d: RecurrentDescriptors, attributes: Attributes) -> Primitive | None:
    """LSTM without peepholes and projection."""
    cell = d.cell.handle if d.cell else None
    return Primitive.create(
        "lstm_forward",
        FORWARD_INFERENCE,
        direction,
        d.src.handle,
        d.state.handle,
        cell,
        d.weights.handle,
        d.recurrence.handle,
        None,
        None,
        d.bias.handle,
        d.dst.handle,
        d.state.handle,
        cell,
        0,
        attributes.handle,
    )


def gru(
    direction: Direction,
    d: RecurrentDescriptors,
    attributes: Attributes,
    *,
    linear_before_reset: bool,
) -> Primitive | None:
    """GRU; with `linear_before_reset` the bias has a fourth gate."""
    return Primitive.create(
        "lbr_gru_forward" if linear_before_reset else "gru_forward",
        FORWARD_INFERENCE,
        direction,
        d.src.handle,
        d.state.handle,
        d.weights.handle,
        d.recurrence.handle,
        d.bias.handle,
        d.dst.handle,
        d.state.handle,
        0,
        attributes.handle,
    )


def rnn(
    activation: Algorithm, direction: Direction, d: RecurrentDescriptors, attributes: Attributes
) -> Primitive | None:
    """Plain RNN with RELU, TANH or LOGISTIC."""
    return Primitive.create(
        "vanilla_rnn_forward",
        FORWARD_INFERENCE,
        activation,
        direction,
        d.src.handle,
        d.state.handle,
        d.weights.handle,
        d.recurrence.handle,
        d.bias.handle,
        d.dst.handle,
        d.state.handle,
        0,
        0.0,
        0.0,
        attributes.handle,
    )
