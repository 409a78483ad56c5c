"""integer_products: products of quantised values and weights become products of integers."""

from __future__ import annotations

import math

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.node import FLOAT_REASON, Node, Port, constant
from polydevice.ops.arithmetic import Add
from polydevice.ops.convolution import (
    Convolution,
    ConvolutionBackpropData,
    ConvolutionLike,
    GroupConvolution,
    GroupConvolutionBackpropData,
)
from polydevice.ops.matmul import MatMul
from polydevice.ops.window import PadType
from polydevice.rewrites.integers.integer_product import IntegerProduct, check_same
from polydevice.rewrites.integers.quantised import (
    QuantisedConstant,
    quantised,
    quantised_constant,
)

PRODUCTS = (
    Convolution,
    GroupConvolution,
    ConvolutionBackpropData,
    GroupConvolutionBackpropData,
    MatMul,
)
_LARGEST_TERM = 255 * 128
_LARGEST_SUM = (1 << 31) - 1


def integer_products(network: Network, kept: KeptLayers) -> None:
    """Replace products whose sources are dequantised integers; note why others stay."""
    new: dict[Port, Port] = {}
    for node in network.nodes():
        node.inputs = [new.get(port, port) for port in node.inputs]
        if not isinstance(node.op, PRODUCTS) or node.output.element_type is not ElementType.f32:
            continue
        made = _made(node, network) if not kept.has(node.layers) else "it is kept in f32"
        if isinstance(made, Port):
            check_same(made, node.output)
            made.names |= node.output.names
            new[node.output] = made
        elif made:
            node.rt_info[FLOAT_REASON] = made


def _made(node: Node, network: Network) -> Port | str:
    """The product of integers; or why there is none, empty where nothing is quantised."""
    source, weights, *rest = node.inputs
    x = quantised(source)
    w = quantised_constant(weights, network.evaluate)
    if x is None:
        return "" if w is None else "its input is not quantised, or not with one constant scale"
    if w is None:
        return "its weights are no constants of at most 8 bits with a scale"
    scale = _per_output(node, w)
    if scale is None:
        return "the scale of its weights varies along other axes than the output channels"
    if not fits(node, w.integers):
        return "its sums may not fit into 32 bits"
    factor = np.asarray(np.float32(x.scale) * scale, np.float32)
    shift = 0 if x.zero and _is_padded(node) else x.zero
    inputs = [
        x.integers,
        constant(f"{node.name}/weights", w.integers).output,
        constant(f"{node.name}/scale", factor).output,
        constant(f"{node.name}/zero", np.asarray(x.zero - shift, np.int32)).output,
        constant(f"{node.name}/factor", np.float32(1)).output,
        *rest,
    ]
    build = Emitter(node.name, origins=node.layers)
    if not shift:
        return build.replacement(node, IntegerProduct(node.op), *inputs)
    made = build.emit(IntegerProduct(node.op), *inputs, name=f"{node.name}/integers")
    # What the zero point adds to every sum is the same wherever no padding takes part.
    added = constant(f"{node.name}/shift", shift_of(node, w.integers, shift, factor))
    return build.replacement(node, Add(), made, added.output)


def _is_padded(node: Node) -> bool:
    """Whether elements that are not the input's take part in some sums."""
    op = node.op
    if isinstance(op, MatMul):
        return False
    assert isinstance(op, ConvolutionLike)
    if isinstance(op, ConvolutionBackpropData):
        return True
    if op.auto_pad is PadType.VALID:
        return False
    return op.auto_pad is not PadType.EXPLICIT or any((*op.pads_begin, *op.pads_end))


def shift_of(node: Node, weights: Array, zero: int, factor: Array | np.float32) -> Array:
    """-zero * (sum of the weights) * scale of every output, broadcasting to the result."""
    wide = weights.astype(np.int64)
    if isinstance(node.op, MatMul):
        sums = wide.sum(axis=-1 if node.op.transpose_b or weights.ndim == 1 else -2)
        if weights.ndim > 2 and node.inputs[0].desc.rank != 1:  # a vector's result has no rows
            sums = sums[..., np.newaxis, :]
    else:
        assert isinstance(node.op, ConvolutionLike)
        outputs = 2 if node.op.grouped else 1
        sums = wide.sum(axis=tuple(range(outputs, weights.ndim))).reshape(1, -1)
        spatial = weights.ndim - outputs - 1
        sums = sums.reshape(*sums.shape, *[1] * spatial)
    result: Array = (-zero * sums * factor.astype(np.float64)).astype(np.float32)
    return result


def _per_output(node: Node, w: QuantisedConstant) -> Array | None:
    """The scale as it broadcasts to the result; None where it varies inside a sum."""
    rank = w.integers.ndim
    outputs: tuple[int, ...]
    if isinstance(node.op, MatMul):
        outputs = () if rank < 2 else (rank - 2,) if node.op.transpose_b else (rank - 1,)
    elif isinstance(node.op, ConvolutionLike) and node.op.grouped:
        outputs = (0, 2) if isinstance(node.op, ConvolutionBackpropData) else (0, 1)
    else:
        outputs = (1,) if isinstance(node.op, ConvolutionBackpropData) else (0,)
    if any(n != 1 for axis, n in enumerate(w.scale.shape) if axis not in outputs):
        return None
    if w.scale.size == 1:
        return w.scale.reshape(())
    sizes = [w.integers.shape[axis] for axis in outputs]
    shape = [n if axis in outputs else 1 for axis, n in enumerate(w.integers.shape)]
    numbers: Array = np.broadcast_to(w.scale, shape).reshape(math.prod(sizes))
    if isinstance(node.op, MatMul):
        return numbers
    spatial = rank - (3 if isinstance(node.op, ConvolutionLike) and node.op.grouped else 2)
    return numbers.reshape(1, -1, *[1] * spatial)


def fits(node: Node, weights: Array) -> bool:
    """Whether every sum of products with these weights fits into 32 bits."""
    return _terms(node, weights) * _LARGEST_TERM <= _LARGEST_SUM


def _terms(node: Node, weights: Array) -> int:
    """How many products an element of the result is the sum of, at most."""
    if isinstance(node.op, MatMul):
        return int(weights.shape[-1 if node.op.transpose_b or weights.ndim == 1 else -2])
    outputs = 1 if not isinstance(node.op, ConvolutionBackpropData) else 0
    return int(math.prod(weights.shape[outputs:]))
