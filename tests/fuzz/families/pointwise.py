"""Operators that work element by element."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.fuzz.builder import FLOATS, INTS, Builder, RejectedError
from tests.fuzz.data import (
    booleans,
    broadcast,
    floats,
    integers,
    partner,
    some,
    strings,
    suited,
)
from tests.fuzz.families import generates

EVERYWHERE = ("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Floor", "Ceil", "Softsign", "Softplus",
              "Sign", "Sin", "Cos", "Atan", "Asinh", "Erf", "Round", "Exp", "Identity", "HardSwish",
              "Mish")  # fmt: skip
LIMITED = {
    "Sqrt": (0, 9), "Log": (0.05, 9), "Reciprocal": (0.2, 5), "Acos": (-1, 1), "Asin": (-1, 1),
    "Atanh": (-0.95, 0.95), "Acosh": (1, 9), "Tan": (-1.4, 1.4), "Sinh": (-5, 5), "Cosh": (-5, 5),
}  # fmt: skip
SINCE = {"Sign": 9, "Sin": 7, "Cos": 7, "Atan": 7, "Asinh": 9, "Erf": 9, "Round": 11,
         "HardSwish": 14, "Mish": 18, "Atanh": 9, "Acosh": 9, "Sinh": 9, "Cosh": 9}  # fmt: skip


def newest(b: Builder, name: str) -> bool:
    return b.opset >= SINCE.get(name, 1)


@generates(8)
def unary(b: Builder):
    """An operator that is defined everywhere."""
    name = b.choice([n for n in EVERYWHERE if newest(b, n)])
    return b.add(name, some(b))


@generates(4)
def unary_limited(b: Builder):
    """An operator that is defined, or tame, on an interval only."""
    name = b.choice([n for n in LIMITED if newest(b, n)])
    low, high = LIMITED[name]
    if b.chance(0.5):
        return b.add(name, b.fresh(b.shape(), floats(b.float_type(), low, high), 0.1))
    x = some(b)
    dtype = x.dtype
    inside = b.add("Sigmoid", x)
    scaled = b.add("Mul", inside, np.asarray(high - low).astype(dtype))
    return b.add(name, b.add("Add", scaled, np.asarray(low).astype(dtype)))


ACTIVATIONS = {
    "LeakyRelu": (1, {"alpha": (-0.5, 1.5)}), "Elu": (1, {"alpha": (0.1, 2)}),
    "Selu": (1, {"alpha": (0.5, 2), "gamma": (0.5, 2)}), "Celu": (12, {"alpha": (0.2, 2)}),
    "HardSigmoid": (1, {"alpha": (0.05, 0.5), "beta": (0, 1)}),
    "ThresholdedRelu": (10, {"alpha": (-1, 2)}), "Shrink": (9, {"bias": (0, 1), "lambd": (0, 2)}),
    "Swish": (24, {"alpha": (-2, 2)}), "Gelu": (20, {}),
}  # fmt: skip


@generates(5)
def activation(b: Builder):
    """An operator with parameters among its attributes."""
    name = b.choice([n for n, (since, _) in ACTIVATIONS.items() if b.opset >= since])
    attributes = {
        key: round(float(b.rng.uniform(*bounds)), 3)
        for key, bounds in ACTIVATIONS[name][1].items()
        if b.chance(0.7)
    }
    if name == "Gelu" and b.chance(0.5):
        attributes["approximate"] = "tanh"
    return b.add(name, some(b), **attributes)


@generates(6)
def binary(b: Builder):
    """Add, Sub, Mul, Div, Pow with broadcasting."""
    name = b.choice(("Add", "Sub", "Mul", "Div", "Pow", "PRelu"))
    x = some(b)
    if name == "Pow":
        kind = b.choice((x.dtype, np.dtype(np.int32))) if b.opset >= 12 else x.dtype
        y = b.constant(b.choice((2, 3, 1, 0)), kind)
        return b.add(name, x, y)
    if name == "Div":
        return b.add(name, x, partner(b, x, floats(x.dtype, 0.5, 3), reuse=0))
    if name == "PRelu":
        shape = tuple(1 if b.chance(0.5) else s for s in x.shape[b.integer(0, x.rank) :])
        return b.add(name, x, b.fresh(shape, floats(x.dtype, -1, 1), 0.6))
    y = partner(b, x)
    return b.add(name, *((x, y) if b.chance(0.5) else (y, x)))


@generates(4)
def binary_integer(b: Builder):
    """Arithmetic, Mod and Div on integers of every width."""
    dtype = b.choice(INTS[:2] if b.chance(0.6) else INTS)
    x = b.find(lambda t: t.dtype == dtype) or b.fresh(b.shape(), suited(dtype))
    name = b.choice(("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Abs", "Sign", "Neg"))
    if name in ("Abs", "Sign", "Neg"):
        return b.add(name, x)
    if name in ("Div", "Mod"):
        return b.add(name, x, partner(b, x, integers(dtype, 1, 5), reuse=0))
    return b.add(name, x, partner(b, x))


@generates(2)
def modulo(b: Builder):
    """Mod of floating-point numbers, and of integers with a sign."""
    if b.chance(0.5):
        x = some(b, b.choice(FLOATS[:3]))
        return b.add("Mod", x, partner(b, x, floats(x.dtype, 0.5, 3), reuse=0), fmod=1)
    x = b.fresh(b.shape(), suited(b.choice(INTS)))
    divisor = partner(b, x, integers(x.dtype, 1, 7), reuse=0)
    if x.dtype.kind == "i" and b.chance(0.5):
        divisor = b.add("Neg", divisor)
    return b.add("Mod", x, divisor, fmod=b.integer(0, 1))


@generates(4)
def variadic(b: Builder):
    """Sum, Mean, Max, Min of one to four values."""
    name = b.choice(("Sum", "Mean", "Max", "Min"))
    x = some(b)
    return b.add(name, x, *(partner(b, x) for _ in range(b.integer(0, 3))))


@generates(5)
def compare(b: Builder):
    """Comparisons, of floating-point numbers and integers."""
    names = ["Less", "Greater", "Equal"]
    if b.opset >= 16:
        names += ["LessOrEqual", "GreaterOrEqual"]
    x = some(b) if b.chance(0.6) else b.fresh(b.shape(), suited(b.choice(INTS)))
    return b.add(b.choice(names), x, partner(b, x))


@generates(4)
def logical(b: Builder):
    """And, Or, Xor, Not."""
    x = b.find(lambda t: t.dtype == bool) or b.fresh(b.shape(), booleans)
    name = b.choice(("And", "Or", "Xor", "Not"))
    return b.add(name, x) if name == "Not" else b.add(name, x, partner(b, x))


@generates(3)
def bitwise(b: Builder):
    """Operators on bits."""
    dtype = b.choice(INTS)
    x = b.fresh(b.shape(), suited(dtype))
    if b.opset >= 18 and b.chance(0.7):
        name = b.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"))
        return b.add(name, x) if name == "BitwiseNot" else b.add(name, x, partner(b, x))
    x = b.fresh(b.shape(), suited(b.choice(("u1", "u2", "u4", "u8"))))
    by = partner(b, x, integers(x.dtype, 0, 7), reuse=0)
    return b.add("BitShift", x, by, direction=b.choice(("LEFT", "RIGHT")))


@generates(3)
def where(b: Builder):
    """Where with three operands that broadcast."""
    x = some(b) if b.chance(0.7) else b.fresh(b.shape(), suited(b.choice((*INTS, bool, object))))
    condition = b.find(lambda t: t.dtype == bool)
    try:
        if condition is not None:
            np.broadcast_shapes(condition.shape, x.shape)
    except ValueError:
        condition = None
    condition = condition or b.fresh(broadcast(b, x.shape), booleans)
    return b.add("Where", condition, x, partner(b, x))


@generates(3)
def clip(b: Builder):
    """Clip, with bounds as attributes, constants, inputs, or none."""
    x = some(b)
    low, high = sorted(round(float(v), 2) for v in b.rng.uniform(-3, 3, 2))
    if b.opset < 11:
        x = some(b, np.float32)
        ends = {"min": low if b.chance(0.7) else None, "max": high if b.chance(0.7) else None}
        return b.add("Clip", x, **ends)
    if b.opset >= 12 and b.chance(0.3):
        x = b.fresh(b.shape(), suited(b.choice(INTS)))
        low, high = b.integer(0, 2), b.integer(2, 6)
    bounds = []
    for value in (low, high):
        bound = b.fresh((), lambda _, s, v=value: np.full(s, v).astype(x.dtype), 0.7)
        bounds.append(bound if b.chance(0.7) else None)
    return b.add("Clip", x, *bounds)


@generates(4)
def cast(b: Builder):
    """Cast and CastLike between numbers, truth values and strings."""
    kinds = [*FLOATS, *INTS, np.dtype(bool)]
    x = some(b) if b.chance(0.6) else b.fresh(b.shape(), suited(b.choice(kinds)))
    if b.chance(0.07):
        digits = b.fresh(b.shape(), _numbers_as_text)
        return b.add("Cast", digits, to=helper.np_dtype_to_tensor_dtype(b.choice(INTS[:2])))
    to = b.choice(kinds)
    if x.dtype not in INTS and to.kind == "u":  # what becomes of negative numbers is undefined
        x = b.add("Abs", x)
    if b.opset >= 15 and b.chance(0.3):
        return b.add("CastLike", x, b.constant(np.ones((), to)))
    return b.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(to))


def _numbers_as_text(rng, shape):
    values = rng.integers(-(2**40), 2**40, shape) >> rng.integers(0, 40)
    return np.array([str(v % 2**31) for v in np.ravel(values)], object).reshape(shape)


@generates(2)
def tests(b: Builder):
    """IsNaN, IsInf."""
    x = some(b, np.float32)
    if b.opset >= 10 and b.chance(0.5):
        sides = {"detect_positive": b.integer(0, 1), "detect_negative": b.integer(0, 1)}
        return b.add("IsInf", x, **sides)
    if b.opset < 9:
        raise RejectedError("IsNaN came with opset 9")
    return b.add("IsNaN", x)


@generates(2)
def equal_strings(b: Builder):
    """Equal and Where on strings."""
    if b.opset < 19:
        raise RejectedError("strings are compared from opset 19 on")
    x = b.fresh(b.shape(), strings)
    return b.add("Equal", x, partner(b, x))


@generates(1)
def dropout(b: Builder):
    """Dropout outside training: the input itself, and a mask."""
    x = some(b)
    outputs = (True, b.opset >= 10 and b.chance(0.3))
    if b.opset >= 12:
        return b.add("Dropout", x, np.float32(0.4) if b.chance(0.5) else None, outputs=outputs)
    return b.add("Dropout", x, outputs=outputs, ratio=0.3)


@generates(1)
def bit_cast(b: Builder):
    """BitCast to a type of the same width."""
    if b.opset < 26:
        raise RejectedError("BitCast came with opset 26")
    x = b.fresh(b.shape(), suited(b.choice(("f4", "i4", "u4"))))
    return b.add("BitCast", x, to=helper.np_dtype_to_tensor_dtype(b.choice(INTS[:1])))
