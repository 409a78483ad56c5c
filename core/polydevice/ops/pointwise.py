"""What pointwise operations share: UnaryPointwise, BinaryPointwise and their shape rules.

Holds no operation itself; the families are in activation, arithmetic, bitwise, comparison,
logical and math.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import ClassVar

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import Op, attribute
from polydevice.shape import DimLike, Shape, broadcast, merge, product
from polydevice.tensor import TensorDesc


class AutoBroadcast(enum.Enum):
    """How two shapes are brought together before a pointwise operation.

    NUMPY aligns shapes at the last axis and stretches sizes of 1. PDPD stretches only the second
    input, whose first axis is aligned with the first input's `broadcast_axis`. NONE (and its old
    name EXPLICIT) requires equal shapes.
    """

    NONE = "none"
    EXPLICIT = "explicit"
    NUMPY = "numpy"
    PDPD = "pdpd"


class UnaryPointwise(Op):
    """A pointwise function of one input that keeps its shape and type."""

    takes_booleans = False
    inputs_taken: ClassVar[tuple[int, int]] = (1, 1)
    """Fewest and most inputs; those behind the first are numbers that steer the function."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of the first input."""
        self.check_count(inputs, *self.inputs_taken)
        for place, desc in enumerate(inputs[1:], 1):
            if desc.shape is not None and desc.is_static and product(desc.shape) != 1:
                raise ShapeError(f"input {place} has the shape {desc.shape}; it is one number")
        return [inputs[0].without_value()]


@dataclass(frozen=True)
class BinaryPointwise(Op):
    """A pointwise function of two inputs of one type, which are broadcast together.

    Raises: ElementTypeError when the types differ; ShapeError when the shapes do not broadcast
    """

    auto_broadcast: AutoBroadcast = attribute(default=AutoBroadcast.NUMPY)
    broadcast_axis: int = attribute(default=-1, ir="axis")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the broadcast shape and the inputs' type."""
        a, b = inputs
        element_type = common_type(self, a, b)
        shape = broadcast_shape(a.shape, b.shape, self.auto_broadcast, self.broadcast_axis)
        return [TensorDesc(element_type, shape)]

    def to_ir(self) -> dict[str, str]:
        """Leave the axis out where it has no meaning."""
        texts = super().to_ir()
        if self.auto_broadcast is not AutoBroadcast.PDPD:
            del texts["axis"]
        return texts


def common_type(op: Op, a: TensorDesc, b: TensorDesc) -> ElementType:
    """Return the element type of both; raises ElementTypeError when they differ."""
    if ElementType.dynamic in (a.element_type, b.element_type):
        return b.element_type if a.element_type is ElementType.dynamic else a.element_type
    if a.element_type is not b.element_type:
        raise ElementTypeError(
            f"{op.type} needs inputs of one element type, not {a.element_type} and "
            f"{b.element_type}; convert one of them"
        )
    return a.element_type


def broadcast_shape(
    a: Shape | None, b: Shape | None, mode: AutoBroadcast, axis: int = -1
) -> Shape | None:
    """Return the shape of a pointwise result; raises ShapeError when the shapes do not fit."""
    if mode is AutoBroadcast.NUMPY:
        return broadcast(a, b)
    if mode is AutoBroadcast.PDPD:
        if a is None or b is None:
            return a
        return broadcast_onto(a, pdpd_aligned(a, b, axis))
    return merge(a, b)


def pdpd_aligned(a: Shape, b: Shape, axis: int) -> Shape:
    """Return `b` with ones around it, so that its first axis lies at `axis` of `a`.

    Trailing sizes of 1 in `b` are dropped first, as PaddlePaddle does.
    """
    if axis < -1 or axis > len(a):
        raise ShapeError(f"broadcast axis {axis} is outside [-1, {len(a)}] for shape {a}")
    start = len(a) - len(b) if axis == -1 else axis
    sizes: list[DimLike] = list(b)
    while sizes and sizes[-1] == 1 and start + len(sizes) > len(a):
        sizes.pop()
    if start < 0 or start + len(sizes) > len(a):
        raise ShapeError(f"shape {b} does not fit into {a} at axis {start}")
    return Shape([1] * start + sizes + [1] * (len(a) - start - len(sizes)))


def broadcast_onto(target: Shape, other: Shape) -> Shape:
    """Return `target`; raises ShapeError when `other` does not stretch to it."""
    for size, wanted in zip(other, target, strict=True):
        if isinstance(size, int) and isinstance(wanted, int) and size not in (1, wanted):
            raise ShapeError(f"shape {other} cannot be broadcast to {target}")
    return target
