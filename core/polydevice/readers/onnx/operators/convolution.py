"""Convolutions: grouped, transposed, of integers, with bias and fused activation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from polydevice.dtype import ElementType
from polydevice.emitter import Input
from polydevice.node import Port
from polydevice.ops.activation import (
    Elu,
    HardSigmoid,
    HSwish,
    PRelu,
    Relu,
    Sigmoid,
    SoftPlus,
    SoftSign,
)
from polydevice.ops.arithmetic import Add, Maximum, Minimum, Subtract
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.convolution import (
    Convolution,
    ConvolutionBackpropData,
    GroupConvolution,
    GroupConvolutionBackpropData,
)
from polydevice.ops.convolution_special import DeformableConvolution
from polydevice.ops.math import Tanh
from polydevice.ops.op import Op
from polydevice.ops.reshape import Reshape, ShapeOf
from polydevice.ops.slice import Slice
from polydevice.ops.transpose import Transpose
from polydevice.ops.window import PadType
from polydevice.readers.onnx.catalog import translates
from polydevice.readers.onnx.node import OnnxNode
from polydevice.shape import Shape

_AUTO_PADS = {
    "NOTSET": PadType.EXPLICIT,
    "": PadType.EXPLICIT,
    "SAME_UPPER": PadType.SAME_UPPER,
    "SAME_LOWER": PadType.SAME_LOWER,
    "VALID": PadType.VALID,
}


def auto_pad(n: OnnxNode) -> PadType:
    """Return the kind of padding."""
    name = n.attribute("auto_pad", "NOTSET")
    if name not in _AUTO_PADS:
        raise n.unsupported(f"auto_pad {name!r} is unknown; legal: {', '.join(_AUTO_PADS)}")
    return _AUTO_PADS[name]


def pads(n: OnnxNode, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the pads at the begin and at the end of `rank` spatial axes."""
    both = n.attribute("pads") or [0] * (2 * rank)
    if len(both) != 2 * rank:
        raise n.unsupported(f"pads {both} must have {2 * rank} items")
    return tuple(both[:rank]), tuple(both[rank:])


def spatial(n: OnnxNode, weights: Port, name: str, default: int = 1) -> tuple[int, ...]:
    """Return an attribute with one item per spatial axis."""
    rank = n.rank(weights) - 2
    values = n.attribute(name) or [default] * rank
    if len(values) != rank:
        raise n.unsupported(f"{name} {values} must have {rank} items")
    return tuple(values)


def per_channel(n: OnnxNode, vector: Port, rank: int, axis: int = 1) -> Port:
    """Reshape [C] so that it is broadcast along the channel axis of a tensor of that rank."""
    axis = axis + rank if axis < 0 else axis
    pattern = [1] * rank
    pattern[axis] = -1
    constant = vector.desc.constant
    if constant is not None:
        return n.value(constant.reshape(pattern), vector.element_type)
    return n.emit(Reshape(special_zero=False), vector, pattern)


def in_channels_first(n: OnnxNode, compute: Callable[[Port], Port], *, last: bool) -> Port:
    """Emit what takes the node's first input with its channels behind the batch.

    Args:
        n: the node.
        compute: emits it.
        last: whether input and result have them behind everything.
    """
    x = n.input(0)
    if not last:
        return compute(x)
    order = list(range(n.rank(x)))
    y = compute(n.emit(Transpose(), x, [0, order[-1], *order[1:-1]]))
    return n.emit(Transpose(), y, [0, *order[2:], 1])


