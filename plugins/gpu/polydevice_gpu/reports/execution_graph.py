"""execution_graph: the graph that runs, as a network for inspection."""

from __future__ import annotations

from typing import Any

from polydevice.exec_graph import ExecutedGraph, Execution
from polydevice.network import Network
from polydevice.node import Port
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.ops import Fused
from polydevice_gpu.reports.report import kernel_name
from polydevice_gpu.runtime.layer_times import Times
from polydevice_gpu.runtime.plan import Plan


def execution_graph(plan: Plan, times: Times) -> Network:
    """Return the graph that runs, with kernels, layouts, types and times as notes.

    Views are nodes of it too; they have no time.
    """
    graph = plan.graph
    types = {**graph.types, **plan.layers}
    made = ExecutedGraph()
    ports: dict[Value, Port] = {}
    for name, value in graph.inputs.items():
        ports[value] = made.input(name, _desc(value), _placed([value], "input", original=[name]))
    for node in graph.nodes:
        inputs = [ports[value] for value in node.inputs if value in ports]
        kind = types.get(node.origins[0], node.op.type) if node.origins else "Reorder"
        outputs = [_desc(value) for value in node.outputs]
        found = made.layer(node.name, kind, inputs, outputs, _execution(node, plan, times))
        ports.update(zip(node.outputs, found, strict=True))
    for name, value in graph.outputs.items():
        if value not in ports:  # known at load
            ports[value] = made.layer(value.name, "Const", [], [_desc(value)], Execution())[0]
        made.output(name, ports[value])
    return made.network("runtime_gpu_graph")


def _desc(value: Value) -> TensorDesc:
    return TensorDesc(value.element_type, None if value.on_host else Shape(value.shape))


def _execution(node: GpuNode, plan: Plan, times: Times) -> Execution:
    kernel = str(node.choice or kernel_name(node)) if node in plan.running else "view"
    further = {}
    if isinstance(node.op, Fused):
        further["fusedOperations"] = str(node.op.fragment)
    elif node.epilogue is not None:
        further["fusedOperations"] = str(node.epilogue)
    time = times[node].device_us if node in times else None
    return _placed(
        node.outputs,
        kernel,
        original=node.origins,
        time_us=time,
        computes=node.op.type,
        further=further,
    )


def _placed(values: list[Value], kernel: str, **others: Any) -> Execution:
    return Execution(
        kernel,
        layouts=["host" if value.on_host else value.layout_name for value in values],
        precisions=[value.storage.precision for value in values],
        **others,
    )
