"""Col2Im of pictures by machine code."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.patches import Col2Im
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.algorithms.by_machine.windows import overlaid
from polydevice_cpu.algorithms.by_machine.windows.axis import Axis
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn import openmp
from polydevice_cpu.ops.patches import col2im
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(Col2Im)
def lower_col2im(builder: PlanBuilder, node: Node) -> bool:
    """Add up the columns of f32 in two axes."""
    op, (source, *given), target = node.operation(Col2Im), node.inputs, node.output
    known = [port.desc.static_ints for port in given]
    if source.element_type is not ElementType.f32 or target.shape is None or not has_avx512():
        return False
    sizes, kernel = known
    if sizes is None or kernel is None or len(sizes) != 2 or 0 in target.shape.static:
        return False
    value = builder.array_value(source)
    if 0 in value.shape:
        return False
    result = builder.new_dense(target.shape.static, value.dtype)
    start = partial(_start, op, [*sizes], [*kernel], openmp.thread_count())
    step = ArrayStep(node.name, node.type, start, [value], [result], MACHINE_CODE, writes=True)
    builder.emit(step)
    builder.set(target, result)
    return True


def _start(op: Col2Im, sizes: list[int], kernel: list[int], threads: int, _: Context) -> Compute:
    def compute(x: Array, result: Array) -> tuple[()]:
        np.copyto(result, col2im(op, x, np.array(sizes), np.array(kernel)))
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        window, places = op.window(kernel), op.places(sizes, kernel)
        given = zip(
            *(sizes, places, kernel, window.strides, window.dilations, window.pads_begin),
            strict=True,
        )
        down, across = (Axis(*each) for each in given)
        source = values[0]
        columns = math.prod(kernel) * math.prod(places)
        if source.elements % columns or source.shape[-1] != math.prod(places):
            return None  # which NumPy says
        return overlaid.code_of(down, across, source.elements // columns, threads)

    return ByMachine(compute, prepare)
