"""Recurrent cells and sequences: one matrix product for all steps' inputs, one per step for H."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.recurrent import (
    Direction,
    GRUCell,
    GRUSequence,
    LSTMCell,
    LSTMSequence,
    Recurrent,
    RNNCell,
    RNNSequence,
)
from polydevice_cpu.algorithms.precision import narrow, widen
from polydevice_cpu.implement import implements
from polydevice_cpu.ops.activation import logistic

Function = Callable[[Array], Array]
States = tuple[Array, ...]
Step = Callable[[Array, States], States]
"""f(X·Wᵀ of one step, states) returns the new states, H first."""

# Parameters that ONNX gives to functions without their own.


def _function(name: str, alpha: float, beta: float) -> Function:
    """Return an activation function by its name in lower case."""
    functions: dict[str, Callable[[Array], object]] = {
        "sigmoid": logistic,
        "tanh": np.tanh,
        "relu": lambda x: np.maximum(x, 0),
        "affine": lambda x: alpha * x + beta,
        "leakyrelu": lambda x: np.where(x < 0, alpha * x, x),
        "thresholdedrelu": lambda x: np.where(x > alpha, x, 0),
        "scaledtanh": lambda x: alpha * np.tanh(beta * x),
        "hardsigmoid": lambda x: np.clip(alpha * x + beta, 0, 1),
        "elu": lambda x: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
        "softsign": lambda x: x / (1 + np.abs(x)),
        "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    }
    function = functions[name]
    return lambda x: np.asarray(function(x)).astype(x.dtype, copy=False)


def _functions(op: Recurrent) -> list[Function]:
    """Return the cell's activation functions; each clips what it is given."""
    count = len(op.functions)
    return [_clipped(_function(*op.activation(index)), op.clip) for index in range(count)]


def _clipped(function: Function, clip: float) -> Function:
    if not clip:
        return function
    return lambda x: function(np.clip(x, -clip, clip))


def _lstm(op: LSTMCell | LSTMSequence, r: Array, bias: Array, peepholes: Array | None) -> Step:
    gate, inner, _ = _functions(op)
    outer = _function(*op.activation(2))  # only what enters a gate is clipped, not the cell
    hidden = op.hidden_size
    place = {name: slice(i * hidden, (i + 1) * hidden) for i, name in enumerate(op.weights_format)}
    p = np.zeros(3 * hidden, r.dtype) if peepholes is None else peepholes
    p_input, p_output, p_forget = np.split(p, 3)
    transposed = np.ascontiguousarray(r.T)

    def step(projected: Array, states: States) -> States:
        h, c = states
        total = projected + h @ transposed + bias
        forget = gate(total[:, place["f"]] + p_forget * c)
        enter = 1 - forget if op.input_forget else gate(total[:, place["i"]] + p_input * c)
        cell = forget * c + enter * inner(total[:, place["c"]])
        leave = gate(total[:, place["o"]] + p_output * cell)
        return leave * outer(cell), cell

    return step


def _gru(op: GRUCell | GRUSequence, r: Array, bias: Array) -> Step:
    gate, inner = _functions(op)
    n = op.hidden_size
    gates, recurrent = np.ascontiguousarray(r[: 2 * n].T), np.ascontiguousarray(r[2 * n :].T)
    after = bias[3 * n :] if op.linear_before_reset else None

    def step(projected: Array, states: States) -> States:
        (h,) = states
        z, reset = np.split(gate(projected[:, : 2 * n] + h @ gates + bias[: 2 * n]), 2, 1)
        product = (reset * h) @ recurrent if after is None else reset * (h @ recurrent + after)
        new = inner(projected[:, 2 * n :] + product + bias[2 * n : 3 * n])
        return ((1 - z) * new + z * h,)

    return step


def _rnn(op: RNNCell | RNNSequence, r: Array, bias: Array) -> Step:
    (function,) = _functions(op)
    transposed = np.ascontiguousarray(r.T)
    return lambda projected, states: (function(projected + states[0] @ transposed + bias),)


def _make_step(op: Recurrent, r: Array, bias: Array, peepholes: Array | None) -> Step:
    if isinstance(op, (LSTMCell, LSTMSequence)):
        return _lstm(op, r, bias, peepholes)
    if isinstance(op, (GRUCell, GRUSequence)):
        return _gru(op, r, bias)
    assert isinstance(op, (RNNCell, RNNSequence))
    return _rnn(op, r, bias)


@implements(LSTMCell, GRUCell, RNNCell)
def cell(op: LSTMCell | GRUCell | RNNCell, x: Array, *rest: Array) -> tuple[Array, ...]:
    """Compute one step."""
    dtype = x.dtype
    x, *wide = map(widen, (x, *rest))
    states, (w, r, *more) = tuple(wide[: op.states]), wide[op.states :]
    bias = more[0] if more else np.zeros(op.bias_gates * op.hidden_size, x.dtype)
    step = _make_step(op, r, bias, more[1] if len(more) > 1 else None)
    return tuple(narrow(state, dtype) for state in step(x @ w.T, states))


@implements(LSTMSequence, GRUSequence, RNNSequence)
def sequence(
    op: LSTMSequence | GRUSequence | RNNSequence, x: Array, *rest: Array
) -> tuple[Array, ...]:
    """Run each direction over time."""
    dtype = x.dtype
    lengths = np.clip(rest[op.states].astype(np.int64), 0, x.shape[1])
    x = widen(x)
    states = [widen(state) for state in rest[: op.states]]
    w, r, *more = (widen(weights) for weights in rest[op.states + 1 :])
    count = op.direction.count
    y = np.zeros((x.shape[0], count, x.shape[1], op.hidden_size), x.dtype)
    lasts = [np.empty((x.shape[0], count, op.hidden_size), x.dtype) for _ in states]
    for direction in range(count):
        bias = more[0][direction] if more else np.zeros(op.bias_gates * op.hidden_size, x.dtype)
        peepholes = more[1][direction] if len(more) > 1 else None
        step = _make_step(op, r[direction], bias, peepholes)
        backwards = direction == 1 or op.direction is Direction.REVERSE
        order = _order(lengths, x.shape[1], backwards)
        projected = np.take_along_axis(x, order, 1) @ w[direction].T
        hidden, last = _run(step, projected, tuple(s[:, direction] for s in states), lengths)
        y[:, direction] = np.take_along_axis(hidden, order, 1)
        for place, state in zip(lasts, last, strict=True):
            place[:, direction] = state
    return tuple(narrow(output, dtype) for output in (y, *lasts))


def _order(lengths: Array, steps: int, backwards: bool) -> Array:
    """Return [B, T, 1]: which element each step reads; going back starts at an item's length."""
    time = np.broadcast_to(np.arange(steps), (len(lengths), steps))
    if backwards:
        limit = lengths[:, np.newaxis]
        time = np.where(time < limit, limit - 1 - time, time)
    return time[:, :, np.newaxis]


def _run(step: Step, projected: Array, states: States, lengths: Array) -> tuple[Array, States]:
    """Return H of all steps [B, T, H] and the last states; an item stops at its length."""
    batch, steps = projected.shape[:2]
    hidden = np.zeros((batch, steps, states[0].shape[-1]), projected.dtype)
    uneven = bool((lengths != steps).any())
    for t in range(int(lengths.max(initial=0))):
        new = step(projected[:, t], states)
        if uneven:
            running = (lengths > t)[:, np.newaxis]
            hidden[:, t] = np.where(running, new[0], 0)
            states = tuple(np.where(running, n, s) for n, s in zip(new, states, strict=True))
        else:
            hidden[:, t] = new[0]
            states = new
    return hidden, states
