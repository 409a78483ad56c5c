"""SoftMax and LogSoftmax, compared with OpenVINO and with values worked by hand."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.errors import NetworkError
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.testing.op_case import OpCase, network_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case, wide_case

RANDOM = np.random.default_rng(61)


@pytest.mark.parametrize("op", [SoftMax, LogSoftmax])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [((5,), 0), ((3, 7), 1), ((3, 7), 0), ((2, 3, 4, 5), 1), ((2, 3, 4, 5), -1), ((2, 3, 4, 5), 2),
     ((1, 1000), 1), ((4, 1), 1), ((2, 2, 3, 2, 3), 3),
     ((40, 31, 2), -1), ((3, 1200), 0), ((30, 4, 50), 1)],
)  # fmt: skip
def test_against_openvino(op, shape, axis, device):
    x = RANDOM.uniform(-5, 5, shape).astype(np.float32)
    check(openvino_case(op(axis=axis), x), device)


def test_by_hand(device):
    x = np.array([[0.0, np.log(3.0)]], np.float32)
    check(OpCase(SoftMax(axis=1), [x], [[[0.25, 0.75]]]), device)
    check(OpCase(LogSoftmax(axis=1), [x], [np.log([[0.25, 0.75]])]), device)


def test_large_numbers_do_not_overflow(device):
    x = np.array([[1e4, 1e4 - 1, -1e4]], np.float32)
    e = np.exp(-1.0)
    check(OpCase(SoftMax(axis=1), [x], [[[1 / (1 + e), e / (1 + e), 0.0]]]), device)
    answer = [[-np.log1p(e), -1 - np.log1p(e), -2e4 - np.log1p(e)]]
    check(OpCase(LogSoftmax(axis=1), [x], [answer]), device)


def test_masked_elements_get_nothing(device):
    x = np.array([[0.0, -np.inf, 0.0]], np.float32)
    check(OpCase(SoftMax(axis=1), [x], [[[0.5, 0.0, 0.5]]]), device)


@pytest.mark.parametrize("op", [SoftMax, LogSoftmax])
@pytest.mark.parametrize(
    ("shape", "axis"), [((4, 19), 1), ((3, 9, 6), 1), ((2, 5, 4, 8), -1), ((1100, 3), 1)]
)
@pytest.mark.parametrize("rare", [np.nan, np.inf])
def test_one_number_that_is_none_leaves_none(op, shape, axis, rare, device):
    """Of a NaN all shares are NaN, and of infinity, which is divided by itself."""
    x = RANDOM.uniform(-5, 5, shape).astype(np.float32)
    wanted = x - np.log(np.exp(x).sum(axis, keepdims=True))
    wanted = wanted if op is LogSoftmax else np.exp(wanted)
    rows, answers = (np.moveaxis(each, axis, -1) for each in (x, wanted))
    rows[-1, ..., 2], answers[-1] = rare, np.nan
    check(OpCase(op(axis=axis), [x], [wanted]), device)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("op", [SoftMax, LogSoftmax])
def test_narrow_floats_round_the_wide_answer(op, dtype, device):
    x = RANDOM.uniform(-5, 5, (3, 50)).astype(dtype)
    check(wide_case(op(axis=1), x), device)


@pytest.mark.parametrize(("shape", "axis"), [((3,), 0), ((2, 5), 0), ((4, 3, 2), -2)])
def test_few_terms_in_f16(shape, axis):
    """They are columns for NumPy on CPU, a single row too."""
    x = RANDOM.uniform(-5, 5, shape).astype(np.float16)
    check(wide_case(SoftMax(axis=axis), x), "CPU")


def test_no_elements(device):
    x = np.zeros((0, 3), np.float32)
    check(OpCase(SoftMax(axis=1), [x], [x]), device)


def test_an_axis_outside_the_rank_is_refused():
    with pytest.raises(NetworkError, match="axis 2 is outside"):
        network_of(OpCase(SoftMax(axis=2), [np.zeros((2, 3), np.float32)], []))


def test_sure_predictions_keep_their_loss(device):
    """The loss of a prediction that exceeds the others by t is log(1 + n exp(-t))."""
    margins = np.linspace(4, 13, 300)
    x = np.zeros((300, 10), np.float32)
    x[:, 3] = margins
    loss = np.log1p(9 * np.exp(-x[:, 3].astype(np.float64)))
    answer = -loss[:, None] - np.where(np.arange(10) == 3, 0, x[:, 3:4].astype(np.float64))
    case = OpCase(LogSoftmax(axis=1), [x], [answer.astype(np.float32)], tolerance=(2e-7, 6e-7))
    check(case, device)
