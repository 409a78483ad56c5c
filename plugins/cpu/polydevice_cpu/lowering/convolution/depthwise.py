"""Depthwise convolutions between layers in bfloat16, by machine code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.algorithms.by_machine.depthwise import layer
from polydevice_cpu.algorithms.by_machine.depthwise.layer import Layer
from polydevice_cpu.algorithms.by_machine.windows.following import Link
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.constants import DataType
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.post_ops import links_of
from polydevice_cpu.plan.replacement import Fused, Replacement
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


def is_by_machine(builder: PlanBuilder, node: Node) -> bool:
    """Whether machine code may compute a convolution, so that it reads and writes bfloat16.

    oneDNN's code for that takes twice as long as the one in f32, for which what is read is written
    in f32 and what is written is made bfloat16 again. So do templates, whose sizes are not known.
    """
    settings = builder.settings
    if settings.heavy is not DataType.BF16 or settings.kept.has(node.layers):
        return False
    source, weights = (port.shape for port in node.inputs[:2])
    if not isinstance(node.op, GroupConvolution) or source is None or weights is None:
        return False
    if current_trace() is not None or node.inputs[1].desc.constant is None:
        return False
    if len(weights) != 5 or weights.static[1:3] != (1, 1) or 0 in source.static:
        return False
    window = node.op.window(weights)
    is_dense = set(window.dilations) == {1}
    return is_dense and layer.is_known(_layer(node, ())) and layer.is_there()


def _pads(node: Node) -> tuple[int, ...]:
    window = node.operation(Convolution).window(node.inputs[1].shape or ())
    source = node.inputs[0].shape
    assert source is not None
    return tuple(window.pads(source.static[2:])[0])


def replacement(builder: PlanBuilder, node: Node) -> Replacement | None:
    """What takes the place of oneDNN's primitive, and of what was fused into it; None for none."""
    return partial(_emit, node) if is_by_machine(builder, node) else None


def _emit(node: Node, builder: PlanBuilder, fused: Fused) -> Value | None:
    """Emit the step; None where there is no code for a function that was fused."""
    links = links_of(fused.post_ops)
    if links is None:
        return None
    source, target = node.inputs[0].shape, node.output.shape
    weights = node.inputs[1].desc.constant
    assert source is not None
    assert target is not None
    assert weights is not None
    made = _layer(node, links)
    read = builder.in_layout(
        builder.value(node.inputs[0]), Descriptor.channels_last(source.static, DataType.BF16)
    )
    result = builder.new(Descriptor.channels_last(target.static, DataType.BF16))
    bias = np.zeros(source.static[1], np.float32) if fused.bias is None else fused.bias
    constants = [
        builder.constant(builder.derived(each, "blocks of channels", layer.packed))
        for each in (weights, bias)
    ]
    threads = openmp.thread_count()
    step = ArrayStep(
        *(fused.name, fused.type, partial(_start, made, threads)),
        *([read, *constants], [result], MACHINE_CODE),
        writes=True,
        layers=fused.layers,
    )
    builder.emit(step)
    return result


def _layer(node: Node, links: Sequence[Link]) -> Layer:
    source, weights, target = (port.shape for port in (node.inputs[0], node.inputs[1], node.output))
    assert source is not None
    assert weights is not None
    assert target is not None
    window = node.operation(Convolution).window(weights)
    steps = tuple(window.strides)
    return Layer(source.static, target.static, weights.static[3:], steps, _pads(node), tuple(links))


def _start(made: Layer, threads: int, _: Context) -> Compute:
    def write(*arrays: Array) -> tuple[()]:
        layer.code(made).bound([address_of(array) for array in arrays])()
        return ()

    return ByMachine(write, lambda _: layer.code(made, threads))
