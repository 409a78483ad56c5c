"""Trees: all levels of all trees by one call of machine code."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.trees import TreeEnsemble
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.learned import trees
from polydevice_cpu.algorithms.forest import Forest, Layout, packed
from polydevice_cpu.lower import lowers
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.ops.trees import tree_ensemble
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import MACHINE_CODE_OF_ANY, ArrayStep, ByMachine, Compute
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


@lowers(TreeEnsemble, heavy=True)
def lower_tree_ensemble(builder: PlanBuilder, node: Node) -> bool:
    """Take rows of f32 or f64 through trees that are known."""
    op, constants = node.operation(TreeEnsemble), [port.node.constant for port in node.inputs[1:]]
    tables = [each for each in constants if each is not None]
    x = builder.array_value(node.inputs[0])
    if len(tables) < len(constants) or x.dtype not in (np.float32, np.float64):
        return False
    if not trees.is_there() or 0 in x.shape:
        return False
    forest, (rows, features) = Forest(*tables), x.shape
    name = f"trees {[address_of(table) for table in tables]} {op} {features}"
    found = builder.derived(
        forest.children, name, lambda _: packed(forest, features, op.depth, op.aggregate)
    )
    if not found.size:
        return False
    layout = Layout.of(found)
    result = builder.new_dense((rows, layout.targets), x.dtype)
    keys = builder.new_dense((trees.key_rows(rows), layout.columns), x.dtype)
    start = partial(_start, op, forest, layout, openmp.thread_count())
    given = [x, builder.constant(found)]
    builder.emit(
        ArrayStep(
            *(node.name, node.type, start, given, [result, keys], MACHINE_CODE_OF_ANY), writes=True
        )
    )
    builder.set(node.outputs[0], result)
    return True


def _start(op: TreeEnsemble, forest: Forest, layout: Layout, threads: int, _: Context) -> Compute:
    def compute(x: Array, _packed: Array, result: Array, _keys: Array) -> tuple[()]:
        tables = forest if forest.members is not None else forest[:-1]
        np.copyto(result, tree_ensemble(op, x, *tables))
        return ()

    def prepare(values: Sequence[Value]) -> Code:
        x = values[0]
        return trees.code_of(x.shape, x.dtype, layout, op.aggregate, threads)

    return ByMachine(compute, prepare, may_refuse=False)
