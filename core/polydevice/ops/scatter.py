"""ScatterUpdate, ScatterElementsUpdate and ScatterNDUpdate: elements put by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from typing_extensions import Self

from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Shape, merge, normalize_axis
from polydevice.tensor import TensorDesc


class Reduction(Enum):
    """How an update meets the element it is put on, and other updates of that element."""

    NONE = "none"
    """The update replaces the element; of several the last one stays."""
    SUM = "sum"
    SUB = "sub"
    PROD = "prod"
    MIN = "min"
    MAX = "max"
    MEAN = "mean"


class Scatter(Op):
    """A copy of x with some elements updated."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, updates = inputs[0], inputs[2]
        if x.element_type is not updates.element_type:
            raise ElementTypeError(
                f"updates of type {updates.element_type} cannot be put into {x.element_type}"
            )
        self.check(inputs)
        return [x.without_value()]

    def check(self, inputs: Sequence[TensorDesc]) -> None:
        """Raise ShapeError when the inputs' shapes do not fit together."""
        raise NotImplementedError


@operation("ScatterUpdate", since=3)
class ScatterUpdate(Scatter):
    """Replace slices along an axis: y[…, indices[i], …] = updates[…, i, …].

    Inputs:  x        any shape and type
             indices  any shape, integer; negative ones count from the end
             updates  x's shape with the axis replaced by the shape of indices
             axis     scalar integer
    Outputs: y        shape and type of x
    Raises:  ShapeError when updates has another shape
    Source:  OpenVINO opset3 ScatterUpdate
    """

    numbers_at = (3,)
    shape_arithmetic = True
    strings_at = (0, 2)

    def check(self, inputs: Sequence[TensorDesc]) -> None:
        """Compare the shape of updates with what x and indices need."""
        x, indices, updates, axis = inputs
        if x.shape is None or indices.shape is None or axis.static_ints is None:
            return
        at = normalize_axis(axis.static_ints[0], len(x.shape))
        needed = Shape([*x.shape[:at], *indices.shape, *x.shape[at + 1 :]])
        _agree(needed, updates, "updates")


@operation("ScatterElementsUpdate", since=(3, 12))
class ScatterElementsUpdate(Scatter):
    """Put single elements along an axis: y[indices[i, j], j] = updates[i, j] for axis 0.

    Inputs:  x        any shape and type
             indices  x's rank, integer; negative ones count from the end
             updates  shape of indices, type of x
             axis     scalar integer
    Outputs: y        shape and type of x
    Raises:  ShapeError when the shapes do not fit
    Source:  OpenVINO opset3 and opset12 ScatterElementsUpdate
    """

    numbers_at = (3,)

    reduction: Reduction = attribute(default=Reduction.NONE)
    use_init_val: bool = attribute(default=True)
    strings_at = (0, 2)

    @classmethod
    def from_ir(cls, attributes: Mapping[str, str], opset: int) -> Self:
        """Make it; opset3 has no attributes."""
        return super().from_ir(attributes if opset >= 12 else {}, opset)

    def check(self, inputs: Sequence[TensorDesc]) -> None:
        """Compare the shapes of indices and updates, and their rank with x's."""
        x, indices, updates, axis = inputs
        if indices.shape is not None:
            _agree(indices.shape, updates, "updates")
            if x.shape is not None and len(x.shape) != len(indices.shape):
                raise ShapeError(f"indices {indices.shape} need the rank of {x.shape}")
        if x.rank == 0:
            raise ShapeError("a scalar has no axis to put elements along")
        if x.shape is None or axis.static_ints is None:
            return
        at = normalize_axis(axis.static_ints[0], len(x.shape))
        for k, (size, most) in enumerate(zip(indices.shape or (), x.shape, strict=False)):
            if k != at and isinstance(size, int) and isinstance(most, int) and size > most:
                raise ShapeError(
                    f"indices {indices.shape} reach beyond {x.shape} at axis {k}; they may be "
                    f"longer than the data only along axis {at}, which they count places of"
                )


@operation("ScatterNDUpdate", since=(4, 15))
class ScatterNDUpdate(Scatter):
    """Put slices by coordinates: y[indices[i, 0], indices[i, 1], …] = updates[i].

    Inputs:  x        any shape and type
             indices  any shape whose last size is the number of coordinates; integer
             updates  the outer shape of indices, then the rest of x's; type of x
    Outputs: y        shape and type of x
    Raises:  ShapeError when the shapes do not fit
    Source:  OpenVINO opset4 and opset15 ScatterNDUpdate; ONNX ScatterND-18
    """

    reduction: Reduction = attribute(default=Reduction.NONE)
    shape_arithmetic = True
    strings_at = (0, 2)

    @classmethod
    def from_ir(cls, attributes: Mapping[str, str], opset: int) -> Self:
        """Make it; before opset15 there are no attributes."""
        return super().from_ir(attributes if opset >= 15 else {}, opset)

    def check(self, inputs: Sequence[TensorDesc]) -> None:
        """Compare the shape of updates with what x and indices need."""
        x, indices, updates = inputs
        if indices.rank == 0:
            raise ShapeError("indices are a scalar; their last axis holds the coordinates")
        if x.shape is None or not indices.shape or not isinstance(indices.shape[-1], int):
            return
        if indices.shape[-1] > len(x.shape):
            raise ShapeError(f"{indices.shape[-1]} coordinates are more than the axes of {x.shape}")
        needed = Shape([*indices.shape[:-1], *x.shape[indices.shape[-1] :]])
        if updates.shape is not None and len(updates.shape) == 0:
            return
        _agree(needed, updates, "updates")


def _agree(needed: Shape, given: TensorDesc, what: str) -> None:
    try:
        merge(needed, given.shape)
    except ShapeError:
        raise ShapeError(f"{what} of shape {given.shape} need the shape {needed}") from None
