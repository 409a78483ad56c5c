"""LSTM, GRU and RNN.

ONNX puts time first (or with layout 1 the batch) and adds two biases; the core's sequences put the
batch first and have one bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polydevice.dtype import ElementType
from polydevice.node import FLOAT_REASON, Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.broadcast import Broadcast
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.math import Negative
from polydevice.ops.quantize_linear import DequantizeLinear
from polydevice.ops.recurrent import Direction, GRUSequence, LSTMSequence, RNNSequence
from polydevice.ops.split import Split
from polydevice.ops.transpose import Transpose
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.reshape import joined, part_of_shape

_ALPHA = {
    "affine": None,
    "leakyrelu": 0.01,
    "thresholdedrelu": 1.0,
    "scaledtanh": None,
    "hardsigmoid": 0.2,
    "elu": 1.0,
}
_BETA = {"affine": None, "scaledtanh": None, "hardsigmoid": 0.5}
_LSTM_GATES = (2, 0, 3, 1)
"""ONNX's gates i, o, f, c in the core's order f, i, c, o."""


class _Parts:
    """Inputs and attributes that the three operators have in common, in the core's form."""

    def __init__(
        self,
        n: OnnxNode,
        gates: Sequence[int],
        per_direction: int,
        weights: Port | None = None,
        recurrence: Port | None = None,
        bias: Port | None = None,
    ) -> None:
        self.n = n
        self.bias = bias or n.optional(3)
        self.batch_first = bool(n.attribute("layout", 0))
        self.direction = Direction(n.attribute("direction", "forward"))
        self.x = self._batch_first(n.input(0))
        self.weights = self.ordered(weights or n.input(1), gates)
        recurrence = recurrence or n.input(2)
        self.recurrence = self.ordered(recurrence, gates)
        hidden = n.attribute("hidden_size")
        if hidden is None:
            hidden = recurrence.shape[2] if recurrence.shape else None
        if not isinstance(hidden, int):
            raise n.unsupported("hidden_size is not known")
        self.hidden = hidden
        self.attributes: dict[str, Any] = {
            "hidden_size": hidden,
            "clip": float(n.attribute("clip", 0.0)),
            "direction": self.direction,
            **self._activations(per_direction),
        }

    def _batch_first(self, port: Port) -> Port:
        return port if self.batch_first else self.n.emit(Transpose(), port, [1, 0, 2])

    def ordered(self, port: Port, gates: Sequence[int]) -> Port:
        """Bring the blocks of weights or biases into the core's order of gates."""
        n, count = self.n, len(gates)
        if list(gates) == list(range(count)):
            return port
        if isinstance(port.node.op, DequantizeLinear):  # integers stay what they are
            inputs = [self.ordered(p, gates) if p.desc.rank == 3 else p for p in port.node.inputs]
            return n.emit(port.node.op, *inputs)
        known = port.desc.constant
        if known is not None:
            blocks = np.split(known, count, axis=1)
            return n.value(np.concatenate([blocks[g] for g in gates], axis=1), port.element_type)
        parts = n.emit_all(Split(count), port, 1)
        return n.emit(Concat(1), *[parts[g] for g in gates])

    def biases(self, gates: Sequence[int]) -> tuple[Port, Port]:
        """Return the bias of the weights and that of the recurrence, [D, gates * H] each."""
        n, port = self.n, self.bias
        if port is None:
            zeros = np.zeros((self.direction.count, len(gates) * self.hidden))
            made = n.like(zeros, self.x)
            return made, made
        known = port.desc.constant
        if known is not None:
            halves = np.split(known, 2, axis=1)
            first, second = (n.value(half, port.element_type) for half in halves)
        else:
            first, second = n.emit_all(Split(2), port, 1)
        return self.ordered(first, gates), self.ordered(second, gates)

    def summed_bias(self, gates: Sequence[int]) -> Port:
        """Return the sum of both biases."""
        first, second = self.biases(gates)
        a, b = first.desc.constant, second.desc.constant
        if a is not None and b is not None:
            return self.n.value(a + b, first.element_type)
        return self.n.emit(Add(), first, second)

    def _activations(self, per_direction: int) -> dict[str, Any]:
        n = self.n
        names = [name.lower() for name in n.attribute("activations") or []]
        if not names:
            return {}
        alphas = iter(n.attribute("activation_alpha") or [])
        betas = iter(n.attribute("activation_beta") or [])
        listed = [
            (
                name,
                float(next(alphas, _ALPHA[name]) or 0.0) if name in _ALPHA else 0.0,
                float(next(betas, _BETA[name]) or 0.0) if name in _BETA else 0.0,
            )
            for name in names
        ]
        first = listed[:per_direction]
        if any(listed[i : i + per_direction] != first for i in range(0, len(names), per_direction)):
            raise n.unsupported("the directions have different activations")
        return {
            "activations": tuple(name for name, _, _ in first),
            "activations_alpha": tuple(alpha for _, alpha, _ in first),
            "activations_beta": tuple(beta for _, _, beta in first),
        }

    def state(self, index: int) -> Port:
        """Return an initial state [B, D, H], zeros when it is left out."""
        port = self.n.optional(index)
        if port is not None:
            return self._batch_first(port)
        n = self.n
        sizes = joined(n, part_of_shape(n, self.x, 0, 1), [self.direction.count, self.hidden])
        return n.emit(Broadcast(), n.like(0, self.x), sizes)

    def lengths(self) -> Port:
        """Return the lengths of the sequences, all of them when they are left out."""
        n, port = self.n, self.n.optional(4)
        if port is not None:
            return port
        time = n.emit(Convert(ElementType.i32), part_of_shape(n, self.x, 1, 2))
        return n.emit(Broadcast(), time, part_of_shape(n, self.x, 0, 1))

    def outputs(self, made: Sequence[Port]) -> list[Port]:
        """Bring Y [B, D, T, H] and the states [B, D, H] into ONNX's order."""
        n = self.n
        order = [0, 2, 1, 3] if self.batch_first else [2, 1, 0, 3]
        y = n.emit(Transpose(), made[0], order)
        return [y, *(self._batch_first(state) for state in made[1:])]


