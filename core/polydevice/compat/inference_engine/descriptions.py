"""What describes the inputs and outputs of networks, and the steps before an input."""

from __future__ import annotations

from typing import Any

from polydevice.compat.inference_engine.blobs import Blob, TensorDesc, checked_layout, element_of
from polydevice.compat.inference_engine.constants import ColorFormat, MeanVariant, ResizeAlgorithm
from polydevice.compat.inference_engine.surface import Surface
from polydevice.compat.openvino.errors import translated
from polydevice.errors import NetworkError
from polydevice.network.port_setting import InputInfo, OutputInfo
from polydevice.network.preprocess import PreProcessChannel as CoreChannel
from polydevice.network.preprocess import PreProcessInfo as CoreInfo
from polydevice.runtime.port_info import PortInfo
from polydevice.shape import Shape, bounds


class CDataPtr(Surface):
    """An input or output of a loaded network."""

    def __init__(self, info: InputInfo | OutputInfo | PortInfo) -> None:
        """Show core's description."""
        self._info = info

    @property
    def name(self) -> str:
        """The name."""
        return self._info.name

    @property
    def precision(self) -> str:
        """The precision, such as "FP32"."""
        return self._info.precision

    @property
    def layout(self) -> str:
        """What the axes mean, such as "NCHW"."""
        return self._info.layout

    @property
    def shape(self) -> list[int]:
        """Sizes, in the order N, C, H, W whatever the layout is."""
        return sizes_of(self._info.shape)

    @property
    def initialized(self) -> bool:
        """Whether there is anything to describe."""
        return True


class DataPtr(CDataPtr):
    """An input or output of a network, which may be changed."""

    @property
    def precision(self) -> str:
        """The precision, such as "FP32"; may be set."""
        return self._info.precision

    @precision.setter
    def precision(self, precision: str) -> None:
        element_of(precision)
        self._info.precision = precision  # type: ignore[misc]

    @property
    def layout(self) -> str:
        """What the axes mean, such as "NCHW"; may be set."""
        return self._info.layout

    @layout.setter
    def layout(self, layout: str) -> None:
        _set_layout(self._info, layout)


class InputInfoPtr(Surface):
    """An input of a network."""

    def __init__(self, info: InputInfo, preprocess: PreProcessInfo) -> None:
        """Show core's description."""
        self._info = info
        self._preprocess = preprocess

    @property
    def name(self) -> str:
        """The name."""
        return self._info.name

    @property
    def precision(self) -> str:
        """The precision, such as "FP32"; may be set."""
        return self._info.precision

    @precision.setter
    def precision(self, precision: str) -> None:
        element_of(precision)
        self._info.precision = precision

    @property
    def layout(self) -> str:
        """What the axes mean, such as "NCHW"; may be set."""
        return self._info.layout

    @layout.setter
    def layout(self, layout: str) -> None:
        _set_layout(self._info, layout)

    @property
    def preprocess_info(self) -> PreProcessInfo:
        """The steps before the input."""
        return self._preprocess

    @property
    def tensor_desc(self) -> TensorDesc:
        """Precision, sizes and layout."""
        return TensorDesc(self.precision, sizes_of(self._info.shape), self.layout)

    @property
    def input_data(self) -> DataPtr:
        """Name, precision, sizes and layout."""
        return DataPtr(self._info)


class InputInfoCPtr(Surface):
    """An input of a loaded network."""

    def __init__(self, info: PortInfo) -> None:
        """Show core's description."""
        self._info = info

    @property
    def name(self) -> str:
        """The name."""
        return self._info.name

    @property
    def precision(self) -> str:
        """The precision, such as "FP32"."""
        return self._info.precision

    @property
    def tensor_desc(self) -> TensorDesc:
        """Precision, sizes and layout."""
        return TensorDesc(self.precision, model_sizes(self._info), self._info.layout)

    @property
    def input_data(self) -> CDataPtr:
        """Name, precision, sizes and layout."""
        return _Loaded(self._info)


class _Loaded(CDataPtr):
    @property
    def shape(self) -> list[int]:
        """Sizes, in the order N, C, H, W whatever the layout is."""
        assert isinstance(self._info, PortInfo)
        return model_sizes(self._info)


def loaded(info: PortInfo) -> CDataPtr:
    """Return the description of an output of a loaded network."""
    return _Loaded(info)


