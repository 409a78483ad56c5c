"""Functions of few numbers by machine code, in any order of memory; NumPy judges."""

from __future__ import annotations

import inspect
import itertools
import math
import re
import shutil
import subprocess

import numpy as np
import pytest

from polydevice_cpu import runner
from polydevice_cpu.algorithms.by_machine import small
from polydevice_cpu.algorithms.by_machine.rows import shares
from polydevice_cpu.algorithms.by_machine.small import Function, prepared
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import with_avx, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

F = np.float32
KINDS = {"f32": [F], "i64": [np.int64], "i32": [np.int32], "byte": [np.uint8, np.bool_]}
PAIRS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "minimum": np.minimum,
    "maximum": np.maximum, "equal": np.equal, "not equal": np.not_equal, "less": np.less,
    "less or equal": np.less_equal, "greater": np.greater, "greater or equal": np.greater_equal,
    "divide": np.divide,
}  # fmt: skip
BITS = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


@pytest.mark.skipif(shutil.which("as") is None, reason="no assembler")
def test_the_comments_assemble_to_the_bytes(tmp_path):
    text = inspect.getsource(small)
    text = text[text.index("_PIECES = {") : text.index("\n}\n")]
    found = re.findall(r'"([^"]+)": "([0-9a-f]+)",  # (.+)', text)
    found += [(name, code, comment) for comment, name, code in re.findall(
        r'# (.+)\n +"([^"]+)": "([0-9a-f]+)",\n', text)]  # fmt: skip
    assert {name for name, _, _ in found} == set(small._PIECES)
    for name, code, comment in found:
        source, made = tmp_path / "code.s", tmp_path / "code.o"
        lines = comment.replace("; ", "\n")
        source.write_text(f".intel_syntax noprefix\n.text\n{lines}\n")
        subprocess.run(["as", "--64", str(source), "-o", str(made)], check=True)
        assert bytes.fromhex(code) in made.read_bytes(), name


def numbers(rng, kind, shape):
    """Numbers that lie in any order, with gaps; some equal ones, and floats that are none."""
    wide = tuple(n + int(rng.integers(0, 2)) for n in shape)
    order = rng.permutation(len(shape))
    x = np.zeros([wide[axis] for axis in order], kind).transpose(np.argsort(order))
    x = x[(*(slice(0, n) for n in shape), ...)]
    x[...] = rng.integers(0, 2 if kind is np.bool_ else 7, shape)
    if kind is F:
        x[rng.random(shape) < 0.2] = rng.choice([np.nan, np.inf, -np.inf, -0.0, 1e-40])
    return x


def computed(function, inputs, kind, shape):
    rng = np.random.default_rng(len(shape))
    result = numbers(rng, kind, shape)
    forms = [(each.shape, each.strides) for each in (*inputs, result)]
    found = prepared(function, forms)
    assert found is not None
    code, told = found
    assert not code(shares.placed(told, *map(address_of, (*inputs, result))))
    return result


SHAPES = [
    ((), (), ()), ((5,), (5,), (5,)), ((2, 3, 4), (1, 3, 1), (2, 3, 4)), ((7, 1), (1, 6), (7, 6)),
    ((2, 1, 3, 1), (5, 1, 4), (2, 5, 3, 4)), ((3,), (), (2, 3)), ((1, 1), (4, 1), (4, 9)),
]  # fmt: skip


@with_avx
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("kind", KINDS)
def test_pairs(shapes, kind):
    rng = np.random.default_rng(len(shapes[0]))
    for element in KINDS[kind]:
        for name, function in {**PAIRS, **BITS}.items():
            is_comparison = "equal" in name or name in ("less", "greater")
            if name in BITS and element is not np.bool_:
                continue
            if element is np.bool_ and name not in BITS and not is_comparison:
                continue
            if name in (("minimum", "maximum") if kind == "f32" else ("divide",)):
                continue
            a, b = (numbers(rng, element, shape) for shape in shapes[:2])
            step = f"f32 {name}" if kind == "f32" else name
            with np.errstate(all="ignore"):
                want = function(a, b)
            store = "byte" if want.dtype == bool else kind
            got = computed(
                Function((kind, kind), (step,), store), (a, b), want.dtype.type, shapes[2]
            )
            np.testing.assert_array_equal(got, np.broadcast_to(want, shapes[2]), name)


@with_avx
def test_what_is_asked_of_floats():
    rng = np.random.default_rng(5)
    asked = {"f32 is NaN": np.isnan, "f32 is infinite": np.isinf, "f32 is finite": np.isfinite}
    for shape in ((), (7,), (3, 4, 5)):
        x = numbers(rng, F, shape)
        for name, function in asked.items():
            got = computed(Function(("f32",), (name,), "byte"), [x], np.bool_, shape)
            np.testing.assert_array_equal(got, function(x), name)
        x = (x * F(0.3) - F(1)).astype(F)
        for name, function in (("f32 floor", np.floor), ("f32 ceiling", np.ceil)):
            got = computed(Function(("f32",), (name,), "f32"), [x], F, shape)
            np.testing.assert_array_equal(got, function(x), name)


