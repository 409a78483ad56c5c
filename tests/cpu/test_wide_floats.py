"""Layers of f64 by machine code: matrix products, normalised rows, sums and quotients."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.rows import wide_product, wide_rows
from polydevice_cpu.algorithms.by_machine.rows.wide_product import Sides
from polydevice_cpu.algorithms.by_machine.small import Function, prepared
from polydevice_cpu.onednn.engine import address_of
from tests.cpu import models
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, missing_avx512, with_avx, with_avx512
from tests.guard_pages import SIDES, guarded

SIZES = [
    *((1, 1, 1, 1), (1, 6, 2, 8), (1, 7, 11, 24), (1, 70, 24, 9), (2, 13, 5, 33), (3, 5, 64, 32)),
    *((1, 12, 3, 31), (2, 1, 512, 7), (5, 2, 1, 40), (1, 100, 30, 65)),
]


def guarded_as(x, side):
    copy = guarded(side, x.nbytes).view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products(rng, sizes, side) -> None:
    batches, rows, terms, columns = sizes
    a = guarded_as(rng.standard_normal((batches, rows, terms)), side)
    b = guarded_as(rng.standard_normal((batches, terms, columns)), side)
    y = guarded_as(np.full((batches, rows, columns), 7.0), side)
    sides = [Sides(8 * each.shape[2], each[0].nbytes) for each in (a, b, y)]
    made = wide_product.code_of(sizes, *sides)
    assert made is not None
    call = made.bound([address_of(each) for each in (a, b, y)])
    for _ in range(2):
        y[...] = 7
        assert call() == 0
        np.testing.assert_allclose(y, np.einsum("bij,bjk->bik", a, b), rtol=1e-12, atol=1e-12)


@with_avx512
def test_products_that_are_not_small_are_numpys() -> None:
    side = Sides(8, 8)
    assert wide_product.code_of((1, 100, 100, 100), side, side, side) is None
    assert wide_product.code_of((1, 1, wide_product.MOST_TERMS + 1, 1), side, side, side) is None
    assert wide_product.code_of((1, 0, 3, 3), side, side, side) is None


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (2, 8), (5, 24), (4, 129)])
def test_rows(rng, shape, side) -> None:
    x, y = guarded_as(rng.normal(3, 20, shape), side), guarded_as(np.zeros(shape), side)
    if len(x) > 2:
        x[1, 0], x[2, -1] = np.nan, np.inf
    call = wide_rows.centred(*shape, 1e-3).bound([address_of(x), address_of(y)])
    assert call() == 0
    with np.errstate(all="ignore"):
        want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(y, want, rtol=1e-11, atol=1e-12)


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (8, 8), (5, 24), (9, 129)])
def test_shares(rng, shape, logarithm, side) -> None:
    for scale in (1, 30, 500):
        x, y = guarded_as(rng.normal(0, scale, shape), side), guarded_as(np.zeros(shape), side)
        if len(x) > 4:
            x[1, 0], x[2, -1], x[3], x[4, ::2] = np.nan, np.inf, -np.inf, -np.inf
        made = wide_rows.shares(*shape, logarithm=logarithm)
        assert made.bound([address_of(x), address_of(y)])() == 0
        with np.errstate(all="ignore"):
            exact = (x - x.max(1, keepdims=True)).astype(np.longdouble)
            total = np.exp(exact).sum(1, keepdims=True)
            want = exact - np.log(total) if logarithm else np.exp(exact) / total
        np.testing.assert_allclose(
            y, want.astype(float), rtol=2e-15, atol=1e-15 if logarithm else 1e-320
        )
        assert made.bound([address_of(x), address_of(x)])() == 0
        np.testing.assert_array_equal(x, y)


@with_avx
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(
    "shapes",
    [((), ()), ((5,), (5,)), ((7, 24), (24,)), ((7, 1), (9,)), ((3, 1, 40), (2, 1)), ((900,), ())],
)
def test_pairs(rng, shapes, side) -> None:
    names = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}
    for name, function in names.items():
        a, b = (guarded_as(rng.standard_normal(shape), side) for shape in shapes)
        for each in (a, b):
            marks = rng.choice([np.nan, np.inf, -0.0], each.shape)
            np.copyto(each, marks, where=rng.random(each.shape) < 0.2)
        with np.errstate(all="ignore"):
            want = function(a, b)
        y = guarded_as(np.zeros(want.shape), side)
        forms = [(each.shape, each.strides) for each in (a, b, y)]
        found = prepared(Function(("f64", "f64"), (f"f64 {name}",), "f64"), forms)
        assert found is not None or (want.size > 512 and missing_avx512())
        if found is not None:
            code, told = found
            places = [address_of(each) for each in (a, b, y)]
            numbers = np.array([*places, *told[3:]], np.int64)
            assert code(numbers.tobytes()) == 0
            np.testing.assert_array_equal(y, want)


def compared(core, model, feeds, executable=None):
    """That a network computes what ONNX Runtime does; returns what ran."""
    executable = executable or load(core, model)
    want = models.answer(model, feeds)
    got = executable.infer(feeds)
    for each, wanted in zip(got.values(), want, strict=True):
        np.testing.assert_allclose(each, wanted, rtol=1e-10, atol=1e-11)
        assert each.dtype == wanted.dtype
    return executable


@pytest.mark.parametrize(
    ("first", "second"),
    [
        *(((7, 11), (11, 24)), ((2, 3, 5, 4), (4, 9)), ((2, 3, 5, 4), (2, 3, 4, 9))),
        *(((3, 5, 4), (2, 1, 4, 9)), ((5, 4), (2, 3, 4, 9)), ((4,), (4, 3)), ((2, 4), (4,))),
        *(((2, 1, 5, 4), (3, 4, 6)), ((100, 80), (80, 90))),
    ],
    ids=str,
)
@pytest.mark.parametrize("constant", [True, False])
def test_products_of_networks(core, rng, first, second, constant) -> None:
    weights = {"w": rng.standard_normal(second)}
    feeds = {"x": rng.standard_normal(first)}
    for is_open in (False, True):
        sizes = {"x": [f"x{n}" for n in range(len(first))] if is_open else list(first)}
        if not constant:
            sizes["w"] = [f"w{n}" for n in range(len(second))] if is_open else list(second)
            feeds["w"] = weights["w"]
        nodes = [("MatMul", ["x", "w"], ["y"], {})]
        kept = weights if constant else {}
        model = models.build(nodes, sizes, ["y"], kept, element_type=np.float64)
        executable = compared(core, model, feeds)
        if min(len(first), len(second)) > 1 and not missing_avx512():
            assert by_machine_code(executable) == ["MatMul"]


@pytest.mark.parametrize("transposed", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_products_of_turned_matrices(core, rng, transposed) -> None:
    x, w = rng.standard_normal((6, 11)), rng.standard_normal((11, 20))
    attributes = {"transA": transposed[0], "transB": transposed[1], "alpha": 0.5}
    weights = {"w": w.T.copy() if transposed[1] else w, "b": rng.standard_normal(20)}
    given = x.T.copy() if transposed[0] else x
    nodes = [("Gemm", ["x", "w", "b"], ["y"], attributes)]
    model = models.build(nodes, {"x": list(given.shape)}, ["y"], weights, element_type=np.float64)
    compared(core, model, {"x": given})


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_normalised_rows_of_networks(core, rng, axis) -> None:
    width = [5, 6][axis % 3 - 1 :] if axis > 0 else [6]
    weights = {"s": rng.standard_normal(width), "b": rng.standard_normal(width)}
    nodes = [
        ("LayerNormalization", ["x", "s", "b"], ["a"], {"axis": axis}),
        ("Softmax", ["a"], ["c"], {"axis": -1}),
        ("LogSoftmax", ["a"], ["d"], {"axis": 1}),
        ("LogSoftmax", ["a"], ["f"], {"axis": 2}),
        ("Tanh", ["a"], ["e"], {}),
    ]
    model = models.build(
        nodes, {"x": ["n", 5, 6]}, ["a", "c", "d", "e", "f"], weights, element_type=np.float64
    )
    executable = None
    for count in (1, 9, 9, 40):
        feeds = {"x": rng.normal(2, 5, (count, 5, 6))}
        executable = compared(core, model, feeds, executable)
    if not missing_avx512():
        assert by_machine_code(executable)[:1] == ["MVN"]
        assert "SoftMax" in by_machine_code(executable)


@pytest.mark.parametrize("kinds", [("float64", "float32"), ("float32", "float64")])
def test_floats_become_others(core, rng, kinds) -> None:
    source, target = kinds
    to = models.helper.np_dtype_to_tensor_dtype(np.dtype(target))
    nodes = [("Cast", ["x"], ["a"], {"to": to}), ("Add", ["a", "a"], ["y"], {})]
    model = models.build(nodes, {"x": [3, 7]}, ["y"], {}, element_type=np.dtype(source).type)
    x = (rng.standard_normal((3, 7)) * 1e30).astype(source)
    x[0, :4] = np.nan, np.inf, -np.inf, -0.0
    x[1, 0] = 1e39 if source == "float64" else 1
    with np.errstate(all="ignore"):
        want = x.astype(target) + x.astype(target)
    np.testing.assert_array_equal(load(core, model).infer({"x": x})["y"], want)
