"""Activation functions; all are pointwise."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from typing_extensions import Self

from polydevice.errors import ShapeError
from polydevice.ops.op import attribute, operation
from polydevice.ops.pointwise import UnaryPointwise, common_type
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc


@operation("ReLU", onnx="Relu")
class Relu(UnaryPointwise):
    """max(x, 0).

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 ReLU; ONNX Relu-14
    """


@operation("Sigmoid", onnx="Sigmoid")
class Sigmoid(UnaryPointwise):
    """1 / (1 + exp(-x)).

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Sigmoid; ONNX Sigmoid-13
    """


@operation("Clamp")
class Clamp(UnaryPointwise):
    """min(max(x, `min`), `max`); for integers `min` is rounded up and `max` down.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Raises:  ShapeError if `min` is above `max`
    Source:  OpenVINO opset1 Clamp
    """

    min: float = attribute()
    max: float = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        if not self.min <= self.max:
            raise ShapeError(f"Clamp: min {self.min} is above max {self.max}")
        return super().infer(inputs)


@operation("Elu")
class Elu(UnaryPointwise):
    """X where x >= 0, else alpha * (exp(x) - 1).

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Elu
    """

    alpha: float = attribute()


@operation("PReLU")
class PRelu(UnaryPointwise):
    """X where x >= 0, else slope * x.

    A slope of rank 1 and more than one element belongs to axis 1 of x (axis 0 where x has rank
    1); any other slope is broadcast to x as NumPy does.

    Inputs:  x      any shape, numeric
             slope  broadcastable to x, same type
    Outputs: y      shape and type of x
    Raises:  ShapeError if the slope does not fit x
    Source:  OpenVINO opset1 PReLU
    """

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return shape and type of x."""
        x, slope = inputs
        common_type(self, x, slope)
        if x.shape is not None and slope.shape is not None:
            aligned = slope_shape(x.shape, slope.shape)
            if len(aligned) > len(x.shape):
                raise ShapeError(f"PReLU: slope {slope.shape} has a higher rank than x {x.shape}")
            for size, wanted in zip(reversed(aligned), reversed(x.shape), strict=False):
                if isinstance(wanted, int) and isinstance(size, int) and size not in (1, wanted):
                    raise ShapeError(f"PReLU: slope {slope.shape} does not fit x {x.shape}")
        return [x.without_value()]


def slope_shape(x: Sequence[object], slope: Shape) -> Shape:
    """Return the shape that PReLU's slope has once it is aligned with x at the last axis."""
    if len(slope) == 1 and len(x) > 2 and slope[0] != 1:
        return Shape([slope[0]] + [1] * (len(x) - 2))
    return slope


@operation("Selu")
class Selu(UnaryPointwise):
    """Lambda * (x where x > 0, else alpha * (exp(x) - 1)).

    Inputs:  x       any shape, floating point
             alpha   one element, same type
             lambda  one element, same type
    Outputs: y       shape and type of x
    Source:  OpenVINO opset1 Selu
    """

    inputs_taken = (3, 3)
    floats_at = (0,)


@operation("HardSigmoid")
class HardSigmoid(UnaryPointwise):
    """max(0, min(1, alpha * x + beta)).

    Inputs:  x      any shape, floating point
             alpha  one element, same type
             beta   one element, same type
    Outputs: y      shape and type of x
    Source:  OpenVINO opset1 HardSigmoid
    """

    inputs_taken = (3, 3)


class GeluApproximation(enum.Enum):
    """How Gelu computes the normal distribution function."""

    ERF = "ERF"
    TANH = "TANH"


@operation("Gelu", since=(2, 7))
class Gelu(UnaryPointwise):
    """X * Phi(x), Phi being the distribution function of the standard normal distribution.

    ERF: 0.5 x (1 + erf(x / sqrt(2))); TANH: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).

    Inputs:  x  any shape, floating point
    Outputs: y  shape and type of x
    Source:  OpenVINO opset7 Gelu (opset2 knows ERF only)
    """

    approximation_mode: GeluApproximation = attribute(default=GeluApproximation.ERF)

    @classmethod
    def from_ir(cls, attributes: Mapping[str, str], opset: int) -> Self:
        """Opset2 has no attribute."""
        return super().from_ir(attributes if opset >= 7 else {}, opset)


@operation("HSwish", since=4, onnx="HardSwish")
class HSwish(UnaryPointwise):
    """X * min(max(x + 3, 0), 6) / 6.

    Inputs:  x  any shape, floating point
    Outputs: y  shape and type of x
    Source:  OpenVINO opset4 HSwish; ONNX HardSwish-14
    """


@operation("HSigmoid", since=5)
class HSigmoid(UnaryPointwise):
    """min(max(x + 3, 0), 6) / 6.

    Inputs:  x  any shape, floating point
    Outputs: y  shape and type of x
    Source:  OpenVINO opset5 HSigmoid
    """


@operation("Mish", since=4, onnx="Mish")
class Mish(UnaryPointwise):
    """X * tanh(log(1 + exp(x))).

    Inputs:  x  any shape, floating point
    Outputs: y  shape and type of x
    Source:  OpenVINO opset4 Mish; ONNX Mish-18
    """


@operation("SoftPlus", since=4, onnx="Softplus")
class SoftPlus(UnaryPointwise):
    """log(1 + exp(x)).

    Inputs:  x  any shape, floating point
    Outputs: y  shape and type of x
    Source:  OpenVINO opset4 SoftPlus; ONNX Softplus-1
    """


@operation("SoftSign", since=9, onnx="Softsign")
class SoftSign(UnaryPointwise):
    """X / (1 + |x|).

    Inputs:  x  any shape, floating point
    Outputs: y  shape and type of x
    Source:  OpenVINO opset9 SoftSign; ONNX Softsign-1
    """


@operation("Swish", since=4)
class Swish(UnaryPointwise):
    """X / (1 + exp(-beta * x)).

    Inputs:  x     any shape, floating point
             beta  optional, one element, same type; 1 when left out
    Outputs: y     shape and type of x
    Source:  OpenVINO opset4 Swish
    """

    inputs_taken = (1, 2)