@with_avx
@pytest.mark.parametrize("element", [np.int64, np.int32])
def test_sums_of_integers(element):
    rng = np.random.default_rng(6)
    kind = f"i{8 * np.dtype(element).itemsize}"
    for shape in ((7,), (3, 4), (2, 3, 4), (1, 5, 1, 2), (1,)):
        for count in range(1, len(shape) + 1):
            for axes in itertools.combinations(range(len(shape)), count):
                x = numbers(rng, element, shape)
                x[...] = rng.integers(-(2**30), 2**30, shape)
                for keep in (True, False):
                    want = x.sum(axis=axes, keepdims=keep, dtype=element)
                    result = numbers(rng, element, want.shape)
                    forms = [(each.shape, each.strides) for each in (x, result)]
                    for code, told in small.summed(kind, *forms, axes):
                        places = map(address_of, (x, x, result))
                        assert not code(shares.placed(told, *places))
                    np.testing.assert_array_equal(result, want)


def test_integers_in_a_network(core):
    nodes = [
        ("BitwiseAnd", ["a", "b"], ["c"], {}), ("BitwiseOr", ["c", "a"], ["d"], {}),
        ("BitwiseXor", ["d", "b"], ["e"], {}), ("BitwiseNot", ["e"], ["f"], {}),
        ("ReduceSum", ["f", "axes"], ["g"], {"keepdims": 0}), ("ReduceSum", ["f"], ["h"], {}),
        ("Add", ["f", "h"], ["y"], {}),
    ]  # fmt: skip
    for element in (np.int32, np.int64):
        made = build(
            nodes, {"a": ["n", 5], "b": [5]}, ["y", "g"], {"axes": np.array([-1])}, 18, element
        )
        request = load(core, made).create_infer_request()
        for rows in (1, 3, 2, 300, 4):
            rng = np.random.default_rng(rows)
            a, b = (rng.integers(-9, 9, shape).astype(element) for shape in ((rows, 5), (5,)))
            found, right = request.infer({"a": a, "b": b}), answer(made, {"a": a, "b": b})
            np.testing.assert_array_equal(found["y"], right[0])
            np.testing.assert_array_equal(found["g"], right[1])


DIVISIONS = {
    "divide": lambda a, b: np.trunc(a.astype(np.longdouble) / b).astype(a.dtype),
    "divide down": np.floor_divide, "remainder": np.fmod, "modulo": np.remainder,
}  # fmt: skip


@with_avx
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("name", DIVISIONS)
def test_quotients(name, shapes):
    rng = np.random.default_rng(2)
    for element in (np.int64, np.int32):
        kind, (least, most) = f"i{8 * np.dtype(element).itemsize}", (-40, 40)
        a, b = (numbers(rng, element, shape) for shape in shapes[:2])
        a[...], b[...] = (rng.integers(least, most, x.shape) for x in (a, b))
        b[b == 0] = -1
        if a.ndim:
            a.flat[0] = np.iinfo(element).min
        with np.errstate(all="ignore"):
            want = DIVISIONS[name](*np.broadcast_arrays(a, b))
        function = Function((kind, kind), (*small.DIVISION, name), kind)
        got = computed(function, (a, b), element, shapes[2])
        right = np.broadcast_to(want, shapes[2])
        if name == "divide":  # of the least number by -1, NumPy's truncation is another one
            overflows = np.broadcast_to((a == np.iinfo(element).min) & (b == -1), shapes[2])
            got, right = np.where(overflows, 0, got), np.where(overflows, 0, right)
        np.testing.assert_array_equal(got, right)


def test_quotients_by_0_are_numpys(core):
    """Machine code refuses them, whatever follows in the same call."""
    rng = np.random.default_rng(3)
    nodes = [
        ("Div", ["a", "b"], ["q"], {}), ("Mod", ["a", "b"], ["m"], {}),
        ("Mod", ["a", "b"], ["f"], {"fmod": 1}), ("Add", ["q", "m"], ["s"], {}),
    ]  # fmt: skip
    made = build(nodes, {"a": [5, 7], "b": [7]}, ["q", "m", "f", "s"], {}, element_type=np.int64)
    request = load(core, made).create_infer_request()
    for number in range(4):
        a, b = rng.integers(-50, 50, (5, 7)), rng.integers(-9, 9, 7)
        b[b == 0] = 4
        for found, right in zip(
            request.infer({"a": a, "b": b}).values(), answer(made, {"a": a, "b": b}), strict=True
        ):
            np.testing.assert_array_equal(found, right)
        b[number] = 0
        found = {name: each.copy() for name, each in request.infer({"a": a, "b": b}).items()}
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(found["m"], np.remainder(a, b))
        np.testing.assert_array_equal(found["q"][:, number], 0)
        np.testing.assert_array_equal(found["s"], found["q"] + found["m"])


