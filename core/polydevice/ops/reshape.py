"""Reshape, Squeeze, Unsqueeze and ShapeOf: other shapes for the same elements, and the shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.errors import ShapeError
from polydevice.interval import IntLike, interval, limits
from polydevice.ops.op import EVERYWHERE, Op, attribute, operation
from polydevice.shape import Dim, DimLike, Shape, bounds, count_of, dim, normalize_axis, product
from polydevice.symbolic_size import array_of
from polydevice.tensor import TensorDesc


@operation("Reshape")
class Reshape(Op):
    """The same elements, in order, in another shape.

    One size of the pattern may be -1: it takes what the others leave. With `special_zero`, 0
    copies the input's size at the same position.

    Inputs:  x        any shape and type
             pattern  [rank of y], integer
    Outputs: y        type of x
    Raises:  ShapeError when the pattern does not hold as many elements as x
    Source:  OpenVINO opset1 Reshape; ONNX Reshape-21
    """

    integers_at = (1,)

    special_zero: bool = attribute(default=True)
    shape_arithmetic = True
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the pattern with 0 and -1 resolved as far as sizes are known."""
        x, pattern = inputs
        wanted = pattern.ints
        if wanted is None:
            length = count_of(pattern.shape)
            return [x.with_shape(None if length is None else [None] * length)]
        return [x.with_shape(self.target(x.shape, wanted))]

    def target(self, given: Sequence[DimLike] | None, wanted: Sequence[IntLike]) -> Shape:
        """Resolve 0 and -1 in the pattern `wanted` for an input of shape `given`.

        Sizes that are copied stand on both sides and are left out of the count of elements. So
        -1 has a meaning for empty inputs too: [0, 4, 2] by the pattern [0, -1] is [0, 8].

        Raises:
            ShapeError: when the sizes cannot hold the input's elements.
        """
        free = self._free(wanted)
        sizes: list[DimLike] = []
        others: list[DimLike] = []
        copied: dict[int, DimLike] = {}  # by places: equal sizes are not asked for each other
        for i, item in enumerate(wanted):
            if item == 0 and self.special_zero:
                copied[i] = _copied(given, i)
                sizes.append(copied[i])
                continue
            sizes.append(self._size(item, given, i, is_free=free is None))
            if i != free:
                others.append(sizes[i])
        rest = None if given is None else [s for i, s in enumerate(given) if i not in copied]
        message = f"{_text(given)} cannot be reshaped to {_text(wanted)}"
        if free is not None:
            sizes[free] = Dim() if rest is None else _divide(rest, others, message)
        elif rest is not None and all(limits(item)[0] >= 0 for item in wanted):
            total, target = product(rest), product(others)
            # Or there may be no elements.
            none = any(bounds(size)[0] == 0 for size in copied.values())
            known = isinstance(total, int) and isinstance(target, int)
            if known and total != target and not none:
                raise ShapeError(f"{message}: {total} elements are not {target}")
        return Shape(sizes)

    def _free(self, wanted: Sequence[IntLike]) -> int | None:
        """Return the place of -1; raises ShapeError for a pattern that is none."""
        if any(isinstance(item, int) and item < -1 for item in wanted):
            raise ShapeError(f"the pattern {list(wanted)} has a size below -1")
        free = [i for i, item in enumerate(wanted) if item == -1]
        if len(free) > 1:
            raise ShapeError(f"the pattern {list(wanted)} has more than one -1")
        return free[0] if free else None

    def _size(
        self, item: IntLike, given: Sequence[DimLike] | None, place: int, is_free: bool
    ) -> DimLike:
        """Return the sizes that an element of the pattern may stand for.

        One that is not known may turn out as 0 and copy a size, or as -1 where none is yet.
        """
        if isinstance(item, int):
            return item
        low = limits(item)[0]
        if low < 0 and is_free:
            return Dim()
        if low <= 0 and self.special_zero and given is not None and place < len(given):
            most, high = bounds(given[place])[1], item.max
            return dim(0, None if high is None or most is None else max(high, most))
        return item.size


def _copied(given: Sequence[DimLike] | None, place: int) -> DimLike:
    if given is None:
        return Dim()
    if place >= len(given):
        raise ShapeError(
            f"0 at position {place} of the pattern copies a size that {_text(given)} does not have"
        )
    return given[place]


def _text(sizes: Sequence[DimLike | IntLike] | None) -> str:
    return "?" if sizes is None else "[" + ",".join(str(size) for size in sizes) + "]"