@translates("LSTM")
def lstm(n: OnnxNode) -> list[Port]:
    """Long short-term memory."""
    return emit_lstm(n, n.input(1), n.input(2))


def emit_lstm(n: OnnxNode, weights: Port, recurrence: Port, *, in_floats: str = "") -> list[Port]:
    """Emit an LSTM by the attributes and the other inputs of an ONNX LSTM.

    `in_floats` says why its weights are not those integers that the model has.
    """
    bias, peepholes = n.optional(3), n.optional(7)
    if n.attribute("input_forget", 0):
        weights, recurrence = _coupled(n, weights, 4), _coupled(n, recurrence, 4)
        bias = None if bias is None else _coupled(n, bias, 8)
        peepholes = None if peepholes is None else _coupled(n, peepholes, 3)
    parts = _Parts(n, _LSTM_GATES, 3, weights, recurrence, bias)
    op = LSTMSequence(**parts.attributes)
    made = n.emit_all(
        op,
        parts.x,
        parts.state(5),
        parts.state(6),
        parts.lengths(),
        parts.weights,
        parts.recurrence,
        parts.summed_bias(_LSTM_GATES),
        *([] if peepholes is None else [peepholes]),
    )
    if in_floats:
        made[0].node.rt_info[FLOAT_REASON] = in_floats
    return parts.outputs(made)


def _coupled(n: OnnxNode, port: Port, blocks: int) -> Port:
    """Make the forget gate 1 minus the input gate, as ONNX Runtime takes `input_forget`.

    The sigmoid of -x is 1 minus that of x, so the blocks of the forget gate become the input
    gate's, negated. Blocks are i, o, f, c; biases have them twice, peepholes have no c.
    """
    names = [name.lower() for name in n.attribute("activations") or []]
    if any(name != "sigmoid" for name in names[::3]):
        raise n.unsupported(f"input_forget needs the activation Sigmoid, not {names[0]!r}")
    parts = n.emit_all(Split(blocks), port, 1)
    for first in range(0, blocks, 4):
        parts[first + 2] = n.emit(Negative(), parts[first])
    return n.emit(Concat(1), *parts)


@translates("GRU")
def gru(n: OnnxNode) -> list[Port]:
    """Gated recurrent unit."""
    gates = (0, 1, 2)
    parts = _Parts(n, gates, 2)
    linear = bool(n.attribute("linear_before_reset", 0))
    bias = _gru_bias(parts, gates) if linear else parts.summed_bias(gates)
    op = GRUSequence(**parts.attributes, linear_before_reset=linear)
    made = n.emit_all(
        op, parts.x, parts.state(5), parts.lengths(), parts.weights, parts.recurrence, bias
    )
    return parts.outputs(made)


def _gru_bias(parts: _Parts, gates: Sequence[int]) -> Port:
    """Return four blocks: sums for update and reset, both biases of the hidden gate apart."""
    n = parts.n
    first, second = (n.emit_all(Split(3), bias, 1) for bias in parts.biases(gates))
    update, reset = (n.emit(Add(), first[i], second[i]) for i in (0, 1))
    return n.emit(Concat(1), update, reset, first[2], second[2])


@translates("RNN")
def rnn(n: OnnxNode) -> list[Port]:
    """Plain recurrent network."""
    parts = _Parts(n, (0,), 1)
    made = n.emit_all(
        RNNSequence(**parts.attributes),
        parts.x,
        parts.state(5),
        parts.lengths(),
        parts.weights,
        parts.recurrence,
        parts.summed_bias((0,)),
    )
    return parts.outputs(made)
