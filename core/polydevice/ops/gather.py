"""Gather, GatherElements, GatherND and GatherTree: elements taken by index."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.sizes import shared_sizes
from polydevice.shape import DimLike, Shape, bounds, merge, merge_dim, normalize_axis, product
from polydevice.tensor import TensorDesc


@operation("Gather", since=(1, 7, 8))
class Gather(Op):
    """Take slices of x along an axis: y[…, i, …] = x[…, indices[i], …].

    The first `batch_dims` axes of x and indices belong together. An index outside the axis gives
    zeros. A negative one counts from the end if `negative_indices`, which older opsets lack.

    Inputs:  x        any shape and type
             indices  any shape, integer
             axis     scalar integer, may be negative
    Outputs: y        type of x
    Raises:  ShapeError when the batch axes differ or axis lies among them
    Source:  OpenVINO opset1, opset7 and opset8 Gather; ONNX Gather-13
    """

    numbers_at = (2,)
    integers_at = (1, 2)

    batch_dims: int = attribute(default=0)
    negative_indices: bool = attribute(default=True, ir="", came_with=8)
    shape_arithmetic = True
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's sizes with the axis replaced by the sizes of indices."""
        x, indices, axis = inputs
        if x.rank == 0:
            raise ShapeError("a scalar has no axis to gather along")
        where = axis.static_ints
        if x.shape is None or indices.shape is None:
            return [x.with_shape(None)]
        batch = normalize_axis(self.batch_dims, len(indices.shape) + 1, "batch_dims")
        if self.batch_dims < 0:
            batch = self.batch_dims + len(indices.shape)
        if where is None:
            return [x.with_shape([None] * (len(x.shape) + len(indices.shape) - 1 - batch))]
        at = normalize_axis(where[0], len(x.shape))
        if at < batch:
            raise ShapeError(f"axis {at} lies among the {batch} batch axes")
        try:
            common = [
                merge_dim(a, b) for a, b in zip(x.shape[:batch], indices.shape[:batch], strict=True)
            ]
        except (ShapeError, ValueError):
            raise ShapeError(
                f"the first {batch} sizes of {x.shape} and {indices.shape} "
                "differ, but batch_dims pairs them"
            ) from None
        return [
            x.with_shape([*common, *x.shape[batch:at], *indices.shape[batch:], *x.shape[at + 1 :]])
        ]


@operation("GatherElements", since=6, onnx="GatherElements")
class GatherElements(Op):
    """Take single elements along an axis: y[i, j] = x[indices[i, j], j] for axis 0.

    Inputs:  x        any shape and type
             indices  x's rank; negative ones count from the end
    Outputs: y        shape of indices, type of x
    Raises:  ShapeError when the ranks differ
    Source:  OpenVINO opset6 GatherElements; ONNX GatherElements-13
    """

    axis: int = attribute(default=0, onnx="axis")
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of indices."""
        x, indices = inputs
        if x.shape is not None:
            axis = normalize_axis(self.axis, len(x.shape))
            if indices.shape is None:
                return [x.with_shape([None] * len(x.shape))]
            if len(x.shape) != len(indices.shape):
                raise ShapeError(f"indices {indices.shape} need the rank of {x.shape}")
            # Where no element is taken, none lies beyond.
            none = any(bounds(size)[0] == 0 for size in indices.shape)
            for i, (size, taken) in enumerate(zip(x.shape, indices.shape, strict=True)):
                if none or i == axis:
                    continue
                if isinstance(size, int) and isinstance(taken, int) and taken > size:
                    raise ShapeError(f"indices {indices.shape} reach beyond {x.shape} at axis {i}")
        return [x.with_shape(indices.shape)]


@operation("GatherND", since=(5, 8))
class GatherND(Op):
    """Take slices of x by coordinates: y[i] = x[indices[i, 0], indices[i, 1], …].

    The first `batch_dims` axes of x and indices belong together; opset5 flattens them into one
    axis of y (`flatten_batch`).

    Inputs:  x        any shape and type
             indices  any shape whose last size is the number of coordinates; integer
    Outputs: y        type of x
    Raises:  ShapeError when there are more coordinates than axes
    Source:  OpenVINO opset5 and opset8 GatherND; ONNX GatherND-13
    """

    batch_dims: int = attribute(default=0)
    flatten_batch: bool = attribute(default=False, ir="", came_with=8)
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the batch axes, the outer axes of indices and the rest of x's."""
        x, indices = inputs
        if x.shape is None or indices.shape is None or not isinstance(indices.shape[-1], int):
            return [x.with_shape(None)]
        batch, coordinates = self.batch_dims, indices.shape[-1]
        if batch < 0 or batch + coordinates > len(x.shape) or batch >= len(indices.shape):
            raise ShapeError(
                f"{coordinates} coordinates after {batch} batch axes do not fit "
                f"x {x.shape} and indices {indices.shape}"
            )
        try:
            common: list[DimLike] = [
                merge_dim(a, b) for a, b in zip(x.shape[:batch], indices.shape[:batch], strict=True)
            ]
        except ShapeError:
            raise ShapeError(
                f"the first {batch} sizes of {x.shape} and {indices.shape} "
                "differ, but batch_dims pairs them"
            ) from None
        if self.flatten_batch and batch > 1:
            common = [product(common)]
        return [x.with_shape([*common, *indices.shape[batch:-1], *x.shape[batch + coordinates :]])]


@operation("GatherTree")
class GatherTree(Op):
    """Trace beams of a beam search back from the last step to the first.

    Inputs:  step_ids      [steps, batch, beams], f32 or i32: token of each beam
             parent_ids    [steps, batch, beams]: the beam each one continues
             max_seq_len   [batch]
             end_token     scalar
    Outputs: final_ids     [steps, batch, beams], type of step_ids; end_token behind the end
    Raises:  ShapeError when the shapes differ
    Source:  OpenVINO opset1 GatherTree
    """

    numbers_at = (3,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the common shape of step_ids and parent_ids."""
        self.check_count(inputs, 4)
        steps, parents = inputs[:2]
        shape: Shape | None = merge(steps.shape, parents.shape)
        if shape is not None and len(shape) != 3:
            raise ShapeError(f"step_ids {shape} is not [steps, batch, beams]")
        batch = {} if shape is None else {"batch": shape[1]}
        shared_sizes({"max_seq_len": (inputs[2], ("batch",))}, batch)
        return [steps.with_shape(shape)]
