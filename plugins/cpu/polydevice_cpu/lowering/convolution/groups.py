"""Convolutions in groups of few channels: oneDNN's code for them, and what is faster."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.windows import sums
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.algorithms.by_machine.windows.window_code import Bundle
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.constants import DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.plan.post_ops import links_of
from polydevice_cpu.plan.replacement import Fused, Replacement
from polydevice_cpu.plan.step import CodeStep
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

_IN_LINE = "jit:avx512_core"
"""oneDNN's code for groups of channels that lie next to each other."""

_LONGEST = 9
"""Elements along a window up to which it is there for all sizes of pictures."""


def is_as_good(other: Primitive, made: Primitive, node: Node) -> bool:
    """Whether a convolution is the same code as another one, or better than products for groups.

    16 groups of 5 channels of 28x28, windows of 3x3: 112 us; oneDNN prefers products that take 306.
    """
    if other.implementation == made.implementation:
        return True
    if not made.implementation.startswith("x64:gemm") or other.implementation != _IN_LINE:
        return False
    weights = node.inputs[1].shape
    assert weights is not None
    kernel = node.operation(Convolution).window(weights).kernel
    return math.prod(kernel) > 1 and max(kernel) <= _LONGEST


def replacement(builder: PlanBuilder, node: Node) -> Replacement | None:
    """What takes the place of oneDNN's primitive where that is slower; None where it is not.

    Not in plans that are filled in for new shapes, which have the same code.
    """
    if not isinstance(node.op, GroupConvolution) or current_trace() is not None:
        return None
    source, weights, target = (port.shape for port in (*node.inputs[:2], node.output))
    if source is None or weights is None or target is None or len(weights) != 5:
        return None
    if node.inputs[1].desc.constant is None or builder.settings.heavy is not DataType.F32:
        return None
    groups, results, given = weights.static[:3]
    if groups == 1 or not Bundle.of(groups, given, results).is_faster or not has_avx512():
        return None
    return partial(_emit, node, _windows(node))


def _windows(node: Node) -> Windows:
    source, weights = (port.shape for port in node.inputs[:2])
    assert source is not None
    assert weights is not None
    window = node.operation(Convolution).window(weights)
    pads, gaps = window.pads(source.static[2:])[0], (each - 1 for each in window.dilations)
    sizes = weights.static[3:], tuple(window.strides), tuple(gaps), tuple(pads)
    return Windows(*sizes, is_depthwise=False, groups=weights.static[0])


def in_bundles(weights: Array) -> Array:
    """Weights [groups, O, C, rows, columns] as [bundles, rows, columns, C, groups of one * O]."""
    groups, results, given, *window = weights.shape
    size = Bundle.of(groups, given, results).size
    grouped = weights.reshape(groups // size, size, results, given, *window)
    made = np.ascontiguousarray(grouped.transpose(0, 4, 5, 3, 1, 2))
    return made.reshape(-1, *window, given, size * results)


def _emit(node: Node, windows: Windows, builder: PlanBuilder, fused: Fused) -> Value | None:
    """Emit the step; None where there is no code for what follows, or a window reads nothing."""
    links = links_of(fused.post_ops)
    source, target = node.inputs[0].shape, node.output.shape
    array = node.inputs[1].desc.constant
    assert source is not None
    assert target is not None
    assert array is not None
    told = sums.arguments(source.static, target.static, windows)
    if links is None or told is None:
        return None
    has_bias = fused.bias is not None
    bias = np.ascontiguousarray(fused.bias, np.float32) if has_bias else None
    weights = builder.derived(array, "bundles of groups", in_bundles)
    constants = sums.Constants(weights, bias, None, [link[1:] for link in links])
    functions = sums.Functions(
        [link[0] for link in links],
        terms=Terms.ALL_CHANNELS,
        has_bias=has_bias,
        bundle=told.cover.bundle,
    )
    code = sums.code_of(functions, told, constants, openmp.thread_count())
    if code is None:
        return None
    wanted = Descriptor.channels_last(source.static)
    read = builder.in_layout(builder.value(node.inputs[0]), wanted)
    result = builder.new(Descriptor.channels_last(target.static))
    builder.emit(CodeStep(fused.name, fused.type, code, [read, read], [result], fused.layers))
    return result
