# ruff: noqa: ARG001 - every decomposition takes builder, operation and inputs
"""What recurrent layers are made of: one matrix product for all inputs, then the steps.

A few steps are unrolled into nodes, whose pointwise parts fuse into one or two launches each. More
are one node, `RecurrentSteps`, and one launch, unless the weights are large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polydevice.ops.activation import Clamp, Elu, HardSigmoid, PRelu
from polydevice.ops.arithmetic import Add, Multiply, Subtract
from polydevice.ops.comparison import Greater
from polydevice.ops.concat import Concat
from polydevice.ops.math import Tanh
from polydevice.ops.matmul import MatMul
from polydevice.ops.recurrent import (
    Cell,
    Direction,
    Gru,
    Lstm,
    Recurrent,
    SequenceOf,
)
from polydevice.ops.select import Select
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.transpose import Transpose
from polydevice_gpu.graph import Value
from polydevice_gpu.kernels.recurrent.recurrent import PLAIN_FUNCTIONS, parameters
from polydevice_gpu.ops import RecurrentSteps
from polydevice_gpu.passes.decompose import decomposes, reshape

if TYPE_CHECKING:
    from polydevice_gpu.passes.lower import Builder

MAX_UNROLLED_STEPS = 4
"""Longest sequence that is unrolled, which uses all of a device for one sequence.

Two LSTM layers of 4 steps on 2 cores (PoCL 3.1), unrolled and in one launch each: 0.15 and 0.06 ms
with 32 hidden units, 0.20 and 0.17 with 128, 1.2 and 3.1 with 512. A plan grows with every step.
"""

MAX_HEAVY_STEPS = 256
"""The same on throughput devices where the weights are large. Loading takes a second."""

HEAVY_BYTES = 1 << 20
"""Recurrent weights from which a step takes longer in one work-group than as launches.

One processor reads all of them in every step, which took 43 us a MiB on an H100 where a step of
launches took 20 to 23: LSTM of 512 units, 100 steps, 18 and 2.3 ms. A network loads more slowly for
it, so launches have to be twice as fast at least; they are counted for each direction.
"""

Step = Callable[[Value, Sequence[Value]], "list[Value]"]
"""f(projected input [B, gates * H], states) returns the new states, H first."""


class _Maker:
    """Short forms of what the decompositions add again and again."""

    def __init__(self, build: Builder, like: Value) -> None:
        self.build = build
        self.kind = like.element_type

    def number(self, value: float) -> Value:
        """Make a constant of one element."""
        return self.build.constant(np.asarray(value, self.kind.dtype), self.kind)

    def add(self, a: Value, b: Value) -> Value:
        """A + b."""
        return self.build.one(Add(), a, b)

    def multiply(self, a: Value, b: Value) -> Value:
        """A * b."""
        return self.build.one(Multiply(), a, b)

    def product(self, a: Value, b: Value) -> Value:
        """A times the transpose of b."""
        return self.build.one(MatMul(transpose_b=True), a, b)

    def cut(self, x: Value, sizes: Sequence[int], axis: int) -> list[Value]:
        """Cut a value along an axis; a constant stays one."""
        if x.constant is not None:
            places = np.cumsum(sizes)[:-1]
            parts = np.split(np.asarray(x.constant), places, axis)
            return [self.build.constant(np.ascontiguousarray(p), x.element_type) for p in parts]
        where = self.build.constant(np.asarray(axis, np.int64))
        if len(set(sizes)) == 1:
            return self.build.add(Split(num_splits=len(sizes)), x, where)
        lengths = self.build.constant(np.asarray(sizes, np.int64))
        return self.build.add(VariadicSplit(), x, where, lengths)

    def activation(self, op: Recurrent, index: int, x: Value, *, clip: bool = True) -> Value:
        """Apply one of the layer's functions."""
        if op.clip and clip:
            x = self.build.one(Clamp(min=-op.clip, max=op.clip), x)
        name, alpha, beta = parameters(op, index)
        if name in PLAIN_FUNCTIONS:
            return self.build.one(PLAIN_FUNCTIONS[name], x)
        if name == "elu":
            return self.build.one(Elu(alpha=alpha), x)
        if name == "leakyrelu":
            return self.build.one(PRelu(), x, self.number(alpha))
        if name == "hardsigmoid":
            return self.build.one(HardSigmoid(), x, self.number(alpha), self.number(beta))
        if name == "affine":
            return self.add(self.multiply(x, self.number(alpha)), self.number(beta))
        if name == "scaledtanh":
            inner = self.build.one(Tanh(), self.multiply(x, self.number(beta)))
            return self.multiply(inner, self.number(alpha))
        assert name == "thresholdedrelu", name
        above = self.build.one(Greater(), x, self.number(alpha))
        return self.build.one(Select(), above, x, self.number(0.0))