@with_avx
@pytest.mark.parametrize("bits", ["i64", "i32", "byte"])
def test_selected(bits):
    rng = np.random.default_rng(1)
    element = KINDS[bits][0]
    shapes = ((4, 1, 3), (1, 5, 1), (4, 5, 3))
    condition = numbers(rng, np.bool_, shapes[0])
    a, b = (numbers(rng, element, shape) for shape in shapes[1:])
    function = Function(("byte", bits, bits), ("select",), bits)
    got = computed(function, (condition, a, b), element, shapes[2])
    np.testing.assert_array_equal(got, np.where(condition, a, b))


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("length", [1, 5, 6, 16, 17, 40, 64])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide"])
def test_rows(side, length, name):
    rng = np.random.default_rng(length)
    shape = (3, 2, 5, length)
    given = [(1, 2, 1, length), (3, 2, 5, length), (3, 1, 5, 1), (length,), (1,)]
    for first, second in itertools.product(given, given):
        a, b, got = (
            guarded(side, 4 * math.prod(n)).view(F).reshape(n) for n in (first, second, shape)
        )
        a[...], b[...] = rng.normal(size=first), rng.normal(size=second)
        forms = [(each.shape, each.strides) for each in (a, b, got)]
        found = prepared(Function(("f32", "f32"), (f"f32 {name}",), "f32"), forms)
        code, told = found
        assert not code(shares.placed(told, *map(address_of, (a, b, got))))
        np.testing.assert_array_equal(got, np.broadcast_to(PAIRS[name](a, b), shape))


def test_what_is_too_much():
    copy = Function(("i32",), (), "i32")
    row = ((small.MOST + 1,), (8,))
    assert prepared(copy, [row, row]) is None
    nothing = ((0, 3), (12, 4))
    assert prepared(copy, [nothing, nothing]) is None
    axes = tuple((2,) * 5 for _ in range(2))
    scattered = (axes[0], (4, 12, 40, 100, 400))
    assert prepared(copy, [scattered, scattered]) is None


@pytest.mark.parametrize("count", [1, 6, 40])
def test_networks(core, count):
    """Masks as language models have them, and what ends a loop, of open sizes."""
    rng = np.random.default_rng(count)
    constants = {
        "zero": np.array([0]), "one": np.array(1), "low": F(-1e9), "high": F(0),
        "axes": np.array([1]), "minus": np.array([-1]),
    }  # fmt: skip
    nodes = [
        ("Greater", ["m", "zero"], ["kept"], {}),
        ("Unsqueeze", ["kept", "axes"], ["kept1"], {}),
        ("Shape", ["m"], ["sizes"], {}),
        ("Gather", ["sizes", "one"], ["length"], {}),
        ("Range", ["start", "length", "one"], ["places"], {}),
        ("Unsqueeze", ["places", "minus"], ["rows"], {}),
        ("LessOrEqual", ["places", "rows"], ["causal"], {}),
        ("And", ["causal", "kept1"], ["both"], {}),
        ("Where", ["both", "high", "low"], ["y"], {}),
        ("Not", ["both"], ["hidden"], {}),
        ("Cast", ["hidden"], ["h"], {"to": 7}),
        ("ReduceSum", ["h", "minus"], ["sums"], {"keepdims": 1}),
        ("ReduceMin", ["sums"], ["z"], {"axes": [2], "keepdims": 0}),
        ("Mul", ["m", "m"], ["squares"], {}),
        ("Sub", ["squares", "m"], ["w"], {}),
    ]
    constants["start"] = np.array(0)
    model = build(nodes, {"m": ["n", "k"]}, ["y", "z", "w"], constants, element_type=np.int64)
    executable = load(core, model)
    for shape in ((1, count), (3, count), (2, 7), (1, count)):
        feed = {"m": rng.integers(0, 3, shape)}
        got, want = executable.infer(feed), answer(model, feed)
        for name, each in zip("yzw", want, strict=True):
            np.testing.assert_array_equal(got[name], each)
            assert got[name].dtype == each.dtype


@with_avx512
def test_numpy_is_asked_for_nothing_where_machine_code_computes_all(core, monkeypatch):
    """Not even to keep quiet about infinities."""
    asked = []
    real = runner.ignore_errors
    monkeypatch.setattr(runner, "ignore_errors", lambda: asked.append(1) or real())
    feed = {"a": np.full((3, 5), 3e38, F), "b": np.full((3, 1), 3e38, F)}
    for last, attributes, times in (("Less", {}, 0), ("Mod", {"fmod": 1}, 1)):
        nodes = [("Add", ["a", "b"], ["c"], {}), (last, ["c", "b"], ["y"], attributes)]
        model = build(nodes, {name: x.shape for name, x in feed.items()}, ["y"], {})
        (want,) = answer(model, feed)
        request = load(core, model).create_infer_request()
        request.infer(feed)
        asked.clear()
        np.testing.assert_array_equal(request.infer(feed)["y"], want)
        assert len(asked) == times, last
