"""Conversions between element types."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import InferenceError, NetworkError
from polydevice.interval import Interval
from polydevice.ops.convert import Convert, ConvertLike, ConvertPromoteTypes
from polydevice.testing.op_case import OpCase, network_of
from polydevice_cpu.implement import run
from polydevice_cpu.ops.convert import power_of_two
from tests.ops.check import check

T = ElementType
KINDS = [T.f64, T.f32, T.f16, T.bf16, T.i8, T.i16, T.i32, T.i64, T.u8, T.u16, T.u32, T.u64]


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_every_pair_of_types(source, target, device):
    x = np.array([[0, 1, 2, 5], [64, 100, 127, 3]]).astype(source.dtype)
    check(OpCase(Convert(target), [x], [x.astype(np.int64).astype(target.dtype)]), device)


@pytest.mark.parametrize("kind", [T.i8, T.i32, T.i64])
def test_floats_are_truncated(kind, device):
    x = np.array([-2.9, -0.5, 0.5, 2.9], np.float32)
    check(OpCase(Convert(kind), [x], [[-2, 0, 0, 2]]), device)


def test_integers_keep_their_low_bits(device):
    x = np.array([300, -1, 128], np.int32)
    check(OpCase(Convert(T.u8), [x], [np.array([44, 255, 128], np.uint8)]), device)
    check(OpCase(Convert(T.i8), [x], [np.array([44, -1, -128], np.int8)]), device)


def test_booleans(device):
    x = np.array([0.0, -0.0, 0.3, -2.0, np.nan], np.float32)
    check(OpCase(Convert(T.boolean), [x], [[False, False, True, True, True]]), device)
    check(OpCase(Convert(T.f32), [np.array([True, False])], [[1.0, 0.0]]), device)
    check(OpCase(Convert(T.i64), [np.array([True, False])], [[1, 0]]), device)


@pytest.mark.parametrize(
    ("kind", "limit", "step"),
    [(T.f8e4m3, 448.0, 1.0625), (T.f8e5m2, 57344.0, 1.125)],
)
def test_float8_saturates_and_rounds_to_even(kind, limit, step, device):
    x = np.array([1e6, -1e6, 1.0, step, np.nan], np.float32)
    answer = np.array([limit, -limit, 1.0, 1.0, np.nan], np.float32)
    check(OpCase(Convert(kind), [x], [answer.astype(kind.dtype)], (1e-9, 1e-9)), device)
    check(OpCase(Convert(T.f32), [answer.astype(kind.dtype)], [answer]), device)


@pytest.mark.parametrize("kind", [T.i4, T.u4])
def test_four_bits(kind, device):
    x = np.array([0, 1, 7, 3], np.int32)
    packed = x.astype(kind.dtype)
    check(OpCase(Convert(kind), [x], [packed]), device)
    check(OpCase(Convert(T.f32), [packed], [x.astype(np.float32)]), device)
    check(OpCase(Convert(T.i32), [packed], [x]), device)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.is_integer])
def test_all_digits_of_a_string_count(kind):
    """Above 2**53 f64 has no odd integers; what does not fit keeps its low bits, as elsewhere."""
    texts = ["9007199254740993", "-9007199254740993", "9223372036854775807", "300", " 12 ", "1e3"]
    numbers = [2**53 + 1, -(2**53) - 1, 2**63 - 1, 300, 12, 1000]
    (y,) = run(Convert(kind), [np.array(texts, object)])
    assert y.dtype == kind.dtype
    assert y.tolist() == [_low_bits(number, kind) for number in numbers]


def _low_bits(number: int, kind: T) -> int:
    number %= 1 << kind.bits
    return number - (1 << kind.bits) if kind.is_signed and number >> kind.bits - 1 else number


def test_the_largest_integer_in_a_string():
    (y,) = run(Convert(T.u64), [np.array(["18446744073709551615"], object)])
    assert y.tolist() == [2**64 - 1]


@pytest.mark.parametrize("kind", [T.i64, T.u8, T.i4, T.f32, T.bf16, T.boolean])
@pytest.mark.parametrize("text", ["hello", "", "9" * 5000 + "x"])
def test_strings_that_are_no_numbers(kind, text):
    with pytest.raises(InferenceError, match="no number"):
        run(Convert(kind), [np.array([text], object)])


@pytest.mark.parametrize("text", ["inf", "nan", "1e400"])
def test_strings_that_no_integer_is_like(text):
    with pytest.raises(InferenceError, match="no number"):
        run(Convert(T.i32), [np.array([text], object)])


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (T.bf16, ["0.100097656", "-2.5", "inf", "nan"]),
        (T.f8e4m3, ["0.1015625", "-2.5", "nan", "nan"]),
        (T.f16, ["0.1", "-2.5", "inf", "nan"]),
        (T.f64, ["0.1", "-2.5", "inf", "nan"]),
    ],
)
def test_floats_as_strings(kind, texts):
    x = np.array([0.1, -2.5, np.inf, np.nan]).astype(kind.dtype)
    assert list(run(Convert(T.string), [x])[0]) == texts


def test_small_integers_as_strings():
    x = np.array([-8, 7, 0], np.int8).astype(ml_dtypes.int4)
    assert list(run(Convert(T.string), [x])[0]) == ["-8", "7", "0"]


def test_strings():
    text = np.array(["1.5", "-2", "inf"], object)
    assert list(run(Convert(T.f32), [text])[0]) == [1.5, -2.0, np.inf]
    assert list(run(Convert(T.i64), [text[:2]])[0]) == [1, -2]
    assert list(run(Convert(T.string), [np.array([1, 2])])[0]) == ["1", "2"]


def test_like(device):
    x, like = np.array([1.7, -1.7], np.float32), np.zeros((1, 2, 3), np.int8)
    check(OpCase(ConvertLike(), [x, like], [np.array([1, -1], np.int8)]), device)


def test_sizes_that_are_not_known_yet_stay():
    sizes = np.empty(2, object)
    sizes[:] = [Interval(1, 4), 3]
    assert list(run(Convert(T.i32), [sizes])[0]) == [Interval(1, 4), 3]


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (np.float32, np.float16, np.float32),
        (np.int8, np.uint8, np.int16),
        (np.int32, np.uint8, np.int32),
        (np.uint8, np.uint32, np.uint32),
        (np.float32, np.int32, np.float32),
        (np.float16, ml_dtypes.bfloat16, np.float32),
        (np.bool_, np.int8, np.int8),
        (np.int64, np.int64, np.int64),
    ],
)
def test_promoted_types(a, b, result, device):
    x, y = np.array([1, 0, 1]).astype(a), np.array([[2], [3]]).astype(b)
    expected = [x.astype(result), y.astype(result)]
    check(OpCase(ConvertPromoteTypes(), [x, y], expected), device)


def test_unsafe_promotion_must_be_allowed(device):
    x, y = np.array([1], np.int64), np.array([2], np.float16)
    with pytest.raises(NetworkError, match="promote_unsafe"):
        network_of(OpCase(ConvertPromoteTypes(), [x, y], []))
    allowed = ConvertPromoteTypes(promote_unsafe=True)
    check(OpCase(allowed, [x, y], [x.astype(np.float16), y]), device)


def test_pytorch_scalars_take_the_tensor_type(device):
    op = ConvertPromoteTypes(pytorch_scalar_promotion=True, promote_unsafe=True)
    x, y = np.array([1.5], np.float16), np.array(2.0, np.float32)
    check(OpCase(op, [x, y], [x, y.astype(np.float16)], dynamic=False), device)


@pytest.mark.parametrize(
    ("rounding", "exponents"),
    [
        ("nearest", [127, 127, 128, 128, 128, 0, 255, 255]),  # what lies between goes up
        ("up", [127, 128, 128, 128, 128, 1, 255, 255]),
        ("down", [127, 127, 127, 127, 128, 0, 255, 255]),
    ],
)
def test_powers_of_two(rounding, exponents):
    x = np.array([1, 1.25, 1.5, 1.75, -2, 2.0**-127, np.inf, np.nan], np.float32)
    got = power_of_two(x, rounding, saturate=True)
    assert got.view(np.uint8).tolist() == exponents
    largest = np.array([3.4e38], np.float32)
    kept = [
        power_of_two(largest, rounding, saturate=each).view(np.uint8)[0] for each in (True, False)
    ]
    assert kept == ([254, 254] if rounding == "down" else [254, 255])
