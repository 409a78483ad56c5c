"""What shape inference refuses, in words: one line for each rule of an operation."""

from __future__ import annotations

import re

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.node import constant
from polydevice.ops.activation import Clamp, HardSigmoid, PRelu, Selu
from polydevice.ops.blocks import BatchToSpace, DepthMode, DepthToSpace, ShuffleChannels
from polydevice.ops.broadcast import Broadcast, Tile
from polydevice.ops.color import NV12toBGR
from polydevice.ops.concat import Concat
from polydevice.ops.ctc import CTCGreedyDecoder
from polydevice.ops.detection_output import DetectionOutput
from polydevice.ops.detectron import ExperimentalDetectronTopKROIs
from polydevice.ops.embedding import (
    EmbeddingBagOffsetsSum,
    EmbeddingBagPackedSum,
    EmbeddingSegmentsSum,
)
from polydevice.ops.gather import Gather, GatherElements, GatherND, GatherTree
from polydevice.ops.generate import OneHot, Range
from polydevice.ops.grid_sample import GridSample
from polydevice.ops.linear_algebra import Det, Inverse
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad
from polydevice.ops.roi import ROIAlign, ROIPooling
from polydevice.ops.scatter import ScatterElementsUpdate, ScatterNDUpdate
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.topk import TopK
from polydevice.ops.transpose import Transpose
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc

Input = tuple[int, ...] | list[int] | np.generic
"""A shape of what is not known, or known numbers."""

I64 = np.int64

