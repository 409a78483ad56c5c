"""TreeEnsemble: decision trees, as random forests and boosted trees consist of."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, Shape, merge
from polydevice.tensor import TensorDesc

MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""How a node compares, by number: as TreeEnsemble-5 has them."""


class Aggregate(Enum):
    """How what leaves say is put together."""

    SUM = "SUM"
    MIN = "MIN"
    MAX = "MAX"


@operation("TreeEnsemble", domain="onnx")
class TreeEnsemble(Op):
    """Go from the root of each tree to one of its leaves, and put together what these say.

    Nodes are numbered, inner ones first and leaves behind them. An inner node leads to one of two
    others: to the first where its comparison is true. There are at most `depth` inner nodes on any
    way from a root to a leaf.

    Inputs:  x         [rows, features], floating point
             features  [inner], integers: what each node compares
             splits    [inner], type of x: with what
             modes     [inner] u8: how, as in `MODES`
             missing   [inner] boolean: whether NaN counts as true
             children  [2, inner], integers: the next nodes, where true and where not
             roots     [trees], integers
             votes     [leaves, targets], type of x
             members   optional [inner, any], type of x: what MEMBER looks for, filled up with NaN
    Outputs: y         [rows, targets], type of x
    Raises:  ShapeError when tables do not fit each other
    Source:  ONNX (ai.onnx.ml) TreeEnsemble-5
    """

    depth: int = attribute()
    aggregate: Aggregate = attribute(default=Aggregate.SUM)
    floats_at = (0, 2, 7, 8)
    integers_at = (1, 3, 5, 6)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the numbers of rows and targets."""
        self.check_count(inputs, 8, 9)
        x, features, splits, modes, missing, children, roots, votes, *members = inputs
        for desc in (splits, votes, *members):
            if desc.element_type is not x.element_type:
                raise ElementTypeError(
                    f"tables of {desc.element_type} do not fit features of {x.element_type}"
                )
        inner = Shape([Dim()])
        for desc in (features, splits, modes, missing):
            inner = merge(inner, desc.shape) or inner
        merge(Shape([2, inner[0]]), children.shape)
        merge(Shape([None]), roots.shape)
        for desc in members:
            merge(Shape([inner[0], None]), desc.shape)
        for name, desc in (("x", x), ("votes", votes)):
            if desc.rank not in (None, 2):
                raise ShapeError(f"TreeEnsemble: {name} has the shape {desc.shape}; rank is 2")
        rows = Dim() if x.shape is None else x.shape[0]
        targets = Dim() if votes.shape is None else votes.shape[1]
        return [TensorDesc(x.element_type, Shape([rows, targets]))]
