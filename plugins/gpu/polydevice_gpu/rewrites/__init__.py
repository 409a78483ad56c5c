"""What the GPU plugin wants done to networks before they are lowered."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.activation import Sigmoid, Swish
from polydevice.ops.arithmetic import Multiply, Power
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.convolution import Convolution, ConvolutionBackpropData
from polydevice.ops.cumulative import CumProd
from polydevice.ops.interpolate import Interpolate, Interpolate1, Interpolate4, Resize
from polydevice.ops.normalization import MVN, NormalizeL2
from polydevice.ops.op import Op
from polydevice.ops.pooling import AvgPool
from polydevice.ops.quantize_linear import DequantizeLinear
from polydevice.ops.recurrent import SequenceOf
from polydevice.ops.signal import CumSum
from polydevice.rewrites import Rule, Unroll, When, Wishes, always, nothing, rules
from polydevice.rewrites.facts import parameters_known, shape_of
from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.rewrites.integers.rounding.of_bytes import OfBytes
from polydevice_gpu.host_layers import why_on_host
from polydevice_gpu.kernels.attention.attention import LARGEST_HEAD
from polydevice_gpu.kernels.row.cumulative import walks_lines
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type, stored_as
from polydevice_gpu.rewrites.convolution import cuts_patches, of_patches
from polydevice_gpu.rewrites.integer_product import integer_product
from polydevice_gpu.rewrites.interpolate import (
    can_resize,
    interpolate,
    interpolate_1,
    interpolate_4,
    resize,
)
from polydevice_gpu.rewrites.power import is_square, square
from polydevice_gpu.rewrites.recurrent import in_one_launch, runs_in_one_launch
from polydevice_gpu.rewrites.whole_numbers import are_floats_before, dequantise_floats

LEAST_POSITIONS = 1024
"""Smaller windows are walked as fast by the kernels for pooling as many work-groups reduce them."""


def gpu_wishes(
    target: Target,
    *,
    floats: ElementType | None = None,
    integers: bool = False,
    unroll: Unroll = Unroll.NEVER,
    loops: When = always,
    prepare: Callable[[Network], None] = nothing,
) -> Wishes:
    """Return what a device wants: decomposed is what no kernel takes whole.

    Args:
        target: the device.
        floats: the type in which f16 and f32 values are stored; None for each its own.
        integers: whether quantised products are computed on integers.
        unroll: which loops become plain layers.
        loops: see `Wishes`.
        prepare: likewise.
    """

    def stored(port: Port) -> ElementType:
        return stored_as(port.element_type, fp64=target.fp64, floats=floats)

    decompose: dict[type[Op], When] = dict.fromkeys(rules(), always)
    decompose[AvgPool] = lambda node: math.prod(shape_of(node.inputs[0])[2:]) >= LEAST_POSITIONS
    decompose[DynamicRange] = lambda _: target.is_throughput
    for running in (CumSum, CumProd):
        decompose[running] = lambda node: not walks_lines(node, target)
    decompose[ScaledDotProductAttention] = lambda node: not takes_attention(node, stored)
    own: dict[type[Op], Rule] = {
        Convolution: Rule(of_patches, cuts_patches),
        Interpolate1: Rule(interpolate_1, parameters_known),
        Interpolate4: Rule(interpolate_4, parameters_known),
        Interpolate: Rule(interpolate, parameters_known),
        Resize: Rule(resize, can_resize),
        Power: Rule(square, is_square),
        IntegerProduct: Rule(
            lambda build, op, inputs: integer_product(build, op, inputs, target),
            no_condition,
        ),
        SequenceOf: Rule(
            in_one_launch,
            lambda op, inputs: runs_in_one_launch(
                op, inputs, target, stored(inputs[3 + op.states]).bits // 8
            ),
        ),
    }
    if floats is not ElementType.f16:  # which holds no whole numbers beyond 2,048
        own[DequantizeLinear] = Rule(dequantise_floats, are_floats_before)
    return Wishes(
        decompose=decompose,
        own=own,
        recognise={
            MVN: always,
            NormalizeL2: always,
            ScaledDotProductAttention: lambda node: takes_attention(node, stored),
        },
        leave=lambda node: bool(why_on_host(node)),
        unroll=unroll,
        loops=loops,
        integers=integers,
        takes=lambda node: multiplies_integers(node, target),
        wide=target.sums_byte_vectors,
        exact=is_no_swish,
        settle=True,
        collect=True,
        branches=True,
        prepare=prepare,
    )


def no_condition(op: Op, inputs: Sequence[Port]) -> bool:
    """The condition of a rule that always holds."""
    del op, inputs
    return True


def is_no_swish(function: OfBytes) -> bool:
    """Whether a function of integers keeps its roundings: a launch computes them beside products.

    Without them a sixth of GELU's results are a step away; of Swish few are, and the sigmoid is
    quick where nothing asks how it is rounded.
    """
    found = function.functions
    return found.isdisjoint({Sigmoid, Swish}) or not found <= {Multiply, Sigmoid, Swish}


def multiplies_integers(node: Node, target: Target) -> bool:
    """Whether a product of quantised values may be one of integers.

    Transposed convolutions have no kernels for bytes. On processors the floats that they read are
    made where the bytes would be, not by a launch for each that reads them: eight of a denoiser's
    take 0.3 ms less.
    """
    return target.is_throughput or not isinstance(node.op, ConvolutionBackpropData)


def takes_attention(node: Node, stored: Callable[[Port], ElementType]) -> bool:
    """Whether kernels take an attention whole: floats throughout, no values empty, no head huge."""
    assert isinstance(node.op, ScaledDotProductAttention)
    for number, port in enumerate(node.inputs):
        if number == 3 and (node.op.causal or port.element_type is ElementType.boolean):
            continue
        if compute_type(stored(port)) != "float":
            return False
    sizes = [shape_of(port)[-1] for port in (node.inputs[0], node.inputs[2])]
    if any(size > LARGEST_HEAD for size in sizes):
        return False
    return all(math.prod(shape_of(port)) for port in node.inputs[:3])
