"""Networks of every element type, with every precision hint, against NumPy.

Inputs and outputs keep their type whatever the hint says; integers wrap as NumPy's do.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.dtype import ElementType as T
from polydevice.network import Network
from polydevice.ops.arithmetic import Add, Maximum, Multiply
from polydevice.ops.concat import Concat
from polydevice.ops.logical import LogicalAnd, LogicalNot
from polydevice.ops.matmul import MatMul
from polydevice.ops.reduce import ReduceSum
from polydevice.ops.reshape import Reshape
from polydevice.ops.transpose import Transpose
from tests.gpu.graphs import Sketch
from tests.tiers import firsts

SHAPE = (3, 5, 4)
INTEGERS = (T.i64, T.i8, T.u4, T.u64, T.i32, T.u32, T.i16, T.u16, T.u8, T.i4)
ERRORS = {T.f64: 1e-12, T.f32: 1e-6, T.f16: 2e-3, T.bf16: 1.6e-2}
"""Relative to the largest element: a rounding or two in the type's precision."""


def network(kind: T) -> Network:
    s = Sketch()
    a, b = s.input("a", *SHAPE, kind=kind), s.input("b", *SHAPE, kind=kind)
    order, axis = s.const("order", np.array([2, 0, 1])), s.const("axis", np.array([1]))
    outputs = {
        "same": a,
        "turned": s.add("turned", Transpose(), a, order),
        "joined": s.add("joined", Concat(axis=1), a, b),
        "flat": s.add("flat", Reshape(special_zero=False), a, s.const("rows", np.array([15, 4]))),
    }
    if kind is T.boolean:
        outputs["and"] = s.add("and", LogicalAnd(), a, b)
        outputs["not"] = s.add("not", LogicalNot(), a)
        return s.network(**outputs)
    product = s.add("product", Multiply(), a, b)
    outputs["added"] = s.add("added", Add(), a, b)
    outputs["product"] = product
    outputs["largest"] = s.add("largest", Maximum(), a, b)
    outputs["sum"] = s.add("sum", ReduceSum(keep_dims=False), product, axis)
    outputs["matrix"] = s.add("matrix", MatMul(transpose_b=True), a, b)
    return s.network(**outputs)


def answers(kind: T, a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    found = {"same": a, "turned": a.transpose(2, 0, 1)}
    found |= {"joined": np.concatenate([a, b], 1), "flat": a.reshape(15, 4)}
    if kind is T.boolean:
        return found | {"and": a & b, "not": ~a}
    wide = np.float64 if kind.is_float else np.int64
    long_a, long_b = a.astype(wide), b.astype(wide)
    with np.errstate(over="ignore"):
        product = a * b
        return found | {
            "added": a + b,
            "product": product,
            "largest": np.maximum(a, b).astype(a.dtype),
            "sum": product.astype(wide).sum(1).astype(a.dtype),
            "matrix": (long_a @ long_b.transpose(0, 2, 1)).astype(a.dtype),
        }


def values(kind: T, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if kind is T.boolean:
        return random.random(SHAPE) > 0.5
    if kind.is_float:
        return random.normal(0, 2, SHAPE).astype(kind.dtype)
    limits = ml_dtypes.iinfo(kind.dtype)
    low, high = max(int(limits.min), -(1 << 62)), min(int(limits.max), 1 << 62)
    return random.integers(low, high, SHAPE, endpoint=True).astype(kind.dtype)


@pytest.mark.parametrize("hint", ["undefined", "f32", "f16"])
@pytest.mark.parametrize("kind", [*ERRORS, T.boolean, *firsts(3, INTEGERS)], ids=str)
def test_a_network_of_one_type(core, kind, hint) -> None:
    a, b = values(kind, 1), values(kind, 2)
    executable = core.load_network(network(kind), "GPU", {"INFERENCE_PRECISION_HINT": hint})
    found = executable.infer({"a": a, "b": b})
    for name, right in answers(kind, a, b).items():
        assert found[name].dtype == right.dtype
        if not kind.is_float:
            np.testing.assert_array_equal(found[name], right, name)
            continue
        error = ERRORS[T.f16] if hint == "f16" and kind is T.f32 else ERRORS[kind]
        got, wanted = found[name].astype(np.float64), right.astype(np.float64)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=error * np.abs(wanted).max())
