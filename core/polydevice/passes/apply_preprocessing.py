"""apply_preprocessing: make an input's preprocessing part of the graph.

The device then runs it like any other part of the network, and fuses it where it can.
"""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.errors import NetworkError
from polydevice.network import Network, namer
from polydevice.network.port_setting import default_layout
from polydevice.network.preprocess import ColorFormat, PreProcessInfo, ResizeAlgorithm
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Divide, Maximum, Minimum, Multiply, Subtract
from polydevice.ops.color import I420toBGR, NV12toBGR
from polydevice.ops.gather import Gather
from polydevice.ops.generate import Range
from polydevice.ops.interpolate import Interpolate4, InterpolateMode, ShapeCalculation
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import ShapeOf, Unsqueeze
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
    emitter = Emitter(f"{node.name}/preprocess")
    node.op = node.op.replace(
        element_type=blob_type, shape=_blob_shape(node.name, shape, steps, order)
    )
    node.infer()
    if steps.color_format in _PLANAR:
        node.rt_info["blob_layout"] = "NHWC"
    current = _to_bgr(emitter, port, steps.color_format, order)
    current = emitter.convert(current, ElementType.f32)
    current = _resize(emitter, current, shape, steps.resize_algorithm)
    current = _normalise(emitter, current, shape, steps)
    current = emitter.convert(current, own_type)
    emitter.name_nodes([], namer(network))
    for user, index in consumers:
        user.inputs[index] = current


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


def _to_bgr(emitter: Emitter, port: Port, color: ColorFormat, order: list[int] | None) -> Port:
    """Bring any colour format and layout to NCHW, with blue first unless it is RAW."""
    if color in _PLANAR:
        port = emitter.emit(_PLANAR[color](), port)
        order = [default_layout(4).index(letter) for letter in "NHWC"]
    if order is not None:
        port = emitter.transpose(port, np.argsort(order).tolist())
    if color in (ColorFormat.RGB, ColorFormat.RGBX, ColorFormat.BGRX):
        chosen = (0, 1, 2) if color is ColorFormat.BGRX else (2, 1, 0)
        port = emitter.emit(Gather(), port, chosen, 1)
    return port


def _resize(emitter: Emitter, port: Port, shape: Shape, algorithm: ResizeAlgorithm) -> Port:
    if algorithm is ResizeAlgorithm.NO_RESIZE:
        return port
    height, width = shape[2], shape[3]
    if not isinstance(height, int) or not isinstance(width, int):
        raise NetworkError(
            f"{emitter.name}: resizing needs a network of fixed height and width, not {shape}; "
            "reshape() the network first"
        )
    if algorithm is ResizeAlgorithm.RESIZE_BILINEAR:
        op = Interpolate4(
            mode=InterpolateMode.LINEAR_ONNX, shape_calculation_mode=ShapeCalculation.SIZES
        )
        return emitter.emit(op, port, [height, width], np.ones(2, np.float32), [2, 3])
    rows = _area_weights(emitter, port, 2, height)
    columns = _area_weights(emitter, port, 3, width)
    shrunk = emitter.emit(MatMul(), rows, port)
    return emitter.emit(MatMul(transpose_b=True), shrunk, columns)


def _area_weights(emitter: Emitter, port: Port, axis: int, size: int) -> Port:
    """Return [size, input size]: how much of each output pixel an input pixel covers.

    Pixel i covers [i·s, (i+1)·s) of the input, s = input size / size; its share of input pixel j
    is the overlap of that interval with [j, j+1), over s. The input's size may be known only when
    an image arrives, so the graph computes it; with a fixed size it is folded into a constant.
    """
    f32 = ElementType.f32
    zero, one = np.zeros((), np.float32), np.ones((), np.float32)
    sizes = emitter.emit(ShapeOf(output_type=ElementType.i64), port)
    length = emitter.convert(emitter.emit(Gather(), sizes, axis, 0), f32)
    scale = emitter.emit(Divide(), length, np.asarray(size, np.float32))
    pixels = emitter.emit(Range(output_type=f32), zero, length, one)
    begins = np.arange(size, dtype=np.float32)[:, None]
    ends = np.arange(1, size + 1, dtype=np.float32)[:, None]
    left = emitter.emit(Unsqueeze(), pixels, [0])
    right = emitter.emit(Subtract(), left, np.asarray(-1, np.float32))
    low = emitter.emit(Maximum(), emitter.emit(Multiply(), begins, scale), left)
    high = emitter.emit(Minimum(), emitter.emit(Multiply(), ends, scale), right)
    overlap = emitter.emit(Maximum(), emitter.emit(Subtract(), high, low), zero)
    return emitter.emit(Divide(), overlap, scale)


def _normalise(emitter: Emitter, port: Port, shape: Shape, steps: PreProcessInfo) -> Port:
    if not steps.channels:
        return port
    channels, height, width = shape[1:]
    if len(steps) != channels:
        raise NetworkError(
            f"{emitter.name}: means for {len(steps)} channels are set, the input has {channels}"
        )
    sizes = (height, width) if isinstance(height, int) and isinstance(width, int) else None
    mean, scale = steps.mean(sizes), steps.scale()
    if np.any(mean != 0):
        port = emitter.emit(Subtract(), port, mean)
    if np.any(scale != 1):
        port = emitter.emit(Divide(), port, scale)
    return port
