"""Concat: tensors joined along one axis."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import EVERYWHERE, Op, attribute, operation
from polydevice.shape import Dim, DimLike, merge_dim, normalize_axis
from polydevice.tensor import TensorDesc


@operation("Concat", onnx="Concat")
class Concat(Op):
    """Join tensors along `axis`.

    Inputs:  x0, x1, …  the same rank and type; sizes differ at `axis` only
    Outputs: y          their type
    Raises:  ShapeError when ranks or other sizes differ; ElementTypeError when types do
    Source:  OpenVINO opset1 Concat; ONNX Concat-13
    """

    axis: int = attribute(onnx="axis")
    shape_arithmetic = True
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the inputs' common sizes, and their sum at the axis."""
        if not inputs:
            raise ShapeError("Concat needs at least one input")
        first = inputs[0]
        for x in inputs:
            if x.element_type is not first.element_type:
                types = ", ".join(str(i.element_type) for i in inputs)
                raise ElementTypeError(f"inputs differ in element type: {types}")
        known = [x.shape for x in inputs if x.shape is not None]
        if not known:
            return [first.with_shape(None)]
        rank = len(known[0])
        if rank == 0:
            raise ShapeError("a scalar has no axis to join along: Unsqueeze gives it one")
        axis = normalize_axis(self.axis, rank)
        sizes: list[DimLike] = list(known[0])
        for shape in known[1:]:
            if len(shape) != rank:
                raise ShapeError(f"inputs differ in rank: {', '.join(map(str, known))}")
            try:
                sizes = [
                    s + t if i == axis else merge_dim(s, t)
                    for i, (s, t) in enumerate(zip(sizes, shape, strict=True))
                ]
            except ShapeError:
                text = ", ".join(map(str, known))
                raise ShapeError(
                    f"inputs differ in a size other than axis {axis}: {text}"
                ) from None
        if len(known) < len(inputs):
            sizes[axis] = sizes[axis] + Dim()
        return [first.with_shape(sizes)]
