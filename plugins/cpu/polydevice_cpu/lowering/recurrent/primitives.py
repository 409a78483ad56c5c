"""LSTM, GRU and RNN, as sequences and as single cells."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.node import FLOAT_REASON
from polydevice.ops import recurrent as ops
from polydevice.symbolic_size import UntraceableError, is_symbolic
from polydevice_cpu.lower import lowers
from polydevice_cpu.lowering.recurrent.digits import MOST_ITEMS, emit_digits
from polydevice_cpu.lowering.recurrent.loop import emit_loop
from polydevice_cpu.lowering.recurrent.views import (
    hidden_view,
    last_view,
    of_direction,
    state_view,
    time_first,
)
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType, Direction, Query
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.onednn.primitives import RecurrentDescriptors, gru, lstm, matmul, rnn
from polydevice_cpu.ops.recurrent import floats, lstm_gates
from polydevice_cpu.passes.integers.compressed_recurrent import CompressedLSTM
from polydevice_cpu.plan.array_steps.compressed_recurrent import (
    DIGITS,
    CompressedLayer,
    DigitProduct,
)
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.building.weights import pack
from polydevice_cpu.plan.step import ArrayStep, Compute, PrimitiveStep
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
_PEEPHOLES = (0, 2, 1)
"""The model's peepholes, of i, o and f, in that order."""
_STATES = (Arg.SRC_ITER, Arg.SRC_ITER_C)
_LASTS = (Arg.DST_ITER, Arg.DST_ITER_C)

SHUT = 1e30
"""Added to what enters a gate, or taken from it, makes it 1 or 0 whatever else enters."""

MANY_ELEMENTS = 1 << 19
"""Recurrent weights of fewer, 362 states, stay in a cache as f32, where one item goes through many
steps. In us, of 320 states, 1 and 16 steps: 64 and 545, in f32 121 and 409; of 4 items and 16 steps
792 and 1,649; of 512 states 148 and 714, in f32 320 and 2,594; of 1,024 and 16 steps 3,900 and
10,300."""


@dataclass(frozen=True)
class _Sequence:
    """What one primitive computes.

    Attributes:
        only: the layer's direction, if not all of them.
        marked: whether the input's last channel is 1 behind an item's end; C stays as it is there.
    """

    op: ops.Recurrent
    made: Primitive
    descriptors: RecurrentDescriptors
    only: int | None = None
    marked: bool = False

    def part(self, array: Array) -> Array:
        """The directions' part of the layer's weights."""
        return array if self.only is None else array[self.only : self.only + 1]


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
    """Run a layer with constant weights."""
    op = node.operation(ops.Recurrent)
    inputs = node.inputs
    if inputs[0].element_type is not ElementType.f32:
        return False
    first_weight = 1 + op.states + (1 if isinstance(op, ops.SequenceOf) else 0)
    constants = [port.desc.constant for port in inputs[first_weight:]]
    weights = [c for c in constants if c is not None]
    if not 2 <= len(weights) == len(constants):
        return False
    return _emit_layer(builder, node, weights)


def _emit_layer(builder: PlanBuilder, node: Node, weights: list[Array]) -> bool:
    """Emit what computes a layer with these weights of f32; False where NumPy has to."""
    op, inputs = node.operation(ops.Recurrent), node.inputs
    is_plain = _is_plain(op)
    if emit_loop(builder, node, weights, is_plain=is_plain):
        return True
    if not is_plain:
        return False
    values = [builder.value(port) for port in inputs[: 1 + op.states]]
    if not all(value.in_reach for value in values):
        return False
    if isinstance(op, ops.SequenceOf) and not _full_length(inputs[1 + op.states], inputs[0]):
        return _emit_with_lengths(builder, node, values, weights)
    return _emit(builder, node, op, values, weights)


def _is_plain(op: ops.Recurrent) -> bool:
    """Whether the functions are those that oneDNN has."""
    if op.clip or getattr(op, "input_forget", False):
        return False
    if isinstance(op, (ops.RNNCell, ops.RNNSequence)):
        return op.functions[0] in _RNN
    return op.functions == op.default_activations


def _full_length(lengths: Port, x: Port) -> bool:
    """Whether all items are known to last for all steps."""
    known = lengths.desc.constant
    assert x.shape is not None
    steps = x.shape.static[1]  # a formula, perhaps, which arrays are not compared with
    return known is not None and all(each == steps for each in known.reshape(-1).tolist())


