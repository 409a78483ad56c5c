"""What exporters and quantisers write, and devices fuse: chains of operators."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import CHANNELS, Builder, RejectedError
from tests.fuzz.data import floats, image, partner, some, suited
from tests.fuzz.families import generates
from tests.fuzz.families.matrix import quantize, scale, zero
from tests.fuzz.families.movement import with_axes
from tests.fuzz.families.spatial import convolution, pooling, window

F4 = np.dtype(np.float32)


def mean(b: Builder, x, axes: list[int]):
    """Add ReduceMean that keeps the axes."""
    if b.opset >= 18:
        return b.add("ReduceMean", x, np.array(axes))
    axes = axes if b.opset >= 11 else [a % x.rank for a in axes]
    return b.add("ReduceMean", x, axes=axes, keepdims=1)


@generates(5)
def norm_spelled_out(b: Builder):
    """A layer, RMS or instance normalisation from its parts, with scales of several shapes."""
    x = some(b, F4)
    if x.rank < 2 or 0 in x.shape:
        raise RejectedError("nothing to normalise")
    axes = b.choice(([-1], [-1], list(range(2 - x.rank, 0)), [1 - x.rank]))
    if not axes:
        axes = [-1]
    centred = x if b.chance(0.25) else b.add("Sub", x, mean(b, x, axes))
    square = (
        b.add("Pow", centred, np.float32(2)) if b.chance(0.5) else b.add("Mul", centred, centred)
    )
    variance = b.add("Add", mean(b, square, axes), np.float32(b.choice((1e-2, 1e-5))))
    root = b.add("Sqrt", variance)
    y = b.add("Div", centred, root)
    shapes = (x.shape[-1:], (1,), (), tuple(x.shape[1:2] + (1,) * (x.rank - 2)))
    if b.chance(0.8):
        y = b.add("Mul", y, b.fresh(b.choice(shapes), floats(F4, 0.5, 2), 0.9))
    if b.chance(0.7):
        y = b.add("Add", y, b.fresh(b.choice(shapes), suited(F4), 0.9))
    return y


@generates(5)
def activation_spelled_out(b: Builder):
    """GELU by erf and by tanh, SiLU, Mish, hard swish from their parts."""
    x = some(b, F4)
    kind = b.choice(("erf", "tanh", "silu", "mish", "hard", "softplus", "relu6"))
    if kind == "erf":
        if b.opset < 9:
            raise RejectedError("Erf came with opset 9")
        inner = b.add("Erf", b.add("Div", x, np.float32(np.sqrt(2))))
        y = b.add("Mul", x, b.add("Add", inner, np.float32(1)))
        return b.add("Mul", y, np.float32(0.5))
    if kind == "tanh":
        cube = b.add("Mul", b.add("Pow", x, np.float32(3)), np.float32(0.044715))
        inner = b.add("Mul", b.add("Add", x, cube), np.float32(np.sqrt(2 / np.pi)))
        half = b.add("Mul", x, np.float32(0.5))
        return b.add("Mul", half, b.add("Add", b.add("Tanh", inner), np.float32(1)))
    if kind == "silu":
        return b.add("Mul", x, b.add("Sigmoid", x))
    if kind == "mish":
        return b.add("Mul", x, b.add("Tanh", b.add("Softplus", x)))
    if kind == "softplus":
        return b.add("Log", b.add("Add", b.add("Exp", x), np.float32(1)))
    if b.opset < 11:
        raise RejectedError("Clip's bounds are attributes")
    six = b.add("Clip", b.add("Add", x, np.float32(3)), np.float32(0), np.float32(6))
    if kind == "relu6":
        return six
    return b.add("Div", b.add("Mul", x, six), np.float32(6))


@generates(4)
def attention_spelled_out(b: Builder):
    """softmax(q kᵀ / √d + mask) v, also with heads."""
    heads = b.choice(((), (1,), (2,), (1, 2), (2, 3)))
    n, m, d = b.integer(1, 6), b.integer(1, 6), b.choice((1, 3, 4, 8, 16))
    q = b.fresh((*heads, n, d), suited(F4), 0)
    k = b.fresh((*heads, m, d), suited(F4), 0.2)
    v = b.fresh((*heads, m, b.choice((d, 5))), suited(F4), 0.2)
    turn = [*range(len(heads)), len(heads) + 1, len(heads)]
    scores = b.add("MatMul", q, b.add("Transpose", k, perm=turn))
    scores = b.add(b.choice(("Mul", "Div")), scores, np.float32(b.choice((0.5, 1, d**0.5))))
    if b.chance(0.5):
        scores = b.add("Add", scores, partner(b, scores, reuse=0.1))
    return b.add("MatMul", b.add("Softmax", scores, axis=scores.rank - 1), v)


def tail(b: Builder, x):
    """Add up to four pointwise operators behind a heavy one."""
    for _ in range(b.integer(1, 4)):
        kind = b.integer(0, 5)
        if kind == 0:
            x = b.add(b.choice(("Relu", "Sigmoid", "Tanh", "Abs", "LeakyRelu", "Elu")), x)
        elif kind == 1:
            x = b.add(b.choice(("Add", "Mul", "Sub", "Max", "Min")), x, full(b, x))
        elif kind == 2:
            shape = (*x.shape[1:2], *(1,) * max(x.rank - 2, 0)) if x.rank > 1 else x.shape
            y = b.fresh(shape, suited(x.dtype), 0.9)
            x = b.add(b.choice(("Add", "Mul")), *((x, y) if b.chance(0.7) else (y, x)))
        elif kind == 3:
            x = b.add(b.choice(("Add", "Mul")), x, np.asarray(b.rng.uniform(-2, 2)).astype(x.dtype))
        elif kind == 4:
            x = b.add("Mul", x, b.add("Sigmoid", x))
        else:
            x = b.add(b.choice(("Add", "Sub", "Mul")), x, partner(b, x))
    return x


def full(b: Builder, x):
    """Return a value of the same shape: one of the network, or a new one."""
    found = b.find(lambda t: t.shape == x.shape and t.dtype == x.dtype and t is not x)
    return found if found is not None and b.chance(0.6) else b.fresh(x.shape, suited(x.dtype), 0.3)


@generates(8)
def convolution_with_tail(b: Builder):
    """Conv, batch normalisation, activation, residual."""
    x = convolution(b)
    if b.chance(0.5):
        c = x.shape[1]
        parameters = [b.constant(floats(x.dtype, low, high)(b.rng, (c,)))
                      for low, high in ((0.5, 2), (-1, 1), (-1, 1), (0.4, 2))]  # fmt: skip
        x = b.add("BatchNormalization", x, *parameters)
    return tail(b, x)


@generates(6)
def pooling_with_tail(b: Builder):
    """Pooling and what follows it."""
    x = pooling(b)
    return tail(b, x[0] if isinstance(x, list) else x)


@generates(5)
def product_with_tail(b: Builder):
    """MatMul, bias, activation, residual."""
    k, n = b.choice(CHANNELS), b.choice(CHANNELS)
    x = b.fresh((*b.shape(b.integer(0, 2)), b.size(), k), suited(F4), 0)
    y = b.add("MatMul", x, b.fresh((k, n), floats(F4, -1, 1), 0.9))
    if b.chance(0.7):
        bias = b.fresh(b.choice(((n,), (1,), ())), suited(F4), 0.9)
        y = b.add("Add", y, bias) if b.chance(0.6) else b.add("Add", bias, y)
    return tail(b, y)


@generates(5)
def affine(b: Builder):
    """Scales and shifts per channel, per row, per element."""
    x = some(b, F4)
    return tail(b, tail(b, x))


@generates(5)
def quantized_chain(b: Builder):
    """Quantise and dequantise around an operator, as quantisers write it."""
    if b.opset < 13:
        raise RejectedError("per-axis quantisation came with opset 13")
    x = quantize(b)
    if x.dtype != F4 or x.rank < 3 or 0 in x.shape:
        return x if x.dtype != F4 else tail(b, x)
    made = window(b, x.shape[2:])
    out = b.choice((1, 2, 4, 16))
    weights = b.rng.integers(-127, 128, (out, x.shape[1], *made["kernel_shape"])).astype(np.int8)
    per = (out,) if b.chance(0.5) else ()
    w = b.add("DequantizeLinear", b.constant(weights), scale(b, per), None,
              axis=0 if per else None)  # fmt: skip
    y = b.add("Conv", x, w, **made)
    y = b.add("Relu", y) if b.chance(0.5) else y
    parameters = b.constant(np.float32(0.37)), zero(b, "u1")
    q = b.add("QuantizeLinear", y, *parameters)
    return b.add("DequantizeLinear", q, *parameters)


@generates(3)
def reshape_transpose(b: Builder):
    """Heads: reshape and transpose around a product."""
    n, t, h, d = b.integer(1, 2), b.integer(1, 4), b.integer(1, 3), b.integer(1, 4)
    x = b.fresh((n, t, h * d), suited(F4), 0)
    y = b.add("Reshape", x, np.array([0, 0, h, d] if b.chance(0.5) else [n, -1, h, d]))
    y = b.add("Transpose", y, perm=[0, 2, 1, 3])
    y = tail(b, y)
    if y.shape == (n, h, t, d):
        y = b.add("Reshape", b.add("Transpose", y, perm=[0, 2, 1, 3]), np.array([0, 0, -1]))
    return y


@generates(3)
def squeeze_excite(b: Builder):
    """Global pooling, a gate, and the product with the image."""
    x = image(b)
    if 0 in x.shape:
        raise RejectedError("an empty image")
    gate = b.add("GlobalAveragePool", x)
    w = b.fresh((x.shape[1], x.shape[1], *(1,) * (x.rank - 2)), floats(F4, -1, 1), 0.95)
    gate = b.add(b.choice(("Sigmoid", "HardSigmoid")), b.add("Conv", gate, w))
    return tail(b, b.add("Mul", *((x, gate) if b.chance(0.6) else (gate, x))))


@generates(2)
def reduced_tail(b: Builder):
    """A reduction that keeps or drops its axes, and its difference to the input."""
    x = some(b, F4)
    if not x.rank or 0 in x.shape:
        raise RejectedError("nothing to reduce")
    y = with_axes(b, b.choice(("ReduceMax", "ReduceMin", "ReduceMean")), x, [-1], 18)
    return tail(b, b.add("Sub", x, y))
