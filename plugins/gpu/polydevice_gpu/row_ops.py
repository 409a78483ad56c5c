"""Operations on rows: pointwise operations around sums of a row, in one launch."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dataclass import dataclass
from polydevice.ops.op import Op
from polydevice.shape import Shape, broadcast
from polydevice.tensor import TensorDesc
from polydevice_gpu.ops import Fragment


@dataclass(frozen=True)
class Gathering:
    """A sum or mean of what is computed of each element of a row, and what is computed of that.

    Attributes:
        terms: what is summed up.
        term_numbers: the values that it reads.
        made: what becomes of the sum, which is its input 0.
        made_numbers: the values that its other inputs are: one for a row, or for all.
        is_mean: whether the sum is divided by the number of terms.
    """

    terms: Fragment
    term_numbers: tuple[int, ...]
    made: Fragment
    made_numbers: tuple[int, ...]
    is_mean: bool


@dataclass(frozen=True)
class RowSteps(Op):
    """Pointwise operations on rows along an axis, and on sums of these rows.

    Values are numbered: the inputs, then what the gatherings make, one after the other.

    Inputs:  those of the fragments, broadcastable
    Outputs: y  of the broadcast shape
    Source:  made from reductions and pointwise operations, as of a normalisation whose steps are
             rounded one by one
    """

    type = "RowSteps"
    domain = "polydevice_gpu"

    axis: int
    """Of the result, from 0."""
    gatherings: tuple[Gathering, ...]
    fragment: Fragment
    """The result."""
    numbers: tuple[int, ...]
    """The values that it reads."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the broadcast shape and the fragment's type."""
        shape: Shape | None = Shape([])
        for x in inputs:
            shape = broadcast(shape, x.shape)
        return [TensorDesc(self.fragment.element_type, shape)]