def _emit(
    builder: PlanBuilder, node: Node, op: ops.Recurrent, values: list[Value], weights: list[Array]
) -> bool:
    sequence = isinstance(op, ops.SequenceOf)
    direction = op.direction if isinstance(op, ops.SequenceOf) else ops.Direction.FORWARD
    x = time_first(builder, values[0], sequence)
    whole = _sequence(op, _DIRECTIONS[direction], x.shape, direction.count, len(weights) > 3)
    if whole is None:
        return False
    states = [state_view(builder, state, sequence) for state in values[1:]]
    if not sequence:
        weights = [weight[np.newaxis] for weight in weights]
    y, lasts = _run(builder, node, whole, x, states, weights)
    views = [last_view(last, sequence) for last in lasts]
    if sequence:
        views.insert(0, hidden_view(y, direction.count))
    for port, view in zip(node.outputs, views, strict=True):
        builder.set(port, view)
    return True


def _emit_with_lengths(
    builder: PlanBuilder, node: Node, values: list[Value], weights: list[Array]
) -> bool:
    """Compute all steps, each direction forwards, and take from them those before an item's end.

    H at the end is among them. C is that of the last step, up to which marked steps keep it.
    """
    op = node.operation(ops.SequenceOf)
    x = time_first(builder, values[0], sequence=True)
    marked = op.states == 2 and builder.uses(node.outputs[2]) > 0
    sizes = (*x.shape[:2], x.shape[2] + marked)
    first = _sequence(op, Direction.LEFT_TO_RIGHT, sizes, 1, len(weights) > 3)
    if first is None:
        return False
    x = builder.in_layout(x, Descriptor.dense(x.shape))
    lengths = builder.array_value(node.inputs[1 + op.states])
    states = [builder.dense(state_view(builder, v, sequence=True)) for v in values[1:]]
    hidden, cells = [], []
    backwards = [d == 1 or op.direction is ops.Direction.REVERSE for d in range(len(weights[0]))]
    for d, turned in enumerate(backwards):
        source = x
        if turned or marked:
            source = builder.new_dense(sizes, x.dtype)
            start = partial(_start_reading, turned, marked)
            builder.emit(ArrayStep("", "Reorder", start, [x, lengths], [source], writes=True))
        one = replace(first, only=d, marked=marked)
        begins = [of_direction(state, d) for state in states]
        y, lasts = _run(builder, node, one, source, begins, weights)
        hidden.append(y)
        cells += lasts[1:]
    y = builder.new_dense((*x.shape[:2], len(backwards) * op.hidden_size), x.dtype)
    ends = [builder.new_dense(state.shape, x.dtype) for state in states]
    made = [lengths, states[0], *hidden, *cells]
    end = partial(_start_ending, backwards)
    builder.emit(ArrayStep("", "Reorder", end, made, [y, *ends], writes=True))
    views = [hidden_view(y, len(backwards)), *(last_view(end, sequence=True) for end in ends)]
    for port, view in zip(node.outputs, views, strict=True):
        builder.set(port, view)
    return True


def _sequence(
    op: ops.Recurrent,
    direction: Direction,
    sizes: tuple[int, ...],
    count: int,
    peepholes: bool,
) -> _Sequence | None:
    """Ask for the primitive for input [T, B, I]; None where there is none."""
    time, batch, size = sizes
    hidden = op.hidden_size
    state_shape = (1, count, batch, hidden)
    descriptors = RecurrentDescriptors(
        src=Descriptor.dense(sizes),
        state=Descriptor.dense(state_shape),
        weights=Descriptor.any((1, count, size, op.gates, hidden)),
        recurrence=Descriptor.any((1, count, hidden, op.gates, hidden)),
        bias=Descriptor.dense((1, count, op.bias_gates, hidden)),
        dst=Descriptor.dense((time, batch, count * hidden)),
        cell=Descriptor.dense(state_shape) if op.states == 2 else None,
        peepholes=Descriptor.dense((1, count, 3, hidden)) if peepholes else None,
    )
    made = _primitive(op, direction, descriptors)
    return None if made is None else _Sequence(op, made, descriptors)


