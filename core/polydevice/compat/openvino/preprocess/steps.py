"""The steps of preprocessing and postprocessing: each turns a value into another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from polydevice.compat.openvino.graph.node import port_of
from polydevice.compat.openvino.graph.ports import Output
from polydevice.compat.openvino.models import opsets
from polydevice.compat.openvino.preprocess.enums import ColorFormat, PaddingMode, ResizeAlgorithm
from polydevice.compat.openvino.types.element_type import element_of
from polydevice.compat.openvino.types.layout import Layout
from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.node import Port

_MODES = {
    ResizeAlgorithm.RESIZE_LINEAR: "linear",
    ResizeAlgorithm.RESIZE_CUBIC: "cubic",
    ResizeAlgorithm.RESIZE_NEAREST: "nearest",
    ResizeAlgorithm.RESIZE_BILINEAR_PILLOW: "bilinear_pillow",
    ResizeAlgorithm.RESIZE_BICUBIC_PILLOW: "bicubic_pillow",
}
_PLANES = {
    ColorFormat.NV12_SINGLE_PLANE: "nv12",
    ColorFormat.NV12_TWO_PLANES: "nv12",
    ColorFormat.I420_SINGLE_PLANE: "i420",
    ColorFormat.I420_THREE_PLANES: "i420",
}
_GRAY = np.asarray([0.299, 0.587, 0.114], np.float32)
"""Red, green and blue in what is seen as brightness (ITU-R BT.601)."""


@dataclass(frozen=True)
class Value:
    """What a step takes and gives.

    Attributes:
        ports: the value; of an image in planes, all of them.
        layout: what its axes mean.
        color: what its numbers mean.
        target: the model's input: its shape, in the model's layout, and that layout.
    """

    ports: tuple[Port, ...]
    layout: Layout
    color: ColorFormat
    target: tuple[Any, Layout]

    @property
    def port(self) -> Port:
        """The value, where it is one.

        Raises:
            RuntimeError: it still is in planes.
        """
        if len(self.ports) != 1 or self.color in _PLANES:
            raise RuntimeError(
                f"an image of {self.color.name} must be converted with convert_color() first"
            )
        return self.ports[0]

    @property
    def rank(self) -> int:
        """Number of axes."""
        shape = self.ports[0].shape
        if shape is None:
            raise RuntimeError("a value of unknown rank cannot be preprocessed")
        return len(shape)

    def axis(self, name: str) -> int:
        """Return the axis of that name; raises RuntimeError without one."""
        index = self.layout.get_index_by_name(name)
        return index + self.rank if index < 0 else index

    def with_port(self, port: Port) -> Value:
        """Return another value with the same meaning."""
        return replace(self, ports=(port,))


Step = Callable[[Value], Value]


def call(function: str, *arguments: Any, opset: int = 8, **attributes: Any) -> Port:
    """Make a node and return its output."""
    values = [Output(value) if isinstance(value, Port) else value for value in arguments]
    return port_of(opsets.function(function, opset)(*values, **attributes))


def convert_type(kind: Any) -> Step:
    """Convert to an element type; None is the model's, which is known later."""
    return lambda value: value.with_port(converted(value.port, element_of(kind)))


def converted(port: Port, element: ElementType) -> Port:
    """Return a value as another type."""
    if port.element_type is element:
        return port
    return call("convert", port, element.value)


def arithmetic(function: str, values: Any) -> Step:
    """Subtract a mean, or divide by a scale: one number, or one for each channel."""

    def step(value: Value) -> Value:
        element = value.port.element_type
        if not element.is_float:
            raise RuntimeError(
                f"Mean and scale can be applied to 'float' inputs. Consider using of "
                f"'convert_element_type' before. Current type is: {element}"
            )
        numbers = np.asarray(values, element.dtype)
        if numbers.ndim:
            sizes = [1] * value.rank
            sizes[value.axis("C")] = numbers.size
            numbers = numbers.reshape(sizes)
        return value.with_port(call(function, value.port, numbers))

    return step


def convert_layout(wanted: Layout | Sequence[int]) -> Step:
    """Transpose into another layout, or by the numbers of the axes."""

    def step(value: Value) -> Value:
        if isinstance(wanted, Layout):
            return in_layout(value, wanted)
        axes = [int(axis) for axis in wanted]
        turned = call("transpose", value.port, np.asarray(axes, np.int64))
        layout = value.layout
        if not layout.empty:
            names = layout._axes(value.rank)
            layout = Layout("[" + ",".join(names[axis] for axis in axes) + "]")
        return replace(value, ports=(turned,), layout=layout)

    return step


def in_layout(value: Value, wanted: Layout) -> Value:
    """Return a value in another layout; axes that it lacks are made, of size 1.

    Raises:
        RuntimeError: a layout does not fit, or names axes that the other lacks.
    """
    if wanted.empty or value.layout.empty or wanted == value.layout:
        return value
    names, port = value.layout._axes(value.rank), value.port
    lacking = [name for name in (*wanted._before, *wanted._after) if name not in names]
    if lacking and not wanted._dynamic:
        port = call("unsqueeze", port, np.arange(len(lacking), dtype=np.int64))
        names = lacking + names
    order = permutation(names, wanted._axes(len(names)))
    if order != list(range(len(names))):
        port = call("transpose", port, np.asarray(order, np.int64))
    return replace(value, ports=(port,), layout=wanted)


