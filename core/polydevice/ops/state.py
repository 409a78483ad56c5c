"""Variables that keep their value from one inference to the next."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import EVERYWHERE, Op, attribute, operation
from polydevice.shape import Shape, merge
from polydevice.tensor import TensorDesc


@operation("ReadValue", since=(3, 6))
class ReadValue(Op):
    """The value of a variable; before its first assignment the input, or zeros without one.

    The variable may have another shape than its initial value, within `variable_shape`.

    Inputs:  initial  optional (opset6), the value that the variable starts with
    Outputs: y        the variable's value
    Raises:  ShapeError or ElementTypeError if the initial value does not fit the variable
    Source:  OpenVINO opset6 ReadValue
    """

    is_stateful = True

    variable_id: str = attribute()
    variable_type: ElementType | None = attribute(default=None)
    variable_shape: Shape | None = attribute(default=None)
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the variable's type and shape; what is not declared comes from the input."""
        kind = self.variable_type
        if kind is ElementType.dynamic:
            kind = None
        if not inputs:
            if kind is None:
                raise ElementTypeError(
                    f"ReadValue of {self.variable_id!r} has neither an input nor a variable_type"
                )
            return [TensorDesc(kind, self.variable_shape)]
        (initial,) = inputs
        if kind not in (None, initial.element_type):
            raise ElementTypeError(
                f"ReadValue: variable {self.variable_id!r} is {kind}, its initial value "
                f"{initial.element_type}"
            )
        if self.variable_shape is None:
            return [initial.without_value()]
        try:
            merge(self.variable_shape, initial.shape)
        except ShapeError as error:
            raise ShapeError(
                f"ReadValue: the initial value of variable {self.variable_id!r} does not fit: "
                f"{error}"
            ) from None
        return [TensorDesc(initial.element_type, self.variable_shape)]


@operation("Assign", since=(3, 6))
class Assign(Op):
    """Gives a variable a new value, which the next inference reads.

    Inputs:  x  the new value
    Outputs: x
    Source:  OpenVINO opset6 Assign
    """

    has_side_effect = True
    is_stateful = True

    variable_id: str = attribute()
    strings_at = EVERYWHERE

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the input."""
        (x,) = inputs
        return [x.without_value()]