def _divide(total: Sequence[DimLike], others: Sequence[DimLike], message: str) -> DimLike:
    """Return the size that -1 stands for: product of `total` over product of `others`."""
    whole, part = product(total), product(others)
    if isinstance(whole, int) and isinstance(part, int):
        if part == 0:
            if whole:
                raise ShapeError(message)
            return 0
        if whole % part:
            raise ShapeError(f"{message}: {whole} elements are not a multiple of {part}")
        return whole // part
    (low, high), (least, most) = bounds(whole), bounds(part)
    return dim(
        0 if most is None else -(-low // max(most, 1)),
        None if high is None else high // max(least, 1),
    )


@operation("Squeeze", since=(1, 15))
class Squeeze(Op):
    """Remove sizes of 1: those at `axes`, or all of them without axes. Other sizes stay.

    Inputs:  x     any shape and type
             axes  optional, scalar or 1-D integer, may be negative
    Outputs: y     type of x; of unknown rank while an unknown size decides it. A size that is
                   named in axes and not known yet counts as 1, unless `allow_axis_skip`.
    Raises:  ShapeError for an axis outside x's rank
    Source:  OpenVINO opset1 and opset15 Squeeze; ONNX Squeeze-21
    """

    integers_at = (1,)

    allow_axis_skip: bool = attribute(default=False)
    shape_arithmetic = True
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape without the removed sizes."""
        self.check_count(inputs, 1, 2)
        x = inputs[0]
        axes = inputs[1].static_ints if len(inputs) > 1 else []
        if x.shape is None or axes is None:
            return [x.with_shape(None)]
        removed = self.removed(x.shape, axes)
        if removed is None:
            return [x.with_shape(None)]
        return [x.with_shape([s for i, s in enumerate(x.shape) if i not in removed])]

    def removed(self, shape: Sequence[DimLike], axes: Sequence[int]) -> set[int] | None:
        """Return the axes to remove from `shape`; None while an unknown size decides it.

        Raises:
            ShapeError: for an axis outside the shape.
        """
        chosen = {normalize_axis(axis, len(shape)) for axis in axes} or set(range(len(shape)))
        result = set()
        for axis in chosen:
            low, high = bounds(shape[axis])
            if low > 1 or high == 0:
                continue
            if shape[axis] != 1 and (self.allow_axis_skip or not axes):
                return None
            if shape[axis] != 0:
                result.add(axis)
        return result


@operation("Unsqueeze")
class Unsqueeze(Op):
    """Insert sizes of 1 so that they stand at `axes` of the output.

    Inputs:  x     any shape and type
             axes  scalar or 1-D integer; positions in y, may be negative
    Outputs: y     type of x
    Raises:  ShapeError for a repeated axis or one outside y's rank
    Source:  OpenVINO opset1 Unsqueeze; ONNX Unsqueeze-21
    """

    integers_at = (1,)
    shape_arithmetic = True
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape with the inserted ones."""
        x, axes = inputs
        if x.shape is None:
            return [x.with_shape(None)]
        positions = axes.static_ints
        if positions is None:
            extra = count_of(axes.shape)
            return [x.with_shape(None if extra is None else [None] * (len(x.shape) + extra))]
        return [x.with_shape(unsqueezed(x.shape, positions))]


def unsqueezed(shape: Sequence[DimLike], axes: Sequence[int]) -> list[DimLike]:
    """Return `shape` with ones inserted at `axes`; raises ShapeError for bad axes."""
    rank = len(shape) + len(axes)
    places = {normalize_axis(axis, rank) for axis in axes}
    if len(places) != len(axes):
        raise ShapeError(f"axes {list(axes)} name a position twice")
    rest = iter(shape)
    return [1 if i in places else next(rest) for i in range(rank)]


@operation("ShapeOf", since=(1, 3))
class ShapeOf(Op):
    """The shape of the input, as a tensor.

    Inputs:  x  any shape and type
    Outputs: y  [rank of x], `output_type` (opset1: i64)
    Source:  OpenVINO opset1 and opset3 ShapeOf; ONNX Shape-1
    """

    output_type: ElementType = attribute(default=ElementType.i64)
    shape_arithmetic = True
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the sizes as the known value, when the rank is known."""
        (x,) = inputs
        if x.shape is None:
            return [TensorDesc(self.output_type, Shape([Dim()]))]
        return [
            TensorDesc(
                self.output_type, Shape([len(x.shape)]), shape_value(x.shape, self.output_type)
            )
        ]


def shape_value(shape: Shape, element_type: ElementType) -> Array:
    """Return a shape as an array: of `element_type` when static, else of ``int`` and `Interval`."""
    if shape.is_static:
        return array_of(shape.static, element_type.dtype)
    value = np.empty(len(shape), object)
    value[:] = [interval(size) for size in shape]
    return value
