"""Products of one input with several constant matrices are one; OpenVINO is the judge."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.matmul import MatMul
from polydevice.ops.softmax import SoftMax
from polydevice_gpu.ops import CompressedMatMul
from polydevice_gpu.passes import group_products
from tests.gpu.graphs import Sketch, SparingBuilder, check_answers, compiled, loaded


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


def _products(network) -> list[tuple[int, ...]]:
    return [n.output.shape for n in compiled(network).nodes if n.op.type == "MatMul"]


def _branch(s: Sketch, name: str, x, columns: int, *, turned: bool = False, bias=None):
    shape = (columns, 12) if turned else (12, columns)
    y = s.add(name, MatMul(transpose_b=turned), x, s.weights(f"{name}/w", *shape))
    return y if bias is None else s.add(f"{name}/bias", Add(), y, s.weights(f"{name}/b", *bias))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bias", [None, "columns", "one"])
def test_queries_keys_and_values(opencl, builder, turned, bias):
    s = Sketch()
    x = s.add("first", Relu(), s.input("x", 2, 7, 12))
    found = {}
    for name, columns in (("q", 8), ("k", 8), ("v", 20)):
        shape = {"columns": (columns,), "one": (1, 1, columns)}.get(bias)
        y = _branch(s, name, x, columns, turned=turned, bias=shape)
        found[f"{name}_out"] = s.add(f"{name}/last", SoftMax(axis=-1), y)
    network = s.network(**found)
    assert _products(network) == [(2, 7, 36)]
    check_answers(network, opencl, builder)


def test_branches_that_end_differently_are_grouped_by_how_they_end(opencl, builder):
    s = Sketch()
    x = s.add("first", Relu(), s.input("x", 7, 12))
    y = {}
    for number in range(4):
        each = _branch(s, f"p{number}", x, 4 + number, bias=(4 + number,))
        y[f"y{number}"] = s.add(f"last{number}", Relu(), each) if number % 2 else each
    last = {name: s.add(f"{name}/out", SoftMax(axis=-1), v) for name, v in y.items()}
    network = s.network(**last)
    assert sorted(_products(network)) == [(7, 4 + 6), (7, 5 + 7)]
    check_answers(network, opencl, builder)


def test_outputs_and_changing_biases_stay_products_of_their_own(opencl, builder):
    s = Sketch()
    x = s.add("first", Relu(), s.input("x", 3, 12))
    z = s.input("z", 3, 8)
    one = s.add("one", Add(), _branch(s, "a", x, 8), z)
    two = s.add("two", Add(), _branch(s, "b", x, 8), s.weights("c", 8))
    network = s.network(one=s.add("r1", Relu(), one), two=s.add("r2", Relu(), two),
                        plain=_branch(s, "d", x, 8))  # fmt: skip
    assert len(_products(network)) == 3
    check_answers(network, opencl, builder)


@pytest.mark.parametrize("columns", [7, 9])
def test_one_number_for_each_row_is_no_bias_of_columns(opencl, builder, columns):
    s = Sketch()
    x = s.add("first", Relu(), s.input("x", 7, 12))
    found = {}
    for name in "ab":
        y = _branch(s, name, x, columns, bias=(7, 1))
        found[name] = s.add(f"{name}/last", SoftMax(axis=-1), y)
    network = s.network(**found)
    assert _products(network) == [(7, columns)] * 2
    check_answers(network, opencl, builder)


def test_matrices_are_joined_once_unless_one_may_change():
    fixed, other, changing = np.ones((2, 3)), np.zeros((2, 1)), np.zeros((2, 2))
    fixed.flags.writeable = other.flags.writeable = False
    joined = group_products._joined([fixed, other], 1)
    assert joined.tolist() == [[1, 1, 1, 0]] * 2
    assert group_products._joined([fixed, other], 1) is joined
    for number in (5, 6):
        changing[...] = number
        found = group_products._joined([fixed, changing], 1)
        assert found.tolist() == [[1, 1, 1, number, number]] * 2


def test_products_that_share_a_bias_are_grouped_once(opencl, builder):
    """As those without one do, which become products with the same zeros."""
    s = Sketch()
    x = s.add("first", Relu(), s.input("x", 7, 12))
    bias = s.weights("b", 8)
    found = {}
    for name in "ab":
        y = s.add(f"{name}/bias", Add(), _branch(s, name, x, 8), bias)
        found[name] = s.add(f"{name}/last", SoftMax(axis=-1), y)
    network = s.network(**found)
    assert _products(network) == [(7, 16)]
    check_answers(network, opencl, builder)


@pytest.mark.parametrize("bits", [4, 8])
def test_matrices_of_few_bits_with_equal_blocks_are_joined_as_they_are_stored(
    core, opencl, builder, bits
):
    random = np.random.default_rng(bits)
    terms, s, matrices, last = 128, Sketch(), {}, {}
    x = s.add("first", Relu(), s.input("x", 2, terms))
    for name, columns, block in (("q", 24, 32), ("k", 7, 32), ("v", 19, 32), ("other", 8, 64)):
        q = random.integers(0, 1 << bits, (columns, terms)).astype("u1")
        packed = q if bits == 8 else q[:, ::2] | q[:, 1::2] << 4
        zeros = random.integers(0, 1 << bits, (columns, terms // block)).astype("u1")
        scales = random.uniform(0.1, 1, zeros.shape).astype("f4")
        of = zip("wsz", (packed, scales, zeros), strict=True)
        constants = [s.const(f"{name}/{kind}", array) for kind, array in of]
        y = s.add(name, CompressedMatMul(bits), x, *constants)
        last[name] = s.add(f"{name}/last", SoftMax(axis=-1), y)
        blocks = (q.reshape(columns, -1, block) - zeros[..., None].astype("f8")) * scales[..., None]
        matrices[name] = blocks.reshape(columns, terms).T
    network = s.network(**last)
    products = [n for n in compiled(network).nodes if n.op.type == "CompressedMatMul"]
    assert sorted(node.output.shape for node in products) == [(2, 8), (2, 24 + 7 + 19)]
    given = random.uniform(-0.01, 0.01, (2, terms)).astype("f4")
    answers = loaded(network, opencl, builder, core).infer({"x": given})
    for name, matrix in matrices.items():
        right = np.exp(np.maximum(given, 0) @ matrix)
        right /= right.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(answers[name], right, rtol=1e-4)