def _lstm(make: _Maker, op: Lstm, r: Value, bias: Value | None, peepholes: Value | None) -> Step:
    n = op.hidden_size
    place = {name: i for i, name in enumerate(op.weights_format)}
    weights = None if peepholes is None else make.cut(peepholes, [n] * 3, 0)

    def gate(total: Value, cell: Value, which: int) -> Value:
        if weights is not None:
            total = make.add(total, make.multiply(weights[which], cell))
        return make.activation(op, 0, total)

    def step(projected: Value, states: Sequence[Value]) -> list[Value]:
        h, c = states
        parts = make.cut(make.add(projected, make.product(h, r)), [n] * 4, 1)
        forget = gate(parts[place["f"]], c, 2)
        if op.input_forget:
            enter = make.build.one(Subtract(), make.number(1.0), forget)
        else:
            enter = gate(parts[place["i"]], c, 0)
        new = make.activation(op, 1, parts[place["c"]])
        cell = make.add(make.multiply(forget, c), make.multiply(enter, new))
        leave = gate(parts[place["o"]], cell, 1)
        return [make.multiply(leave, make.activation(op, 2, cell, clip=False)), cell]

    return step


def _gru(make: _Maker, op: Gru, r: Value, bias: Value | None) -> Step:
    n = op.hidden_size
    gates, recurrent = make.cut(r, [2 * n, n], 0)
    after = None
    if op.linear_before_reset and bias is not None:
        after = make.cut(bias, [3 * n, n], 0)[1]

    def step(projected: Value, states: Sequence[Value]) -> list[Value]:
        (h,) = states
        outer, inner = make.cut(projected, [2 * n, n], 1)
        both = make.activation(op, 0, make.add(outer, make.product(h, gates)))
        z, reset = make.cut(both, [n, n], 1)
        if op.linear_before_reset:
            product = make.product(h, recurrent)
            product = product if after is None else make.add(product, after)
            product = make.multiply(reset, product)
        else:
            product = make.product(make.multiply(reset, h), recurrent)
        new = make.activation(op, 1, make.add(inner, product))
        rest = make.build.one(Subtract(), make.number(1.0), z)
        return [make.add(make.multiply(rest, new), make.multiply(z, h))]

    return step


def _rnn(make: _Maker, op: Recurrent, r: Value) -> Step:
    def step(projected: Value, states: Sequence[Value]) -> list[Value]:
        return [make.activation(op, 0, make.add(projected, make.product(states[0], r)))]

    return step


def _step(make: _Maker, op: Recurrent, r: Value, more: Sequence[Value]) -> Step:
    bias = more[0] if more else None
    if isinstance(op, Lstm):
        return _lstm(make, op, r, bias, more[1] if len(more) > 1 else None)
    if isinstance(op, Gru):
        return _gru(make, op, r, bias)
    return _rnn(make, op, r)


def _projected(make: _Maker, op: Recurrent, x: Value, w: Value, more: Sequence[Value]) -> Value:
    """Multiply the inputs of all steps with the weights, and add the bias that belongs there."""
    result = make.product(x, w)
    if not more:
        return result
    bias, n = more[0], op.hidden_size
    if isinstance(op, Gru) and op.linear_before_reset:
        bias = make.cut(bias, [3 * n, n], 0)[0]
    return make.add(result, bias)


@decomposes(Cell)
def _cell(build: Builder, op: Cell, inputs: Sequence[Value]) -> list[Value]:
    make = _Maker(build, inputs[0])
    x, *states = inputs[: 1 + op.states]
    w, r, *more = inputs[1 + op.states :]
    return _step(make, op, r, more)(_projected(make, op, x, w, more), states)


def _is_not_empty(op: Any, inputs: Sequence[Value]) -> bool:
    return inputs[0].elements > 0


@decomposes(SequenceOf, when=_is_not_empty)
def _sequence(build: Builder, op: SequenceOf, inputs: Sequence[Value]) -> list[Value]:
    unrolled = inputs[0].shape[1] <= (
        MAX_HEAVY_STEPS if _is_heavy(build, op, inputs) else MAX_UNROLLED_STEPS
    )
    return _unrolled(build, op, inputs) if unrolled else _in_one_launch(build, op, inputs)


def _is_heavy(build: Builder, op: SequenceOf, inputs: Sequence[Value]) -> bool:
    """Whether one work-group is too slow for the weights that it reads in every step."""
    weights = inputs[3 + op.states]
    per_direction = weights.elements * weights.storage.bits // 8 // op.direction.count
    return build.target.is_throughput and per_direction > HEAVY_BYTES * op.direction.count


