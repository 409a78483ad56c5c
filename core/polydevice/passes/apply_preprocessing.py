"""apply_preprocessing: make an input's preprocessing part of the graph.

The device then runs it like any other part of the network, and fuses it where it can.
"""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.errors import NetworkError
from polydevice.network import Network
from polydevice.node import Node, Port, constant
from polydevice.ops.arithmetic import Divide, Maximum, Minimum, Multiply, Subtract
from polydevice.ops.color import I420toBGR, NV12toBGR
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather
from polydevice.ops.generate import Range
from polydevice.ops.interpolate import Interpolate4, InterpolateMode, ShapeCalculation
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.ops.reshape import ShapeOf, Unsqueeze
from polydevice.ops.transpose import Transpose
from polydevice.port_setting import default_layout
from polydevice.preprocess import ColorFormat, PreProcessInfo, ResizeAlgorithm
from polydevice.shape import DimLike, Shape

_CHANNELS = {ColorFormat.RGB: 3, ColorFormat.BGR: 3, ColorFormat.RGBX: 4, ColorFormat.BGRX: 4}
_PLANAR = {ColorFormat.NV12: NV12toBGR, ColorFormat.I420: I420toBGR}


def apply_preprocessing(
    network: Network,
    node: Node,
    steps: PreProcessInfo,
    blob_type: ElementType,
    order: list[int] | None,
) -> None:
    """Change a parameter to what the user hands over, and insert the steps behind it.

    Args:
        network: the network.
        node: one of its parameters, of shape [N, C, H, W].
        steps: what to do.
        blob_type: element type of the blob.
        order: the blob's order as positions in NCHW; None for NCHW.

    Raises:
        NetworkError: when the parameter is no image, or the steps do not fit it.
    """
    port = node.output
    shape = port.shape
    if shape is None or len(shape) != 4:
        raise NetworkError(
            f"input {node.name!r} of shape {shape} cannot be preprocessed; it needs [N, C, H, W]"
        )
    own_type, consumers = port.element_type, network.consumers()[port]
    builder = _Builder(node.name)
    node.op = node.op.replace(
        element_type=blob_type, shape=_blob_shape(node.name, shape, steps, order)
    )
    node.infer()
    if steps.color_format in _PLANAR:
        node.rt_info["blob_layout"] = "NHWC"
    current = _to_bgr(builder, port, steps.color_format, order)
    current = builder.convert(current, ElementType.f32)
    current = _resize(builder, current, shape, steps.resize_algorithm)
    current = _normalise(builder, current, shape, steps)
    current = builder.convert(current, own_type)
    for user, index in consumers:
        user.inputs[index] = current


class _Builder:
    """Makes nodes whose names begin with the input's."""

    def __init__(self, name: str) -> None:
        self.name = f"{name}/preprocess"
        self.count = 0

    def add(self, op: Op, *inputs: Port) -> Port:
        self.count += 1
        return Node(f"{self.name}/{op.type}_{self.count}", op, inputs).output

    def constant(self, value: object, element_type: ElementType | None = None) -> Port:
        self.count += 1
        return constant(f"{self.name}/constant_{self.count}", value, element_type).output

    def ints(self, *values: int) -> Port:
        return self.constant(np.asarray(values, np.int64))

    def convert(self, port: Port, element_type: ElementType) -> Port:
        if port.element_type is element_type:
            return port
        return self.add(Convert(destination_type=element_type), port)


def _blob_shape(name: str, shape: Shape, steps: PreProcessInfo, order: list[int] | None) -> Shape:
    """Return the shape of what the user hands over."""
    batch, channels, height, width = shape
    if steps.color_format is not ColorFormat.RAW and channels != 3:
        raise NetworkError(
            f"input {name!r} has {channels} channels; {steps.color_format.name} makes 3 (BGR)"
        )
    if steps.resize_algorithm is not ResizeAlgorithm.NO_RESIZE:
        height, width = Shape([None, None])
    if steps.color_format in _PLANAR:
        rows: DimLike = height * 3 // 2 if isinstance(height, int) else Shape([None])[0]
        return Shape([batch, rows, width, 1])
    sizes = [batch, _CHANNELS.get(steps.color_format, channels), height, width]
    return Shape(sizes if order is None else [sizes[i] for i in order])


