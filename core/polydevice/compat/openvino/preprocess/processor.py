"""PrePostProcessor: makes the steps part of the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.preprocess.enums import ColorFormat
from polydevice.compat.openvino.preprocess.infos import InputInfo, InputTensorInfo, OutputInfo
from polydevice.compat.openvino.preprocess.steps import (
    Value,
    converted,
    in_layout,
    permutation,
)
from polydevice.compat.openvino.surface import Surface
from polydevice.compat.openvino.types.layout import NOTE, Layout
from polydevice.network import unique_name
from polydevice.node import Node, Port
from polydevice.ops import io
from polydevice.shape import Dim, DimLike, Shape

_SPLIT = {
    ColorFormat.NV12_TWO_PLANES: ((1, 1), (2, 2)),
    ColorFormat.I420_THREE_PLANES: ((1, 1), (2, 1), (2, 1)),
}
"""By what each plane is smaller than the image, and its channels."""
_ONE_PLANE = (ColorFormat.NV12_SINGLE_PLANE, ColorFormat.I420_SINGLE_PLANE)
_CHANNELS = {ColorFormat.RGBX: 4, ColorFormat.BGRX: 4, ColorFormat.GRAY: 1}
_THREE = (ColorFormat.RGB, ColorFormat.BGR)


class PrePostProcessor(Surface):
    """Collects what is to be done to a model's inputs and outputs; `build` does it."""

    def __init__(self, model: Model) -> None:
        """Begin with nothing to do."""
        self._model = model
        self._inputs = [InputInfo() for _ in model.inputs]
        self._outputs = [OutputInfo() for _ in model.outputs]

    def input(self, key: Any = None) -> InputInfo:
        """Return what is said of an input, by name or number, or of the only one.

        Raises:
            RuntimeError: there is none.
        """
        return self._inputs[_which(self._model.inputs, key, "input")]

    def output(self, key: Any = None) -> OutputInfo:
        """Return what is said of an output, by name or number, or of the only one.

        Raises:
            RuntimeError: there is none.
        """
        return self._outputs[_which(self._model.outputs, key, "output")]

    @translated
    def build(self) -> Model:
        """Make it all part of the model, which is changed and returned.

        Raises:
            RuntimeError: something does not fit; the model is then not to be used.
        """
        network = self._model._network
        parameters = list(network.parameters)
        for info, node in zip(self._inputs, parameters, strict=True):
            self._build_input(info, node)
        for wanted, result in zip(self._outputs, list(network.results), strict=True):
            self._build_output(wanted, result)
        network.infer()
        self._inputs = [InputInfo() for _ in self._model.inputs]
        self._outputs = [OutputInfo() for _ in self._model.outputs]
        return self._model

    def _build_input(self, info: InputInfo, node: Node) -> None:
        network, port = self._model._network, node.output
        readers = network.consumers()[port]
        own_type, own_shape = port.element_type, port.shape
        noted = info._model._layout or Layout(str(node.rt_info.get(NOTE) or "..."))
        model_layout = (info._steps._last_layout or noted) if noted.empty else noted
        layout = _tensor_layout(info._tensor, model_layout)
        given = _before(info._steps._orders, own_shape) if model_layout.empty else own_shape
        shape = _tensor_shape(info._tensor, given, layout, model_layout)
        for said, sizes in ((layout, shape), (model_layout, own_shape)):
            if sizes is not None:
                said._axes(len(sizes))  # raises where it is one of another rank
        element = info._tensor._element or own_type
        planes = self._planes(node, info._tensor, element, shape)
        if not layout.empty:
            node.rt_info[NOTE] = str(layout)
        value = Value(planes, layout, info._tensor._color, (own_shape, model_layout))
        for _, step in info._steps._steps:
            value = (
                value.with_port(converted(value.port, own_type)) if step is None else step(value)
            )
        value = in_layout(value, model_layout)
        last = converted(value.port, own_type)
        for reader, index in readers:
            reader.inputs[index] = last

    def _planes(
        self, node: Node, tensor: InputTensorInfo, element: Any, shape: Shape | None
    ) -> tuple[Port, ...]:
        """Give the parameter the program's type and shape; further planes are new parameters."""
        network = self._model._network
        color = tensor._color
        split = _SPLIT.get(color)
        if split is None or shape is None:
            node.op = node.op.replace(element_type=element, shape=shape)
            node.infer()
            return (node.output,)
        names = tensor._sub_names or [str(index) for index in range(len(split))]
        if len(names) != len(split):
            raise RuntimeError(
                f"{color.name} has {len(split)} planes; {len(names)} names are given"
            )
        batch, height, width = shape[0], shape[1], shape[2]
        base, place = node.name, network.parameters.index(node)
        tensors = sorted(node.output.names) or [base]
        ports = []
        for index, ((part, channels), name) in enumerate(zip(split, names, strict=True)):
            sizes = Shape([batch, _part(height, part), _part(width, part), channels])
            op = io.Parameter(element, sizes)
            if index == 0:
                node.op, made = op, node
                made.infer()
            else:
                made = Node(unique_name(network, f"{base}/{name}"), op)
                network.parameters.insert(place + index, made)
            made.name = f"{base}/{name}"
            made.output.names = {f"{each}/{name}" for each in tensors}
            ports.append(made.output)
        return tuple(ports)

    def _build_output(self, info: OutputInfo, result: Node) -> None:
        port = result.inputs[0]
        model_layout = info._model._layout or Layout(str(result.rt_info.get(NOTE) or "..."))
        wanted = info._tensor._layout or model_layout
        element = info._tensor._element
        value = Value((port,), model_layout, ColorFormat.UNDEFINED, (port.shape, model_layout))
        for _, step in info._steps._steps:
            if step is not None:
                value = step(value)
            elif element is not None:
                value = value.with_port(converted(value.port, element))
        if element is not None:
            value = value.with_port(converted(value.port, element))
        value = in_layout(value, wanted)
        if not wanted.empty:
            result.rt_info[NOTE] = str(wanted)
        if value.port is port:
            return
        names = set(port.names)
        if not isinstance(port.node.op, io.Parameter):
            port.names.clear()
        value.port.names |= names
        result.inputs = [value.port]
        result.infer()

    def __repr__(self) -> str:
        lines = []
        for port, info in zip(self._model.inputs, self._inputs, strict=True):
            lines.append(f'Input "{port.any_name}":')
            lines.append(
                f"    Model's expected tensor: {port.partial_shape}, {port.element_type.type_name}"
            )
            lines += [f"      {text}" for text, _ in info._steps._steps]
        for out, each in zip(self._model.outputs, self._outputs, strict=True):
            lines.append(f'Output "{out.any_name}":')
            lines += [f"      {text}" for text, _ in each._steps._steps]
        return "\n".join(lines)


