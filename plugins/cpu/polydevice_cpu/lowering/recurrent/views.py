"""Recurrent layers' inputs, states and results, as what computes them sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice_cpu.plan.building.builder import PlanBuilder


def time_first(builder: PlanBuilder, x: Value, sequence: bool) -> Value:
    """[B, T, I] (or [B, I]) as [T, B, I]."""
    if x.strides is None:
        x = builder.dense(x)
    assert x.strides is not None
    if not sequence:
        return x.view((1, *x.shape), (x.shape[0] * x.strides[0], *x.strides))
    b, t, i = x.shape
    sb, st, si = x.strides
    return x.view((t, b, i), (st, sb, si))


def hidden_view(y: Value, count: int) -> Value:
    """[T, B, D * H] as [B, D, T, H]."""
    time, batch, width = y.shape
    hidden = width // count
    return y.view((batch, count, time, hidden), (width, hidden, batch * width, 1))


def of_direction(state: Value, d: int) -> Value:
    """One direction of a dense [1, D, B, H], as [1, 1, B, H]."""
    _, _, b, h = state.shape
    size = b * h
    return state.view((1, 1, b, h), (size, size, h, 1), skip_bytes=d * size * state.dtype.itemsize)


def state_view(builder: PlanBuilder, state: Value, sequence: bool) -> Value:
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


def last_view(last: Value, sequence: bool) -> Value:
    """[1, D, B, H] as [B, D, H] (or [B, H])."""
    _, d, b, h = last.shape
    if not sequence:
        return last.view((b, h), (h, 1))
    return last.view((b, d, h), (h, b * h, 1))
