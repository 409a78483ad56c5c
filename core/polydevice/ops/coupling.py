"""PairwiseCoupling: probabilities of classes, from those of pairs of them."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, Shape, merge
from polydevice.tensor import TensorDesc


@operation("PairwiseCoupling", domain="onnx")
class PairwiseCoupling(Op):
    """Probabilities that agree best with those of one class or another for each pair.

    They are what libsvm's iteration ends with, which goes on until it is near 0.005 / classes, and
    100 times at most.

    Inputs:  x  [rows, classes * (classes - 1) / 2] f32, in (0, 1): that it is the first of two, for
                (0, 1), (0, 2) … (1, 2) …
    Outputs: y  [rows, classes], type of x
    Raises:  ShapeError when there are other pairs
    Source:  ONNX (ai.onnx.ml) SVMClassifier-1; Wu, Lin and Weng, 2004
    """

    classes: int = attribute()
    floats_at = (0,)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the number of classes."""
        (x,) = inputs
        if self.classes < 2:
            raise ShapeError(f"PairwiseCoupling: {self.classes} classes are no pair")
        pairs = Shape([Dim(), self.classes * (self.classes - 1) // 2])
        known = merge(pairs, x.shape) or pairs
        return [TensorDesc(x.element_type, Shape([known[0], self.classes]))]
