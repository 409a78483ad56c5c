"""Rotation, what rotary embeddings are, by machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.rewrites.recognise.embedding import Rotation
from polydevice.symbolic_size import is_symbolic
from polydevice_cpu.algorithms.by_machine.code import Told
from polydevice_cpu.algorithms.by_machine.rows import rotation as by_machine
from polydevice_cpu.lower import lowers
from polydevice_cpu.ops.embedding import rotation
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(Rotation)
def lower_rotation(builder: PlanBuilder, node: Node) -> bool:
    """Turn rows as they lie: those of heads beside each other need no copy."""
    target = node.output.shape
    if target is None or is_symbolic(target.static[-1]):
        return False
    x = builder.value(node.inputs[0])
    if x.strides is None or x.dtype != np.float32 or x.strides[-1] != 1:
        x = builder.array_value(node.inputs[0])
    angles = [builder.array_value(port) for port in node.inputs[1:]]
    if angles[0].shape[-1] != angles[1].shape[-1]:
        return False
    result = builder.new_dense(target.static, x.dtype)
    step = ArrayStep(
        *(node.name, node.type, _start, [x, *angles], [result], MACHINE_CODE), writes=True
    )
    builder.emit(step)
    builder.set(node.output, result)
    return True


def _start(_: Context) -> Compute:
    def compute(x: Array, cos: Array, sin: Array, result: Array) -> tuple[()]:
        np.copyto(result, rotation(Rotation(), x, cos, sin))
        return ()

    return ByMachine(compute, _prepare, may_refuse=False)


def _prepare(values: Sequence[Value]) -> Told | None:
    forms = []
    for each in values:
        if each.strides is None:
            return None
        size = each.dtype.itemsize
        forms.append((each.shape, tuple(step * size for step in each.strides)))
    return by_machine.prepared(forms)
