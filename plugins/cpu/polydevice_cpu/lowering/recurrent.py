"""LSTM, GRU and RNN, as sequences and as single cells."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops import recurrent as ops
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Algorithm, Arg, Direction, Query
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import RecurrentDescriptors, gru, lstm, rnn
from polydevice_cpu.plan.step import PrimitiveStep
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node, Port
    from polydevice_cpu.plan.building.builder import PlanBuilder

_DIRECTIONS = {
    ops.Direction.FORWARD: Direction.LEFT_TO_RIGHT,
    ops.Direction.REVERSE: Direction.RIGHT_TO_LEFT,
    ops.Direction.BIDIRECTIONAL: Direction.BIDIRECTIONAL_CONCAT,
}
_RNN = {"tanh": Algorithm.TANH, "relu": Algorithm.RELU, "sigmoid": Algorithm.LOGISTIC}
_GATES = {"i": 0, "f": 1, "c": 2, "o": 3}
"""oneDNN's order of an LSTM's gates."""


@lowers(
    ops.LSTMSequence,
    ops.GRUSequence,
    ops.RNNSequence,
    ops.LSTMCell,
    ops.GRUCell,
    ops.RNNCell,
    heavy=True,
)
def lower_recurrent(builder: PlanBuilder, node: Node) -> bool:
    """Run a layer with constant weights over sequences of full length."""
    op = node.operation(ops.Recurrent)
    inputs = node.inputs
    if inputs[0].element_type is not ElementType.f32 or not _is_plain(op):
        return False
    sequence = isinstance(op, ops.SequenceOf)
    first_weight = 1 + op.states + (1 if sequence else 0)
    constants = [port.desc.constant for port in inputs[first_weight:]]
    if any(c is None for c in constants) or not 2 <= len(constants) <= 3:
        return False
    if sequence and not _full_length(inputs[1 + op.states], inputs[0]):
        return False
    values = [builder.value(port) for port in inputs[: 1 + op.states]]
    if not all(value.in_reach for value in values):
        return False
    return _emit(builder, node, op, values, [c for c in constants if c is not None])


def _is_plain(op: ops.Recurrent) -> bool:
    """Whether the functions are those that oneDNN has."""
    if op.clip or getattr(op, "input_forget", False):
        return False
    if isinstance(op, (ops.RNNCell, ops.RNNSequence)):
        return op.functions[0] in _RNN
    return op.functions == op.default_activations


def _full_length(lengths: Port, x: Port) -> bool:
    known = lengths.desc.constant
    assert x.shape is not None
    return known is not None and bool((known == x.shape.static[1]).all())


def _emit(
    builder: PlanBuilder, node: Node, op: ops.Recurrent, values: list[Value], weights: list[Array]
) -> bool:
    x, *states = values
    sequence = isinstance(op, ops.SequenceOf)
    direction = op.direction if isinstance(op, ops.SequenceOf) else ops.Direction.FORWARD
    x = _time_first(builder, x, sequence)
    time, batch, size = x.shape
    count, hidden = direction.count, op.hidden_size
    w, r, *rest = (weight if sequence else weight[np.newaxis] for weight in weights)
    state_shape = (1, count, batch, hidden)
    descriptors = RecurrentDescriptors(
        src=Descriptor.dense((time, batch, size)),
        state=Descriptor.dense(state_shape),
        weights=Descriptor.any((1, count, size, op.gates, hidden)),
        recurrence=Descriptor.any((1, count, hidden, op.gates, hidden)),
        bias=Descriptor.dense((1, count, op.bias_gates, hidden)),
        dst=Descriptor.dense((time, batch, count * hidden)),
        cell=Descriptor.dense(state_shape) if op.states == 2 else None,
    )
    made = _primitive(op, _DIRECTIONS[direction], descriptors)
    if made is None:
        return False
    arguments: dict[int, Value] = {Arg.SRC: builder.in_layout(x, descriptors.src)}
    for index, state in zip((Arg.SRC_ITER, Arg.SRC_ITER_C), states, strict=False):
        arguments[index] = builder.in_layout(
            _state_view(builder, state, sequence), descriptors.state
        )
    for index, array, position in ((Arg.WEIGHTS, w, 0), (Arg.WEIGHTS_ITER, r, 1)):
        name, order = f"recurrent {op.type}", partial(_weights, op)
        layout = made.descriptor(Query.WEIGHTS, position)
        arguments[index] = builder.packed_from(array, name, order, layout)
    bias = rest[0] if rest else np.zeros((count, op.bias_gates * hidden), np.float32)
    arguments[Arg.BIAS] = builder.constant(
        builder.derived(bias, f"recurrent {op.type}", lambda a: _bias(op, a))
    )
    y = arguments[Arg.DST] = builder.new(descriptors.dst)
    lasts = []
    for index in (Arg.DST_ITER, Arg.DST_ITER_C)[: op.states]:
        arguments[index] = builder.new(descriptors.state)
        lasts.append(arguments[index])
    written = (Arg.DST, Arg.DST_ITER, Arg.DST_ITER_C)[: 1 + op.states]
    builder.emit(PrimitiveStep(node.name, node.type, made, arguments, written))
    views = [_last_view(last, sequence) for last in lasts]
    if sequence:
        shape = (batch, count, time, hidden)
        strides = (count * hidden, hidden, batch * count * hidden, 1)
        views.insert(0, y.view(shape, strides))
    for port, view in zip(node.outputs, views, strict=True):
        builder.set(port, view)
    return True


def _primitive(
    op: ops.Recurrent, direction: Direction, descriptors: RecurrentDescriptors
) -> Primitive | None:
    # The GRU's code is called "ref", but its matrix products are generated code.
    if isinstance(op, (ops.LSTMCell, ops.LSTMSequence)):
        return lstm(direction, descriptors, Attributes())
    if isinstance(op, (ops.GRUCell, ops.GRUSequence)):
        before = op.linear_before_reset
        return gru(direction, descriptors, Attributes(), linear_before_reset=before)
    return rnn(_RNN[op.functions[0]], direction, descriptors, Attributes())


def _time_first(builder: PlanBuilder, x: Value, sequence: bool) -> Value:
    """[B, T, I] (or [B, I]) as [T, B, I]."""
    if x.strides is None:
        x = builder.dense(x)
    assert x.strides is not None
    if not sequence:
        return x.view((1, *x.shape), (x.shape[0] * x.strides[0], *x.strides))
    b, t, i = x.shape
    sb, st, si = x.strides
    return x.view((t, b, i), (st, sb, si))


def _state_view(builder: PlanBuilder, state: Value, sequence: bool) -> Value:
    """[B, D, H] (or [B, H]) as [1, D, B, H]."""
    if state.strides is None:
        state = builder.dense(state)
    assert state.strides is not None
    if not sequence:
        (b, h), (sb, sh) = state.shape, state.strides
        return state.view((1, 1, b, h), (b * sb, b * sb, sb, sh))
    b, d, h = state.shape
    sb, sd, sh = state.strides
    return state.view((1, d, b, h), (0, sd, sb, sh))


def _last_view(last: Value, sequence: bool) -> Value:
    """[1, D, B, H] as [B, D, H] (or [B, H])."""
    _, d, b, h = last.shape
    if not sequence:
        return last.view((b, h), (h, 1))
    return last.view((b, d, h), (h, b * h, 1))


def _weights(op: ops.Recurrent, array: Array) -> Array:
    """[D, gates * H, C] as [1, D, C, gates, H] with oneDNN's order of gates."""
    count, _, channels = array.shape
    gates = array.reshape(count, op.gates, op.hidden_size, channels)[:, _order(op)]
    return np.ascontiguousarray(gates.transpose(0, 3, 1, 2)[np.newaxis])


def _bias(op: ops.Recurrent, array: Array) -> Array:
    """[D, gates * H] as [1, D, gates, H]."""
    gates = array.reshape(array.shape[0], op.bias_gates, op.hidden_size)
    ordered = gates if op.bias_gates != op.gates else gates[:, _order(op)]
    return np.ascontiguousarray(ordered[np.newaxis])


def _order(op: ops.Recurrent) -> list[int]:
    """Position in the model's weights of each of oneDNN's gates."""
    if not isinstance(op, (ops.LSTMCell, ops.LSTMSequence)):
        return list(range(op.gates))
    return sorted(range(4), key=lambda position: _GATES[op.weights_format[position]])
