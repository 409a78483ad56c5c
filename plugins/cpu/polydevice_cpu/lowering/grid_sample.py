"""GridSample by machine code, of f32 in pictures and volumes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.grid_sample import GridSample
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512
from polydevice_cpu.algorithms.by_machine.resampling import filters
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn import openmp
from polydevice_cpu.ops.grid_sample import grid_sample
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(GridSample)
def lower_grid_sample(builder: PlanBuilder, node: Node) -> bool:
    """Find positions, weights and samples in one go."""
    if not has_avx512() or any(p.element_type is not ElementType.f32 for p in node.inputs):
        return False
    x, grid = (builder.array_value(port) for port in node.inputs)
    sizes = x.shape[2:]
    if not filters.is_known(sizes) or grid.shape[-1] != len(sizes) or len(grid.shape) < 3:
        return False
    if 0 in (*x.shape, *grid.shape) or x.shape[0] != grid.shape[0]:
        return False
    result = builder.new_dense((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    start = partial(_start, node.operation(GridSample), openmp.thread_count())
    step = ArrayStep(node.name, node.type, start, [x, grid], [result], MACHINE_CODE, writes=True)
    builder.emit(step)
    builder.set(node.outputs[0], result)
    return True


def _start(op: GridSample, threads: int, _: Context) -> Compute:
    def compute(x: Array, grid: Array, result: Array) -> tuple[()]:
        np.copyto(result, grid_sample(op, x, grid))
        return ()

    def prepare(values: Sequence[Value]) -> Code:
        (images, channels, *sizes), places = values[0].shape, values[1].shape
        form = filters.Form(op.mode, op.padding_mode, len(sizes))
        points = math.prod(places[1:-1])
        return filters.code_of(
            form,
            filters.Points(images, channels, tuple(sizes), 1, points),
            threads,
            align_corners=op.align_corners,
        )

    return ByMachine(compute, prepare)
