"""What recurrent layers are made of: one matrix product for all inputs, then the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.activation import Clamp, Elu, HardSigmoid, PRelu
from polydevice.ops.arithmetic import Add, Multiply, Subtract
from polydevice.ops.comparison import Greater
from polydevice.ops.concat import Concat
from polydevice.ops.math import Tanh
from polydevice.ops.matmul import MatMul
from polydevice.ops.recurrent import (
    PLAIN_FUNCTIONS,
    Cell,
    Direction,
    Gru,
    Lstm,
    Recurrent,
    SequenceOf,
)
from polydevice.ops.select import Select
from polydevice.ops.transpose import Transpose
from polydevice.rewrites.facts import array_of, count_of, is_known, shape_of
from polydevice.rewrites.rule import decomposes
from polydevice.shape import is_one

Step = Callable[[Port, Sequence[Port]], "list[Port]"]
"""f(projected input [B, gates * H], states) returns the new states, H first."""


def _product(build: Emitter, a: Port, b: Port) -> Port:
    """A times the transpose of b."""
    return build.emit(MatMul(transpose_b=True), a, b)


def _activation(build: Emitter, op: Recurrent, index: int, x: Port, *, clip: bool = True) -> Port:
    """Apply one of the layer's functions."""
    if op.clip and clip:
        x = build.emit(Clamp(min=-op.clip, max=op.clip), x)
    name, alpha, beta = op.activation(index)
    if name in PLAIN_FUNCTIONS:
        return build.emit(PLAIN_FUNCTIONS[name], x)
    if name == "elu":
        return build.emit(Elu(alpha=alpha), x)
    if name == "leakyrelu":
        return build.emit(PRelu(), x, alpha)
    if name == "hardsigmoid":
        return build.emit(HardSigmoid(), x, alpha, beta)
    if name == "affine":
        return build.emit(Add(), build.emit(Multiply(), x, alpha), beta)
    if name == "scaledtanh":
        return build.emit(Multiply(), build.emit(Tanh(), build.emit(Multiply(), x, beta)), alpha)
    assert name == "thresholdedrelu", name
    return build.emit(Select(), build.emit(Greater(), x, alpha), x, 0.0)


def _lstm(build: Emitter, op: Lstm, r: Port, bias: Port | None, peepholes: Port | None) -> Step:
    n = op.hidden_size
    place = {name: i for i, name in enumerate(op.weights_format)}
    weights = None if peepholes is None else build.split(peepholes, 0, [n] * 3)

    def gate(total: Port, cell: Port, which: int) -> Port:
        if weights is not None:
            total = build.emit(Add(), total, build.emit(Multiply(), weights[which], cell))
        return _activation(build, op, 0, total)

    def step(projected: Port, states: Sequence[Port]) -> list[Port]:
        h, c = states
        parts = build.split(build.emit(Add(), projected, _product(build, h, r)), 1, [n] * 4)
        forget = gate(parts[place["f"]], c, 2)
        if op.input_forget:
            enter = build.emit(Subtract(), build.like(1.0, forget), forget)
        else:
            enter = gate(parts[place["i"]], c, 0)
        new = _activation(build, op, 1, parts[place["c"]])
        cell = build.emit(
            Add(), build.emit(Multiply(), forget, c), build.emit(Multiply(), enter, new)
        )
        leave = gate(parts[place["o"]], cell, 1)
        return [build.emit(Multiply(), leave, _activation(build, op, 2, cell, clip=False)), cell]

    return step


def _gru(build: Emitter, op: Gru, r: Port, bias: Port | None) -> Step:
    n = op.hidden_size
    gates, recurrent = build.split(r, 0, [2 * n, n])
    after = None
    if op.linear_before_reset and bias is not None:
        after = build.split(bias, 0, [3 * n, n])[1]

    def step(projected: Port, states: Sequence[Port]) -> list[Port]:
        (h,) = states
        outer, inner = build.split(projected, 1, [2 * n, n])
        both = _activation(build, op, 0, build.emit(Add(), outer, _product(build, h, gates)))
        z, reset = build.split(both, 1, [n, n])
        if op.linear_before_reset:
            product = _product(build, h, recurrent)
            product = product if after is None else build.emit(Add(), product, after)
            product = build.emit(Multiply(), reset, product)
        else:
            product = _product(build, build.emit(Multiply(), reset, h), recurrent)
        new = _activation(build, op, 1, build.emit(Add(), inner, product))
        rest = build.emit(Subtract(), build.like(1.0, z), z)
        return [build.emit(Add(), build.emit(Multiply(), rest, new), build.emit(Multiply(), z, h))]

    return step


def _rnn(build: Emitter, op: Recurrent, r: Port) -> Step:
    def step(projected: Port, states: Sequence[Port]) -> list[Port]:
        return [
            _activation(build, op, 0, build.emit(Add(), projected, _product(build, states[0], r)))
        ]

    return step