def _which(ports: Any, key: Any, what: str) -> int:
    if key is None:
        if len(ports) != 1:
            raise RuntimeError(f"the model has {len(ports)} {what}s; name one, or give its number")
        return 0
    if isinstance(key, str):
        for index, port in enumerate(ports):
            if key in port.get_names():
                return index
        raise RuntimeError(f"the model has no {what} {key!r}")
    if not 0 <= key < len(ports):
        raise RuntimeError(f"the model has no {what} {key}; it has {len(ports)}")
    return int(key)


def _tensor_layout(tensor: InputTensorInfo, model_layout: Layout) -> Layout:
    if tensor._layout is not None:
        return tensor._layout
    interleaved = (*_SPLIT, *_ONE_PLANE, ColorFormat.RGBX, ColorFormat.BGRX)
    return Layout("NHWC") if tensor._color in interleaved else model_layout


def _before(orders: Sequence[Sequence[int]], shape: Shape | None) -> Shape | None:
    """Return the sizes that become `shape` by these transposes, one after the other."""
    for order in reversed(orders):
        if shape is None or sorted(order) != list(range(len(shape))):
            return shape  # the step says so
        sizes: list[DimLike] = list(shape)
        for size, axis in zip(shape, order, strict=True):
            sizes[axis] = size
        shape = Shape(sizes)
    return shape


def _tensor_shape(
    tensor: InputTensorInfo, own: Shape | None, layout: Layout, model_layout: Layout
) -> Shape | None:
    """Return the sizes of what the program gives."""
    if tensor._shape is not None:
        return tensor._shape
    if own is None:
        return None
    sizes: list[DimLike] = list(own)
    if not layout.empty and not model_layout.empty and layout != model_layout:
        names = model_layout._axes(len(own))
        rank = len(layout._before) + len(layout._after) if not layout._dynamic else len(own)
        wanted = layout._axes(rank)
        kept = [i for i, name in enumerate(names) if len(wanted) == len(names) or name in wanted]
        order = permutation([names[i] for i in kept], wanted)
        sizes = [own[kept[i]] for i in order]
    if tensor._spatial is not None:
        for name, size in zip("HW", tensor._spatial, strict=True):
            sizes[layout.get_index_by_name(name)] = size
    color = tensor._color
    if color in _ONE_PLANE:
        rows = layout.get_index_by_name("H")
        height = sizes[rows]
        sizes[rows] = height * 3 // 2 if isinstance(height, int) else Dim()
        sizes[layout.get_index_by_name("C")] = 1
    if (color in _CHANNELS or color in _THREE) and layout.has_name("C"):
        sizes[layout.get_index_by_name("C")] = _CHANNELS.get(color, 3)
    return Shape(sizes)


def _part(size: DimLike, by: int) -> DimLike:
    if by == 1:
        return size
    return size // by
