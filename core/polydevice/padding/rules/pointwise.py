"""Rules for operations on single elements."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.ops.convert import ConvertLike
from polydevice.ops.io import Result
from polydevice.ops.normalization import BatchNormInference, BatchNormInferenceV1
from polydevice.ops.pointwise import AutoBroadcast, BinaryPointwise, UnaryPointwise
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import LinearQuantization
from polydevice.ops.select import Select
from polydevice.padding.labels import Label, Labels
from polydevice.padding.rules import rule
from polydevice.padding.state import State, Step, UnprovableError, data


def broadcast(labels: Sequence[Labels]) -> Labels:
    """Return the labels of a result of values that are broadcast together, aligned at the end."""
    rank = max(map(len, labels))
    made: list[Label] = []
    for axis in range(-rank, 0):
        own = {each[axis] for each in labels if len(each) >= -axis and each[axis]}
        if len(own) > 1:
            raise UnprovableError(
                f"it joins axes that need not be of one size: axis {axis + rank} of its result"
            )
        made.append(own.pop() if own else ())
    return tuple(made)


@rule(BinaryPointwise, Select)
def _together(step: Step) -> list[State]:
    mode = getattr(step.op, "auto_broadcast", AutoBroadcast.NUMPY)
    if mode is AutoBroadcast.PDPD and len({len(each.labels) for each in step.inputs}) > 1:
        raise UnprovableError("it broadcasts as PaddlePaddle does")
    return data(broadcast([each.labels for each in step.inputs]))


@rule(UnaryPointwise, FakeQuantize, LinearQuantization, BatchNormInference)
def _alone(step: Step) -> list[State]:
    if not isinstance(step.op, ConvertLike):
        step.only_first()
    return data(step.inputs[0].labels)


@rule(BatchNormInferenceV1)
def _alone_behind_parameters(step: Step) -> list[State]:
    for index in (0, 1, 3, 4):
        step.only_first([index])
    return data(step.inputs[2].labels)


@rule(Result)
def _result(step: Step) -> list[State]:
    return data(step.inputs[0].labels)
