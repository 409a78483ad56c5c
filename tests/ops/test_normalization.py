"""Normalisations."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.errors import NetworkError
from polydevice.ops import normalization as ops
from polydevice.ops.normalization import EpsMode
from polydevice.testing.op_case import OpCase, network_of
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case, wide_case

RANDOM = np.random.default_rng(41)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4, 5), (1, 3, 2, 3, 4)])
def test_batch_norm(shape, device):
    x, vectors = floats(*shape), [floats(3), floats(3), floats(3), np.abs(floats(3))]
    gamma, beta, mean, variance = vectors
    everything = {1, 2, 3, 4}
    op = ops.BatchNormInference(epsilon=1e-3)
    check(openvino_case(op, x, *vectors, constants=everything), device)
    old = ops.BatchNormInferenceV1(epsilon=1e-3)
    check(openvino_case(old, gamma, beta, x, mean, variance, constants={0, 1, 3, 4}), device)


@pytest.mark.parametrize(
    ("shape", "axes", "size"),
    [
        ((2, 7, 4, 5), (1,), 5),
        ((1, 3, 6, 7), (2, 3), 3),
        ((1, 3, 6, 7), (1,), 9),
        ((2, 6, 5), (1,), 3),
    ],
)
def test_lrn(shape, axes, size, device):
    # OpenVINO's CPU plugin cuts the bias to an integer.
    op = ops.LRN(alpha=0.5, beta=0.75, bias=2.0, size=size)
    check(openvino_case(op, floats(*shape), ints(*axes), constants={1}), device)


def test_lrn_with_an_even_window(device):
    # ONNX's rule, which is also OpenVINO's reference; its CPU plugin takes a window of 3.
    x = np.array([[[1.0], [2.0], [3.0], [4.0]]], np.float32)
    op = ops.LRN(alpha=4.0, beta=1.0, size=4)  # and a bias of 1
    expected = [[[1 / 15], [2 / 31], [3 / 30], [4 / 26]]]
    check(OpCase(op, [x, ints(1)], [expected], constants={1}), device)


def test_lrn_with_a_fractional_bias(device):
    x = np.array([[[1.0], [2.0], [3.0]]], np.float32)
    op = ops.LRN(alpha=3.0, beta=1.0, bias=1.5, size=3)
    expected = [[[1 / 6.5], [2 / 15.5], [3 / 14.5]]]
    check(OpCase(op, [x, ints(1)], [expected], constants={1}), device)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((2, 3, 4, 5), (2, 3)), ((2, 3, 4, 5), (1, 2, 3)), ((2, 8), (-1,)), ((2, 3, 8), (2,))],
)
@pytest.mark.parametrize("variance", [True, False])
@pytest.mark.parametrize("mode", [EpsMode.INSIDE_SQRT, EpsMode.OUTSIDE_SQRT])
def test_mvn(shape, axes, variance, mode, device):
    op = ops.MVN(normalize_variance=variance, eps=0.1, eps_mode=mode)
    check(openvino_case(op, floats(*shape), ints(*axes), constants={1}), device)


@pytest.mark.parametrize("across", [True, False])
@pytest.mark.parametrize("variance", [True, False])
def test_mvn_of_opset2(across, variance, device):
    op = ops.MVNV2(across_channels=across, normalize_variance=variance, eps=1e-3)
    check(openvino_case(op, floats(2, 3, 4, 5)), device)


@pytest.mark.parametrize("mode", [EpsMode.ADD, EpsMode.MAX])
@pytest.mark.parametrize("axes", [(1,), (1, 2, 3), (2, 3), (-1,)])
def test_normalize_l2(mode, axes, device):
    op = ops.NormalizeL2(eps=0.5, eps_mode=mode)
    check(openvino_case(op, floats(2, 3, 4, 5), ints(*axes), constants={1}), device)


@pytest.mark.parametrize("mode", [EpsMode.ADD, EpsMode.MAX])
def test_normalize_l2_without_axes_divides_elements_by_themselves(mode, device):
    """So says the specification, and so does OpenVINO 2026.4, whatever the mode."""
    x = np.array([[3.0, -4.0, 0.0]], np.float32)
    op = ops.NormalizeL2(eps=1e-6, eps_mode=mode)
    check(OpCase(op, [x, ints()], [[[1.0, 1.0, 0.0]]], constants={1}), device)


@pytest.mark.parametrize("shape", [(2, 5), (2, 3, 4, 5)])
def test_grn(shape, device):
    check(openvino_case(ops.GRN(bias=0.3), floats(*shape)), device)


@pytest.mark.parametrize("shape", [(2, 6, 4, 5), (1, 6, 7), (2, 6), (1, 6, 2, 3, 4)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_normalization(shape, groups, device):
    op = ops.GroupNormalization(num_groups=groups, epsilon=1e-3)
    check(openvino_case(op, floats(*shape), floats(6), floats(6)), device)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_round_the_wide_answer(dtype, device):
    op = ops.MVN(normalize_variance=True, eps=1e-5, eps_mode=EpsMode.INSIDE_SQRT)
    x = (floats(2, 3, 20) * 3 + 5).astype(dtype)
    check(wide_case(op, x, ints(2), constants={1}), device)


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        (ops.BatchNormInference(), [floats(2, 3), *[floats(4)] * 4], "4 items for the 3 channels"),
        (ops.LRN(alpha=1.0, beta=1.0, size=0), [floats(2, 3), ints(1)], "size 0"),
        (ops.LRN(alpha=1.0, beta=1.0, size=3), [floats(2, 3), ints(2)], "outside"),
        (
            ops.GroupNormalization(num_groups=2, epsilon=0.1),
            [floats(2, 3, 4), floats(3), floats(3)],
            "does not divide",
        ),
        (ops.GRN(bias=1.0), [floats(3)], "no channel axis"),
    ],
    ids=lambda v: getattr(v, "type", None),
)
def test_what_does_not_fit_is_refused(op, inputs, message):
    with pytest.raises(NetworkError, match=message):
        network_of(OpCase(op, inputs, [], constants={1}))
