"""Pooling: the average or maximum of every window, or of a given number of bins."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.window import PadType, RoundingType, Window
from polydevice.shape import Dim, DimLike, count_of, normalize_axis
from polydevice.tensor import TensorDesc


@dataclass(frozen=True)
class Pool(Op):
    """What the pooling operations with a sliding window share."""

    sized_by_values = True

    kernel: tuple[int, ...] = attribute()
    strides: tuple[int, ...] = attribute(default=())
    pads_begin: tuple[int, ...] = attribute(default=())
    pads_end: tuple[int, ...] = attribute(default=())
    auto_pad: PadType = attribute(default=PadType.EXPLICIT)
    rounding_type: RoundingType = attribute(default=RoundingType.FLOOR)
    dilations: tuple[int, ...] = attribute(default=())

    @property
    def window(self) -> Window:
        """How the kernel slides."""
        return Window(
            self.kernel,
            self.strides,
            self.dilations,
            self.pads_begin,
            self.pads_end,
            self.auto_pad,
            self.rounding_type,
        )

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [N, C, spatial...]."""
        (x,) = inputs
        window = self.window
        if x.shape is None:
            return [x.with_shape([None] * (window.rank + 2))]
        if len(x.shape) != window.rank + 2:
            raise ShapeError(
                f"{self.type}: a kernel of {window.rank} axes needs data of rank "
                f"{window.rank + 2}, not {x.shape}"
            )
        return [x.with_shape([*x.shape[:2], *window.output(x.shape[2:])])]

    def to_ir(self) -> dict[str, str]:
        """Write every list in full; readers need not know that empty ones mean 1 or 0."""
        texts, window = super().to_ir(), self.window
        for name in ("strides", "pads_begin", "pads_end", "dilations"):
            if name in texts:
                texts[name] = ",".join(map(str, getattr(window, name)))
        return texts


@operation("AvgPool", since=(1, 14, 16))
class AvgPool(Pool):
    """The average of each window; padding counts as zeros, or not at all with `exclude_pad`.

    When sizes are rounded up, the last window may reach beyond the end padding. That overhang
    counts like padding in OpenVINO (as soon as any axis is padded, its divisor is the kernel's
    size), but never in ONNX and PyTorch; `counts_overhang` says which.

    Inputs:  x  [N, C, spatial...], 1 to 3 spatial axes, numeric
    Outputs: y  [N, C, spatial...], type of x
    Raises:  ShapeError if the attributes do not fit x
    Source:  OpenVINO opset16 AvgPool (opset14 has no dilations, opset1 no ceil_torch)
    """

    exclude_pad: bool = attribute(default=False, ir="exclude-pad")
    counts_overhang: bool = attribute(default=True, ir="")


@operation("MaxPool", since=1)
class MaxPool(Pool):
    """The maximum of each window; padding never wins.

    Inputs:  x  [N, C, spatial...], 1 to 3 spatial axes, numeric
    Outputs: y  [N, C, spatial...], type of x
    Raises:  ShapeError if the attributes do not fit x
    Source:  OpenVINO opset1 MaxPool
    """

    dilations: tuple[int, ...] = attribute(default=(), ir="")


@operation("MaxPool", since=(8, 14))
class MaxPoolWithIndices(MaxPool):
    """MaxPool that also tells where each maximum was found first.

    An index counts elements of x, flattened from `axis` on: with 0 in all of x, with 2 within
    one channel.

    Inputs:  x        [N, C, spatial...], 1 to 3 spatial axes, numeric
    Outputs: y        [N, C, spatial...], type of x
             indices  shape of y, `index_element_type`
    Raises:  ShapeError if the attributes do not fit x
    Source:  OpenVINO opset14 MaxPool (opset8 has no ceil_torch)
    """

    dilations: tuple[int, ...] = attribute(default=())
    index_element_type: ElementType = attribute(default=ElementType.i64)
    axis: int = attribute(default=0)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return values and indices."""
        check_index_type(self, self.index_element_type)
        normalize_axis(self.axis, self.window.rank + 2)
        (y,) = super().infer(inputs)
        return [y, y.with_type(self.index_element_type)]


def check_index_type(op: Op, kind: ElementType) -> None:
    """Raise ElementTypeError unless indices may have that type."""
    if kind not in (ElementType.i32, ElementType.i64):
        raise ElementTypeError(f"{op.type}: index_element_type {kind} must be i32 or i64")


@operation("AdaptiveAvgPool", since=8)
class AdaptiveAvgPool(Op):
    """The average of each bin; bin i of n covers [floor(i*size/n), ceil((i+1)*size/n)).

    Inputs:  x             [N, C, spatial...], 1 to 3 spatial axes, floating point
             output_shape  integers, the number of bins per spatial axis
    Outputs: y             [N, C, bins...], type of x
    Raises:  ShapeError if output_shape does not fit x
    Source:  OpenVINO opset8 AdaptiveAvgPool
    """

    sized_by_values = True

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return [N, C, bins...]."""
        x, bins = inputs
        wanted = bins.sizes
        if x.shape is None:
            return [x.with_shape(None if wanted is None else [Dim(), Dim(), *wanted])]
        rank, count = len(x.shape) - 2, count_of(bins.shape)
        if rank not in (1, 2, 3) or count not in (None, rank):
            raise ShapeError(
                f"{self.type}: data {x.shape} needs 1 to 3 spatial axes and as many bins, "
                f"not {count if wanted is None else wanted}"
            )
        if 0 in x.shape[2:]:
            raise ShapeError(f"{self.type}: data {x.shape} has no elements to take bins of")
        if wanted is not None and any(isinstance(n, int) and n < 1 for n in wanted):
            raise ShapeError(f"{self.type}: output_shape {wanted} must be at least 1")
        unknown: list[DimLike] = [Dim()] * rank
        return [x.with_shape([*x.shape[:2], *(wanted or unknown)])]


@operation("AdaptiveMaxPool", since=8)
class AdaptiveMaxPool(AdaptiveAvgPool):
    """The maximum of each bin, and where it was found first within its channel.

    Inputs:  x             [N, C, spatial...], 1 to 3 spatial axes, floating point
             output_shape  integers, the number of bins per spatial axis
    Outputs: y             [N, C, bins...], type of x
             indices       shape of y, `index_element_type`, flattened over the spatial axes
    Raises:  ShapeError if output_shape does not fit x
    Source:  OpenVINO opset8 AdaptiveMaxPool
    """

    index_element_type: ElementType = attribute(default=ElementType.i64)

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return values and indices."""
        check_index_type(self, self.index_element_type)
        (y,) = super().infer(inputs)
        return [y, y.with_type(self.index_element_type)]
