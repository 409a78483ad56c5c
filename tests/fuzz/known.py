"""Differences that are meant: each with the reason why no one repairs it."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.fuzz.generate import Case


class Known(NamedTuple):
    """A difference, by operator, kind of outcome and message (regular expressions)."""

    operator: str
    kind: str
    message: str
    reason: str


KNOWN_DIFFERENCES = (
    Known(
        "Loop", "shape", r"shape \(0, .*right is \(0,",
        "What zero trips collect has the sizes of one item, which ONNX Runtime does not know.",
    ),
    Known(
        "Conv", "shape", "data [1-9], .*right is",
        "Weights of other sizes than kernel_shape says: the reference follows the attribute.",
    ),
    Known(
        "NonZero", "shape", r"\(.*\b0\b.*right is",
        "ONNX Runtime takes a scalar for a list of one; the specification gives it no axes.",
    ),
    Known(
        "NonZero", "ShapeError|InferenceError",
        r"axis of size 0|reach beyond \(0, |shapes \[0,|is outside \[0, 0\)",
        "The same, where what follows cannot do with no axes.",
    ),
    Known(
        "Gather.*|ReverseSequence|Sequence.*", "InferenceError", "is outside",
        "The second data has other sizes, and no such place; ONNX Runtime reads what lies there.",
    ),
    Known(
        "Concat|ConcatFromSequence", "shape|ShapeError", r"\b0\b",
        "ONNX Runtime leaves parts without elements out, whatever their other sizes are.",
    ),
    Known(
        "Concat", "value", r"data [1-9], .*int64\(0\), right is",
        "The same, where only the sizes are asked for, which are then known: 0.",
    ),
    Known(
        "Einsum", "shape", r"data [1-9], .*\(0.*right is",
        "One letter for sizes 0 and 1, which the second data brings: others choose 1.",
    ),
    Known(
        "SplitToSequence", "shape|ShapeError", r"rank|right is|need the shape|does not fit",
        "Pieces of a given size keep their axis (opset 11); ONNX Runtime takes keepdims=0 there.",
    ),
    Known(
        "TopK", "ShapeError|InferenceError", r"exceeds the size 0|outside \[0, 0\]",
        "The best of none, in a tensor without elements: the reference gives none, too few.",
    ),
    Known(
        "SequenceAt", "shape", "right is",
        "Sequences of unlike tensors: the output is declared of the first data's rank.",
    ),
    Known(
        "Conv", "ShapeError", "takes data of rank 3 to 5",
        "Four spatial axes, which only ONNX's reference has.",
    ),
    Known(
        "ConvTranspose", "ShapeError", r"\(Convolution, .*window of .* is larger than the input",
        "No positions are left, which ONNX Runtime refuses too; the reference gives none.",
    ),
    Known(
        "NegativeLogLikelihoodLoss|SoftmaxCrossEntropyLoss", "value", "nan.*, right is",
        "The mean of no losses: 0 in other runtimes, no number by its definition.",
    ),
    Known(
        "Gather", "value", "right is ''$",
        "ONNX Runtime 1.32 gathers only the first of several texts that lie behind each index.",
    ),
    Known(
        "CenterCropPad", "value", "'', right is '?0'?$",
        "ONNX's reference pads texts with the number 0.",
    ),
    Known(
        "ReverseSequence", "ShapeError", r"sizes \d+ and \d+ do not agree",
        "ONNX's reference takes fewer lengths than there are sequences.",
    ),
    Known(
        "SoftmaxCrossEntropyLoss", "ShapeError", "0 at position . of the pattern copies a size",
        "ONNX's definition by other operators has no answer for no elements.",
    ),
)  # fmt: skip


def known_difference(case: Case, device: str, kind: str, message: str) -> str:
    """Return the reason of a known difference that this is, or ""."""
    operators = {node.op_type for node in case.model.graph.node}
    for each in KNOWN_DIFFERENCES:
        if (
            any(re.fullmatch(each.operator, name) for name in operators)
            and re.fullmatch(each.kind, kind)
            and re.search(each.message, message)
        ):
            return each.reason
    return ""
