"""CTCGreedyDecoder, CTCGreedyDecoderSeqLen and CTCLoss."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import InferenceError
from polydevice.ops.ctc import CTCGreedyDecoder, CTCGreedyDecoderSeqLen, CTCLoss
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check
from tests.ops.openvino_oracle import openvino_case

RNG = np.random.default_rng(31)


@pytest.mark.parametrize("merge", [True, False])
def test_ctc_greedy_decoder(device, merge):
    scores = RNG.standard_normal((20, 3, 4)).astype(np.float32)
    mask = (np.arange(20)[:, None] < [20, 13, 1]).astype(np.float32)
    check(openvino_case(CTCGreedyDecoder(ctc_merge_repeated=merge), scores, mask), device)


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("blank", [None, 1])
@pytest.mark.parametrize("kind", [ElementType.i32, ElementType.i64])
def test_ctc_greedy_decoder_seq_len(device, merge, blank, kind):
    scores = RNG.standard_normal((3, 20, 4)).astype(np.float32)
    inputs = [scores, np.array([20, 13, 1], np.int32)]
    if blank is not None:
        inputs.append(np.array([blank], np.int32))
    op = CTCGreedyDecoderSeqLen(
        merge_repeated=merge, classes_index_type=kind, sequence_length_type=kind
    )
    check(openvino_case(op, *inputs, constants={2}), device)


def test_a_decoded_sequence_by_hand(device):
    best = [0, 0, 2, 0, 1, 1, 2, 2]  # 2 is the blank
    scores = np.eye(3, dtype=np.float32)[best][None]
    expected = [np.int32([[0, 0, 1, -1, -1, -1, -1, -1]]), np.int32([3])]
    check(OpCase(CTCGreedyDecoderSeqLen(), [scores, np.int32([8])], expected), device)


@pytest.mark.parametrize("collapse", [True, False])
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("unique", [True, False])
@pytest.mark.parametrize("blank", [None, 2])
def test_ctc_loss(device, collapse, merge, unique, blank):
    scores = RNG.standard_normal((3, 8, 5)).astype(np.float32)
    labels = np.array(
        [[0, 1, 1, 3, 0, 0, 0, 0], [3, 3, 0, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 0, 0, 0]], np.int32
    )
    inputs = [scores, np.int32([8, 5, 6]), labels, np.int32([4, 2, 3])]
    if blank is not None:
        inputs.append(np.array(blank, np.int32))
    op = CTCLoss(preprocess_collapse_repeated=collapse, ctc_merge_repeated=merge, unique=unique)
    check(openvino_case(op, *inputs, constants={4}), device)


def test_ctc_loss_by_hand(device):
    # two frames, even odds: "a" comes from aa, a-, -a of four equally likely paths
    scores = np.zeros((1, 2, 2), np.float32)
    inputs = [scores, np.int32([2]), np.int32([[0, 0]]), np.int32([1])]
    check(OpCase(CTCLoss(), inputs, [-np.log(np.float32([0.75]))]), device)


def test_wrong_lengths_are_refused():
    scores = np.zeros((1, 2, 2), np.float32)
    with pytest.raises(InferenceError, match="lengths"):
        run(CTCGreedyDecoderSeqLen(), [scores, np.array([3])])
    with pytest.raises(InferenceError, match="3 labels in 2"):
        run(CTCLoss(), [scores, np.array([2]), np.array([[0, 0, 0]]), np.array([3])])


def test_unknown_sizes():
    scores = TensorDesc(ElementType.f32, Shape([None, 3, 7]))
    mask = TensorDesc(ElementType.f32, Shape([5, None]))
    assert CTCGreedyDecoder().infer([scores, mask])[0].shape == Shape([3, 5, 1, 1])
