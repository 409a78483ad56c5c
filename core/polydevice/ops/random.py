"""Random numbers that depend on seeds alone, in the sequence of OpenVINO's CPU plugin."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.pointwise import common_type
from polydevice.shape import Dim, DimLike, Shape, bounds
from polydevice.tensor import TensorDesc


class Alignment(enum.Enum):
    """Whose sequence is followed: TensorFlow's Philox 4x32-10 or PyTorch's Mersenne twister."""

    TENSORFLOW = "tensorflow"
    PYTORCH = "pytorch"


@operation("RandomUniform", since=8)
class RandomUniform(Op):
    """Numbers drawn evenly from [low, high).

    The same seeds give the same numbers in every inference; two seeds of 0 give new ones.

    Inputs:  shape  integers, 1-D
             low    one element, `output_type`
             high   one element, `output_type`
    Outputs: y      of that shape, `output_type`
    Raises:  ElementTypeError if the types differ or are not numeric
    Source:  OpenVINO opset8 RandomUniform
    """

    numbers_at = (1, 2)

    is_stateful = True
    sized_by_values = True

    output_type: ElementType = attribute()
    global_seed: int = attribute(default=0)
    op_seed: int = attribute(default=0)
    alignment: Alignment = attribute(default=Alignment.TENSORFLOW)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape that is asked for."""
        shape, low, high = inputs
        kind = common_type(self, low, high)
        if kind not in (self.output_type, ElementType.dynamic):
            raise ElementTypeError(
                f"RandomUniform: limits are {kind}, output_type is {self.output_type}; "
                "they must be the same"
            )
        if self.output_type not in _RANDOM_TYPES:
            raise ElementTypeError(
                f"RandomUniform: output_type {self.output_type} must be one of "
                f"{', '.join(map(str, _RANDOM_TYPES))}"
            )
        return [TensorDesc(self.output_type, _shape_from(shape))]


_RANDOM_TYPES = (
    ElementType.f32, ElementType.f16, ElementType.bf16, ElementType.f64, ElementType.i32,
    ElementType.i64,
)  # fmt: skip


def _shape_from(desc: TensorDesc) -> Shape | None:
    sizes = desc.sizes
    if sizes is not None:
        return Shape(sizes)
    if desc.shape is None or not desc.shape or not isinstance(desc.shape[0], int):
        return None
    return Shape([None] * desc.shape[0])


@operation("Multinomial", since=13)
class Multinomial(Op):
    """Indices of classes, drawn with the given probabilities.

    Inputs:  probabilities  [N, classes], floating point, not negative (any with `log_probs`)
             samples        one integer, how many to draw
    Outputs: y              [N, samples], `convert_type`
    Raises:  ShapeError if more samples than classes are drawn without replacement
    Source:  OpenVINO opset13 Multinomial
    """

    numbers_at = (1,)

    is_stateful = True
    sized_by_values = True

    convert_type: ElementType = attribute()
    with_replacement: bool = attribute()
    log_probs: bool = attribute()
    global_seed: int = attribute(default=0)
    op_seed: int = attribute(default=0)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [N, samples]."""
        probabilities, samples = inputs
        if self.convert_type not in (ElementType.i32, ElementType.i64):
            raise ElementTypeError(
                f"Multinomial: convert_type {self.convert_type} must be i32 or i64"
            )
        known = samples.static_ints
        count: DimLike = Dim() if known is None else known[0]
        batch: DimLike = Dim()
        if probabilities.shape is not None:
            if len(probabilities.shape) != 2:
                raise ShapeError(f"Multinomial: {probabilities.shape} must be [N, classes]")
            batch, classes = probabilities.shape
            most = bounds(classes)[1]
            exceeds = most is not None and bounds(count)[0] > most
            if exceeds and not self.with_replacement:
                raise ShapeError(
                    f"Multinomial: {count} samples of {classes} classes need with_replacement"
                )
        if isinstance(count, int) and count < 0:
            raise ShapeError(f"Multinomial: {count} samples cannot be drawn")
        return [TensorDesc(self.convert_type, Shape([batch, count]))]
