"""PreProcessInfo: what is done to an input before the network sees it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from polydevice.arguments import integer, numbers_in, shown
from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.errors import NetworkError

MOST_CHANNELS = 1 << 16
"""Of a blob with a mean for each, each an object; pictures of any kind have fewer."""


class ResizeAlgorithm(Enum):
    """How an image of another size is brought to the network's."""

    NO_RESIZE = 0
    RESIZE_BILINEAR = 1
    """Linear between the centres of the four nearest pixels (OpenCV's INTER_LINEAR)."""
    RESIZE_AREA = 2
    """The mean over the area that a pixel covers, for making images smaller (INTER_AREA)."""


class ColorFormat(Enum):
    """What the blob holds; anything but RAW is converted to the BGR that the network takes."""

    RAW = 0
    RGB = 1
    BGR = 2
    RGBX = 3
    BGRX = 4
    NV12 = 5
    """One array [N, H × 3/2, W, 1]: H rows of Y, then H/2 rows of U and V by turns."""
    I420 = 6
    """One array [N, H × 3/2, W, 1]: H rows of Y, then all of U, then all of V."""


@dataclass
class PreProcessChannel:
    """What is subtracted from one channel, and what it is divided by afterwards."""

    mean_value: float = 0.0
    std_scale: float = 1.0
    mean_data: Array | None = None
    """[H, W] in the network's size; instead of `mean_value`."""


class PreProcessInfo:
    """Steps on one input, run by the device as part of the network, in this order.

    Colour conversion, resizing, conversion to the network's element type and layout, subtraction
    of the mean, division by the scale::

        info = network.inputs["image"].preprocess
        info.color_format = "NV12"
        info.resize_algorithm = "RESIZE_BILINEAR"
        info.set_mean([104.0, 117.0, 123.0], scale=[58.4, 57.1, 57.4])
    """

    def __init__(self) -> None:
        """Start with nothing to do."""
        self._resize = ResizeAlgorithm.NO_RESIZE
        self._color = ColorFormat.RAW
        self.channels: list[PreProcessChannel] = []

    @property
    def resize_algorithm(self) -> ResizeAlgorithm:
        """How an image of another size is brought to the network's; takes names too."""
        return self._resize

    @resize_algorithm.setter
    def resize_algorithm(self, value: ResizeAlgorithm | str) -> None:
        self._resize = _member(ResizeAlgorithm, value, "resize_algorithm")

    @property
    def color_format(self) -> ColorFormat:
        """What the blob holds; takes names too."""
        return self._color

    @color_format.setter
    def color_format(self, value: ColorFormat | str) -> None:
        self._color = _member(ColorFormat, value, "color_format")

    def init(self, number_of_channels: int) -> None:
        """Make that many channels with mean 0 and scale 1.

        Raises:
            NetworkError: for a number below 1, or above `MOST_CHANNELS`.
        """
        number = integer(
            *(number_of_channels, "number_of_channels", NetworkError), least=1, most=MOST_CHANNELS
        )
        self.channels = [PreProcessChannel() for _ in range(number)]

    def __getitem__(self, channel: int) -> PreProcessChannel:
        return self.channels[channel]

    def __len__(self) -> int:
        return len(self.channels)

    def set_mean(self, mean: Sequence[float], scale: Sequence[float] | None = None) -> None:
        """Subtract one value per channel, then divide by one value per channel.

        Raises:
            NetworkError: when they are no finite numbers or differ in length, or a scale is 0.
        """
        means = numbers_in(mean, "mean", NetworkError)
        scales = [1.0] * len(means) if scale is None else numbers_in(scale, "scale", NetworkError)
        if len(scales) != len(means):
            raise NetworkError(f"{len(means)} means but {len(scales)} scales are given")
        if 0 in scales:
            raise NetworkError(f"scale {scales} is not possible; divide by other numbers than 0")
        self.channels = [PreProcessChannel(m, s) for m, s in zip(means, scales, strict=True)]

    def set_mean_image(self, image: Any) -> None:
        """Subtract an image [C, H, W] in the network's size.

        Raises:
            NetworkError: when it is no array of numbers, or has another rank.
        """
        given = np.asarray(image) if isinstance(image, (np.ndarray, list, tuple)) else None
        if given is None or given.dtype.kind not in "iuf":
            raise NetworkError(f"{shown(image)} is no image; give an array [C, H, W] of numbers")
        data = given.astype(np.float32)
        if data.ndim != 3:
            raise NetworkError(f"a mean image is [C, H, W], not of shape {list(data.shape)}")
        self.channels = [PreProcessChannel(mean_data=plane) for plane in data]

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        resizes = self._resize is not ResizeAlgorithm.NO_RESIZE
        return resizes or self._color is not ColorFormat.RAW or bool(self.channels)

    def mean(self, sizes: tuple[int, int] | None) -> Array:
        """Return the means as [1, C, 1, 1], or [1, C, H, W] with images.

        Args:
            sizes: the network's height and width, which mean images must have.

        Raises:
            NetworkError: an image of another size, or images for some channels only.
        """
        planes = [channel.mean_data for channel in self.channels]
        if all(plane is None for plane in planes):
            values = [channel.mean_value for channel in self.channels]
            return np.asarray(values, np.float32).reshape(1, -1, 1, 1)
        for index, plane in enumerate(planes):
            if plane is None or plane.shape != sizes:
                given = "none" if plane is None else str(list(plane.shape))
                raise NetworkError(
                    f"the mean image of channel {index} has shape {given}; every channel needs "
                    f"one of {sizes}, the network's height and width"
                )
        return np.asarray(planes, np.float32)[None]

    def scale(self) -> Array:
        """Return the scales as [1, C, 1, 1]."""
        values = [channel.std_scale for channel in self.channels]
        return np.asarray(values, np.float32).reshape(1, -1, 1, 1)


def _member(kind: Any, value: Any, what: str) -> Any:
    if isinstance(value, kind):
        return value
    names = [member.name for member in kind]
    if value not in names:
        raise NetworkError(f"{what} {value!r} is not legal; use one of {', '.join(names)}")
    return kind[value]
