"""TreeEnsemble: literals worked by hand, and walks of one row through one tree."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.trees import Aggregate, TreeEnsemble
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from tests.ops.check import check
from tests.ops.forests import random_forest, walked

F = np.float32
NAN = np.nan

# x0 <= 1.5 or missing: leaf 2; else x1 > 2: leaf 3; else leaf 4. And a tree of leaf 4 alone.
BY_HAND = [
    np.int32([0, 1]),
    F([1.5, 2]),
    np.uint8([0, 3]),
    np.array([True, False]),
    np.int32([[2, 3], [1, 4]]),
    np.int32([0, 4]),
    F([[1, 10], [2, 20], [4, -40]]),
]


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (Aggregate.SUM, [[5, -30], [5, -30], [6, -20], [8, -80], [8, -80]]),
        (Aggregate.MIN, [[1, -40], [1, -40], [2, -40], [4, -40], [4, -40]]),
        (Aggregate.MAX, [[4, 10], [4, 10], [4, 20], [4, -40], [4, -40]]),
    ],
)
def test_two_trees(device, aggregate, expected):
    x = F([[1.5, 9], [NAN, 9], [2, 2.5], [2, 2], [1.75, NAN]])
    op = TreeEnsemble(2, aggregate)
    places = set(range(1, 8))
    check(OpCase(op, [x, *BY_HAND], [F(expected)], constants=places, others=[x, *BY_HAND]), device)


@pytest.mark.parametrize("kind", [F, np.float64])
@pytest.mark.parametrize("seed", range(4))
def test_every_comparison(device, kind, seed):
    rng = np.random.default_rng(seed)
    forest, depth = random_forest(rng, kind, trees=seed * 3 + 1, depth=4, targets=seed + 1)
    x = rng.integers(-3, 4, (5 + seed, 6)).astype(kind)
    x[rng.random(x.shape) < 0.2] = rng.choice([NAN, np.inf, -np.inf, -0.0])
    places = set(range(1, 1 + len(forest)))
    given = [x, *forest]
    case = OpCase(TreeEnsemble(depth), given, [walked(x, *forest)], constants=places, others=given)
    check(case, device)


def descs(**changes):
    kinds = {
        "x": TensorDesc(ElementType.f32, Shape([Dim(), 3])),
        "features": TensorDesc(ElementType.i32, Shape([4])),
        "splits": TensorDesc(ElementType.f32, Shape([4])),
        "modes": TensorDesc(ElementType.u8, Shape([4])),
        "missing": TensorDesc(ElementType.boolean, Shape([4])),
        "children": TensorDesc(ElementType.i32, Shape([2, 4])),
        "roots": TensorDesc(ElementType.i32, Shape([2])),
        "votes": TensorDesc(ElementType.f32, Shape([6, 5])),
    }
    return list({**kinds, **changes}.values())


def test_its_result_has_rows_and_targets():
    (y,) = TreeEnsemble(3).infer(descs())
    assert y.shape == Shape([Dim(), 5])


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"splits": TensorDesc(ElementType.f32, Shape([5]))}, ShapeError),
        ({"children": TensorDesc(ElementType.i32, Shape([4, 2]))}, ShapeError),
        ({"votes": TensorDesc(ElementType.f32, Shape([6]))}, ShapeError),
        ({"votes": TensorDesc(ElementType.f64, Shape([6, 5]))}, ElementTypeError),
        ({"members": TensorDesc(ElementType.f32, Shape([3, 2]))}, ShapeError),
    ],
)
def test_tables_that_do_not_fit_are_refused(changes, error):
    with pytest.raises(error):
        TreeEnsemble(3).infer(descs(**changes))
