"""Reverse, ReverseSequence and Roll: another order along axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Self

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import merge_dim, normalize_axis
from polydevice.tensor import TensorDesc


@operation("Reverse")
class Reverse(Op):
    """Reverse the order of elements along axes.

    Inputs:  x     any shape and type
             axes  mode "index": [number of axes], integer; mode "mask": [rank of x], boolean
    Outputs: y     shape and type of x
    Raises:  ShapeError for an unknown mode or axis
    Source:  OpenVINO opset1 Reverse
    """

    mode: str = attribute(default="index")
    shape_arithmetic = True
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, axes = inputs
        if self.mode not in ("index", "mask"):
            raise ShapeError(f"mode {self.mode!r} is not index or mask")
        if x.shape is not None and axes.static_ints is not None:
            self.axes(axes.static_ints, len(x.shape))
        return [x.without_value()]

    def axes(self, values: Sequence[int], rank: int) -> list[int]:
        """Return the axes that the second input names; raises ShapeError for a bad one."""
        if self.mode == "index":
            return sorted({normalize_axis(axis, rank) for axis in values})
        if len(values) != rank:
            raise ShapeError(f"a mask of {len(values)} elements does not fit {rank} axes")
        return [axis for axis, on in enumerate(values) if on]


@operation("ReverseSequence", onnx="ReverseSequence")
class ReverseSequence(Op):
    """Reverse the first lengths[i] elements of each sequence i of a batch.

    Inputs:  x        any shape and type
             lengths  [batch], integer or floating point
    Outputs: y        shape and type of x
    Raises:  ShapeError when the axes are the same or the batch sizes differ, ElementTypeError for
             booleans as lengths
    Source:  OpenVINO opset1 ReverseSequence; ONNX ReverseSequence-10
    """

    batch_axis: int = attribute(default=0)
    seq_axis: int = attribute(default=1)
    strings_at = (0,)

    @classmethod
    def from_onnx(cls, attributes: Mapping[str, Any], opset: int) -> Self:
        """Make it; ONNX's defaults are the other way round."""
        return cls(
            batch_axis=int(attributes.get("batch_axis", 1)),
            seq_axis=int(attributes.get("time_axis", 0)),
        )

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, lengths = inputs
        if lengths.element_type is ElementType.boolean:
            raise ElementTypeError("lengths are booleans; they must be numbers")
        if x.shape is not None:
            batch = normalize_axis(self.batch_axis, len(x.shape), "batch_axis")
            if batch == normalize_axis(self.seq_axis, len(x.shape), "seq_axis"):
                raise ShapeError(f"batch_axis and seq_axis are both {batch}")
            if lengths.shape is not None:
                if len(lengths.shape) != 1:
                    raise ShapeError(f"lengths {lengths.shape} must have one axis")
                merge_dim(x.shape[batch], lengths.shape[0])
        return [x.without_value()]


@operation("Roll", since=7)
class Roll(Op):
    """Shift elements along axes; what leaves at one end enters at the other.

    Inputs:  x      any shape and type
             shift  scalar or 1-D integer
             axes   scalar or 1-D integer; an axis may come again, shifts then add up
    Outputs: y      shape and type of x
    Raises:  ShapeError for an axis outside x
    Source:  OpenVINO opset7 Roll
    """

    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, shift, axes = inputs
        if x.rank == 0:
            raise ShapeError("a scalar has no axis to roll along")
        known = [d.shape.elements for d in (shift, axes) if d.shape is not None and d.is_static]
        if len(known) == 2 and known[0] not in (1, known[1]):
            raise ShapeError(f"shift {shift.shape} is not one number, and not one for each axis")
        if x.shape is not None:
            for axis in axes.static_ints or ():
                normalize_axis(axis, len(x.shape))
        return [x.without_value()]