def _run(
    builder: PlanBuilder,
    node: Node,
    one: _Sequence,
    x: Value,
    states: list[Value],
    weights: list[Array],
) -> tuple[Value, list[Value]]:
    """Emit the primitive; return H of all steps and the last states."""
    op, made, descriptors = one.op, one.made, one.descriptors
    arguments: dict[int, Value] = {Arg.SRC: builder.in_layout(x, descriptors.src)}
    for index, state in zip(_STATES, states, strict=False):
        arguments[index] = builder.in_layout(state, descriptors.state)
    w, r, *rest = weights
    name = f"recurrent {op.type} {one.only} {one.marked}"
    orders = partial(_weights, one), partial(_weights, replace(one, marked=False))
    for index, array, position in ((Arg.WEIGHTS, w, 0), (Arg.WEIGHTS_ITER, r, 1)):
        layout = made.descriptor(Query.WEIGHTS, position)
        arguments[index] = builder.packed_from(array, name, orders[position], layout)
    bias = rest[0] if rest else np.zeros((len(w), op.bias_gates * op.hidden_size), np.float32)
    vectors = [(Arg.BIAS, bias, _bias), *((Arg.WEIGHTS_PEEPHOLE, p, _peepholes) for p in rest[1:])]
    for argument, array, order in vectors:
        derived = builder.derived(array, name, partial(order, one))
        arguments[argument] = builder.constant(derived)
    y = arguments[Arg.DST] = builder.new(descriptors.dst)
    lasts = [builder.new(descriptors.state) for _ in states]
    arguments |= zip(_LASTS, lasts, strict=False)
    written = (Arg.DST, *_LASTS)[: 1 + op.states]
    builder.emit(PrimitiveStep(node.name, node.type, made, arguments, written))
    return y, lasts


def _within(lengths: Array, steps: int) -> list[int]:
    return [min(max(length, 0), steps) for length in lengths.tolist()]


def _start_reading(backwards: bool, marked: bool, _: Context) -> Compute:
    """Start what copies [T, B, I], and writes zeros and the mark behind an item's end."""

    def read(x: Array, lengths: Array, result: Array) -> tuple[()]:
        steps, _, size = x.shape
        for item, length in enumerate(_within(lengths, steps)):
            part = x[:length, item]
            result[:length, item, :size] = part[::-1] if backwards else part
            result[length:, item, :size] = 0
            if marked:
                result[:length, item, size] = 0
                result[length:, item, size] = 1
        return ()

    return read


def _start_ending(backwards: list[bool], _: Context) -> Compute:
    """Start what joins the directions [T, B, H], with zeros behind an item's end."""
    count = len(backwards)

    def end(lengths: Array, begin: Array, *rest: Array) -> tuple[()]:
        """``rest``: H of each direction's steps, C of each; then the three results."""
        y, last, *cell = rest[-2:] if len(rest) == count + 2 else rest[-3:]
        y = y.reshape(*y.shape[:2], count, -1)
        where = _within(lengths, len(y))
        for d, (hidden, turned) in enumerate(zip(rest, backwards, strict=False)):
            for item, length in enumerate(where):
                part = hidden[:length, item]
                y[:length, item, d] = part[::-1] if turned else part
                y[length:, item, d] = 0
                last[0, d, item] = part[-1] if length else begin[0, d, item]
            for whole in cell:
                whole[0, d] = rest[count + d][0, 0]
        return ()

    return end


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


def _weights(one: _Sequence, array: Array) -> Array:
    """[D, gates * H, C] as [1, D, C, gates, H] with oneDNN's order of gates."""
    op, array = one.op, one.part(array)
    count, _, channels = array.shape
    gates = array.reshape(count, op.gates, op.hidden_size, channels)[:, _order(op)]
    moved = gates.transpose(0, 3, 1, 2)[np.newaxis]
    if not one.marked:
        return np.ascontiguousarray(moved)
    mark = np.zeros((1, count, 1, op.gates, op.hidden_size), array.dtype)
    mark[..., _GATES["i"], :], mark[..., _GATES["f"], :] = -SHUT, SHUT
    return np.concatenate([moved, mark], axis=2)


def _bias(one: _Sequence, array: Array) -> Array:
    """[D, gates * H] as [1, D, gates, H]."""
    op, array = one.op, one.part(array)
    gates = array.reshape(array.shape[0], op.bias_gates, op.hidden_size)
    ordered = gates if op.bias_gates != op.gates else gates[:, _order(op)]
    return np.ascontiguousarray(ordered[np.newaxis])


def _peepholes(one: _Sequence, array: Array) -> Array:
    """[D, 3 * H] as [1, D, 3, H]."""
    array = one.part(array)
    gates = array.reshape(len(array), 3, one.op.hidden_size)
    return np.ascontiguousarray(gates[np.newaxis, :, _PEEPHOLES])


