"""MatMul and Einsum."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.errors import InferenceError, NetworkError
from polydevice.ops.matmul import Einsum, GroupedMatMul, MatMul
from polydevice.testing.op_case import OpCase, network_of, run_case
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RANDOM = np.random.default_rng(29)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


SHAPES = [
    ((3, 4), (4, 5), False, False),
    ((4, 3), (4, 5), True, False),
    ((3, 4), (5, 4), False, True),
    ((2, 4, 3), (5, 4), True, True),
    ((2, 3, 4), (2, 4, 5), False, False),
    ((2, 1, 3, 4), (1, 5, 4, 6), False, False),
    ((2, 3, 3, 4), (4, 6), False, False),
    ((4,), (4, 5), False, False),
    ((3, 4), (4,), False, False),
    ((4,), (4,), False, False),
    ((4,), (2, 4, 5), True, False),
    ((2, 3, 4), (4,), False, True),
    ((1, 130), (130, 70), False, False),
]


@pytest.mark.parametrize(("a", "b", "transpose_a", "transpose_b"), SHAPES)
def test_against_openvino(a, b, transpose_a, transpose_b, device):
    op = MatMul(transpose_a, transpose_b)
    check(openvino_case(op, floats(*a), floats(*b)), device)
    check(openvino_case(op, floats(*a), floats(*b), constants={1}), device)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_integers_are_exact_and_wrap_around(dtype, device):
    a = RANDOM.integers(0, 2**20, (3, 9)).astype(dtype)
    b = RANDOM.integers(0, 2**20, (9, 4)).astype(dtype)
    expected = (a.astype(object) @ b.astype(object)).astype(object)
    wrapped = np.vectorize(lambda v: v & ((1 << 64) - 1), otypes=[np.uint64])(expected)
    check(OpCase(MatMul(), [a, b], [wrapped.astype(dtype)]), device)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_floats(dtype, device):
    a, b = (RANDOM.standard_normal(s).astype(dtype) for s in ((2, 5, 7), (7, 6)))
    wide = a.astype(np.float64) @ b.astype(np.float64)
    check(OpCase(MatMul(), [a, b], [wide.astype(dtype)]), device)


def test_an_empty_sum_is_zero(device):
    a, b = floats(3, 0), floats(0, 2)
    check(OpCase(MatMul(), [a, b], [np.zeros((3, 2), np.float32)]), device)


@pytest.mark.parametrize("rows", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("columns", [1, 70])
def test_an_empty_sum_over_weights_is_zero(rows, columns, device):
    transposed = len(rows) == 1
    a, b = floats(*rows, 0), floats(*((columns, 0) if transposed else (0, columns)))
    zeros = np.zeros((*rows, columns), np.float32)
    check(OpCase(MatMul(transpose_b=transposed), [a, b], [zeros], constants=[1]), device)


def test_what_does_not_fit_is_refused():
    with pytest.raises(NetworkError, match="share no inner size"):
        network_of(OpCase(MatMul(), [floats(3, 4), floats(3, 4)], []))
    with pytest.raises(NetworkError, match="scalars"):
        network_of(OpCase(MatMul(), [floats(), floats(3, 4)], []))


EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 6)),
    ("i,j->ij", (3,), (4,)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("abc,ab->c", (2, 3, 4), (2, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("b...a , ab -> ...b", (3, 2, 4), (4, 3)),
    ("Ab,bC->AC", (3, 4), (4, 5)),
    ("bhwc,c->bhwc", (2, 3, 4, 5), (5,)),
    ("bhwc,bc->bhw", (2, 3, 4, 5), (2, 5)),
    ("bi,ib->b", (3, 4), (4, 3)),
    ("i,bij->bji", (3,), (2, 3, 4)),
    ("...i,...i->...", (2, 1, 4), (5, 4)),
    ("bij,jk", (2, 3, 1), (4, 5)),
    ("bij,bjk->bik", (1, 3, 4), (2, 1, 5)),
    ("ij,jk,kl->il", (2, 3), (1, 4), (1, 5)),
    ("ij,ij->j", (1, 4), (3, 4)),
]


@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EQUATIONS])
def test_einsum_against_numpy(equation, shapes, device):
    inputs = [floats(*s) for s in shapes]
    expected = np.einsum(equation, *(x.astype(np.float64) for x in inputs)).astype(np.float32)
    check(OpCase(Einsum(equation), inputs, [expected]), device)


@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EQUATIONS[:6]])
def test_einsum_against_openvino(equation, shapes, device):
    check(openvino_case(Einsum(equation), *(floats(*s) for s in shapes)), device)


@pytest.mark.parametrize(
    ("equation", "shapes", "message"),
    [
        ("ij,jk->ik", [(3, 4)], "describes 2 inputs"),
        ("ij,jk->ik", [(3, 4), (5, 6)], "label 'j'"),
        ("ij->ik", [(3, 4)], "each occur"),
        ("i1->i", [(3, 4)], "letters"),
        ("ij->i", [(3, 4, 5)], "does not fit its labels"),
    ],
)
def test_einsum_refuses_equations_that_do_not_fit(equation, shapes, message):
    with pytest.raises(NetworkError, match=message):
        network_of(OpCase(Einsum(equation), [floats(*s) for s in shapes], []))


# OpenVINO reads GroupedMatMul and infers its shapes, but has no kernel for it: the answers are by
# hand, the shape rules are compared.


def grouped_by_hand(a, b, ends):
    y = np.zeros((len(a), b.shape[1]), np.float64)
    for row in range(len(a)):
        groups = [g for g, end in enumerate(ends) if row < end]
        if groups:
            y[row] = b[groups[0]].astype(np.float64) @ a[row]
    return y


@pytest.mark.parametrize("ends", [[2, 4, 7], [0, 7, 7], [3, 3, 5], [0, 0, 0], [7, 7, 7]])
@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int32])
def test_grouped_rows(ends, kind, device):
    a, b = (np.rint(floats(*s) * 4).astype(kind) for s in ((7, 5), (3, 6, 5)))
    for index in (np.int32, np.int64):
        expected = grouped_by_hand(a, b, ends).astype(kind)
        check(OpCase(GroupedMatMul(), [a, b, np.array(ends, index)], [expected]), device)


def test_grouped_batches(device):
    a, b = floats(3, 7, 5), floats(3, 6, 5)
    expected = np.einsum("gmk,gnk->gmn", a, b)
    check(OpCase(GroupedMatMul(), [a, b], [expected]), device)


@pytest.mark.parametrize("ends", [[4, 2, 7], [-1, 2, 7], [2, 4, 8]])
def test_groups_that_are_none(ends, device):
    case = OpCase(GroupedMatMul(), [floats(7, 5), floats(3, 6, 5), np.array(ends)], [None])
    with pytest.raises(InferenceError, match="not ascending"):
        run_case(case, device)


@pytest.mark.parametrize(
    "shapes",
    [
        [(7, 5), (3, 6, 5), (3,)], [(3, 7, 5), (3, 6, 5)], [(7, 5), (3, 6, 5)],
        [(7, 5), (3, 5, 6), (3,)], [(2, 7, 5), (3, 6, 5)], [(5, 7), (7, 5), (2,)],
    ],
)  # fmt: skip
def test_grouped_shapes_against_openvino(shapes):
    openvino = pytest.importorskip("openvino")
    opset17 = pytest.importorskip("openvino.opset17")
    inputs = [np.zeros(s, np.int64 if i == 2 else np.float32) for i, s in enumerate(shapes)]
    given = [openvino.opset1.parameter(x.shape, x.dtype) for x in inputs]
    try:
        wanted = list(opset17.grouped_matmul(*given).shape)
    except RuntimeError:
        wanted = None
    try:
        found = list(network_of(OpCase(GroupedMatMul(), inputs, [])).results[0].output.shape)
    except NetworkError:
        found = None
    assert found == wanted