def permutation(names: list[str], wanted: list[str]) -> list[int]:
    """Return the axes of one layout in the order of another; axes without a name stay in order."""
    free = [axis for axis, name in enumerate(names) if name == "?" or name not in wanted]
    order = []
    for name in wanted:
        if name != "?" and name in names:
            order.append(names.index(name))
        elif free:
            order.append(free.pop(0))
        else:
            raise RuntimeError(f"layouts {names} and {wanted} have different axes")
    return order


def resize(algorithm: ResizeAlgorithm, height: int | None, width: int | None) -> Step:
    """Bring an image to a size; None takes the model's."""

    def step(value: Value) -> Value:
        sizes = [_size(value, name, given) for name, given in (("H", height), ("W", width))]
        axes = [value.axis("H"), value.axis("W")]
        if axes[0] > axes[1]:
            axes, sizes = axes[::-1], sizes[::-1]
        pads = [0] * value.rank
        port = call(
            "interpolate",
            value.port,
            np.asarray(sizes, np.int64),
            _MODES[algorithm],
            "sizes",
            pads,
            pads,
            cube_coeff=-0.5 if algorithm is ResizeAlgorithm.RESIZE_BICUBIC_PILLOW else -0.75,
            axes=np.asarray(axes, np.int64),
            opset=11,
        )
        return value.with_port(port)

    return step


def _size(value: Value, name: str, given: int | None) -> int:
    if given is not None:
        return int(given)
    shape, layout = value.target
    axis = layout.get_index_by_name(name)
    size = None if shape is None else shape[axis]
    if not isinstance(size, int):
        raise RuntimeError(
            f"the model's {name} is not known; give resize() a height and width, or reshape the "
            "model first"
        )
    return size


def crop(begin: Sequence[int], end: Sequence[int]) -> Step:
    """Cut out what lies between two places; negative ones count from the end."""
    if len(begin) != len(end):
        raise RuntimeError(f"crop() takes as many begins as ends, not {begin} and {end}")

    def step(value: Value) -> Value:
        ones, axes = np.ones(len(begin), np.int64), np.arange(len(begin), dtype=np.int64)
        first, last = np.asarray(begin, np.int64), np.asarray(end, np.int64)
        return value.with_port(call("slice", value.port, first, last, ones, axes))

    return step


def pad(begin: Sequence[int], end: Sequence[int], number: Any, mode: PaddingMode) -> Step:
    """Put numbers around a value."""
    if np.size(number) != 1:
        raise RuntimeError(f"pad() takes one value for all channels, not {number}")

    def step(value: Value) -> Value:
        fill = np.asarray(number, value.port.element_type.dtype).reshape(())
        first, last = np.asarray(begin, np.int64), np.asarray(end, np.int64)
        return value.with_port(call("pad", value.port, first, last, mode.name.lower(), fill))

    return step


def reverse_channels(value: Value) -> Value:
    """Turn the order of the channels around."""
    channels = (value.port.shape or ())[value.axis("C")]
    if not isinstance(channels, int):
        raise RuntimeError("channels of an unknown number cannot be turned around")
    return _turned(value, channels)


def _turned(value: Value, channels: int) -> Value:
    order = np.arange(channels)[::-1].astype(np.int64)
    axis = np.asarray(value.axis("C"), np.int64)
    return value.with_port(call("gather", value.port, order, axis))


def custom(operation: Callable[[Any], Any]) -> Step:
    """Do whatever a function of the program's does."""
    return lambda value: value.with_port(port_of(operation(Output(value.port))))


def convert_color(wanted: ColorFormat) -> Step:
    """Convert an image's colours.

    Raises:
        RuntimeError: (from the step) there is no way from the one to the other.
    """

    def step(value: Value) -> Value:
        have = value.color
        if have is wanted:
            return value
        if have in _PLANES and wanted in (ColorFormat.RGB, ColorFormat.BGR):
            port = call(f"{_PLANES[have]}_to_{wanted.name.lower()}", *value.ports)
            return Value((port,), Layout("NHWC"), wanted, value.target)
        if have.name[:3] in ("RGB", "BGR") and wanted.name in ("RGB", "BGR", "GRAY"):
            made = _without_fourth(value) if have.name.endswith("X") else value
            if wanted is ColorFormat.GRAY:
                return replace(_gray(made, have.name.startswith("RGB")), color=wanted)
            turned = made if have.name.startswith(wanted.name) else _turned(made, 3)
            return replace(turned, color=wanted)
        raise RuntimeError(f"colours cannot be converted from {have.name} to {wanted.name}")

    return step


def _without_fourth(value: Value) -> Value:
    axis = np.asarray([value.axis("C")], np.int64)
    last, one = np.asarray([-1], np.int64), np.asarray([1], np.int64)
    return value.with_port(call("slice", value.port, np.zeros(1, np.int64), last, one, axis))


def _gray(value: Value, rgb: bool) -> Value:
    element = value.port.element_type
    sizes = [1] * value.rank
    axis = value.axis("C")
    sizes[axis] = 3
    weights = (_GRAY if rgb else _GRAY[::-1]).reshape(sizes)
    bright = call("multiply", converted(value.port, ElementType.f32), weights)
    port = call("reduce_sum", bright, np.asarray([axis], np.int64), True)
    if element.is_integer:
        port = call("round", port, "half_to_even")
    return value.with_port(converted(port, element))