def _order(op: ops.Recurrent) -> list[int]:
    """Position in the model's weights of each of oneDNN's gates."""
    if not isinstance(op, (ops.LSTMCell, ops.LSTMSequence)):
        return list(range(op.gates))
    return sorted(range(4), key=lambda position: _GATES[op.weights_format[position]])


@lowers(CompressedLSTM, heavy=True)
def lower_compressed_lstm(builder: PlanBuilder, node: Node) -> bool:
    """Compute few steps on integers, many in f32."""
    w, r, bias, *scales = (port.desc.constant for port in node.inputs[4:])
    if w is None or r is None or bias is None or scales[0] is None or scales[1] is None:
        return False
    x, lengths = node.inputs[0], node.inputs[3]
    weights = (w, r, bias, scales[0], scales[1])
    if _full_length(lengths, x) and emit_digits(builder, node, weights):
        return True
    found = _digit_products(builder, node, (w, r), (scales[0], scales[1]))
    if found is not None:
        return _emit_compressed(builder, node, found, weights)
    builder.refuse(node.name, f"{FLOAT_REASON}, which takes no longer for sequences like these")
    made = [
        builder.derived(q, f"floats {address_of(s)}", partial(floats, scales=s))
        for q, s in ((w, scales[0]), (r, scales[1]))
    ]
    return _emit_layer(builder, node, [*made, bias])


def _digit_products(
    builder: PlanBuilder, node: Node, weights: tuple[Array, Array], scales: tuple[Array, Array]
) -> tuple[DigitProduct, DigitProduct] | None:
    """What multiplies with W and with R; None where f32 takes less time, or there is no code."""
    x, (w, r) = node.inputs[0].shape, weights
    assert x is not None
    batch, time, _ = x.static
    if is_symbolic(batch) or is_symbolic(time):
        raise UntraceableError("digits of a recurrent layer are those of so many steps and items")
    large = r[0].size >= MANY_ELEMENTS
    if not _full_length(node.inputs[3], node.inputs[0]) or not 0 < batch <= MOST_ITEMS:
        return None
    if not time or (time > 1 and batch == 1 and not large):
        return None
    steps = next(n for n in range(MOST_ITEMS // batch, 0, -1) if time % n == 0)
    entering = _digit_product(builder, w, scales[0], steps * batch)
    carried = _digit_product(builder, r, scales[1], batch)
    return None if entering is None or carried is None else (entering, carried)


def _digit_product(builder: PlanBuilder, q: Array, scales: Array, rows: int) -> DigitProduct | None:
    count, columns, terms = q.shape
    source = Descriptor.dense((DIGITS * rows, terms), DataType.S8)
    target = Descriptor.dense((DIGITS * rows, columns))
    weights = Descriptor.any((terms, columns), DataType.S8)
    made = matmul(source, weights, None, target, Attributes())
    if made is None or made.is_reference:
        return None
    made.compile()
    layout = made.weights
    packed = [
        builder.derived(
            q, f"turned {d} {layout.layout} {layout.size_bytes}", partial(_packed, d, layout)
        )
        for d in range(count)
    ]
    return DigitProduct(made, rows, packed, scales)


def _packed(direction: int, layout: Descriptor, q: Array) -> Array:
    return pack(q[direction].T, layout)


def _emit_compressed(
    builder: PlanBuilder,
    node: Node,
    products: tuple[DigitProduct, DigitProduct],
    weights: tuple[Array, ...],
) -> bool:
    op, number = node.operation(CompressedLSTM), np.dtype(np.float32)
    x = time_first(builder, builder.value(node.inputs[0]), sequence=True)
    source = builder.in_layout(x, Descriptor.dense(x.shape))
    inputs = [source, *(builder.array_value(port) for port in node.inputs[1:3])]
    time, batch, _ = x.shape
    count, hidden = op.direction.count, op.hidden_size
    y = builder.new_dense((time, batch, count * hidden), number)
    lasts = [builder.new_dense((batch, count, hidden), number) for _ in range(2)]
    room: list[Value] = [
        builder.new_dense(*sizes) for product in products for sizes in product.room
    ]
    layer = CompressedLayer(op, *products, weights, lstm_gates(op))
    code = f"digits of 24 bits by {products[1].primitive.implementation}"
    outputs = [y, *lasts, *room]
    builder.emit(ArrayStep(node.name, node.type, layer.start, inputs, outputs, code, writes=True))
    for port, value in zip(node.outputs, [hidden_view(y, count), *lasts], strict=True):
        builder.set(port, value)
    return True
