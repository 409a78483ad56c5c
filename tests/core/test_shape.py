"""Dim and Shape: interval arithmetic agrees with ordinary arithmetic on every value inside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydevice import Dim, Shape
from polydevice.errors import ShapeError
from polydevice.shape import bounds, broadcast, dim, merge, normalize_axis, union

sizes = st.integers(0, 40)
dims = st.tuples(sizes, st.integers(0, 30)).map(lambda t: dim(t[0], t[0] + t[1]))


def inside(value: int, size: object) -> bool:
    low, high = bounds(size)  # type: ignore[arg-type]
    return low <= value and (high is None or value <= high)


@given(dims, dims, st.data())
def test_arithmetic_covers_every_value(a, b, data):
    x = data.draw(st.integers(*bounds(a)))  # type: ignore[arg-type]
    y = data.draw(st.integers(*bounds(b)))  # type: ignore[arg-type]
    assert inside(x + y, a + b)
    assert inside(x * y, a * b)
    assert inside(
        max(x - y, 0),
        a - b
        if not (isinstance(a, int) and isinstance(b, int))
        else dim(max(a - b, 0), max(a - b, 0)),
    )
    assert inside(x // 3, a // 3)


def test_unbounded():
    any_size = Dim()
    assert any_size + 3 == Dim(3)
    assert any_size * 0 == 0
    assert (any_size - 2) // 2 + 1 == Dim(1)
    assert str(Shape([-1, 3, None, Dim(1, 4)])) == "[?,3,?,1..4]"


def test_static_shapes_are_plain_tuples():
    assert Shape([2, 3]) == (2, 3)
    assert Shape([2, 3]).elements == 6
    assert Shape([]).elements == 1
    with pytest.raises(ShapeError, match="dynamic"):
        _ = Shape([-1]).static
    with pytest.raises(ShapeError, match="-5"):
        Shape([-5])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([2, 1], [3], (2, 3)),
        ([], [4, 5], (4, 5)),
        ([Dim()], [7], (7,)),
        ([Dim()], [1], (Dim(),)),
        ([Dim(2, 4)], [Dim(2, 9)], (Dim(2, 9),)),
    ],
)
def test_broadcast(a, b, expected):
    assert broadcast(Shape(a), Shape(b)) == expected


def test_broadcast_names_both_shapes():
    with pytest.raises(ShapeError, match=r"\[2,3\] and \[4\]"):
        broadcast(Shape([2, 3]), Shape([4]))


def test_merge_and_union():
    assert merge(Shape([-1, 3]), Shape([2, Dim(1, 5)])) == (2, 3)
    assert merge(None, Shape([1])) == (1,)
    with pytest.raises(ShapeError, match="do not agree"):
        merge(Shape([2]), Shape([3]))
    with pytest.raises(ShapeError, match="rank"):
        merge(Shape([2]), Shape([2, 2]))
    assert union(Shape([2, 3]), Shape([5, 3])) == (Dim(2, 5), 3)
    assert union(Shape([2]), Shape([2, 3])) is None


def test_admits():
    assert Shape([-1, Dim(1, 8)]).admits((5, 8))
    assert not Shape([-1, Dim(1, 8)]).admits((5, 9))
    assert not Shape([2]).admits((2, 1))
    assert not Shape([Dim(1, 8)]).admits((Dim(),))


def test_normalize_axis():
    assert normalize_axis(-1, 4) == 3
    with pytest.raises(ShapeError, match="axis 0 is outside: a scalar has no axes"):
        normalize_axis(0, 0)
    with pytest.raises(ShapeError, match=r"axis 4 is outside \[-4, 4\)"):
        normalize_axis(4, 4)


def test_a_shape_equals_a_list_of_its_sizes():
    assert Shape([1, 3, 224]) == [1, 3, 224] == Shape([1, 3, 224])
    assert Shape([1, 3]) == (1, 3)
    assert Shape([1, 3]) != [1, 3, 1]
    assert Shape([1, 3]) != [3, 1]
    assert Shape([1, None]) == [1, Dim()]
    assert Shape([1]) != 1
    assert len({Shape([1, 3]), (1, 3), Shape([3, 1])}) == 2


@pytest.mark.parametrize(
    "use",
    [int, float, range, max, lambda size: size < 3, lambda size: [0][size]],
)
def test_a_size_that_is_not_known_says_so(use):
    given = Shape([2, Dim(1, 8)]) if use is max else Dim(1, 8)
    with pytest.raises(TypeError, match=r"the size 1\.\.8 is not known before an inference"):
        use(given)
