"""What the CPU plugin wants done to networks before it compiles them."""

from __future__ import annotations

import math
from collections.abc import Callable

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.convolution import ConvolutionBackpropData, GroupConvolution
from polydevice.ops.convolution_special import DeformableConvolution
from polydevice.ops.gather import GatherElements
from polydevice.ops.matmul import Einsum
from polydevice.ops.normalization import MVN, BatchNormInference, EpsMode, NormalizeL2
from polydevice.ops.pooling import AvgPool
from polydevice.ops.scatter import ScatterElementsUpdate, ScatterNDUpdate
from polydevice.rewrites import Wishes, always
from polydevice.rewrites.facts import is_known, numbers_of, rank_of
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.rewrites.recognise.activation import RECOGNISED
from polydevice.rewrites.recognise.embedding import Rotation
from polydevice.rewrites.rule import first_of
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.precision import LONGEST
from polydevice_cpu.passes.convolution.deformable_convolution import COLUMNS
from polydevice_cpu.passes.convolution.grouped_convolution import GROUPED, GROUPED_INTEGERS
from polydevice_cpu.passes.convolution.transposed_convolution import (
    FEW_INTEGER_RESULTS,
    FEW_RESULTS,
)
from polydevice_cpu.passes.integers.byte_functions import is_looked_up
from polydevice_cpu.passes.whole_rows import ROWS_PUT, ROWS_TAKEN
from polydevice_cpu.processor import has_int8


def _is_f32(node: Node) -> bool:
    return node.outputs[0].element_type is ElementType.f32


def _is_plain(node: Node) -> bool:
    """Whether scale and mask can be post-operations of the first product, and no sink is there."""
    scale = node.inputs[4].desc.rank if len(node.inputs) > 4 else 0
    return _is_f32(node) and len(node.inputs) < 6 and scale == 0


def _is_last(node: Node) -> bool:
    """Whether a normalisation is over the last axes, where values lie side by side."""
    if not _is_f32(node) or not is_known(node.inputs[1]):
        return False
    rank, axes = rank_of(node.inputs[0]), sorted(numbers_of(node.inputs[1]))
    return axes == list(range(rank - len(axes), rank))


def _is_of_channels(node: Node) -> bool:
    """Whether a normalisation is over axis 1, with others behind it."""
    known = _is_f32(node) and is_known(node.inputs[1])
    return known and rank_of(node.inputs[0]) > 2 and numbers_of(node.inputs[1]) == [1]


def _has_primitive(node: Node) -> bool:
    assert isinstance(node.op, MVN)
    return (_is_last(node) or _is_of_channels(node)) and node.op.eps_mode is EpsMode.INSIDE_SQRT


def _is_long(node: Node) -> bool:
    """Whether windows have so many elements that oneDNN's sums of them in order are far off.

    An average of a million times 0.1 is a hundredth off by its code for AVX2.
    """
    return math.prod(node.operation(AvgPool).kernel) > LONGEST


def cpu_wishes(*, integers: bool, prepare: Callable[[Network], None]) -> Wishes:
    """Everything not decomposed has a function of its own here, which is faster than its parts."""
    return Wishes(
        decompose={
            AvgPool: _is_long,
            BatchNormInference: _is_f32,  # its factor may join weights, or machine code compute it
            ScaledDotProductAttention: _is_plain,
            Einsum: _is_f32,
            ScatterNDUpdate: always,  # of a block: what it is made of may join other layers
        },
        own={
            GroupConvolution: GROUPED,
            IntegerProduct: first_of(GROUPED_INTEGERS, FEW_INTEGER_RESULTS),
            ConvolutionBackpropData: FEW_RESULTS,
            DeformableConvolution: COLUMNS,
            GatherElements: ROWS_TAKEN,
            ScatterElementsUpdate: ROWS_PUT,
        },
        recognise={
            **dict.fromkeys(RECOGNISED, _is_f32),
            MVN: _has_primitive,
            NormalizeL2: _is_last,
            Rotation: lambda _: has_avx512(),
        },
        integers=integers and has_int8(),
        floats=integers,
        exact=is_looked_up,
        collect=True,
        select=True,
        join=True,
        branches=True,
        look_up=True,
        prepare=prepare,
    )
