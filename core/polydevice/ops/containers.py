"""ONNX's sequences and optionals: values that hold tensors; and sequences of maps.

At run time a sequence is a 1-D NumPy array of objects, its tensors; an optional is one with a
single item or none. Their descriptors have `kind` "sequence", "optional" or "optional_sequence",
and type and shape describe the tensors inside. A sequence of maps holds dictionaries, and its kind
is the type of their keys: "number_maps" or "text_maps".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import EVERYWHERE, Op, attribute, operation
from polydevice.shape import Dim, DimLike, Shape, normalize_axis, union
from polydevice.tensor import TensorDesc


def _expect(op: Op, desc: TensorDesc, *kinds: str) -> None:
    if desc.kind not in kinds:
        raise ElementTypeError(f"{op.type} needs a {' or '.join(kinds)}, not {desc}")


def _index() -> TensorDesc:
    return TensorDesc(ElementType.i64, Shape())


@operation("SequenceConstruct", domain="onnx")
class SequenceConstruct(Op):
    """A sequence of the inputs.

    Inputs:  x0, x1, …  tensors of one type
    Outputs: y          sequence of them
    Raises:  ElementTypeError when their types differ
    Source:  ONNX SequenceConstruct-11
    """

    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what covers all inputs."""
        first = inputs[0]
        shape = first.shape
        for desc in inputs:
            _expect(self, desc, "tensor")
            if desc.element_type is not first.element_type:
                raise ElementTypeError(f"{self.type} has inputs {first} and {desc}")
            shape = union(shape, desc.shape)
        return [TensorDesc(first.element_type, shape, kind="sequence")]


@operation("SequenceEmpty", domain="onnx")
class SequenceEmpty(Op):
    """A sequence without tensors.

    Outputs: y  sequence of `element_type`
    Source:  ONNX SequenceEmpty-11
    """

    element_type: ElementType = attribute(default=ElementType.f32, ir="")
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return a sequence of tensors of unknown rank."""
        return [TensorDesc(self.element_type, kind="sequence")]


@operation("SequenceInsert", domain="onnx", onnx="SequenceInsert")
class SequenceInsert(Op):
    """The sequence with a tensor put before a position, or at the end.

    Inputs:  x         sequence
             tensor    of its type
             position  optional scalar integer in [-n, n]
    Outputs: y         sequence
    Source:  ONNX SequenceInsert-11
    """

    numbers_at = (2,)
    integers_at = (2,)
    strings_at = EVERYWHERE
    containers_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what covers the sequence and the tensor."""
        x, tensor = inputs[:2]
        _expect(self, x, "sequence")
        _expect(self, tensor, "tensor")
        return [x.with_shape(union(x.shape, tensor.shape))]


@operation("SequenceErase", domain="onnx", onnx="SequenceErase")
class SequenceErase(Op):
    """The sequence without the tensor at a position, or the last one.

    Inputs:  x         sequence
             position  optional scalar integer in [-n, n - 1]
    Outputs: y         sequence
    Source:  ONNX SequenceErase-11
    """

    numbers_at = (1,)
    integers_at = (1,)
    strings_at = EVERYWHERE
    containers_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the sequence."""
        _expect(self, inputs[0], "sequence")
        return [inputs[0]]


@operation("SequenceAt", domain="onnx", onnx="SequenceAt")
class SequenceAt(Op):
    """The tensor at a position.

    Inputs:  x         sequence
             position  scalar integer in [-n, n - 1]
    Outputs: y         tensor
    Source:  ONNX SequenceAt-11
    """

    numbers_at = (1,)
    integers_at = (1,)
    strings_at = EVERYWHERE
    containers_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return what all tensors of the sequence have in common."""
        _expect(self, inputs[0], "sequence")
        return [replace(inputs[0], kind="tensor")]


@operation("SequenceLength", domain="onnx", onnx="SequenceLength")
class SequenceLength(Op):
    """The number of tensors.

    Inputs:  x  sequence
    Outputs: y  scalar i64
    Source:  ONNX SequenceLength-11
    """

    strings_at = EVERYWHERE
    containers_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return a scalar."""
        _expect(self, inputs[0], "sequence")
        return [_index()]


@operation("SplitToSequence", domain="onnx", onnx="SplitToSequence")
class SplitToSequence(Op):
    """Cut a tensor along an axis into a sequence.

    Inputs:  x      rank of 1 or more
             split  optional: length of each part (scalar; the last may be shorter) or lengths of
                    the parts (1-D); without it every part has length 1
    Outputs: y      sequence; without `split` and `keepdims` its tensors lack the axis
    Source:  ONNX SplitToSequence-24
    """

    axis: int = attribute(default=0, ir="", onnx="axis")
    keepdims: bool = attribute(default=True, ir="", onnx="keepdims")
    strings_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Free the size at the axis, or remove it."""
        x = inputs[0]
        if len(inputs) > 1:
            self._check_split(inputs[1])
        if x.shape is None:
            return [TensorDesc(x.element_type, kind="sequence")]
        if not len(x.shape):
            raise ShapeError(f"{self.type}: x has no axes; there is nothing to cut")
        axis = normalize_axis(self.axis, len(x.shape))
        middle: list[DimLike] = [Dim()]
        if len(inputs) == 1:
            middle = [1] if self.keepdims else []
        sizes = [*x.shape[:axis], *middle, *x.shape[axis + 1 :]]
        return [TensorDesc(x.element_type, Shape(sizes), kind="sequence")]

    def _check_split(self, split: TensorDesc) -> None:
        if not split.element_type.is_integer:
            raise ElementTypeError(f"{self.type}: lengths are {split.element_type}, not integers")
        if split.rank not in (None, 0, 1):
            raise ShapeError(f"{self.type}: lengths have the shape {split.shape}; rank is 0 or 1")