def _to_bgr(builder: _Builder, port: Port, color: ColorFormat, order: list[int] | None) -> Port:
    """Bring any colour format and layout to NCHW, with blue first unless it is RAW."""
    if color in _PLANAR:
        port = builder.add(_PLANAR[color](), port)
        order = [default_layout(4).index(letter) for letter in "NHWC"]
    if order is not None:
        back = np.argsort(order).astype(np.int64)
        port = builder.add(Transpose(), port, builder.constant(back))
    if color in (ColorFormat.RGB, ColorFormat.RGBX, ColorFormat.BGRX):
        chosen = (0, 1, 2) if color is ColorFormat.BGRX else (2, 1, 0)
        axis = builder.constant(np.asarray(1, np.int64))
        port = builder.add(Gather(), port, builder.ints(*chosen), axis)
    return port


def _resize(builder: _Builder, port: Port, shape: Shape, algorithm: ResizeAlgorithm) -> Port:
    if algorithm is ResizeAlgorithm.NO_RESIZE:
        return port
    height, width = shape[2], shape[3]
    if not isinstance(height, int) or not isinstance(width, int):
        raise NetworkError(
            f"{builder.name}: resizing needs a network of fixed height and width, not {shape}; "
            "reshape() the network first"
        )
    if algorithm is ResizeAlgorithm.RESIZE_BILINEAR:
        op = Interpolate4(
            mode=InterpolateMode.LINEAR_ONNX, shape_calculation_mode=ShapeCalculation.SIZES
        )
        scales = builder.constant(np.ones(2, np.float32))
        return builder.add(op, port, builder.ints(height, width), scales, builder.ints(2, 3))
    rows = _area_weights(builder, port, 2, height)
    columns = _area_weights(builder, port, 3, width)
    shrunk = builder.add(MatMul(), rows, port)
    return builder.add(MatMul(transpose_b=True), shrunk, columns)


def _area_weights(builder: _Builder, port: Port, axis: int, size: int) -> Port:
    """Return [size, input size]: how much of each output pixel an input pixel covers.

    Pixel i covers [i·s, (i+1)·s) of the input, s = input size / size; its share of input pixel j
    is the overlap of that interval with [j, j+1), over s. The input's size may be known only when
    an image arrives, so the graph computes it; with a fixed size it is folded into a constant.
    """
    f32 = ElementType.f32
    zero, one = builder.constant(np.float32(0)), builder.constant(np.float32(1))
    sizes = builder.add(ShapeOf(output_type=ElementType.i64), port)
    number = builder.constant(np.asarray(axis, np.int64))
    first = builder.constant(np.asarray(0, np.int64))
    length = builder.convert(builder.add(Gather(), sizes, number, first), f32)
    scale = builder.add(Divide(), length, builder.constant(np.float32(size)))
    pixels = builder.add(Range(output_type=f32), zero, length, one)
    begins = builder.constant(np.arange(size, dtype=np.float32)[:, None])
    ends = builder.constant(np.arange(1, size + 1, dtype=np.float32)[:, None])
    left = builder.add(Unsqueeze(), pixels, builder.ints(0))
    right = builder.add(Subtract(), left, builder.constant(np.float32(-1)))
    low = builder.add(Maximum(), builder.add(Multiply(), begins, scale), left)
    high = builder.add(Minimum(), builder.add(Multiply(), ends, scale), right)
    overlap = builder.add(Maximum(), builder.add(Subtract(), high, low), zero)
    return builder.add(Divide(), overlap, scale)


def _normalise(builder: _Builder, port: Port, shape: Shape, steps: PreProcessInfo) -> Port:
    if not steps.channels:
        return port
    channels, height, width = shape[1:]
    if len(steps) != channels:
        raise NetworkError(
            f"{builder.name}: means for {len(steps)} channels are set, the input has {channels}"
        )
    sizes = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    mean, scale = steps.mean(sizes), steps.scale()
    if np.any(mean != 0):
        port = builder.add(Subtract(), port, builder.constant(mean))
    if np.any(scale != 1):
        port = builder.add(Divide(), port, builder.constant(scale))
    return port
