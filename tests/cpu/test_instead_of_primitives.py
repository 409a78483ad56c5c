"""What machine code computes instead of primitives; NumPy and ONNX Runtime judge."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.functions import Activation
from polydevice_cpu.algorithms.by_machine.instructions import ADD, DIVIDE, MAX, MIN, MUL, SUB
from polydevice_cpu.algorithms.by_machine.rows import elementwise, product
from polydevice_cpu.algorithms.by_machine.rows.chain import HELD
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan.step import BY_ROWS
from tests.cpu.loading import image, load
from tests.cpu.machine_code import with_avx512, with_vectors
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

F = np.float32


def placed(side, rng, *shape):
    """Numbers at the end, or the beginning, of memory."""
    array = guarded(side, 4 * max(math.prod(shape), 1)).view(F)[: math.prod(shape)].reshape(shape)
    array[...] = rng.standard_normal(shape)
    return array


def form(array):
    return array.shape, array.strides


def run(told, *arrays):
    assert told is not None
    call = Code.of(told).bound(list(map(address_of, arrays)))
    assert call() == 0


SHAPES = [
    ((3, 40), (3, 1)), ((4, 8), (1, 1)), ((4, 1), (4, 1)), ((2, 3, 5, 7), (2, 1, 5, 1)), ((), ()),
    ((33,), (33,)), ((4, 4, 17), (1, 4, 17)), ((300, 3), (300, 1)), ((5, 16), (1, 16)),
    ((900, 61), (900, 1)), ((2, 700, 64), (700, 64)), ((70_001,), (1,)),
]  # fmt: skip


@with_vectors
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shapes", SHAPES)
def test_chains(side, shapes):
    rng = np.random.default_rng(1)
    a, b = (placed(side, rng, *shape) for shape in shapes)
    held = placed(side, rng, *shapes[0])
    result = held.copy()
    chain = [
        SUB, HELD, (Function.LINEAR, 2.0, 3.0), MUL, Activation("tanh", 0, 0), DIVIDE,
        (Function.CLIP, -1.5, 2.0), Activation("exp", 0, 0), MAX, MIN, Activation("square", 0, 0),
        ADD,
    ]  # fmt: skip
    operands = [b, b, a, b, b, a]
    forms = [form(each) for each in (a, *operands, held)]
    run([elementwise.prepared(chain, forms)], a, *operands, held)
    with np.errstate(over="ignore"):
        x = np.exp(np.clip(np.tanh(((a - b + result) * 2 + 3) * b) / a, -1.5, 2))
    want = np.minimum(np.maximum(x, b), b) ** 2 + a
    np.testing.assert_allclose(held, want, rtol=1e-5, atol=1e-6)


@with_vectors
@pytest.mark.parametrize("name", ["exp", "abs", "sqrt", "square"])
def test_functions(name):
    rng = np.random.default_rng(2)
    rare = [0, -0.0, 1e-40, 88.72, 88.8, -87.4, -103.9, -104.5, np.inf, -np.inf, np.nan, 1e38]
    x = np.array([*rare, *rng.uniform(-100, 88, 500)], F)
    got = np.empty_like(x)
    run([elementwise.prepared([Activation(name, 0, 0)], [form(x), form(got)])], x, got)
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x.astype(np.float64)).astype(F)
    np.testing.assert_allclose(got, want, rtol=4e-7, atol=1e-44)


def limited(x, least, most):
    """What is no number becomes the least one, as oneDNN has it."""
    return np.fmin(np.fmax(x, F(least)), F(most))


RARE = [0, -0.0, 1e-45, -1e-40, 1e-38, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 1, -1]
ROUND, LIMITS = Activation("round", 0, 0), (-32768.0, 32767.0)


@with_vectors
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5, 17), (2, 20_001)])
@pytest.mark.parametrize("other", [1.0, 1e-30])
def test_quotients_that_are_rounded(side, shape, other):
    rng = np.random.default_rng(math.prod(shape))
    x, y = placed(side, rng, *shape), placed(side, rng, *shape)
    divisors = [placed(side, rng, *[1] * len(shape)) for _ in range(2)]
    chain = [
        DIVIDE, ROUND, (Function.CLIP, *LIMITS), MUL, DIVIDE, ROUND, (Function.CLIP, -7.0, 9.0),
        (Function.LINEAR, 0.75, 0.5), SUB, DIVIDE, ROUND, (Function.CLIP, -2.5, 2.0),
    ]  # fmt: skip
    operands = [divisors[0], divisors[0], divisors[1], divisors[1], divisors[0]]
    told = elementwise.prepared(chain, [form(each) for each in (x, *operands, y)])
    for scale in (*rng.uniform(1e-5, 1e-3, 20), 2.0**-9, 3e-20, 1e20, 2e-38, 1e-42, *RARE):
        levels = rng.integers(-70_000, 70_000, x.shape)
        halves = levels + rng.choice([0, 0.5, 0.499999, rng.normal()], x.shape)
        with np.errstate(all="ignore"):
            x[...] = halves.astype(F) * F(scale)
            x.flat[:12] = np.float32(RARE)[: x.size]
            divisors[0][...], divisors[1][...] = scale, scale * other * 3
            run([told], x, *operands, y)
            want = limited(np.rint(x / F(scale)), *LIMITS) * F(scale)
            want = limited(np.rint(want / divisors[1]), -7, 9) * F(0.75) + F(0.5)
            want = limited(np.rint((want - divisors[1]) / F(scale)), -2.5, 2)
        np.testing.assert_array_equal(y, want)


@with_vectors
def test_quotients_of_every_mantissa():
    x = np.arange(1 << 23, 1 << 24, dtype=F) * F(2**-4)
    x, y = x[: elementwise.MOST], np.empty_like(x[: elementwise.MOST])
    limits = (Function.CLIP, -(2.0**20), 2.0**20)
    divisor = np.empty(1, F)
    told = elementwise.prepared([DIVIDE, ROUND, limits], [form(each) for each in (x, divisor, y)])
    for mantissa in (0, 1, 0x7FFFFF, 0x7FFFFE, 0x2AAAAA, 0x400000, 0x31234F):
        divisor.view(np.uint32)[0] = 0x3F800000 + mantissa
        run([told], x, divisor, y)
        np.testing.assert_array_equal(y, np.rint(x / divisor))


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kinds", ["uf", "sf", "fu", "fs", "us", "su", "uu", "ss"])
@pytest.mark.parametrize("shape", [(2,), (16,), (5, 33), (3, 4, 18), (40, 64), (2, 9_001)])
def test_integers_of_8_bits(side, kinds, shape):
    types = {"f": F, "u": np.uint8, "s": np.int8}
    rng = np.random.default_rng(6)
    given, wanted = (np.dtype(types[kind]) for kind in kinds)
    x = guarded(side, given.itemsize * math.prod(shape)).view(given).reshape(shape)
    x[...] = rng.normal(size=shape) * 70 if kinds[0] == "f" else rng.integers(0, 256, shape)
    if kinds[0] == "f":
        x.flat[:3] = [3e9, -np.inf, 2.5][: x.size]
    scale = placed(side, rng, *[1] * len(shape))
    y = guarded(side, wanted.itemsize * math.prod(shape)).view(wanted).reshape(shape)
    chain = [(Function.LINEAR, 0.75, 3.0), DIVIDE, Activation("round", 0, 0), ADD]
    forms = [form(each) for each in (x, scale, scale, y)]
    run([elementwise.prepared(chain, forms, kinds=tuple(kinds))], x, scale, scale, y)
    with np.errstate(over="ignore"):
        want = np.rint((x.astype(F) * F(0.75) + F(3)) / scale) + scale
    if kinds[1] != "f":
        limits = np.iinfo(wanted)
        want = np.rint(np.clip(want, limits.min, limits.max))
    np.testing.assert_array_equal(y, want.astype(wanted))


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kinds", ["fufu", "fsff", "ufsf", "susu", "ffus"])
@pytest.mark.parametrize("shape", [(2,), (16,), (5, 33), (3, 4, 18), (2, 9_001)])
def test_operands_of_8_bits(side, kinds, shape):
    """One is subtracted, and by the other one it is multiplied."""
    types = {"f": F, "u": np.uint8, "s": np.int8}
    rng, placed_ = np.random.default_rng(6), []
    for kind in kinds:
        dtype = np.dtype(types[kind])
        made = guarded(side, dtype.itemsize * math.prod(shape)).view(dtype).reshape(shape)
        numbers = rng.normal(size=shape) * 9 if kind == "f" else rng.integers(0, 256, shape)
        made[...] = numbers.astype(dtype)
        placed_.append(made)
    x, less, times, y = placed_
    chain = [(Function.LINEAR, 0.75, 3.0), SUB, Activation("round", 0, 0), MUL]
    told = elementwise.prepared(chain, [form(each) for each in placed_], kinds=tuple(kinds))
    run([told], *placed_)
    want = np.rint((x.astype(F) * F(0.75) + F(3)) - less.astype(F)) * times.astype(F)
    if kinds[-1] != "f":
        limits = np.iinfo(y.dtype)
        want = np.rint(np.clip(want, limits.min, limits.max))
    np.testing.assert_array_equal(y, want.astype(y.dtype))


@with_vectors
def test_an_operand_of_8_bits_for_all_is_left_out():
    x, one, y = np.zeros(40, F), np.ones(1, np.uint8), np.zeros(40, F)
    forms = [form(each) for each in (x, one, y)]
    assert elementwise.prepared([ADD], forms, kinds=("f", "u", "f")) is None


@with_vectors
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_joining(side, axis):
    rng = np.random.default_rng(3)
    for sizes in ((1, 2), (3, 1, 20), (16, 17), (5,), (3000, 40)):
        shapes = [[n if d == axis else 2 + d for d in range(3)] for n in sizes]
        parts = [placed(side, rng, *shape) for shape in shapes]
        want = np.concatenate(parts, axis)
        result = placed(side, rng, *want.shape)
        run(elementwise.joined(axis, [form(each) for each in (*parts, result)]), *parts, result)
        np.testing.assert_array_equal(result, want)


@with_vectors
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float64])
def test_copies(side, kind):
    rng = np.random.default_rng(5)
    for given, wanted in (
        ((15, 1), (15, 128)), ((1, 37), (20, 37)), ((3, 5, 7), (3, 5, 7)), ((), (9,)), ((1,), (1,)),
        ((2, 1, 3, 1), (2, 4, 3, 5)), ((1, 33_000), (3, 33_000)), ((700, 17), (700, 17)),
    ):  # fmt: skip
        size = np.dtype(kind).itemsize
        x = guarded(side, size * math.prod(given)).view(kind).reshape(given)
        x[...] = rng.integers(-(2**31), 2**31, given)
        y = guarded(side, size * math.prod(wanted)).view(kind).reshape(wanted)
        run([elementwise.copied(form(x), form(y), size)], x, y)
        np.testing.assert_array_equal(y, np.broadcast_to(x, wanted))
        turned = np.zeros(given[::-1], kind).T
        told = elementwise.copied(form(x), form(turned), size)
        if told is None:
            assert math.prod(given[:-1]) > elementwise.MOST_ROWS or given[-1] > 4096
            continue
        run([told], x, turned)
        np.testing.assert_array_equal(turned, x)


def packed(w):
    """A matrix as oneDNN packs it: by 64 columns of 16 terms, zeros behind the last ones."""
    terms, columns = w.shape
    parts = -(-columns // product.PART)
    made = np.zeros((parts, -(-terms // 16) * 16, product.PART), F)
    for part in range(parts):
        own = w[:, part * product.PART :][:, : product.PART]
        made[part, :terms, : own.shape[1]] = own
    return made


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("lies", ["packed", "in rows", "turned"])
@pytest.mark.parametrize("sizes", [
    (1, 5, 3), (1, 70, 300), (3, 32, 32), (5, 48, 60), (2, 7, 17), (1, 64, 1), (7, 13, 80),
    (13, 1, 5), (6, 2, 64), (8, 3, 16),
])  # fmt: skip
def test_products(side, lies, sizes):
    rows, terms, columns = sizes
    rng = np.random.default_rng(4)
    for count in (1, 2):
        x, scale = placed(side, rng, count, rows, terms), placed(side, rng, count, rows, 1)
        bias, y = placed(side, rng, 1, 1, columns), placed(side, rng, count, rows, columns)
        each = placed(side, rng, count, rows, columns)
        if lies == "turned":
            w = placed(side, rng, count, columns, terms).transpose(0, 2, 1)
        else:
            w = placed(side, rng, 1 if lies == "packed" else count, terms, columns)
        read, weights = w, product.Weights(form(w))
        if lies == "packed":
            made = packed(w[0])
            read = placed(side, rng, *made.shape)
            read[...] = made
            row = 4 * product.PART
            weights = product.Weights((w.shape, (0, row, 4)), row * made.shape[1])
        forms = [form(bias), form(scale), form(each)]
        chain = [ADD, MUL, (Function.RELU, 0.0, 0.0), SUB]
        told = product.prepared(form(x), weights, forms, form(y), chain)
        if told is None:
            assert lies == "turned"
            vectors = terms * -(-columns // 16) * -(-rows // product.ROWS)
            assert count * vectors > product.MOST_GATHERED
            continue
        run(told, x, read, bias, scale, each, y)
        sums = np.zeros(y.shape, F)
        for term in range(terms):  # in this order, to the last bits
            sums = sums.astype(np.float64) + x[..., term, None] * w[:, term, None].astype(float)
            sums = sums.astype(F)
        want = np.maximum((sums + bias) * scale, 0) - each
        np.testing.assert_allclose(y, want, rtol=1e-5, atol=2e-6)


NETWORKS = {
    "a residual": [
        ("MatMul", ["x", "w"], ["a"], {}), ("Add", ["a", "b"], ["c"], {}),
        ("Relu", ["c"], ["d"], {}), ("Add", ["d", "x"], ["y"], {}),
    ],
    "attention": [
        ("Transpose", ["x"], ["t"], {"perm": [0, 2, 1]}), ("MatMul", ["x", "t"], ["a"], {}),
        ("Softmax", ["a"], ["p"], {}), ("MatMul", ["p", "x"], ["y"], {}),
    ],
    "gates": [
        ("Concat", ["x", "x"], ["a"], {"axis": 2}), ("Split", ["a"], ["c", "d"], {"axis": 2}),
        ("Sigmoid", ["c"], ["e"], {}), ("Tanh", ["d"], ["f"], {}), ("Mul", ["e", "f"], ["g"], {}),
        ("Sub", ["g", "one"], ["h"], {}), ("Div", ["h", "x"], ["y"], {}),
    ],
    "heads": [
        ("Relu", ["x"], ["a"], {}), ("Reshape", ["a", "split"], ["c"], {}),
        ("Transpose", ["c"], ["t"], {"perm": [0, 2, 1, 3]}), ("Softmax", ["t"], ["s"], {}),
        ("Transpose", ["s"], ["u"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["u", "join"], ["v"], {}), ("Sub", ["v", "x"], ["y"], {}),
    ],
    "roots": [
        ("Abs", ["x"], ["a"], {}), ("Sqrt", ["a"], ["r"], {}), ("Exp", ["x"], ["c"], {}),
        ("Max", ["r", "c"], ["d"], {}), ("Min", ["d", "one"], ["e"], {}),
        ("Sub", ["x", "e"], ["y"], {}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(core, name, known):
    weights = {"w": image(1, 24, 24) / 5, "b": image(2, 24), "one": np.ones((1, 24), F)}
    weights |= {"split": np.array([0, 0, 3, 8]), "join": np.array([0, 0, 24])}
    used = {read for _, reads, _, _ in NETWORKS[name] for read in reads}
    weights = {key: value for key, value in weights.items() if key in used}
    sizes = (2, 300) if known else ("n", "l")
    model = build(NETWORKS[name], {"x": [*sizes, 24]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for number, shape in enumerate([(2, 300)] if known else [(1, 3), (2, 5), (3, 1), (9, 40)]):
        x = image(number, *shape, 24) + np.float32(0.1)
        found = request.infer({"x": x})["y"]
        (want,) = answer(model, {"x": x})
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)


CHANNELS = {
    "a number for each channel": [("Mul", ["c", "k"], ["m"], {}), ("Relu", ["m"], ["y"], {})],
    "a clipped sum": [
        ("Add", ["c", "k"], ["a"], {}), ("Clip", ["a", "low", "high"], ["y"], {}),
    ],
    "joined": [("Sigmoid", ["c"], ["s"], {}), ("Concat", ["c", "s"], ["y"], {"axis": 1})],
}  # fmt: skip


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
@pytest.mark.parametrize("name", CHANNELS)
def test_channels_that_lie_last(core, name, known):
    """A convolution of 72 channels has them last, and something reads its sums twice."""
    weights = {
        "w": image(1, 72, 3, 3, 3), "v": image(4, 8, 72, 1, 1), "k": image(2, 72, 1, 1),
        "low": F(-0.5), "high": F(0.75), "u": image(5, 8, 144, 1, 1),
    }  # fmt: skip
    nodes = [("Conv", ["x", "w"], ["c"], {}), *CHANNELS[name], ("Conv", ["c", "v"], ["z"], {})]
    nodes.append(("Conv", ["y", "u" if name == "joined" else "v"], ["t"], {}))
    used = {read for _, reads, _, _ in nodes for read in reads}
    weights = {key: value for key, value in weights.items() if key in used}
    model = build(nodes, {"x": [1, 3, *((21, 30) if known else "hw")]}, ["z", "t"], weights)
    request = load(core, model, CPU_THREADS_NUM=1).create_infer_request()
    for number, size in enumerate([(21, 30)] if known else [(5, 4), (21, 30), (9, 40)]):
        x = image(number, 1, 3, *size)
        found = request.infer({"x": x}).values()
        for got, want in zip(found, answer(model, {"x": x}), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("parts", [3, "n"])
def test_scores_that_are_divided_before_a_softmax(core, parts):
    nodes = [
        ("MatMul", ["x", "w"], ["p"], {}), ("Div", ["p", "root"], ["d"], {}),
        ("Add", ["d", "mask"], ["a"], {}), ("Softmax", ["a"], ["y"], {}),
    ]  # fmt: skip
    for root in (4.898979, 0.0, 1e-40, np.nan):
        weights = {"w": image(1, 24, 40), "mask": image(2, 40), "root": F(root)}
        model = build(nodes, {"x": [parts, 11, 24]}, ["y"], weights)
        executable = load(core, model)
        for count in (3,) if parts == 3 else (3, 2, 5, 5):
            x = image(count, count, 11, 24)
            found = executable.infer({"x": x})["y"]
            (want,) = answer(model, {"x": x})
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-7)


@with_avx512
def test_counters_say_so(core):
    model = build(NETWORKS["a residual"], {"x": [1, 2, 24]}, ["y"],
                  {"w": image(1, 24, 24), "b": image(2, 24)})  # fmt: skip
    executable = load(core, model, CPU_THREADS_NUM=1)
    executable.infer({"x": image(3, 1, 2, 24)})
    steps = executable.latest_plan().steps
    assert {step.implementation for step in steps} == {BY_ROWS}
    assert BY_ROWS in executable.explain()
