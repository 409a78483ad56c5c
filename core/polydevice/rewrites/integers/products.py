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
from polydevice.ops.op import Op
from polydevice.ops.window import PadType
from polydevice.rewrites.borders import with_border
from polydevice.rewrites.integers.integer_product import IntegerProduct, check_same
from polydevice.rewrites.integers.quantised import (
    QuantisedConstant,
    quantised,
    quantised_constant,
)
from polydevice.rewrites.integers.sums import may_lack, ones, whole
from polydevice.rewrites.wishes import When, always

PRODUCTS = (
    Convolution,
    GroupConvolution,
    ConvolutionBackpropData,
    GroupConvolutionBackpropData,
    MatMul,
)
WORTH_SUMS = 64
"""Products of so many terms pay for summing up their source besides, on a CPU of AVX-512 VNNI: of
text direction and detection, u8 weights, all took 4.7 and 18.2 ms, those from here on 3.6 and 15.6,
from 256 on 3.4 and 16.9, and open_nsfw 10.1, 10.7 and 15.0."""
_LARGEST_BYTE = 255
_KEPT = "it is kept in f32"
_LARGEST_SUM = (1 << 31) - 1


def integer_products(
    network: Network, kept: KeptLayers, *, wide: bool = False, takes: When = always
) -> None:
    """Replace products whose sources are dequantised integers; note why others stay."""
    new: dict[Port, Port] = {}
    for node in network.nodes():
        node.inputs = [new.get(port, port) for port in node.inputs]
        if not isinstance(node.op, PRODUCTS) or node.output.element_type is not ElementType.f32:
            continue
        made = _made(node, network, wide, takes) if not kept.has(node.layers) else _KEPT
        if isinstance(made, Port):
            check_same(made, node.output)
            made.names |= node.output.names
            new[node.output] = made
        elif made:
            node.rt_info[FLOAT_REASON] = made


def _made(node: Node, network: Network, wide: bool, takes: When) -> Port | str:
    """The product of integers; or why there is none, empty where nothing is quantised."""
    source, weights, *rest = node.inputs
    x = quantised(source)
    w = quantised_constant(weights, network.evaluate)
    if x is None:
        return "" if w is None else "its input is not quantised, or not with one constant scale"
    if w is None:
        return "its weights are no constants of at most 8 bits with a scale"
    if not takes(node):
        return "the device multiplies floats for it"
    if wide:
        w = _with_lacking(node.op, w)
    scale = per_output(node, w.scale, w.integers)
    if scale is None:
        return "the scale of its weights varies along other axes than the output channels"
    if w.lacking.any() and not (
        may_lack(node.op, w.integers) and _terms(node, w.integers) >= WORTH_SUMS
    ):
        return "its weights do not fit into i8, and to sum up its input would take as long"
    if not fits(node, w.integers):
        return "its sums may not fit into 32 bits"
    factor = np.asarray(np.float32(x.scale) * scale, np.float32)
    op, data = node.op, x.integers
    if isinstance(op, Convolution):
        op, data = with_border(op, data, node.inputs[1].shape, x.zero) or (op, data)
    shift = 0 if x.zero and _is_padded(op) else x.zero
    zero = constant(f"{node.name}/zero", np.asarray(x.zero - shift, np.int32)).output
    one = constant(f"{node.name}/factor", np.float32(1)).output
    weights = constant(f"{node.name}/weights", w.integers).output
    scales = constant(f"{node.name}/scale", factor).output
    build = Emitter(node.name, origins=node.layers)
    product = IntegerProduct(op)
    inputs = [data, weights, scales, zero, one, *rest]
    if not shift and not w.lacking.any():
        return build.replacement(node, product, *inputs)
    total = build.emit(product, *inputs, name=f"{node.name}/integers")
    full: Array = w.integers
    if w.lacking.any():
        lacking = per_output(node, w.lacking, w.integers)
        assert lacking is not None, "what weights lack varies as their scale does"
        numbers = np.asarray(factor * lacking, np.float32)
        inputs[1] = constant(f"{node.name}/ones", ones(node.op, w.integers, numbers)).output
        inputs[2] = constant(f"{node.name}/lacking", numbers).output
        sums = build.emit(product, *inputs, name=f"{node.name}/sums")
        if not shift:
            return build.replacement(node, Add(), total, sums)
        total = build.emit(Add(), total, sums, name=f"{node.name}/whole")
        full = w.integers + w.lacking
    # What the zero point adds to every sum is the same wherever no padding takes part.
    added = constant(f"{node.name}/shift", shift_of(node, full, shift, factor))
    return build.replacement(node, Add(), total, added.output)


def _with_lacking(op: Op, w: QuantisedConstant) -> QuantisedConstant:
    """Weights as they are where i8 holds them, otherwise in i16, with what they lack there."""
    if not w.lacking.any() or not may_lack(op, w.integers):
        return w
    made = whole(op, w.integers, w.lacking)
    return w if made is None else QuantisedConstant(made, w.scale, np.zeros_like(w.lacking))


def _is_padded(op: Op) -> bool:
    """Whether elements that are not the input's take part in some sums."""
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


def per_output(node: Node, numbers: Array, weights: Array) -> Array | None:
    """Numbers of weights as they broadcast to the result; None where they vary inside a sum."""
    rank = weights.ndim
    outputs: tuple[int, ...]
    if isinstance(node.op, MatMul):
        outputs = () if rank < 2 else (rank - 2,) if node.op.transpose_b else (rank - 1,)
    elif isinstance(node.op, ConvolutionLike) and node.op.grouped:
        outputs = (0, 2) if isinstance(node.op, ConvolutionBackpropData) else (0, 1)
    else:
        outputs = (1,) if isinstance(node.op, ConvolutionBackpropData) else (0,)
    if any(n != 1 for axis, n in enumerate(numbers.shape) if axis not in outputs):
        return None
    if numbers.size == 1:
        return numbers.reshape(())
    sizes = [weights.shape[axis] for axis in outputs]
    shape = [n if axis in outputs else 1 for axis, n in enumerate(weights.shape)]
    each: Array = np.broadcast_to(numbers, shape).reshape(math.prod(sizes))
    if isinstance(node.op, MatMul):
        return each
    spatial = rank - (3 if isinstance(node.op, ConvolutionLike) and node.op.grouped else 2)
    return each.reshape(1, -1, *[1] * spatial)


def fits(node: Node, weights: Array) -> bool:
    """Whether every sum of products with these weights fits into 32 bits."""
    largest = 128 if weights.dtype == np.int8 else int(np.abs(weights.astype(np.int64)).max())
    return _terms(node, weights) * _LARGEST_BYTE * largest <= _LARGEST_SUM


def _terms(node: Node, weights: Array) -> int:
    """How many products an element of the result is the sum of, at most."""
    op = node.op
    if isinstance(op, MatMul):
        return int(weights.shape[-1 if op.transpose_b or weights.ndim == 1 else -2])
    assert isinstance(op, ConvolutionLike)
    first = 1 if op.grouped else 0
    if not isinstance(op, ConvolutionBackpropData):
        return int(math.prod(weights.shape[first + 1 :]))
    # Of a transposed window, the taps that meet an element are those of one remainder by its steps.
    window = op.window(weights.shape)
    steps = [
        stride // math.gcd(stride, dilation)
        for stride, dilation in zip(window.strides, window.dilations, strict=True)
    ]
    kernel = weights.shape[first + 2 :]
    taps = (-(-size // step) for size, step in zip(kernel, steps, strict=True))
    return int(weights.shape[first] * math.prod(taps))
