"""What ONNX Runtime writes at its highest level: convolutions on channels in blocks.

Values here have their channels in the plain order, filled up to whole blocks as there; weights,
which the file has in the order of the blocks, are put in the plain one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polydevice.dtype import Array
from polydevice.node import Port
from polydevice.ops.arithmetic import Add
from polydevice.ops.interpolate import CoordinateMode, NearestMode
from polydevice.ops.pad import Pad
from polydevice.ops.reduce import ReduceMax, ReduceMean
from polydevice.ops.slice import Slice
from polydevice.ops.transpose import Transpose
from polydevice.processor.machine_code import processor_flags
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.readers.onnx.operators.convolution import convolve, fused_activation
from polydevice.readers.onnx.operators.interpolate import interpolated
from polydevice.readers.onnx.operators.pooling import average, maximum
from polydevice.readers.onnx.protos.messages import GraphProto

_BLOCKS = "com.microsoft.nchwc"
_SMALL, _LARGE = 8, 16
"""Channels of a block, of processors without AVX-512 and of those with it."""


def _block(graph: GraphProto) -> int:
    """Return how many channels a block has; the file says it only where they are filled up.

    Else it was written for a processor like this one, as ONNX Runtime takes it.
    """
    found = set(_told_blocks(graph))
    if len(found) == 1:
        return found.pop()
    return _LARGE if "avx512f" in processor_flags() else _SMALL


def _told_blocks(graph: GraphProto) -> Iterator[int]:
    """Yield sizes of blocks that filled up channels tell."""
    weights = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    channels = {}
    for node in graph.node:
        if node.domain != _BLOCKS or not (node.input and node.output):
            continue
        if node.op_type == "Conv" and len(weights.get("".join(node.input[1:2]), ())) == 4:
            output, inputs = weights[node.input[1]][:2]
            channels[node.output[0]] = output
            if output % _LARGE or (inputs > _LARGE and inputs % _LARGE):
                yield _SMALL
        elif node.op_type == "ReorderOutput":
            kept = next((a.i for a in node.attribute if a.name == "channels"), 0)
            if channels.get(node.input[0], kept) - kept >= _SMALL:
                yield _LARGE


@translates("Conv", domain=_BLOCKS)
def conv(n: OnnxNode) -> Port:
    """Convolution, bias, sum with a fourth input, activation."""
    weights = n.input(1).desc.constant
    if weights is None or weights.ndim != 4:
        raise n.unsupported("its weights must be constant and have 4 axes")
    plain = n.value(_plain(n, weights), n.input(1).element_type)
    y, extra = convolve(n, n.input(0), plain, n.optional(2)), n.optional(3)
    return fused_activation(n, y if extra is None else n.emit(Add(), y, extra))


def _plain(n: OnnxNode, weights: Array) -> Array:
    """Return weights [O, I, H, W] in this order: blocks of O, or of I too, were moved behind."""
    block, groups = n.of_model(_block), n.attribute("group", 1)
    outputs, inputs, *kernel = weights.shape
    # Few input channels, such as those of colours, are read as they are; so are those of groups
    # that have one channel each.
    whole = inputs == 1 if groups > 1 else inputs < block
    if outputs % block or (not whole and inputs % block):
        raise n.unsupported(f"weights {list(weights.shape)} are no blocks of {block} channels")
    if whole:
        blocks = weights.reshape(outputs // block, inputs, *kernel, block)
        return np.ascontiguousarray(blocks.transpose(0, 4, 1, 2, 3)).reshape(weights.shape)
    blocks = weights.reshape(outputs // block, inputs // block, *kernel, block, block)
    return np.ascontiguousarray(blocks.transpose(0, 5, 1, 4, 2, 3)).reshape(weights.shape)


@translates("ReorderInput", domain=_BLOCKS)
def reorder_input(n: OnnxNode) -> Port:
    """Put channels behind the batch, and zeros behind them to fill a block."""
    x = n.input(0)
    if n.attribute("channels_last", 0):
        x = n.emit(Transpose(), x, [0, 3, 1, 2])
    channels = None if x.shape is None else x.shape[1]
    if not isinstance(channels, int):
        raise n.unsupported("how many channels it has must be known")
    more = -channels % n.of_model(_block)
    return n.emit(Pad(), x, [0, 0, 0, 0], [0, more, 0, 0], n.like(0, x)) if more else x


@translates("ReorderOutput", domain=_BLOCKS)
def reorder_output(n: OnnxNode) -> Port:
    """Leave out what filled channels up."""
    y = n.emit(Slice(), n.input(0), [0], [n.required("channels")], [1], [1])
    return n.emit(Transpose(), y, [0, 2, 3, 1]) if n.attribute("channels_last", 0) else y


@translates("MaxPool", domain=_BLOCKS)
def max_pool(n: OnnxNode) -> Port:
    """Maximum of each window."""
    return maximum(n, n.input(0))


@translates("AveragePool", domain=_BLOCKS)
def average_pool(n: OnnxNode) -> Port:
    """Average of each window."""
    return average(n, n.input(0))


@translates("GlobalAveragePool", "GlobalMaxPool", domain=_BLOCKS)
def global_pool(n: OnnxNode) -> Port:
    """Reduction over the spatial axes."""
    kind = ReduceMean if n.op_type == "GlobalAveragePool" else ReduceMax
    return n.emit(kind(keep_dims=True), n.input(0), [2, 3])


@translates("Upsample", domain=_BLOCKS)
def upsample(n: OnnxNode) -> Port:
    """Enlarge by whole scales."""
    scales = n.value(np.array(n.required("scales"), np.float32))
    name = n.attribute("coordinate_transformation_mode", "asymmetric")
    return interpolated(n, scales, CoordinateMode(name), NearestMode.FLOOR, [0, 1, 2, 3])