def grouped_weights(n: OnnxNode, weights: Port, groups: int) -> Port:
    """Reshape [G*O, ...] to [G, O, ...]."""
    shape = weights.shape
    if shape is None:
        raise n.unsupported("grouped weights need a known rank")
    if isinstance(shape[0], int) and (groups < 1 or shape[0] % groups):
        raise n.unsupported(f"{groups} groups do not divide the {shape[0]} of weights {shape}")
    head = [groups, shape[0] // groups if isinstance(shape[0], int) else -1]
    constant = weights.node.constant  # not what is computed of integers
    if constant is not None:
        return n.value(constant.reshape([*head, *constant.shape[1:]]), weights.element_type)
    known = Shape(shape[1:])
    if known.is_static:
        return n.emit(Reshape(special_zero=False), weights, [*head, *known.static])
    rest = n.emit(Slice(), n.emit(ShapeOf(), weights), [1], [len(shape)], [1], [0])
    return n.emit(Reshape(special_zero=False), weights, n.emit(Concat(0), head, rest))


def convolve(n: OnnxNode, x: Port, weights: Port, bias: Port | None = None) -> Port:
    """Emit a convolution by the attributes of an ONNX Conv."""
    rank = n.rank(weights) - 2
    kernel = n.attribute("kernel_shape")
    assert weights.shape is not None
    if kernel and any(isinstance(w, int) and w != k for w, k in zip(weights.shape[2:], kernel)):
        raise n.unsupported(f"kernel_shape {kernel} does not fit weights {weights.shape}")
    begin, end = pads(n, rank)
    groups = n.attribute("group", 1)
    kind = Convolution if groups == 1 else GroupConvolution
    op = kind(
        spatial(n, weights, "strides"),
        begin,
        end,
        spatial(n, weights, "dilations"),
        auto_pad(n),
    )
    y = n.emit(op, x, weights if groups == 1 else grouped_weights(n, weights, groups))
    return y if bias is None else n.emit(Add(), y, per_channel(n, bias, rank + 2))


@translates("Conv")
def conv(n: OnnxNode) -> Port:
    """Convolution, then bias."""
    return convolve(n, n.input(0), n.input(1), n.optional(2))


@translates("FusedConv", domain="com.microsoft")
def fused_conv(n: OnnxNode) -> Port:
    """Convolution, bias, sum with a fourth input, activation."""
    y = convolve(n, n.input(0), n.input(1), n.optional(2))
    extra = n.optional(3)
    return fused_activation(n, y if extra is None else n.emit(Add(), y, extra))


_WITHOUT_PARAMETERS: dict[str, type[Op]] = {
    "Relu": Relu,
    "Sigmoid": Sigmoid,
    "Tanh": Tanh,
    "Softplus": SoftPlus,
    "Softsign": SoftSign,
    "HardSwish": HSwish,
}


def fused_activation(n: OnnxNode, y: Port) -> Port:
    """Apply the activation that attributes of FusedConv or FusedGemm name.

    Its parameters are a list, `activation_params`, or its own attributes with "activation_" before
    their names, which have the operator's own defaults.
    """
    name = n.attribute("activation", "")
    params = n.attribute("activation_params", [])
    if not name:
        return y
    if name in _WITHOUT_PARAMETERS:
        return n.emit(_WITHOUT_PARAMETERS[name](), y)

    def parameter(index: int, attribute: str, default: float) -> float:
        given = params[index] if index < len(params) else default
        return float(n.attribute(f"activation_{attribute}", given))

    if name == "LeakyRelu":
        slope = parameter(0, "alpha", n.attribute("leaky_relu_alpha", 0.01))
        return n.emit(PRelu(), y, n.like(slope, y))
    if name == "Elu":
        return n.emit(Elu(parameter(0, "alpha", 1.0)), y)
    if name == "HardSigmoid":
        slope, offset = parameter(0, "alpha", 0.2), parameter(1, "beta", 0.5)
        return n.emit(HardSigmoid(), y, n.like(slope, y), n.like(offset, y))
    if name == "Clip" and len(params) == 2:
        return n.emit(Minimum(), n.emit(Maximum(), y, n.like(params[0], y)), n.like(params[1], y))
    raise n.unsupported(f"fused activation {name!r} with parameters {params}")


@translates("ConvTranspose")
def conv_transpose(n: OnnxNode) -> Port:
    """Transposed convolution; its padding follows from output_shape or auto_pad when given."""
    x, weights = n.input(0), n.input(1)
    rank = n.rank(weights) - 2
    groups = n.attribute("group", 1)
    strides, dilations = spatial(n, weights, "strides"), spatial(n, weights, "dilations")
    extra = spatial(n, weights, "output_padding", 0)
    begin, end = pads(n, rank)
    mode, wanted = auto_pad(n), n.attribute("output_shape")
    target: list[Input] = []
    if wanted:
        # To a core operation SAME_UPPER means that the larger half is cut off at the begin.
        upper = mode is PadType.SAME_UPPER
        mode = PadType.SAME_LOWER if upper else PadType.SAME_UPPER
        begin = end = (0,) * rank
        target = [wanted[-rank:]]
    elif mode.is_same:
        kernel = _kernel(n, weights)
        begin, end, extra = _same_pads(
            kernel, strides, dilations, extra, mode is PadType.SAME_UPPER
        )
        mode = PadType.EXPLICIT
    elif mode is PadType.VALID:
        begin, end, mode = (0,) * rank, (0,) * rank, PadType.EXPLICIT
    kind = ConvolutionBackpropData if groups == 1 else GroupConvolutionBackpropData
    op = kind(strides, begin, end, dilations, mode, extra)
    filters = weights if groups == 1 else grouped_weights(n, weights, groups)
    y = n.emit(op, x, filters, *target)
    bias = n.optional(2)
    return y if bias is None else n.emit(Add(), y, per_channel(n, bias, rank + 2))


def _kernel(n: OnnxNode, weights: Port) -> list[int]:
    if weights.shape is not None:
        sizes = [size for size in weights.shape[2:] if isinstance(size, int)]
        if len(sizes) == len(weights.shape) - 2:
            return sizes
    return list(n.required("kernel_shape"))


def _same_pads(
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
    upper: bool,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return pads and output padding with which any size becomes size * stride."""
    begin, end, padding = [], [], []
    for k, stride, dilation, more in zip(kernel, strides, dilations, extra, strict=True):
        total = more + (k - 1) * dilation + 1 - stride
        half = max(total, 0) // 2
        first = half if upper else max(total, 0) - half
        begin.append(first)
        end.append(max(total, 0) - first)
        # Too small an output even without padding is filled up at the end.
        padding.append(more + max(-total, 0))
    return tuple(begin), tuple(end), tuple(padding)


@translates("ConvInteger")
def conv_integer(n: OnnxNode) -> Port:
    """Convolution of 8-bit integers, zero points subtracted, in 32 bits."""
    x = shifted(n, n.input(0), n.optional(2))
    weights, zero = n.input(1), n.optional(3)
    if zero is not None and zero.desc.rank == 1:
        zero = per_channel(n, zero, n.rank(weights), 0)
    return convolve(n, x, shifted(n, weights, zero))


def shifted(n: OnnxNode, x: Port, zero: Port | None) -> Port:
    """Return x - zero as i32."""
    wide = n.emit(Convert(ElementType.i32), x)
    if zero is None:
        return wide
    known = zero.desc.constant
    if known is not None and not known.any():
        return wide
    return n.emit(Subtract(), wide, n.emit(Convert(ElementType.i32), zero))


@translates("DeformConv")
def deform_conv(n: OnnxNode) -> Port:
    """Convolution that samples where offsets say, then bias."""
    x, weights, offsets = n.input(0), n.input(1), n.input(2)
    rank = n.rank(weights) - 2
    begin, end = pads(n, rank)
    op = DeformableConvolution(
        spatial(n, weights, "strides"),
        begin,
        end,
        spatial(n, weights, "dilations"),
        PadType.EXPLICIT,
        n.attribute("group", 1),
        n.attribute("offset_group", 1),
        bilinear_interpolation_pad=True,
    )
    bias, mask = n.optional(3), n.optional(4)
    y = n.emit(op, x, offsets, weights, *([] if mask is None else [mask]))
    return y if bias is None else n.emit(Add(), y, per_channel(n, bias, rank + 2))
