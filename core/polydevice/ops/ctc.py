"""CTCGreedyDecoder, CTCGreedyDecoderSeqLen and CTCLoss: sequences from framewise scores."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, DimLike, Shape, merge_dim
from polydevice.tensor import TensorDesc


def _sizes(x: TensorDesc) -> tuple[DimLike, DimLike]:
    """Return the first two sizes; raises ShapeError unless x has three axes and classes."""
    if x.shape is None:
        return Dim(), Dim()
    if len(x.shape) != 3:
        raise ShapeError(f"scores {x.shape} must have three axes")
    if x.shape[2] == 0:
        raise ShapeError(f"scores {x.shape} have no classes")
    return x.shape[0], x.shape[1]


@operation("CTCGreedyDecoder")
class CTCGreedyDecoder(Op):
    """Take the best class of each frame, drop blanks (the last class) and perhaps repetitions.

    Inputs:  scores  [T, N, C], floating point
             mask    [T, N], type of scores: 1 for each frame of a sequence, 0 behind it
    Outputs: y       [N, T, 1, 1], type of scores: the classes, then -1
    Raises:  ShapeError when the shapes do not fit
    Source:  OpenVINO opset1 CTCGreedyDecoder
    """

    ctc_merge_repeated: bool = attribute(default=True)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one number per sequence and frame."""
        scores, mask = inputs
        frames, batch = _sizes(scores)
        if mask.shape is not None:
            if len(mask.shape) != 2:
                raise ShapeError(f"mask {mask.shape} is not [T, N]")
            frames, batch = merge_dim(frames, mask.shape[0]), merge_dim(batch, mask.shape[1])
        return [scores.with_shape([batch, frames, 1, 1])]


@operation("CTCGreedyDecoderSeqLen", since=6)
class CTCGreedyDecoderSeqLen(Op):
    """Take the best class of each frame, drop blanks and perhaps repetitions.

    Inputs:  scores   [N, T, C], floating point
             lengths  [N], integer: frames of each sequence
             blank    optional scalar integer: the last class when left out
    Outputs: classes  [N, T], `classes_index_type`: the classes, then -1
             lengths  [N], `sequence_length_type`
    Raises:  ShapeError when the shapes do not fit
    Source:  OpenVINO opset6 CTCGreedyDecoderSeqLen
    """

    numbers_at = (2,)

    merge_repeated: bool = attribute(default=True)
    classes_index_type: ElementType = attribute(default=ElementType.i32)
    sequence_length_type: ElementType = attribute(default=ElementType.i32)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one number per sequence and frame."""
        self.check_count(inputs, 2, 3)
        scores, lengths = inputs[:2]
        batch, frames = _sizes(scores)
        if lengths.shape is not None:
            batch = merge_dim(batch, lengths.shape[0])
        return [
            TensorDesc(self.classes_index_type, Shape([batch, frames])),
            TensorDesc(self.sequence_length_type, Shape([batch])),
        ]


@operation("CTCLoss", since=4)
class CTCLoss(Op):
    """Negative logarithm of the probability of each label sequence.

    Inputs:  scores         [N, T, C], floating point, before SoftMax
             score_lengths  [N], integer: frames of each sequence
             labels         [N, T], integer
             label_lengths  [N], integer
             blank          optional scalar integer: the last class when left out
    Outputs: y              [N], type of scores
    Raises:  ShapeError when the shapes do not fit
    Source:  OpenVINO opset4 CTCLoss; Graves et al., Connectionist Temporal Classification, 2006
    """

    numbers_at = (4,)

    preprocess_collapse_repeated: bool = attribute(default=False)
    ctc_merge_repeated: bool = attribute(default=True)
    unique: bool = attribute(default=False)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return one number per sequence."""
        self.check_count(inputs, 4, 5)
        scores = inputs[0]
        batch, _ = _sizes(scores)
        for desc in inputs[1:4]:
            if desc.shape is not None:
                batch = merge_dim(batch, desc.shape[0])
        return [scores.with_shape([batch])]
