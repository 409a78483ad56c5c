"""Operations of this device that resize images by places which kernels compute."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from polydevice.dataclass import dataclass
from polydevice.ops.interpolate import NearestMode
from polydevice.ops.op import Op
from polydevice.tensor import TensorDesc


class Places(Enum):
    """Where a result lies: by centres, by corners, or with both ends together."""

    CENTRES = 0
    CENTRES_OR_FIRST = 1  # an only result is the first element
    CORNERS = 2
    ENDS = 3
    BEHIND_CORNERS = 4  # by half an element, which is for the nearest one


@dataclass(frozen=True)
class PlacedResize(Op):
    """Interpolation along some axes, whose places are computed instead of read from tables.

    Linear, unless it takes the nearest element, or is cubic.

    Inputs:  x      any shape, numeric
             sizes  i64, one for each axis
    Outputs: y      these sizes at `axes`, type of x
    Source:  made from Interpolate where sizes are formulas
    """

    type = "PlacedResize"
    domain = "polydevice_gpu"

    axes: tuple[int, ...]
    places: Places
    scales: tuple[float, ...] = ()
    """By which places are computed; where there are none, by sizes."""
    half_away: bool = False
    nearest: NearestMode | None = None
    in_floats: bool = False
    """Whether places are those that are rounded to f32, or else exact ones."""
    cube: float | None = None
    """Coefficient of a cubic interpolation."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return x's shape with these sizes."""
        x, wanted = inputs
        assert x.shape is not None
        assert wanted.constant is not None
        sizes = list(x.shape)
        for axis, size in zip(self.axes, wanted.constant.tolist(), strict=True):
            sizes[axis] = size
        return [x.with_shape(sizes)]
