"""Recurrent cells and sequences: one matrix product for all steps' inputs, one per step for H.

The batch comes last while they are computed, so that each gate's numbers lie side by side: a step
of an LSTM with `clip`, 4 items and 32 states takes NumPy 11 instead of 13 us.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.recurrent import (
    Direction,
    GRUCell,
    GRUSequence,
    Lstm,
    LSTMCell,
    LSTMSequence,
    Recurrent,
    RNNCell,
    RNNSequence,
)
from polydevice_cpu.algorithms.precision import narrow, widen
from polydevice_cpu.algorithms.product import product
from polydevice_cpu.implement import implements
from polydevice_cpu.passes.integers.compressed_recurrent import CompressedLSTM

Function = Callable[[Array, Array], object]
"""f(x, out) writes to `out`, which may be `x`."""
States = tuple[Array, ...]
Step = Callable[[Array, States], States]
"""f(W·X + B of one step [gates * H, B], states [H, B]) returns the new states, H first."""


def _logistic(x: Array, out: Array) -> None:
    """1 / (1 + exp(-x)), which is 0 where exp overflows."""
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    np.reciprocal(out, out=out)


def _function(name: str, alpha: float, beta: float) -> Function:
    """Return an activation function by its name in lower case."""
    in_place: dict[str, Function] = {
        "sigmoid": _logistic,
        "tanh": np.tanh,
        "relu": lambda x, out: np.maximum(x, 0, out=out),
    }
    functions: dict[str, Callable[[Array], Array]] = {
        "affine": lambda x: alpha * x + beta,
        "leakyrelu": lambda x: np.where(x < 0, alpha * x, x),
        "thresholdedrelu": lambda x: np.where(x > alpha, x, 0),
        "scaledtanh": lambda x: alpha * np.tanh(beta * x),
        "hardsigmoid": lambda x: np.clip(alpha * x + beta, 0, 1),
        "elu": lambda x: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
        "softsign": lambda x: x / (1 + np.abs(x)),
        "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    }
    if name in in_place:
        return in_place[name]
    function = functions[name]
    return lambda x, out: np.copyto(out, function(x))


@lru_cache(maxsize=64)
def _functions(op: Recurrent) -> list[Function]:
    """Return the cell's activation functions.

    Each clips what it is given, which enters a gate, but for the third, an LSTM's of its cell.
    """
    functions = [_function(*op.activation(index)) for index in range(len(op.functions))]
    return [_clipped(f, op.clip) if i < 2 else f for i, f in enumerate(functions)]


def _clipped(function: Function, clip: float) -> Function:
    if not clip:
        return function

    def bounded(x: Array, out: Array) -> None:
        np.minimum(x, clip, out=out)
        np.maximum(out, -clip, out=out)
        function(out, out)

    return bounded


def lstm_gates(op: LSTMCell | LSTMSequence, peepholes: Array | None = None) -> Step:
    """Return f(W·X + R·H + B [4H, B], (C,)), which returns the new H and C.

    The gates' order is f, i, c, o. It writes its first argument.
    """
    gate, inner, outer = _functions(op)
    n = op.hidden_size
    before, after = (None, None) if peepholes is None else _split(peepholes)

    def pass_gates(total: Array, states: States) -> States:
        (c,) = states
        early, leave = total[: 2 * n], total[3 * n :]
        new = np.empty_like(c)
        inner(total[2 * n : 3 * n], new)
        if before is None:
            gate(total, total)
        else:
            early += (before * c).reshape(early.shape)
            gate(early, early)
        forget = early[:n]
        new *= 1 - forget if op.input_forget else early[n:]
        cell = forget * c
        cell += new
        if after is not None:
            leave += after * cell
            gate(leave, leave)
        outer(cell, new)
        new *= leave
        return new, cell

    return pass_gates


def _lstm(op: LSTMCell | LSTMSequence, r: Array, peepholes: Array | None) -> Step:
    pass_gates = lstm_gates(op, peepholes)

    def step(projected: Array, states: States) -> States:
        total = product(r, states[0])
        total += projected
        return pass_gates(total, states[1:])

    return step


def _split(peepholes: Array) -> tuple[Array, Array]:
    """Return those of the gates f and i [2, H, 1], and that of o [H, 1]."""
    i, o, f = (part[:, np.newaxis] for part in np.split(peepholes, 3))
    return np.stack([f, i]), o


def _gru(op: GRUCell | GRUSequence, r: Array, after: Array | None) -> Step:
    """`after` is the bias of the recurrent product, where that comes before the reset."""
    gate, inner = _functions(op)
    n = op.hidden_size
    gates, recurrent = r[: 2 * n], r[2 * n :]

    def step(projected: Array, states: States) -> States:
        (h,) = states
        both = product(gates, h)
        both += projected[: 2 * n]
        gate(both, both)
        z, reset = both[:n], both[n:]
        if after is None:
            new = product(recurrent, reset * h)
        else:
            new = product(recurrent, h)
            new += after
            new *= reset
        new += projected[2 * n :]
        inner(new, new)
        new *= 1 - z
        new += z * h
        return (new,)

    return step


def _rnn(op: RNNCell | RNNSequence, r: Array) -> Step:
    (function,) = _functions(op)

    def step(projected: Array, states: States) -> States:
        total = product(r, states[0])
        total += projected
        function(total, total)
        return (total,)

    return step


def _steps(op: Recurrent, x: Array, weights: Sequence[Array]) -> tuple[Array, Step]:
    """Return W·X + B of all steps [T, gates * H, B], for X [T, B, I], and what computes one."""
    if isinstance(op, (LSTMCell, LSTMSequence)) and op.weights_format != "fico":
        weights = [*(in_order(op, each) for each in weights[:3]), *weights[3:]]
    w, r, *more = weights
    steps, batch, size = x.shape
    bias = more[0] if more else np.zeros(op.bias_gates * op.hidden_size, x.dtype)
    rows = product(x.reshape(steps * batch, size), w.T)
    rows += bias[: len(w)]
    projected = np.ascontiguousarray(rows.reshape(steps, batch, len(w)).swapaxes(1, 2))
    if isinstance(op, (LSTMCell, LSTMSequence)):
        return projected, _lstm(op, r, more[1] if len(more) > 1 else None)
    if isinstance(op, (GRUCell, GRUSequence)):
        after = bias[len(w) :, np.newaxis] if op.linear_before_reset else None
        return projected, _gru(op, r, after)
    assert isinstance(op, (RNNCell, RNNSequence))
    return projected, _rnn(op, r)


def in_order(op: Lstm, weights: Array) -> Array:
    """[4H, ...] with the gates in the order f, i, c, o."""
    gates = dict(zip(op.weights_format, np.split(weights, 4), strict=True))
    return np.concatenate([gates[name] for name in "fico"])


@implements(LSTMCell, GRUCell, RNNCell)
def cell(op: LSTMCell | GRUCell | RNNCell, x: Array, *rest: Array) -> tuple[Array, ...]:
    """Compute one step."""
    dtype = x.dtype
    x, *wide = map(widen, (x, *rest))
    projected, step = _steps(op, x[np.newaxis], wide[op.states :])
    states = step(projected[0], tuple(state.T for state in wide[: op.states]))
    return tuple(narrow(state.T, dtype) for state in states)


@implements(LSTMSequence, GRUSequence, RNNSequence)
def sequence(
    op: LSTMSequence | GRUSequence | RNNSequence, x: Array, *rest: Array
) -> tuple[Array, ...]:
    """Run each direction over time."""
    dtype = x.dtype
    lengths = np.minimum(np.maximum(rest[op.states].astype(np.int64), 0), x.shape[1])
    x = widen(x).swapaxes(0, 1)
    states = [widen(state) for state in rest[: op.states]]
    weights = [widen(each) for each in rest[op.states + 1 :]]
    steps, batch, _ = x.shape
    count = op.direction.count
    y = np.empty((batch, count, steps, op.hidden_size), x.dtype)
    lasts = [np.empty((batch, count, op.hidden_size), x.dtype) for _ in states]
    for direction in range(count):
        backwards = direction == 1 or op.direction is Direction.REVERSE
        read = _turned(x, lengths) if backwards else x
        projected, step = _steps(op, read, [each[direction] for each in weights])
        begins = tuple(np.ascontiguousarray(state[:, direction].T) for state in states)
        hidden, last = _run(step, projected, begins, lengths)
        found = hidden.transpose(0, 2, 1)
        y[:, direction] = (_turned(found, lengths) if backwards else found).swapaxes(0, 1)
        for place, state in zip(lasts, last, strict=True):
            place[:, direction] = state
    return tuple(narrow(output, dtype) for output in (y, *lasts))


def _turned(x: Array, lengths: Array) -> Array:
    """[T, B, ...] backwards, each item up to its length."""
    result: Array = x.copy()
    for item, length in enumerate(lengths.tolist()):
        result[:length, item] = x[:length, item][::-1]
    return result


def _run(step: Step, projected: Array, states: States, lengths: Array) -> tuple[Array, States]:
    """Return H of all steps [T, H, B] and the last states [B, H]; an item stops at its length."""
    reached = int(lengths.max(initial=0))
    kept = [np.zeros((len(projected) + 1, *state.shape), state.dtype) for state in states]
    for place, state in zip(kept, states, strict=True):
        place[0] = state
    for t in range(reached):
        states = step(projected[t], states)
        for place, state in zip(kept, states, strict=True):
            place[t + 1] = state
    hidden = kept[0][1:]
    lasts = tuple(place[lengths, :, np.arange(len(lengths))] for place in kept)
    for item, length in enumerate(lengths.tolist()):
        hidden[length:reached, :, item] = 0
    return hidden, lasts


def floats(q: Array, scales: Array) -> Array:
    """Return weights [D, 4H, C] with scales [D, 4H]."""
    return np.asarray(q.astype(np.float32) * scales[:, :, np.newaxis])


@implements(CompressedLSTM)
def compressed_lstm(op: CompressedLSTM, *inputs: Array) -> tuple[Array, ...]:
    """Compute it in f32."""
    w, r, bias, *scales = inputs[4:]
    return sequence(op, *inputs[:4], floats(w, scales[0]), floats(r, scales[1]), bias)
