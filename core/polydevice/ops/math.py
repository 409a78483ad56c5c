"""Mathematical functions of one input: rounding, roots, exponentials, trigonometry; pointwise."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.ops.op import EVERYWHERE, attribute, operation
from polydevice.ops.pointwise import UnaryPointwise
from polydevice.tensor import TensorDesc


@operation("Abs", onnx="Abs")
class Abs(UnaryPointwise):
    """|x|.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Abs; ONNX Abs-13
    """


@operation("Identity", since=16)
class Identity(UnaryPointwise):
    """X itself.

    Inputs:  x  any shape and type
    Outputs: y  shape and type of x
    Source:  OpenVINO opset16 Identity
    """

    takes_booleans = True
    shape_arithmetic = True
    strings_at = EVERYWHERE
    containers_at = EVERYWHERE


@operation("Negative", onnx="Neg")
class Negative(UnaryPointwise):
    """-x.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Negative; ONNX Neg-13
    """

    shape_arithmetic = True


@operation("Sign", onnx="Sign")
class Sign(UnaryPointwise):
    """-1, 0 or 1 as x is negative, zero or positive; NaN stays NaN.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Sign; ONNX Sign-13
    """


@operation("Ceiling", onnx="Ceil")
class Ceiling(UnaryPointwise):
    """The smallest integer not below x.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Ceiling; ONNX Ceil-13
    """

    shape_arithmetic = True


@operation("Floor", onnx="Floor")
class Floor(UnaryPointwise):
    """The largest integer not above x.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Floor; ONNX Floor-13
    """

    shape_arithmetic = True


@operation("Sqrt", onnx="Sqrt")
class Sqrt(UnaryPointwise):
    """Square root; NaN where x < 0.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Sqrt; ONNX Sqrt-13
    """


@operation("Exp", onnx="Exp")
class Exp(UnaryPointwise):
    """E to the power of x.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Exp; ONNX Exp-13
    """


@operation("Log", onnx="Log")
class Log(UnaryPointwise):
    """Natural logarithm; -inf at 0, NaN below.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Log; ONNX Log-13
    """


@operation("Erf", onnx="Erf")
class Erf(UnaryPointwise):
    """The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Erf; ONNX Erf-13
    """


@operation("ErfInv", since=17)
class ErfInv(UnaryPointwise):
    """The inverse of Erf; -inf and inf at -1 and 1, NaN beyond.

    Inputs:  x  any shape, floating point
    Outputs: y  shape and type of x
    Source:  OpenVINO opset17 ErfInv
    """


@operation("Sin", onnx="Sin")
class Sin(UnaryPointwise):
    """Sine of x in radians.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Sin; ONNX Sin-7
    """


@operation("Cos", onnx="Cos")
class Cos(UnaryPointwise):
    """Cosine of x in radians.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Cos; ONNX Cos-7
    """


@operation("Tan", onnx="Tan")
class Tan(UnaryPointwise):
    """Tangent of x in radians.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Tan; ONNX Tan-7
    """


@operation("Asin", onnx="Asin")
class Asin(UnaryPointwise):
    """Inverse sine in radians; NaN outside [-1, 1].

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Asin; ONNX Asin-7
    """


@operation("Acos", onnx="Acos")
class Acos(UnaryPointwise):
    """Inverse cosine in radians; NaN outside [-1, 1].

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Acos; ONNX Acos-7
    """


@operation("Atan", onnx="Atan")
class Atan(UnaryPointwise):
    """Inverse tangent in radians.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Atan; ONNX Atan-7
    """


@operation("Sinh", onnx="Sinh")
class Sinh(UnaryPointwise):
    """Hyperbolic sine.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Sinh; ONNX Sinh-9
    """


@operation("Cosh", onnx="Cosh")
class Cosh(UnaryPointwise):
    """Hyperbolic cosine.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Cosh; ONNX Cosh-9
    """


@operation("Tanh", onnx="Tanh")
class Tanh(UnaryPointwise):
    """Hyperbolic tangent.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset1 Tanh; ONNX Tanh-13
    """


@operation("Asinh", since=4, onnx="Asinh")
class Asinh(UnaryPointwise):
    """Inverse hyperbolic sine.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset4 Asinh; ONNX Asinh-9
    """


@operation("Acosh", since=4, onnx="Acosh")
class Acosh(UnaryPointwise):
    """Inverse hyperbolic cosine; NaN below 1.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset4 Acosh; ONNX Acosh-9
    """


@operation("Atanh", since=4, onnx="Atanh")
class Atanh(UnaryPointwise):
    """Inverse hyperbolic tangent; NaN outside [-1, 1].

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset4 Atanh; ONNX Atanh-9
    """


class RoundMode(enum.Enum):
    """Where Round sends a half."""

    HALF_TO_EVEN = "half_to_even"
    HALF_AWAY_FROM_ZERO = "half_away_from_zero"


@operation("Round", since=5)
class Round(UnaryPointwise):
    """The nearest integer; a half goes where `mode` says.

    Inputs:  x  any shape, numeric
    Outputs: y  shape and type of x
    Source:  OpenVINO opset5 Round; ONNX Round-11 is half_to_even
    """

    mode: RoundMode = attribute(default=RoundMode.HALF_TO_EVEN)


class FloatTest(UnaryPointwise):
    """A pointwise question about a floating-point number."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the shape of x, boolean."""
        return [inputs[0].with_type(ElementType.boolean)]


@operation("IsNaN", since=10, onnx="IsNaN")
class IsNaN(FloatTest):
    """Whether x is not a number.

    Inputs:  x  any shape, floating point
    Outputs: y  shape of x, boolean
    Source:  OpenVINO opset10 IsNaN; ONNX IsNaN-13
    """


@operation("IsInf", since=10)
class IsInf(FloatTest):
    """Whether x is infinite, of the signs that are asked for.

    Inputs:  x  any shape, floating point
    Outputs: y  shape of x, boolean
    Source:  OpenVINO opset10 IsInf; ONNX IsInf-10
    """

    detect_negative: bool = attribute(default=True)
    detect_positive: bool = attribute(default=True)


@operation("IsFinite", since=10)
class IsFinite(FloatTest):
    """Whether x is neither infinite nor NaN.

    Inputs:  x  any shape, floating point
    Outputs: y  shape of x, boolean
    Source:  OpenVINO opset10 IsFinite
    """
