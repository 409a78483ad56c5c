"""Arithmetic of two inputs: sums, products, quotients, extremes and powers; all pointwise."""

from __future__ import annotations

from polydevice.ops.op import attribute, operation
from polydevice.ops.pointwise import BinaryPointwise


class Arithmetic(BinaryPointwise):
    """A pointwise function of two numbers."""

    takes_booleans = False


@operation("Add")
class Add(Arithmetic):
    """A + b; integers wrap around.

    Inputs:  a, b  broadcastable, same numeric type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 Add
    """

    shape_arithmetic = True


@operation("Subtract")
class Subtract(Arithmetic):
    """A - b; integers wrap around.

    Inputs:  a, b  broadcastable, same numeric type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 Subtract
    """

    shape_arithmetic = True


@operation("Multiply")
class Multiply(Arithmetic):
    """A * b; integers wrap around.

    Inputs:  a, b  broadcastable, same numeric type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 Multiply
    """

    shape_arithmetic = True


@operation("Divide")
class Divide(Arithmetic):
    """A / b; for integers rounded down when `pythondiv`, else towards zero.

    An integer divided by zero gives 0, where the original leaves it undefined.

    Inputs:  a, b  broadcastable, same numeric type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 Divide (its attribute is named m_pythondiv); ONNX truncates
    """

    shape_arithmetic = True

    pythondiv: bool = attribute(default=True, ir="m_pythondiv")


@operation("Mod")
class Mod(Arithmetic):
    """Remainder of the division that truncates towards zero; it has the sign of a.

    Inputs:  a, b  broadcastable, same numeric type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 Mod; ONNX Mod-13 with fmod=1
    """

    shape_arithmetic = True


@operation("FloorMod")
class FloorMod(Arithmetic):
    """Remainder of the division that rounds down; it has the sign of b.

    Inputs:  a, b  broadcastable, same numeric type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 FloorMod; ONNX Mod-13 with fmod=0
    """

    shape_arithmetic = True


@operation("Maximum")
class Maximum(Arithmetic):
    """The larger of a and b.

    Inputs:  a, b  broadcastable, same numeric type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 Maximum
    """

    shape_arithmetic = True


@operation("Minimum")
class Minimum(Arithmetic):
    """The smaller of a and b.

    Inputs:  a, b  broadcastable, same numeric type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 Minimum
    """

    shape_arithmetic = True


@operation("Power")
class Power(Arithmetic):
    """A to the power of b; for integers the real power, truncated.

    Inputs:  a, b  broadcastable, same numeric type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 Power
    """


@operation("SquaredDifference")
class SquaredDifference(Arithmetic):
    """(a - b) squared.

    Inputs:  a, b  broadcastable, same numeric type
    Outputs: y     broadcast shape, their type
    Source:  OpenVINO opset1 SquaredDifference
    """
