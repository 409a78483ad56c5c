"""LSTM, GRU (both reset variants) and plain RNN layers.

Sources are [T, N, C], states [L, D, N, H], weights [L, D, C, gates, H], bias [L, D, gates, H];
here L is always 1. Gate order is oneDNN's: LSTM i f c o, its peepholes [L, D, 3, H] i f o;
GRU u r o.
"""

from __future__ import annotations

from dataclasses import dataclass

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import FORWARD_INFERENCE, Algorithm, Direction
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import engine
from polydevice_cpu.onednn.primitive import Primitive


@dataclass(frozen=True)
class RecurrentDescriptors:
    """Descriptors shared by the recurrent primitives; `cell` and `peepholes` only for LSTM."""

    src: Descriptor
    state: Descriptor
    weights: Descriptor
    recurrence: Descriptor
    bias: Descriptor
    dst: Descriptor
    cell: Descriptor | None = None
    peepholes: Descriptor | None = None

    @property
    def operands(self) -> tuple[Descriptor, ...]:
        """What primitives without cells take, in their order."""
        return self.src, self.state, self.weights, self.recurrence, self.bias, self.dst, self.state


def lstm(direction: Direction, d: RecurrentDescriptors, attributes: Attributes) -> Primitive | None:
    """LSTM without projection."""
    cell = d.cell
    return Primitive.create(
        *("lstm_forward", engine(), FORWARD_INFERENCE, direction, d.src, d.state, cell),
        *(d.weights, d.recurrence, d.peepholes, None, d.bias, d.dst, d.state, cell, 0, attributes),
    )


def gru(
    direction: Direction,
    d: RecurrentDescriptors,
    attributes: Attributes,
    *,
    linear_before_reset: bool,
) -> Primitive | None:
    """GRU; with `linear_before_reset` the bias has a fourth gate."""
    name = "lbr_gru_forward" if linear_before_reset else "gru_forward"
    return Primitive.create(
        name, engine(), FORWARD_INFERENCE, direction, *d.operands, 0, attributes
    )


def rnn(
    activation: Algorithm, direction: Direction, d: RecurrentDescriptors, attributes: Attributes
) -> Primitive | None:
    """Plain RNN with RELU, TANH or LOGISTIC."""
    kind, ends = "vanilla_rnn_forward", (0.0, 0.0)
    return Primitive.create(
        kind, engine(), FORWARD_INFERENCE, activation, direction, *d.operands, 0, *ends, attributes
    )
