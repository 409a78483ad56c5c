"""Functions of single numbers of any type by rows, with pages around them; NumPy judges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from polydevice_cpu.algorithms.by_machine import small
from polydevice_cpu.algorithms.by_machine.rows import shares
from polydevice_cpu.algorithms.by_machine.rows.lanes import lanes_of
from polydevice_cpu.algorithms.by_machine.small import Function, prepared
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

KINDS = {
    "f32": np.float32, "i64": np.int64, "u64": np.uint64, "i32": np.int32, "u32": np.uint32,
    "i16": np.int16, "u16": np.uint16, "i8": np.int8, "byte": np.uint8,
}  # fmt: skip
INTEGERS = [kind for kind in KINDS if kind != "f32"]
SIGNED = ("i64", "i32", "i16", "i8")
TESTS = {
    "equal": np.equal, "not equal": np.not_equal, "less": np.less, "less or equal": np.less_equal,
    "greater": np.greater, "greater or equal": np.greater_equal,
}  # fmt: skip
OF_FLOATS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, **TESTS,
}  # fmt: skip
OF_INTEGERS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "minimum": np.minimum,
    "maximum": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shift left": np.left_shift, **TESTS,
}  # fmt: skip
OF_ONE = {"abs": np.abs, "negative": np.negative, "sign": np.sign, "invert": np.invert}
SHAPES = [
    ((3, 2, 5, 7), (3, 2, 5, 7), (3, 2, 5, 7)), ((3, 2, 1, 40), (40,), (3, 2, 5, 40)),
    ((4, 1), (1, 33), (4, 33)), ((700,), (1,), (700,)), ((1,), (16,), (16,)), ((8,), (8,), (8,)),
    ((5, 1, 11, 13), (7, 11, 1), (5, 7, 11, 13)), ((6,), (6,), (6,)),
]  # fmt: skip
FLOATS = [np.nan, np.inf, -np.inf, -0.0, 0, 1e-40, 3e9, -3e9, 2147483520.0, 9.3e18]


def memory(side, kind, shape):
    element = np.dtype(KINDS[kind])
    return guarded(side, math.prod(shape) * element.itemsize).view(element).reshape(shape)


def numbers(rng, side, kind, shape):
    """Numbers of any size: small ones, and the least and the greatest that there are."""
    x = memory(side, kind, shape)
    if kind == "f32":
        x[...] = rng.normal(size=shape) * rng.choice([1, 1e5, 1e12], shape)
        x[...] = np.where(rng.random(shape) < 0.4, rng.choice(FLOATS, shape), x)
        return x
    limits = np.iinfo(x.dtype)
    x[...] = rng.integers(limits.min, limits.max, shape, x.dtype, endpoint=True)
    few = rng.integers(max(limits.min, -5), 6, shape).astype(x.dtype)
    ends = rng.choice(np.array([limits.min, limits.max], x.dtype), shape)
    x[...] = np.choose(rng.integers(0, 3, shape), [x, few, ends])
    return x


def computed(function, inputs, result):
    """What code returns, which has written the result."""
    found = prepared(function, [(each.shape, each.strides) for each in (*inputs, result)])
    assert found is not None, function
    code, told = found
    return code(shares.placed(told, *map(address_of, (*inputs, result))))


def check(rng, side, function, inputs, wanted, shape):
    result = numbers(rng, side, function.store, shape)
    assert not computed(function, inputs, result)
    np.testing.assert_array_equal(result, np.broadcast_to(wanted, shape), str(function))


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_pairs(kind, shapes, side):
    rng = np.random.default_rng(len(shapes[0]))
    known = 0
    for name, judge in (OF_FLOATS if kind == "f32" else OF_INTEGERS).items():
        store = "byte" if name in TESTS else kind
        function = Function((kind, kind), (f"f32 {name}" if kind == "f32" else name,), store)
        if not lanes_of(*function):
            assert kind == "u64"
            continue
        a, b = (numbers(rng, side, kind, shape) for shape in shapes[:2])
        with np.errstate(all="ignore"):
            check(rng, side, function, (a, b), judge(a, b), shapes[2])
        known += 1
    assert known >= (9 if kind == "u64" else 10)


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [(6,), (16,), (3, 40), (2, 5, 17), (700,)])
def test_halves(side, shape):
    """All of them become f32, and f32 those, halfway between two as well."""
    rng = np.random.default_rng(3)
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = guarded(side, 2 * math.prod(shape)).view(np.float16).reshape(shape)
    for first in range(0, 1 << 16, 1 << 14):
        halves[...] = np.resize(np.roll(every, -first), shape)
        result = numbers(rng, side, "f32", shape)
        assert not computed(Function(("f16",), (), "f32"), (halves,), result)
        np.testing.assert_array_equal(result, halves.astype(np.float32))
    between = np.abs(every[:0x7C00].astype(np.float32))
    between = np.concatenate([between, (between[1:] + between[:-1]) / 2, FLOATS, [65519, 65520]])
    for _ in range(20):
        x = numbers(rng, side, "f32", shape)
        x[...] = rng.choice(between, shape) * rng.choice([-1, 1], shape)
        assert not computed(Function(("f32",), (), "f16"), (x,), halves)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(halves, x.astype(np.float16))
    for function in (Function(("f16", "f16"), ("f32 add",), "f16"), Function(("f16",), (), "i64")):
        assert not lanes_of(*function)
    form = shape, (0,) * len(shape)
    dense = shape, np.empty(shape, np.float32).strides
    assert prepared(Function(("f16",), (), "f32"), [form, dense]) is None


@pytest.mark.parametrize("size", [1, 5, 6, 33, 1000])
def test_networks_of_halves(core, size):
    """Converted on the way, and functions of halves that there is no code for."""
    nodes = [
        ("Mul", ["x", "k"], ["a"], {}), ("Cast", ["a"], ["h"], {"to": 10}),
        ("Cast", ["h"], ["f"], {"to": 1}), ("Sub", ["a", "f"], ["rest"], {}),
        ("Neg", ["h"], ["n"], {}), ("Add", ["h", "n"], ["zero"], {}),
        ("Where", ["is", "h", "n"], ["w"], {}), ("Greater", ["x", "k"], ["is"], {}),
        ("Cast", ["h"], ["whole"], {"to": 7}), ("Cast", ["h"], ["is_not"], {"to": 9}),
        ("Equal", ["h", "w"], ["same"], {}), ("Transpose", ["h"], ["t"], {}),
        ("Cast", ["t"], ["ft"], {"to": 1}),
    ]  # fmt: skip
    nodes.insert(6, nodes.pop(7))
    outputs = ["h", "f", "rest", "zero", "w", "whole", "is_not", "same", "ft"]
    model = build(nodes, {"x": [3, "n"]}, outputs, {"k": np.array([0.7], np.float32)})
    request = load(core, model).create_infer_request()
    x = np.random.default_rng(size).normal(size=(3, size)).astype(np.float32) * 100
    for turn in range(2):
        found = request.infer({"x": x + turn})
        for name, want in zip(outputs, answer(model, {"x": x + turn}), strict=True):
            assert found[name].dtype == want.dtype
            np.testing.assert_array_equal(found[name], want, name)


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers(kind, shapes, side):
    """One of them, shifts to the right, and what is selected."""
    rng = np.random.default_rng(1 + len(shapes[0]))
    a, b = (numbers(rng, side, kind, shape) for shape in shapes[:2])
    for name, judge in OF_ONE.items():
        function = Function((kind,), (name,), kind)
        if lanes_of(*function):
            check(rng, side, function, (a,), judge(a), shapes[2])
    step = "shift down" if kind in SIGNED else "shift right"
    check(rng, side, Function((kind, kind), (step,), kind), (a, b), a >> b, shapes[2])
    function = Function((kind,), ("is not 0",), "byte")
    check(rng, side, function, (a,), a != 0, shapes[2])
    condition = memory(side, "byte", shapes[0])
    condition[...] = rng.integers(0, 2, shapes[0])
    one = numbers(rng, side, kind, (1,))
    function = Function(("byte", kind, kind), ("select",), kind)
    for first, second in ((one, b), (b, one), (a, b)):
        wanted = np.where(condition, first, second)
        check(rng, side, function, (condition, first, second), wanted, shapes[2])


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("kind", ["i32", "i16", "i8", "u16", "byte"])
def test_quotients(kind, shapes, side):
    rng = np.random.default_rng(2 + len(shapes[0]))
    a, b = (numbers(rng, side, kind, shape) for shape in shapes[:2])
    b[b == 0] = 3
    with np.errstate(all="ignore"):
        down, left = np.floor_divide(a, b), np.fmod(a, b)
        # The least number by -1 is itself, as it is where NumPy rounds down.
        is_cut = (left != 0) & ((a < 0) != (b < 0))
        judged = {"divide": down + is_cut.astype(a.dtype), "divide down": down, "remainder": left}
        judged["modulo"] = np.remainder(a, b)
    for name, wanted in judged.items():
        function = Function((kind, kind), (*small.DIVISION, name), kind)
        check(rng, side, function, (a, b), wanted, shapes[2])
        before = b.flat[-1]
        b.flat[-1] = 0
        assert computed(function, (a, b), numbers(rng, side, kind, shapes[2]))
        b.flat[-1] = before


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_conversions(kind, shapes, side):
    rng = np.random.default_rng(3 + len(shapes[0]))
    x = numbers(rng, side, kind, shapes[0])
    for other, element in KINDS.items():
        if other == kind or "f32" not in (kind, other):
            steps = ()
        elif other == "f32":
            steps = ("to f32",)
        else:
            steps = ("from f32",) if other == "i64" else ("f32 to i32",)
        is_unsigned = kind == "f32" and other in ("u32", "u64")
        if is_unsigned or (kind == "u64" and other == "f32"):
            continue
        with np.errstate(all="ignore"):
            is_narrow = kind == "f32" and np.dtype(element).itemsize < 4
            wanted = (x.astype(np.int32) if is_narrow else x).astype(element)
        check(rng, side, Function((kind,), steps, other), (x,), wanted, shapes[2])


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shapes", SHAPES)
def test_whole_numbers_next_to_floats(shapes, side):
    """Of zeros to the sign."""
    x = numbers(np.random.default_rng(7), side, "f32", shapes[0])
    for name, judge in (("floor", np.floor), ("ceiling", np.ceil)):
        function = Function(("f32",), (f"f32 {name}",), "f32")
        result = memory(side, "f32", shapes[2])
        assert not computed(function, [x], result)
        wanted = np.broadcast_to(judge(x), shapes[2])
        np.testing.assert_array_equal(result, wanted, name)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(wanted), name)


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shapes", SHAPES)
def test_what_is_asked_of_floats(shapes, side):
    rng = np.random.default_rng(4)
    asked = {
        "NaN": np.isnan,
        "infinite": np.isinf,
        "finite": np.isfinite,
        "not 0": lambda x: x != 0,
    }
    x = numbers(rng, side, "f32", shapes[0])
    for name, judge in asked.items():
        function = Function(("f32",), (f"f32 is {name}",), "byte")
        check(rng, side, function, (x,), judge(x), shapes[2])


@pytest.mark.parametrize(
    "element", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]
)
def test_networks(core, element):
    """Of many numbers, whether there is machine code or not.

    ONNX Runtime judges, and of types that it does not select ONNX's reference implementation.
    """
    kinds = {np.int8: 3, np.int16: 5, np.int32: 6, np.int64: 7}
    nodes = [
        ("Less", ["a", "b"], ["is_less"], {}), ("Where", ["is_less", "a", "c"], ["chosen"], {}),
        ("Cast", ["chosen"], ["x"], {"to": 1}), ("Cast", ["is_less"], ["y"], {"to": 7}),
    ]  # fmt: skip
    names, model_type = ["chosen", "x", "y"], np.dtype(element)
    if element in (np.int32, np.int64, np.uint8, np.int8):
        nodes += [("Div", ["a", "c"], ["q"], {}), ("Mod", ["a", "c"], ["m"], {})]
        names += ["q", "m"]
    if element in kinds and element is not np.int16:
        nodes += [("Neg", ["a"], ["n"], {}), ("Abs", ["b"], ["p"], {}), ("Sign", ["a"], ["s"], {})]
        names += ["n", "p", "s"]
    if element in (np.uint8, np.uint32, np.uint64):
        nodes += [
            ("BitShift", ["a", "c"], ["l"], {"direction": "LEFT"}),
            ("BitShift", ["a", "c"], ["r"], {"direction": "RIGHT"}),
        ]  # fmt: skip
        names += ["l", "r"]
    shapes = {"a": [9, 1, 70], "b": [1, 8, 70], "c": [70]}
    model = build(nodes, shapes, names, {}, 18, model_type)
    rng = np.random.default_rng(5)
    limits = np.iinfo(element)
    feed = {
        name: rng.integers(max(limits.min, -100), min(limits.max, 100), shape).astype(element)
        for name, shape in shapes.items()
    }
    feed["c"] = np.maximum(feed["c"] % 7, 1).astype(element)
    found = load(core, model).create_infer_request().infer(feed)
    if element in (np.int16, np.uint16, np.uint64):
        judged = ReferenceEvaluator(model).run(None, feed)
    else:
        judged = answer(model, feed)
    for name, wanted in zip(names, judged, strict=True):
        np.testing.assert_array_equal(found[name], wanted, name)
        assert found[name].dtype == wanted.dtype