class PreProcessChannel(Surface):
    """What is done to one channel."""

    def __init__(self, channel: CoreChannel) -> None:
        """Show core's."""
        self._channel = channel

    @property
    def mean_value(self) -> float:
        """What is subtracted; may be set."""
        return self._channel.mean_value

    @mean_value.setter
    def mean_value(self, value: float) -> None:
        self._channel.mean_value = float(value)

    @property
    def std_scale(self) -> float:
        """By what is divided afterwards; may be set."""
        return self._channel.std_scale

    @std_scale.setter
    def std_scale(self, value: float) -> None:
        self._channel.std_scale = float(value)

    @property
    def mean_data(self) -> Blob | None:
        """The image that is subtracted."""
        data = self._channel.mean_data
        if data is None:
            return None
        return Blob._of(TensorDesc("FP32", list(data.shape), "HW"), data)


class PreProcessInfo(Surface):
    """The steps before an input."""

    def __init__(self, info: CoreInfo | None = None, fixed: bool = False) -> None:
        """Show core's; those of a loaded network cannot be changed."""
        self._info = CoreInfo() if info is None else info
        self._channels = list(self._info.channels)
        self._variant = MeanVariant.NONE
        self._fixed = fixed

    def _may_change(self) -> None:
        if self._fixed:
            raise TypeError("Cannot set preprocessing of a loaded network; set it on the IENetwork")

    def _apply(self) -> None:
        """Let core subtract what the variant says."""
        self._info.channels = [] if self._variant is MeanVariant.NONE else self._channels

    def __getitem__(self, index: int) -> PreProcessChannel:
        return PreProcessChannel(self._channels[index])

    def get_number_of_channels(self) -> int:
        """Return the number of channels."""
        return len(self._channels)

    @translated
    def init(self, number_of_channels: int) -> None:
        """Make so many channels."""
        self._may_change()
        self._info.init(number_of_channels)
        self._channels = self._info.channels
        self._apply()

    def set_mean_image(self, mean_image: Blob) -> None:
        """Subtract an image [C, H, W]."""
        self._may_change()
        planes = mean_image.buffer.reshape(mean_image.tensor_desc.dims)
        for channel, plane in enumerate(planes):
            self._set_plane(plane, channel)
        self.mean_variant = MeanVariant.MEAN_IMAGE

    def set_mean_image_for_channel(self, mean_image: Blob, channel: int) -> None:
        """Subtract an image [H, W] from one channel."""
        self._may_change()
        self._set_plane(mean_image.buffer.reshape(mean_image.tensor_desc.dims), channel)
        self.mean_variant = MeanVariant.MEAN_IMAGE

    @translated
    def _set_plane(self, plane: Any, channel: int) -> None:
        if not 0 <= channel < len(self._channels):
            raise NetworkError(f"there is no channel {channel}; init() made {len(self._channels)}")
        self._channels[channel].mean_data = plane

    @property
    def mean_variant(self) -> MeanVariant:
        """What is subtracted; may be set."""
        return self._variant

    @mean_variant.setter
    def mean_variant(self, variant: MeanVariant) -> None:
        self._may_change()
        self._variant = MeanVariant(variant)
        self._apply()

    @property
    def resize_algorithm(self) -> ResizeAlgorithm:
        """How images of another size are brought to the network's; may be set."""
        return self._info.resize_algorithm

    @resize_algorithm.setter
    def resize_algorithm(self, algorithm: ResizeAlgorithm) -> None:
        self._may_change()
        self._info.resize_algorithm = algorithm

    @property
    def color_format(self) -> ColorFormat:
        """What the blob holds; may be set."""
        return self._info.color_format

    @color_format.setter
    def color_format(self, color: ColorFormat) -> None:
        self._may_change()
        self._info.color_format = color


def sizes_of(shape: Shape | None) -> list[int]:
    """Return sizes; 0 for one that is not known, as there was none in 2021."""
    return [bounds(size)[0] for size in shape or ()]


def model_sizes(info: PortInfo) -> list[int]:
    """Return a loaded network's sizes in the order N, C, H, W."""
    sizes, layout = sizes_of(info.shape), info.layout
    if layout in ("NHWC", "NDHWC"):
        return [sizes[0], sizes[-1], *sizes[1:-1]]
    return sizes


@translated
def _set_layout(info: Any, layout: str) -> None:
    info.layout = checked_layout(layout)
