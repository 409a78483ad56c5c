"""Conversions between element types; all are pointwise."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError
from polydevice.ops.op import EVERYWHERE, Op, attribute, operation
from polydevice.ops.pointwise import UnaryPointwise
from polydevice.tensor import TensorDesc


@operation("Convert")
class Convert(UnaryPointwise):
    """X in another element type.

    Floats become integers by truncation, numbers become boolean by x != 0; an integer that does
    not fit keeps its low bits. A narrow float that would overflow becomes the largest number,
    or without `saturate` infinity or NaN. f8e8m0, which has powers of two only, rounds up unless
    `rounding` says "down" or "nearest".

    Inputs:  x  any shape and type
    Outputs: y  shape of x, `destination_type`
    Source:  OpenVINO opset1 Convert; ONNX Cast-25 (`saturate`, `rounding`)
    """

    takes_booleans = True

    shape_arithmetic = True

    destination_type: ElementType = attribute()
    saturate: bool = attribute(default=True, ir="")
    rounding: str = attribute(default="up", ir="")
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x and the new type."""
        return [inputs[0].with_type(self.destination_type)]


@operation("ConvertLike", onnx="CastLike")
class ConvertLike(UnaryPointwise):
    """X in the element type of another input, as Convert does it.

    Inputs:  x     any shape and type
             like  any shape; only its type is used
    Outputs: y     shape of x, type of like
    Source:  OpenVINO opset1 ConvertLike; ONNX CastLike-15
    """

    takes_booleans = True

    shape_arithmetic = True
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x and the type of like."""
        x, like = inputs
        return [x.with_type(like.element_type)]


@operation("ConvertPromoteTypes", since=14)
class ConvertPromoteTypes(Op):
    """Two inputs in the one type that both promote to.

    Of two integers the wider type, signed when their signs differ (`promote_unsafe` allows what
    loses range); of a float and an integer the float; of two floats the wider. Element type
    `u64_integer_promotion_target` serves u64 with a signed integer.

    Inputs:  a, b  any shapes, numeric or boolean
    Outputs: a, b  their shapes, the promoted type
    Raises:  ElementTypeError for a promotion that loses range, unless `promote_unsafe`
    Source:  OpenVINO opset14 ConvertPromoteTypes
    """

    promote_unsafe: bool = attribute(default=False)
    pytorch_scalar_promotion: bool = attribute(default=False)
    u64_integer_promotion_target: ElementType = attribute(default=ElementType.f32)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return both shapes with the promoted type."""
        a, b = inputs
        kind = self.promoted(a, b)
        return [a.with_type(kind), b.with_type(kind)]

    def promoted(self, a: TensorDesc, b: TensorDesc) -> ElementType:
        """Return the type that both inputs are converted to."""
        s, t = a.element_type, b.element_type
        if ElementType.dynamic in (s, t) or s is t:
            return t if s is ElementType.dynamic else s
        if self.pytorch_scalar_promotion:
            scalar = self._scalar_promotion(a, b)
            if scalar is not None:
                return scalar
        return self._by_type(s, t)

    def _scalar_promotion(self, a: TensorDesc, b: TensorDesc) -> ElementType | None:
        """A scalar of the same or a lower category takes the tensor's type, as in PyTorch."""
        if a.rank is None or b.rank is None or (a.rank == 0) == (b.rank == 0):
            return None
        scalar, tensor = (a, b) if a.rank == 0 else (b, a)
        s, t = scalar.element_type, tensor.element_type
        if _category(s) > _category(t):
            return None
        if not self.promote_unsafe and _category(s) == _category(t) and not _fits(s, t):
            raise ElementTypeError(
                f"ConvertPromoteTypes: {s} does not fit {t}; set promote_unsafe to allow it"
            )
        return t

    def _by_type(self, s: ElementType, t: ElementType) -> ElementType:
        if _category(s) < _category(t):
            s, t = t, s
        if _category(s) != _category(t):  # s is of the higher category
            if s.is_float and t.is_integer and not self.promote_unsafe and t.bits > s.bits:
                raise ElementTypeError(
                    f"ConvertPromoteTypes: {t} loses precision in {s}; set promote_unsafe"
                )
            return s
        if s.is_float:
            if s.bits == t.bits:  # f16 with bf16, or two float8 types
                return ElementType.f32 if s.bits == 16 else ElementType.f16
            return s if s.bits > t.bits else t
        if s.is_signed == t.is_signed:
            return s if s.bits >= t.bits else t
        signed, unsigned = (s, t) if s.is_signed else (t, s)
        if unsigned is ElementType.u64:
            if not self.promote_unsafe:
                raise ElementTypeError(
                    f"ConvertPromoteTypes: no integer type holds {s} and {t}; set promote_unsafe"
                )
            return self.u64_integer_promotion_target
        if signed.bits > unsigned.bits:
            return signed
        return ElementType.parse(f"i{unsigned.bits * 2}")


def _category(kind: ElementType) -> int:
    """Boolean, integer, float, complex: 0 to 3."""
    if kind is ElementType.boolean:
        return 0
    return 2 if kind.is_float else 1 if kind.is_integer else 3


def _fits(kind: ElementType, target: ElementType) -> bool:
    """Whether a type of the same category holds every value of `kind`."""
    if kind.is_signed == target.is_signed:
        return kind.bits <= target.bits
    return target.is_signed and target.bits > kind.bits


@operation("BitCast", domain="onnx")
class BitCast(UnaryPointwise):
    """The same bits read as another element type of the same width.

    Inputs:  x  any shape, numeric or boolean
    Outputs: y  shape of x, `destination_type`
    Raises:  ElementTypeError when the widths differ
    Source:  ONNX BitCast-26
    """

    takes_booleans = True

    destination_type: ElementType = attribute(ir="")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x and the new type."""
        (x,) = inputs
        kind = x.element_type
        if kind is not ElementType.dynamic and kind.bits != self.destination_type.bits:
            raise ElementTypeError(
                f"BitCast needs types of one width; {kind} has {kind.bits} bits, "
                f"{self.destination_type} {self.destination_type.bits}"
            )
        return [x.with_type(self.destination_type)]
