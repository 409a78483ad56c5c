"""PairwiseCoupling by machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.coupling import PairwiseCoupling
from polydevice_cpu.algorithms.by_machine.code import Told
from polydevice_cpu.algorithms.by_machine.learned import coupling
from polydevice_cpu.lower import lowers
from polydevice_cpu.ops.coupling import NEAR, most_iterations, pairwise_coupling
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE_OF_ANY, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


MOST_CLASSES = 128
"""Of more, a row takes so long that others may have to end the inference in between."""


@lowers(PairwiseCoupling)
def lower_pairwise_coupling(builder: PlanBuilder, node: Node) -> bool:
    """Iterate over rows of f32."""
    op, x = node.operation(PairwiseCoupling), builder.array_value(node.inputs[0])
    if op.classes > MOST_CLASSES or x.dtype != np.float32 or 0 in x.shape:
        return False
    if not coupling.is_there():
        return False
    result = builder.new_dense((x.shape[0], op.classes), x.dtype)
    room = builder.new_dense((coupling.room(op.classes),), x.dtype)

    def start(_: Context) -> Compute:
        def compute(x: Array, result: Array, _room: Array) -> tuple[()]:
            np.copyto(result, pairwise_coupling(op, x))
            return ()

        def prepare(values: Sequence[Value]) -> Told:
            given = op.classes, most_iterations(op.classes), NEAR / op.classes
            return coupling.coupling(values[0].shape[0], *given)

        return ByMachine(compute, prepare, may_refuse=False)

    builder.emit(
        ArrayStep(
            *(node.name, node.type, start, [x], [result, room], MACHINE_CODE_OF_ANY), writes=True
        )
    )
    builder.set(node.outputs[0], result)
    return True
