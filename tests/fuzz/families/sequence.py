"""Operators over time: recurrences, attention, states."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import Builder, RejectedError
from tests.fuzz.data import floats, integers, suited
from tests.fuzz.families import generates

F4 = np.dtype(np.float32)


@generates(4)
def recurrence(b: Builder):
    """LSTM, GRU, RNN with optional inputs and outputs."""
    name = b.choice(("LSTM", "GRU", "RNN"))
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    time, batch, width, hidden = b.integer(1, 4), b.integer(1, 3), b.integer(1, 5), b.integer(1, 5)
    way = b.choice(("forward", "reverse", "bidirectional"))
    ways = 2 if way == "bidirectional" else 1
    data = floats(F4, -1, 1)
    x = b.fresh((time, batch, width), data, 0.05)
    w = b.fresh((ways, gates * hidden, width), data, 0.95)
    r = b.fresh((ways, gates * hidden, hidden), data, 0.95)
    bias = b.fresh((ways, 2 * gates * hidden), data, 0.95) if b.chance(0.6) else None
    lengths = b.fresh((batch,), integers(np.int32, 1, time)) if b.chance(0.3) else None
    first = b.fresh((ways, batch, hidden), data) if b.chance(0.4) else None
    extra = []
    if name == "LSTM":
        extra = [b.fresh((ways, batch, hidden), data) if b.chance(0.4) else None]
        extra += [b.fresh((ways, 3 * hidden), data, 0.95) if b.chance(0.2) else None]
    outputs = [b.chance(0.7), True, *([b.chance(0.7)] if name == "LSTM" else [])]
    attributes = {"hidden_size": hidden, "direction": way}
    if name == "GRU":
        attributes["linear_before_reset"] = b.integer(0, 1)
    if b.chance(0.15):
        attributes["clip"] = 0.5
    return b.add(name, x, w, r, bias, lengths, first, *extra, outputs=outputs, **attributes)


@generates(3)
def attention(b: Builder):
    """Attention of opset 23 with grouped heads, masks, causality and a cap."""
    if b.opset < 23:
        raise RejectedError("Attention came with opset 23")
    n, heads, keys, size = b.integer(1, 2), b.integer(1, 3), b.integer(1, 6), b.choice((1, 2, 4, 8))
    queries = b.choice((heads, heads * 2))
    length = b.integer(1, 5)
    data = floats(F4, -2, 2)
    q = b.fresh((n, queries, length, size), data)
    k = b.fresh((n, heads, keys, size), data)
    v = b.fresh((n, heads, keys, b.choice((size, 3))), data)
    mask = b.fresh((length, keys), data) if b.chance(0.4) else None
    attributes = {"is_causal": b.integer(0, 1), "softcap": b.choice((None, 2.0)),
                  "scale": b.choice((None, 0.3))}  # fmt: skip
    return b.add("Attention", q, k, v, mask, **attributes)


@generates(2)
def rotary(b: Builder):
    """RotaryEmbedding."""
    if b.opset < 23:
        raise RejectedError("RotaryEmbedding came with opset 23")
    n, heads, length, size = b.integer(1, 2), b.integer(1, 3), b.integer(1, 4), b.choice((2, 4, 8))
    x = b.fresh((n, heads, length, size), suited(F4))
    cos, sin = (b.fresh((6, size // 2), floats(F4, -1, 1)) for _ in range(2))
    places = b.fresh((n, length), integers(np.int64, 0, 5))
    return b.add("RotaryEmbedding", x, cos, sin, places, interleaved=b.integer(0, 1))


@generates(1)
def states(b: Builder):
    """CausalConvWithState and LinearAttention."""
    if b.opset < 27:
        raise RejectedError("CausalConvWithState came with opset 27")
    n, c, length, kernel = b.integer(1, 2), b.integer(1, 5), b.integer(1, 5), b.integer(1, 3)
    x = b.fresh((n, c, length), suited(F4))
    w = b.fresh((c, 1, kernel), floats(F4, -1, 1), 0.9)
    bias = b.fresh((c,), suited(F4)) if b.chance(0.5) else None
    return b.add("CausalConvWithState", x, w, bias, outputs=2)


@generates(1)
def swiglu(b: Builder):
    """SwiGLU."""
    if b.opset < 27:
        raise RejectedError("SwiGLU came with a later opset")
    x = b.fresh((*b.shape(b.integer(0, 2)), 2 * b.integer(1, 5)), suited(F4))
    return b.add("SwiGLU", x)