@operation("ConcatFromSequence", domain="onnx", onnx="ConcatFromSequence")
class ConcatFromSequence(Op):
    """Join the tensors of a sequence along an axis, which may be a new one.

    Inputs:  x  sequence
    Outputs: y  tensor
    Source:  ONNX ConcatFromSequence-11
    """

    axis: int = attribute(ir="", onnx="axis")
    new_axis: bool = attribute(default=False, ir="", onnx="new_axis")
    strings_at = EVERYWHERE
    containers_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Free the size at the axis."""
        x = inputs[0]
        _expect(self, x, "sequence")
        if x.shape is None:
            return [TensorDesc(x.element_type)]
        rank = len(x.shape) + self.new_axis
        axis = normalize_axis(self.axis, rank)
        behind = axis if self.new_axis else axis + 1
        sizes = [*x.shape[:axis], Dim(), *x.shape[behind:]]
        return [TensorDesc(x.element_type, Shape(sizes))]


@operation("Optional", domain="onnx")
class OptionalConstruct(Op):
    """An optional that holds the input, or nothing.

    Inputs:  x  optional: tensor or sequence
    Outputs: y  optional of it, or of what `item` describes
    Source:  ONNX Optional-15
    """

    item: TensorDesc | None = attribute(default=None, ir="")
    strings_at = EVERYWHERE
    containers_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return an optional of the input's type."""
        item = inputs[0] if inputs else self.item
        if item is None:
            raise ElementTypeError("Optional needs an input or a type")
        _expect(self, item, "tensor", "sequence")
        kind = "optional" if item.kind == "tensor" else "optional_sequence"
        return [TensorDesc(item.element_type, item.shape, kind=kind)]


@operation("OptionalHasElement", domain="onnx")
class OptionalHasElement(Op):
    """Whether an optional holds something; a tensor or sequence always does.

    Inputs:  x  optional, tensor or sequence; left out, the answer is no
    Outputs: y  scalar boolean
    Source:  ONNX OptionalHasElement-18
    """

    strings_at = EVERYWHERE
    containers_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return a scalar."""
        return [TensorDesc(ElementType.boolean, Shape())]


@operation("OptionalGetElement", domain="onnx")
class OptionalGetElement(Op):
    """What an optional holds.

    Inputs:  x  optional
    Outputs: y  tensor or sequence
    Source:  ONNX OptionalGetElement-18
    """

    strings_at = EVERYWHERE
    containers_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the type inside."""
        (x,) = inputs
        _expect(self, x, "optional", "optional_sequence")
        return [replace(x, kind="tensor" if x.kind == "optional" else "sequence")]


@operation("ZipMap", domain="onnx")
class ZipMap(Op):
    """A map from label to score for each row.

    Inputs:  x  scores, f32 [rows, labels] or [labels]
    Outputs: y  sequence of maps, one for each row, in the order of their labels
    Raises:  ElementTypeError for scores that are not f32, ShapeError for another number of them
    Source:  ai.onnx.ml ZipMap-1
    """

    labels: tuple[int, ...] | tuple[str, ...] = attribute(ir="")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return maps of numbers."""
        (x,) = inputs
        _expect(self, x, "tensor")
        if x.element_type not in (ElementType.f32, ElementType.dynamic):
            raise ElementTypeError(f"{self.type}: scores are {x.element_type}, not f32")
        if x.shape is not None and len(x.shape) not in (1, 2):
            raise ShapeError(f"{self.type}: scores have the shape {x.shape}; rank is 1 or 2")
        if x.shape is not None and isinstance(x.shape[-1], int) and x.shape[-1] != self.size:
            raise ShapeError(f"{self.type}: {x.shape[-1]} scores for {self.size} labels")
        texts = isinstance(self.labels[0], str)
        return [TensorDesc(ElementType.f32, Shape(), kind="text_maps" if texts else "number_maps")]

    @property
    def size(self) -> int:
        """How many labels there are."""
        return len(self.labels)