def _in_one_launch(build: Builder, op: SequenceOf, inputs: Sequence[Value]) -> list[Value]:
    """Multiply the inputs of all steps and directions at once; one launch does the rest."""
    make = _Maker(build, inputs[0])
    x, *states = inputs[: 1 + op.states]
    lengths, w, r, *more = inputs[1 + op.states :]
    n, rows = op.hidden_size, op.direction.count * op.gates * op.hidden_size
    projected = make.product(x, reshape(build, w, (rows, x.shape[2])))
    after: list[Value] = []
    if more:
        bias, *more = more
        if isinstance(op, Gru) and op.linear_before_reset:
            bias, *after = make.cut(bias, [3 * n, n], 1)
        projected = make.add(projected, reshape(build, bias, (rows,)))
    own = [] if _is_whole(lengths, x.shape[1]) else [lengths]
    steps = RecurrentSteps(
        layer=op, direction=op.direction, has_lengths=bool(own), has_after=bool(after),
        has_peepholes=bool(more),
    )  # fmt: skip
    return build.add(steps, projected, r, *states, *own, *after, *more)


def _unrolled(build: Builder, op: SequenceOf, inputs: Sequence[Value]) -> list[Value]:
    """Add the nodes of every step."""
    make = _Maker(build, inputs[0])
    x, *states = inputs[: 1 + op.states]
    lengths = inputs[1 + op.states]
    count = op.direction.count
    batch, steps, size = x.shape
    # Time first, so that the steps are contiguous parts.
    if batch > 1:
        x = build.one(Transpose(), x, build.constant(np.array([1, 0, 2], np.int64)))
    x = reshape(build, x, (steps, batch, size))
    running = _running(build, lengths, steps)
    per_direction = [_of_directions(make, v, count, 0) for v in inputs[2 + op.states :]]
    begins = [_of_directions(make, state, count, 1) for state in states]
    hidden, lasts = [], []
    for direction in range(count):
        weights = [values[direction] for values in per_direction]
        backwards = direction == 1 or op.direction is Direction.REVERSE
        y, last = _run(
            make, op, x, [begin[direction] for begin in begins], weights, running, backwards
        )
        hidden.append(reshape(build, y, (batch, 1, steps, op.hidden_size)))
        lasts.append([reshape(build, v, (batch, 1, op.hidden_size)) for v in last])
    outputs = [hidden, *(list(values) for values in zip(*lasts, strict=True))]
    return [_joined(build, values) for values in outputs]


def _joined(build: Builder, values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else build.one(Concat(axis=1), *values)


def _of_directions(make: _Maker, value: Value, count: int, axis: int) -> list[Value]:
    """Take the axis of directions apart."""
    parts = make.cut(value, [1] * count, axis) if count > 1 else [value]
    shape = value.shape[:axis] + value.shape[axis + 1 :]
    return [reshape(make.build, part, shape) for part in parts]


def _is_whole(lengths: Value, steps: int) -> bool:
    """Whether every item is known to last for all steps."""
    return lengths.constant is not None and bool(np.all(np.asarray(lengths.constant) >= steps))


def _running(build: Builder, lengths: Value, steps: int) -> list[Value] | None:
    """Return for each step which items it concerns; None when it is all of them."""
    if _is_whole(lengths, steps):
        return None
    column = reshape(build, lengths, (lengths.elements, 1))
    kind = lengths.element_type
    return [
        build.one(Greater(), column, build.constant(np.asarray(t, kind.dtype), kind))
        for t in range(steps)
    ]


def _run(
    make: _Maker, op: SequenceOf, x: Value, states: Sequence[Value], weights: Sequence[Value],
    running: Sequence[Value] | None, backwards: bool,
) -> tuple[Value, Sequence[Value]]:  # fmt: skip
    """Return the hidden states of all steps [B, T, H] and the last states."""
    build, (w, r, *more) = make.build, weights
    steps, batch, _ = x.shape
    step = _step(make, op, r, more)
    projected = _projected(make, op, x, w, more)
    width = projected.shape[2]
    parts = make.cut(projected, [1] * steps, 0) if steps > 1 else [projected]
    hidden: list[Value] = [x] * steps
    zero = make.number(0.0)
    # Going backwards, an item keeps its first state until its own last step is reached.
    for t in reversed(range(steps)) if backwards else range(steps):
        new = step(reshape(build, parts[t], (batch, width)), states)
        if running is None:
            states, shown = new, new[0]
        else:
            shown = build.one(Select(), running[t], new[0], zero)
            pairs = zip(new, states, strict=True)
            states = [build.one(Select(), running[t], n, s) for n, s in pairs]
        hidden[t] = reshape(build, shown, (batch, 1, op.hidden_size))
    y = hidden[0] if steps == 1 else build.one(Concat(axis=1), *hidden)
    return y, states
