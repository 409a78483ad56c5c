"""ExtractImagePatches and Col2Im: between images and the windows on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import Self

from polydevice.errors import ShapeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.ops.window import PadType, Window
from polydevice.shape import Dim, DimLike, bounds, count_of, dim
from polydevice.tensor import TensorDesc


@operation("ExtractImagePatches", since=3)
class ExtractImagePatches(Op):
    """Lay the elements of each window out along the depth axis.

    Inputs:  x  [N, C, H, W], any numeric type
    Outputs: y  [N, sizes[0] × sizes[1] × C, OH, OW]; the channel varies fastest
    Raises:  ShapeError when x has not four axes, or for a bad window
    Source:  OpenVINO opset3 ExtractImagePatches
    """

    sized_by_values = True

    sizes: tuple[int, ...] = attribute()
    strides: tuple[int, ...] = attribute()
    rates: tuple[int, ...] = attribute()
    auto_pad: PadType = attribute()

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the number of window positions, and their elements as depth."""
        (x,) = inputs
        if x.shape is None:
            return [x.with_shape([None] * 4)]
        if len(x.shape) != 4:
            raise ShapeError(f"{x.shape} is not [N, C, H, W]")
        batch, depth, *space = x.shape
        places = [self._places(size, i) for i, size in enumerate(space)]
        return [x.with_shape([batch, depth * math.prod(self.sizes), *places])]

    @property
    def window(self) -> Window:
        """The window; raises ShapeError when the attributes do not describe one."""
        if self.auto_pad is PadType.EXPLICIT:
            raise ShapeError("auto_pad explicit is not possible here")
        return Window(self.sizes, self.strides, self.rates, auto_pad=self.auto_pad)

    def _places(self, size: DimLike, axis: int) -> DimLike:
        window = self.window
        extent, stride = bounds(window.extent[axis])[0], window.strides[axis]

        def count(n: int) -> int:
            return (
                -(-n // stride) if window.auto_pad.is_same else max((n - extent) // stride + 1, 0)
            )

        low, high = bounds(size)
        return dim(count(low), None if high is None else count(high))


@operation("Col2Im", since=15, onnx="Col2Im")
class Col2Im(Op):
    """Add the columns of windows up to the image they came from.

    Inputs:  x            [N, C × elements of the kernel, L] or without N; L window positions
             output_size  [k], integer: sizes of the image
             kernel_size  [k], integer
    Outputs: y            [N, C, *output_size] or without N; type of x
    Raises:  ShapeError when the sizes do not fit
    Source:  OpenVINO opset15 Col2Im (k = 2); ONNX Col2Im-18
    """

    integers_at = (1, 2)
    sized_by_values = True

    strides: tuple[int, ...] = attribute(default=())
    dilations: tuple[int, ...] = attribute(default=())
    pads_begin: tuple[int, ...] = attribute(default=())
    pads_end: tuple[int, ...] = attribute(default=())

    @classmethod
    def from_onnx(cls, attributes: Mapping[str, Any], opset: int) -> Self:
        """Make it; ONNX has one list of pads."""
        pads = tuple(attributes.get("pads", ()))
        half = len(pads) // 2
        return cls(
            strides=tuple(attributes.get("strides", ())),
            dilations=tuple(attributes.get("dilations", ())),
            pads_begin=pads[:half],
            pads_end=pads[half:],
        )

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the image's shape."""
        x, output, kernel = inputs
        sizes, window = output.sizes, kernel.static_ints
        if x.shape is None:
            return [x.with_shape(None)]
        if len(x.shape) not in (2, 3):
            raise ShapeError(f"{x.shape} is not [N, columns, positions] or [columns, positions]")
        if sizes is None:
            count = count_of(output.shape)
            if count is None:
                return [x.with_shape(None)]
            sizes = [Dim()] * count
        depth: DimLike = Dim()
        columns, positions = x.shape[-2:]
        if window is not None:
            block = math.prod(window)
            if isinstance(columns, int) and (block < 1 or columns % block):
                raise ShapeError(f"{columns} columns are not a multiple of the kernel's {block}")
            depth = columns // max(block, 1)
            static = [size for size in sizes if isinstance(size, int)]
            if len(static) == len(sizes) and isinstance(positions, int):
                found = math.prod(self.places(static, window))
                if found != positions:
                    raise ShapeError(
                        f"an image of {static} has {found} window positions, not {positions}"
                    )
        return [x.with_shape([*x.shape[:-2], depth, *sizes])]

    def window(self, kernel: Sequence[int]) -> Window:
        """Return the window; raises ShapeError when the attributes do not describe one."""
        return Window(tuple(kernel), self.strides, self.dilations, self.pads_begin, self.pads_end)

    def places(self, sizes: Sequence[int], kernel: Sequence[int]) -> list[int]:
        """Return the number of window positions along each axis of the image."""
        return [bounds(n)[0] for n in self.window(kernel).output(sizes)]