RULES: list[tuple[Op, tuple[Input, ...], str]] = [
    (Clamp(min=2.0, max=1.0), ((2, 3),), "min 2.0 is above max 1.0"),
    (PRelu(), ((3,), (2, 3)), "slope [2,3] has a higher rank than x [3]"),
    (PRelu(), ((2, 3), (2,)), "slope [2] does not fit x [2,3]"),
    (Selu(), ((2,), (2,), ()), "input 1 has the shape [2]; it is one number"),
    (HardSigmoid(), ((2,), (), (3,)), "input 2 has the shape [3]; it is one number"),
    (DepthToSpace(DepthMode.BLOCKS_FIRST, 2), ((1, 6, 2, 2),), "is not a multiple of 4"),
    (DepthToSpace(DepthMode.BLOCKS_FIRST, 2), ((1, 4),), "[1,4] has no spatial axes"),
    (DepthToSpace(DepthMode.BLOCKS_FIRST, 0), ((1, 4, 2, 2),), "block_size 0 is not positive"),
    (ShuffleChannels(group=0), ((1, 4, 2, 2),), "group 0 is not positive"),
    (ShuffleChannels(group=3), ((1, 4, 2, 2),), "4 is not a multiple of 3"),
    (BatchToSpace(), ((4, 2, 2), [1, 2], [0, 0], [0, 0]), "need 3 elements each"),
    (BatchToSpace(), ((4, 2, 2), [2, 2, 1], [0, 0, 0], [0, 0, 0]), "leave the batch axis alone"),
    (BatchToSpace(), ((4, 2, 2), [1, 0, 1], [0, 0, 0], [0, 0, 0]), "must be positive"),
    (BatchToSpace(), ((4, 2, 2), [1, 2, 2], [0, 3, 0], [0, 2, 0]), "crops 3 and 2 exceed"),
    (Broadcast(), ((2, 3), [3]), "does not broadcast to"),
    (Tile(), ((2, 3), [1, -1]), "repeats [1, -1] has a negative number"),
    (NV12toBGR(), ((1, 9, 5, 1),), "has an odd size"),
    (NV12toBGR(), ((1, 8, 4, 1),), "8 rows are not 3/2 of an image's height"),
    (NV12toBGR(), ((9, 4),), "[9,4] is not [N, H, W, C]"),
    (NV12toBGR(), ((1, 4, 4, 1), (1, 2, 2, 2), (1,)), "3 planes are given; it takes 1 or 2"),
    (Concat(axis=0), (), "at least one input"),
    (Concat(axis=0), ((), ()), "a scalar has no axis to join along"),
    (Concat(axis=0), ((2,), (2, 3)), "inputs differ in rank: [2], [2,3]"),
    (Concat(axis=0), ((2, 4), (2, 3)), "inputs differ in a size other than axis 0"),
    (CTCGreedyDecoder(), ((4, 2), (4, 2)), "scores [4,2] must have three axes"),
    (CTCGreedyDecoder(), ((4, 2, 0), (4, 2)), "scores [4,2,0] have no classes"),
    (CTCGreedyDecoder(), ((4, 2, 3), (4,)), "mask [4] is not [T, N]"),
    (DetectionOutput(nms_threshold=0.5), ((1, 8),), "1 inputs are given; it takes 3 or 5"),
    (ExperimentalDetectronTopKROIs(2), ((3, 4),), "1 inputs are given"),
    (ExperimentalDetectronTopKROIs(-1), ((3, 4), (3,)), "max_rois -1 is negative"),
    (EmbeddingBagPackedSum(), ((), (2, 3)), "the table is a scalar"),
    (EmbeddingBagOffsetsSum(), ((), (2,), (2,)), "the table is a scalar"),
    (EmbeddingBagOffsetsSum(), ((5, 2), (2,), (2, 1)), "[2,1] must have one axis"),
    (EmbeddingSegmentsSum(), ((), (2,), (2,), I64(2)), "the table is a scalar"),
    (Gather(), ((), (2,), I64(0)), "a scalar has no axis to gather along"),
    (Gather(batch_dims=1), ((2, 3), (2, 3), I64(0)), "axis 0 lies among the 1 batch axes"),
    (Gather(batch_dims=1), ((2, 3), (3, 3), I64(1)), "the first 1 sizes of [2,3] and [3,3]"),
    (GatherElements(axis=0), ((2, 3), (2,)), "indices [2] need the rank of [2,3]"),
    (GatherElements(axis=0), ((2, 3), (2, 4)), "indices [2,4] reach beyond [2,3] at axis 1"),
    (GatherND(), ((2, 3), (4, 3)), "3 coordinates after 0 batch axes do not fit"),
    (GatherND(batch_dims=1), ((2, 3), (3, 1)), "the first 1 sizes of [2,3] and [3,1]"),
    (GatherTree(), ((2, 3), (2, 3), (3,), ()), "step_ids [2,3] is not [steps, batch, beams]"),
    (OneHot(), ((3,), (), (0,), ()), "on_value has the shape [0]; it is one number"),
    (OneHot(), ((3,), I64(-1), (), ()), "depth -1 is negative"),
    (Range(ElementType.i64), (I64(0), I64(3), I64(0)), "a range from 0 to 3 by 0 is not possible"),
    (GridSample(), ((1, 2, 3, 3), (1, 2, 2)), "need the same rank, 3 or more"),
    (GridSample(), ((1, 2, 3, 3), (1, 4, 4, 3)), "does not give 2 coordinates"),
    (Det(), ((3,),), "Det needs matrices, not [3]"),
    (Inverse(), ((3,),), "Inverse needs matrices, not [3]"),
    (MatMul(), ((2, 3), ()), "MatMul does not take scalars"),
    (MatMul(), ((2, 3), (4, 2)), "MatMul: [2,3] and [4,2]"),
    (Pad(), ((2, 3), [-3, 0], [0, 0], ()), "cut more than the size 2"),
    (ROIPooling(2, 2, 1.0, "most"), ((1, 3, 4, 4), (2, 5)), "method 'most' is not"),
    (ROIPooling(0, 2, 1.0), ((1, 3, 4, 4), (2, 5)), "pooled size 0 × 2 is not positive"),
    (ROIPooling(2, 2, 1.0), ((1, 3, 4, 4), (2, 4)), "regions [2,4] are not [R, 5]"),
    (ROIPooling(2, 2, 1.0), ((3, 4, 4), (2, 5)), "[3,4,4] is not [N, C, H, W]"),
    (ROIPooling(2, 2, 1.0), ((1, 3, 0, 4), (2, 5)), "has no pixels"),
    (ROIAlign(2, 2, -1, 1.0, "avg"), ((1, 3, 4, 4), (2, 4), (2,)), "sampling_ratio -1"),
    (ScatterElementsUpdate(), ((2, 3), (2,), (2,), I64(0)), "indices [2] need the rank of [2,3]"),
    (ScatterElementsUpdate(), ((), (), (), I64(0)), "a scalar has no axis to put elements along"),
    (ScatterElementsUpdate(), ((2,), (2,), (3,), I64(0)), "updates of shape [3]"),
    (
        *(ScatterElementsUpdate(), ((9, 3), (2, 4), (2, 4), I64(0))),
        "indices [2,4] reach beyond [9,3] at axis 1",
    ),
    (ScatterNDUpdate(), ((2, 3), (), ()), "indices are a scalar"),
    (ScatterNDUpdate(), ((2, 3), (4, 3), (4,)), "3 coordinates are more than the axes of [2,3]"),
    (Split(num_splits=0), ((3, 2), I64(0)), "0 parts are not possible"),
    (VariadicSplit(), ((3, 2), I64(0), [1, -2]), "must not be negative, but for one -1"),
    (VariadicSplit(), ((3, 2), I64(0), [1, 1]), "[1, 1] do not add up to the size 3"),
    (TopK(axis=0, mode="max", sort="value"), ((3,), I64(-1)), "k -1 is negative"),
    (TopK(axis=0, mode="max", sort="value"), ((3,), I64(4)), "k 4 exceeds the size 3 of axis 0"),
    (Transpose(), ((2, 3), [0, 0]), "order [0, 0] is not a permutation of the axes 0 to 1"),
]


def described(given: Input) -> TensorDesc:
    if isinstance(given, tuple):
        return TensorDesc(ElementType.f32, Shape(given))
    return constant("known", np.array(given)).output.desc


@pytest.mark.parametrize(
    ("op", "inputs", "told"),
    RULES,
    ids=[f"{type(op).__name__}-{told[:30]}" for op, _, told in RULES],
)
def test_refusals_say_what_does_not_fit(op: Op, inputs: tuple[Input, ...], told: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(told)):
        op.infer([described(given) for given in inputs])
