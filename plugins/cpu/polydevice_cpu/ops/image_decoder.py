"""ImageDecoder, by the Pillow image library where it is installed."""

from __future__ import annotations

import io

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice.ops.image_decoder import ImageDecoder, PixelFormat
from polydevice_cpu.implement import implements

MAX_PIXELS = 1 << 28
"""Larger images are refused before they are decoded: 1 GiB of RGB is no model's input."""


@implements(ImageDecoder)
def image_decoder(op: ImageDecoder, data: Array) -> Array:
    """Look at the size first; a small file may describe a huge image."""
    try:
        from PIL import Image
    except ImportError:
        raise InferenceError(
            "ImageDecoder needs the Pillow library; install it with: pip install pillow"
        ) from None
    grey = op.pixel_format is PixelFormat.GRAYSCALE
    try:
        with Image.open(io.BytesIO(data.tobytes())) as image:
            if image.width * image.height > MAX_PIXELS:
                raise InferenceError(
                    f"ImageDecoder: an image of {image.width} × {image.height} "
                    f"pixels is larger than {MAX_PIXELS} in all"
                )
            pixels = np.array(image.convert("L" if grey else "RGB"), np.uint8)
    except InferenceError:
        raise
    except Exception as error:  # Pillow raises many kinds for damaged data
        raise InferenceError(
            f"ImageDecoder: the data is no image that can be decoded: {error}"
        ) from error
    if grey:
        return pixels[:, :, None]
    return pixels[:, :, ::-1] if op.pixel_format is PixelFormat.BGR else pixels