def _step(build: Emitter, op: Recurrent, r: Port, more: Sequence[Port]) -> Step:
    bias = more[0] if more else None
    if isinstance(op, Lstm):
        return _lstm(build, op, r, bias, more[1] if len(more) > 1 else None)
    if isinstance(op, Gru):
        return _gru(build, op, r, bias)
    return _rnn(build, op, r)


def _projected(build: Emitter, op: Recurrent, x: Port, w: Port, more: Sequence[Port]) -> Port:
    """Multiply the inputs of all steps with the weights, and add the bias that belongs there."""
    result = _product(build, x, w)
    if not more:
        return result
    bias, n = more[0], op.hidden_size
    if isinstance(op, Gru) and op.linear_before_reset:
        bias = build.split(bias, 0, [3 * n, n])[0]
    return build.emit(Add(), result, bias)


@decomposes(Cell)
def _cell(build: Emitter, op: Cell, inputs: Sequence[Port]) -> list[Port]:
    x, *states = inputs[: 1 + op.states]
    w, r, *more = inputs[1 + op.states :]
    return _step(build, op, r, more)(_projected(build, op, x, w, more), states)


MAX_STEPS = 1024
"""Longer sequences stay whole: each step becomes a dozen nodes, which take time to compile."""


def _is_short(op: SequenceOf, inputs: Sequence[Port]) -> bool:
    return count_of(inputs[0]) > 0 and shape_of(inputs[0])[1] <= MAX_STEPS


@decomposes(SequenceOf, where=_is_short)
def _sequence(build: Emitter, op: SequenceOf, inputs: Sequence[Port]) -> list[Port]:
    """Add the nodes of every step; a device should say up to how many."""
    x, *states = inputs[: 1 + op.states]
    lengths = inputs[1 + op.states]
    count = op.direction.count
    batch, steps, size = shape_of(x)
    # Time first, so that the steps are contiguous parts.
    if not is_one(batch):
        x = build.emit(Transpose(), x, [1, 0, 2])
    x = build.reshape(x, (steps, batch, size))
    running = _running(build, lengths, steps)
    per_direction = [_of_directions(build, v, count, 0) for v in inputs[2 + op.states :]]
    begins = [_of_directions(build, state, count, 1) for state in states]
    hidden, lasts = [], []
    for direction in range(count):
        weights = [values[direction] for values in per_direction]
        backwards = direction == 1 or op.direction is Direction.REVERSE
        y, last = _run(
            build, op, x, [begin[direction] for begin in begins], weights, running, backwards
        )
        hidden.append(build.reshape(y, (batch, 1, steps, op.hidden_size)))
        lasts.append([build.reshape(v, (batch, 1, op.hidden_size)) for v in last])
    outputs = [hidden, *(list(values) for values in zip(*lasts, strict=True))]
    return [_joined(build, values) for values in outputs]


def _joined(build: Emitter, values: Sequence[Port]) -> Port:
    return values[0] if len(values) == 1 else build.emit(Concat(axis=1), *values)


def _of_directions(build: Emitter, value: Port, count: int, axis: int) -> list[Port]:
    """Take the axis of directions apart."""
    parts = build.split(value, axis, [1] * count)
    shape = shape_of(value)[:axis] + shape_of(value)[axis + 1 :]
    return [build.reshape(part, shape) for part in parts]


def _is_whole(lengths: Port, steps: int) -> bool:
    """Whether every item is known to last for all steps."""
    return is_known(lengths) and bool(np.all(array_of(lengths) >= steps))


def _running(build: Emitter, lengths: Port, steps: int) -> list[Port] | None:
    """Return for each step which items it concerns; None when it is all of them."""
    if _is_whole(lengths, steps):
        return None
    column = build.reshape(lengths, (count_of(lengths), 1))
    kind = lengths.element_type
    return [build.emit(Greater(), column, build.value(t, kind)) for t in range(steps)]


def _run(
    build: Emitter, op: SequenceOf, x: Port, states: Sequence[Port], weights: Sequence[Port],
    running: Sequence[Port] | None, backwards: bool,
) -> tuple[Port, Sequence[Port]]:  # fmt: skip
    """Return the hidden states of all steps [B, T, H] and the last states."""
    w, r, *more = weights
    steps, batch, _ = shape_of(x)
    step = _step(build, op, r, more)
    projected = _projected(build, op, x, w, more)
    width = shape_of(projected)[2]
    parts = build.split(projected, 0, [1] * steps)
    hidden: list[Port] = [x] * steps
    # Going backwards, an item keeps its first state until its own last step is reached.
    for t in reversed(range(steps)) if backwards else range(steps):
        new = step(build.reshape(parts[t], (batch, width)), states)
        if running is None:
            states, shown = new, new[0]
        else:
            shown = build.emit(Select(), running[t], new[0], build.like(0.0, new[0]))
            pairs = zip(new, states, strict=True)
            states = [build.emit(Select(), running[t], n, s) for n, s in pairs]
        hidden[t] = build.reshape(shown, (batch, 1, op.hidden_size))
    y = hidden[0] if steps == 1 else build.emit(Concat(axis=1), *hidden)
    return y, states
