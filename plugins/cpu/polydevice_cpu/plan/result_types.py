"""Results of layers in bfloat16 or f16 that are written in f32, as what reads them takes that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from polydevice.ops.op import Op
from polydevice.ops.pointwise import BinaryPointwise, UnaryPointwise
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice_cpu.algorithms.by_machine.code import has_vectors
from polydevice_cpu.onednn.constants import DataType

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

FUSED = 8
"""How many functions behind a layer are looked at for what reads their result."""

Reads = Callable[["PlanBuilder", "Node"], bool]
"""Whether a node reads f32, whatever heavy layers compute in."""

READERS: dict[type[Op], Reads] = {
    SoftMax: lambda _builder, _node: has_vectors(),
    LogSoftmax: lambda _builder, _node: has_vectors(),
}


def is_read_in_f32(
    builder: PlanBuilder, node: Node, readers: Mapping[type[Op], Reads] = READERS
) -> bool:
    """Whether what is computed in f32 alone reads the result, behind functions that may be fused.

    Then it is written so, where a copy in f32 would have to be made (EfficientNet-Lite0 in bf16 3.7
    instead of 3.2 ms with these copies, when its depthwise convolutions read f32).
    """
    if builder.settings.heavy is DataType.F32:
        return False
    reader, port = builder.reader(node.output), node.output
    for _ in range(FUSED):
        if reader is None or type(reader.op) in readers:
            break
        if len(reader.outputs) != 1 or reader.output.shape != port.shape:
            return False
        if not isinstance(reader.op, (UnaryPointwise, BinaryPointwise)):
            return False
        port = reader.output
        reader = builder.reader(port)
    if reader is None or type(reader.op) not in readers or port is not reader.inputs[0]:
        return False
    return readers[type(reader.op)](builder, reader)


def result_type(builder: PlanBuilder, node: Node, heavy: DataType) -> DataType:
    """The type of a product's result."""
    return DataType.F32 if is_read_in_f32(builder, node) else heavy
