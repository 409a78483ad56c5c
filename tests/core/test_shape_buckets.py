"""What SHAPE_BUCKETS may say, and the sizes that it pads up to."""

from __future__ import annotations

import pytest

from polydevice import Core
from polydevice.errors import OptionValueError
from polydevice.options.shape_buckets import ShapeBuckets


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("", ""),
        (None, ""),
        ("powers", "powers"),
        (" Powers ", "powers"),
        ("512, 128,128", "128,512"),
        ([128, 256], "128,256"),
        (64, "64"),
        ("1:128,256;0:powers", "0:powers;1:128,256"),
        ({0: "powers", 1: [128, 256]}, "0:powers;1:128,256"),
        ("0:4;powers", "0:4;powers"),
    ],
)
def test_legal(given: object, text: str) -> None:
    found = ShapeBuckets.parse(given)
    assert str(found or "") == text
    assert ShapeBuckets.parse(text) == found
    with Core() as core:
        core.set_config({"SHAPE_BUCKETS": given}, "CPU")
        assert core.get_config("CPU", "SHAPE_BUCKETS") == text


@pytest.mark.parametrize(
    "given",
    [
        *(
            "0",
            "-1",
            "1.5",
            "1,",
            "12345678901",
            "2147483648",
            "0:",
            ":8",
            "-1:8",
            "x:8",
            "0:8;0:4",
        ),
        *("8;16", "twos", True, "1e3", [0], {0: []}, "१:8", b"8"),
    ],
)
def test_illegal(given: object) -> None:
    with Core() as core, pytest.raises(OptionValueError, match="SHAPE_BUCKETS.*legal"):
        core.set_config({"SHAPE_BUCKETS": given}, "CPU")


def test_sizes() -> None:
    powers, listed = ShapeBuckets.parse("powers"), ShapeBuckets.parse("1:3,8;2:powers")
    assert powers is not None
    assert listed is not None
    ladder = powers.of(7)
    assert ladder is not None
    assert [ladder.above(n) for n in (0, 1, 2, 3, 4, 5, 1025)] == [0, 1, 2, 4, 4, 8, 2048]
    assert [ladder.above(n, 6) for n in (3, 5, 6, 7)] == [4, 6, 6, 7]
    three = listed.of(1)
    assert three is not None
    assert [three.above(n) for n in (1, 3, 4, 8, 9)] == [3, 3, 8, 8, 9]
    assert listed.of(0) is None
