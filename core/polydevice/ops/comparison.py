"""Comparisons of two inputs; all are pointwise and give booleans."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dtype import ElementType
from polydevice.ops.op import EVERYWHERE, operation
from polydevice.ops.pointwise import BinaryPointwise
from polydevice.tensor import TensorDesc


class Comparison(BinaryPointwise):
    """A pointwise comparison; NaN compares unequal to everything."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the broadcast shape, boolean."""
        (common,) = super().infer(inputs)
        return [common.with_type(ElementType.boolean)]


@operation("Equal")
class Equal(Comparison):
    """A == b.

    Inputs:  a, b  broadcastable, same type
    Outputs: y     broadcast shape, boolean
    Source:  OpenVINO opset1 Equal
    """

    strings_at = EVERYWHERE


@operation("NotEqual")
class NotEqual(Comparison):
    """A != b.

    Inputs:  a, b  broadcastable, same type
    Outputs: y     broadcast shape, boolean
    Source:  OpenVINO opset1 NotEqual
    """

    strings_at = EVERYWHERE


@operation("Less")
class Less(Comparison):
    """A < b.

    Inputs:  a, b  broadcastable, same type
    Outputs: y     broadcast shape, boolean
    Source:  OpenVINO opset1 Less
    """


@operation("LessEqual")
class LessEqual(Comparison):
    """A <= b.

    Inputs:  a, b  broadcastable, same type
    Outputs: y     broadcast shape, boolean
    Source:  OpenVINO opset1 LessEqual
    """


@operation("Greater")
class Greater(Comparison):
    """A > b.

    Inputs:  a, b  broadcastable, same type
    Outputs: y     broadcast shape, boolean
    Source:  OpenVINO opset1 Greater
    """


@operation("GreaterEqual")
class GreaterEqual(Comparison):
    """A >= b.

    Inputs:  a, b  broadcastable, same type
    Outputs: y     broadcast shape, boolean
    Source:  OpenVINO opset1 GreaterEqual
    """
