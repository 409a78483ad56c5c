"""The enumerations of preprocessing."""

from __future__ import annotations

from polydevice.compat.openvino.properties.property import Listed


class ColorFormat(Listed):
    """What an image's numbers mean."""

    UNDEFINED = 0
    NV12_SINGLE_PLANE = 1
    NV12_TWO_PLANES = 2
    I420_SINGLE_PLANE = 3
    I420_THREE_PLANES = 4
    RGB = 5
    BGR = 6
    GRAY = 7
    RGBX = 8
    BGRX = 9


class ResizeAlgorithm(Listed):
    """How an image is brought to another size."""

    RESIZE_LINEAR = 0
    RESIZE_CUBIC = 1
    RESIZE_NEAREST = 2
    RESIZE_BILINEAR_PILLOW = 3
    RESIZE_BICUBIC_PILLOW = 4


class PaddingMode(Listed):
    """What stands beyond the edges."""

    CONSTANT = 0
    REFLECT = 2
    SYMMETRIC = 3
