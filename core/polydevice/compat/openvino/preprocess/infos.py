"""What a program says about inputs and outputs, and the steps that it asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from typing_extensions import Self

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.compat.openvino.preprocess import steps
from polydevice.compat.openvino.preprocess.enums import ColorFormat, PaddingMode, ResizeAlgorithm
from polydevice.compat.openvino.preprocess.steps import Step
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.types.element_type import element_of
from polydevice.compat.openvino.types.layout import Layout, layout_of
from polydevice.compat.openvino.types.shapes import core_shape
from polydevice.dtype import ElementType
from polydevice.shape import Dim, DimLike, Shape


class _Described(Surface):
    """An element type and a layout."""

    def __init__(self) -> None:
        self._element: ElementType | None = None
        self._layout: Layout | None = None

    def set_layout(self, layout: Any) -> Self:
        """Say what the axes mean."""
        self._layout = layout_of(layout)
        return self


class InputModelInfo(_Described):
    """The input as the model has it."""


class OutputModelInfo(_Described):
    """The output as the model has it."""


class _TypedInfo(_Described):
    @translated
    def set_element_type(self, type: Any) -> Self:  # noqa: A002 - its name
        """Say of what type the program's elements are."""
        self._element = element_of(type)
        return self


class OutputTensorInfo(_TypedInfo):
    """The output as the program wants it."""


class InputTensorInfo(_TypedInfo):
    """The input as the program gives it."""

    def __init__(self) -> None:
        """Say nothing yet."""
        super().__init__()
        self._shape: Shape | None = None
        self._spatial: tuple[DimLike, DimLike] | None = None
        self._color = ColorFormat.UNDEFINED
        self._sub_names: list[str] = []

    def set_shape(self, shape: Any) -> Self:
        """Say of what sizes it is."""
        self._shape = core_shape(shape)
        return self

    def set_spatial_static_shape(self, height: int, width: int) -> Self:
        """Say how large the image is."""
        self._spatial = (int(height), int(width))
        return self

    def set_spatial_dynamic_shape(self) -> Self:
        """Take images of any size."""
        self._spatial = (Dim(), Dim())
        return self

    def set_color_format(
        self,
        format: ColorFormat,  # noqa: A002 - its name
        sub_names: Sequence[str] = (),
    ) -> Self:
        """Say what the numbers mean; planes become inputs of their own, by these names."""
        self._color = ColorFormat(format)
        self._sub_names = list(sub_names)
        return self

    def set_memory_type(self, memory_type: str) -> Self:
        """Do nothing: every network takes memory of its device."""
        return self

    def set_from(self, tensor: Any) -> Self:
        """Take type and sizes of a tensor or an array."""
        array = tensor._memory() if isinstance(tensor, Tensor) else np.asarray(tensor)
        self._element = ElementType.of(array.dtype)
        self._shape = Shape(array.shape)
        return self


class _Steps(Surface):
    def __init__(self) -> None:
        self._steps: list[tuple[str, Step | None]] = []
        self._last_layout: Layout | None = None
        self._orders: list[list[int]] = []  # of transposes that are told by numbers of axes

    def _add(self, text: str, step: Step | None) -> Self:
        self._steps.append((text, step))
        return self

    @translated
    def convert_element_type(self, type: Any = None) -> Self:  # noqa: A002 - its name
        """Convert to an element type; by default to the one on the other side."""
        step = None if type is None else steps.convert_type(type)
        return self._add(f"convert type ({type})", step)

    def convert_layout(self, dst_layout: Any = None) -> Self:
        """Transpose into a layout, or by numbers of axes; by default into the other side's."""
        if dst_layout is None:
            return self._add("convert layout", lambda value: value)
        wanted = layout_of(dst_layout) if isinstance(dst_layout, (str, Layout)) else dst_layout
        if isinstance(wanted, Layout):
            self._last_layout = wanted
        else:
            self._orders.append([int(axis) for axis in wanted])
        return self._add(f"convert layout {wanted}", steps.convert_layout(wanted))

    def custom(self, operation: Callable[[Any], Any]) -> Self:
        """Call ``operation(output)``, which returns a node, or an output of one."""
        return self._add("custom", steps.custom(operation))


class PostProcessSteps(_Steps):
    """Steps behind the model, in order."""


class PreProcessSteps(_Steps):
    """Steps before the model, in order."""

    def mean(self, values: Any) -> Self:
        """Subtract a number, or one from each channel."""
        return self._add(f"mean ({values})", steps.arithmetic("subtract", values))

    def scale(self, values: Any) -> Self:
        """Divide by a number, or by one for each channel."""
        return self._add(f"scale ({values})", steps.arithmetic("divide", values))

    def resize(
        self,
        alg: ResizeAlgorithm,
        dst_height: int | None = None,
        dst_width: int | None = None,
    ) -> Self:
        """Bring the image to a size; by default to the model's."""
        step = steps.resize(ResizeAlgorithm(alg), dst_height, dst_width)
        return self._add(f"resize to {dst_height or 'model'}×{dst_width or 'model'}", step)

    def convert_color(self, dst_format: ColorFormat) -> Self:
        """Convert the colours."""
        color = ColorFormat(dst_format)
        return self._add(f"convert color ({color.name})", steps.convert_color(color))

    def reverse_channels(self) -> Self:
        """Turn the order of the channels around."""
        return self._add("reverse channels", steps.reverse_channels)

    def crop(self, begin: Sequence[int], end: Sequence[int]) -> Self:
        """Cut out what lies between two places; negative ones count from the end."""
        return self._add(f"crop ({begin}, {end})", steps.crop(list(begin), list(end)))

    def pad(
        self,
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        value: Any,
        mode: PaddingMode,
    ) -> Self:
        """Put numbers around the value."""
        step = steps.pad(list(pads_begin), list(pads_end), value, PaddingMode(mode))
        return self._add(f"pad ({pads_begin}, {pads_end})", step)


class InputInfo(Surface):
    """One input: as the program gives it, what is done to it, and as the model has it."""

    def __init__(self) -> None:
        """Say nothing yet."""
        self._tensor, self._steps, self._model = (
            InputTensorInfo(),
            PreProcessSteps(),
            InputModelInfo(),
        )

    def tensor(self) -> InputTensorInfo:
        """Return what is said of the program's side."""
        return self._tensor

    def preprocess(self) -> PreProcessSteps:
        """Return the steps."""
        return self._steps

    def model(self) -> InputModelInfo:
        """Return what is said of the model's side."""
        return self._model


class OutputInfo(Surface):
    """One output: as the model has it, what is done to it, and as the program wants it."""

    def __init__(self) -> None:
        """Say nothing yet."""
        self._tensor, self._steps, self._model = (
            OutputTensorInfo(),
            PostProcessSteps(),
            OutputModelInfo(),
        )

    def tensor(self) -> OutputTensorInfo:
        """Return what is said of the program's side."""
        return self._tensor

    def postprocess(self) -> PostProcessSteps:
        """Return the steps."""
        return self._steps

    def model(self) -> OutputModelInfo:
        """Return what is said of the model's side."""
        return self._model
