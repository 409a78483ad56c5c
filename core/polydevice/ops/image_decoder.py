"""ImageDecoder: a compressed image as pixels."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError
from polydevice.ops.op import Op, attribute, operation
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc


class PixelFormat(Enum):
    """Channels of the decoded image."""

    RGB = "RGB"
    BGR = "BGR"
    GRAYSCALE = "Grayscale"


@operation("ImageDecoder", domain="onnx", onnx="ImageDecoder")
class ImageDecoder(Op):
    """Decode a JPEG, PNG, BMP, TIFF, WebP, JPEG 2000 or PNM image.

    Inputs:  data   [bytes], u8: the content of the image's file
    Outputs: image  [H, W, 3], or [H, W, 1] for grey; u8
    Raises:  ElementTypeError for anything but bytes
    Source:  ONNX ImageDecoder-20
    """

    pixel_format: PixelFormat = attribute(default=PixelFormat.RGB, ir="", onnx="pixel_format")

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return an image of unknown size."""
        (data,) = inputs
        if data.element_type is not ElementType.u8:
            raise ElementTypeError(f"ImageDecoder takes bytes of type u8, not {data.element_type}")
        channels = 1 if self.pixel_format is PixelFormat.GRAYSCALE else 3
        return [data.with_shape(Shape([Dim(), Dim(), channels]))]
