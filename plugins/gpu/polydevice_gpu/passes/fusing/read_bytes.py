"""read_bytes: pointwise operations read bytes and compute the floats that are made of them.

A residual sum of a quantised network adds what DequantizeLinear makes of bytes that a convolution
reads, too. The sum's epilogue makes them itself: no launch, and a quarter of what is read.
"""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fused
from polydevice_gpu.passes.fusing.fuse_pointwise import has_room, without_repetition

MOST_STEPS = 4
"""Conversion, zero point, scale and one more: what is computed again by every reader is short."""

_BYTES = (ElementType.u8, ElementType.i8)


def read_bytes(graph: GpuGraph, target: Target) -> None:
    """Let all readers that can compute floats of bytes do so; drop what nobody reads then."""
    del target  # all devices gain
    users = graph.users()
    for node in list(graph.nodes):
        if not _widens(node):
            continue
        value = node.output
        readers = list(dict.fromkeys(users.get(value, [])))
        able = [reader for reader in readers if _takes(reader, node)]
        for reader in able:
            _inline(reader, node)
            for read in node.inputs:
                users.setdefault(read, []).append(reader)
        if able == readers and able and not value.is_output:
            graph.nodes.remove(node)
            able[0].origins += node.origins


def _widens(node: GpuNode) -> bool:
    """Whether a node computes floats of the bytes of one value and of single numbers."""
    if not isinstance(node.op, Fused) or len(node.op.fragment.steps) > MOST_STEPS:
        return False
    values = [v for v in node.inputs if v.constant is None or v.elements != 1]
    if len(values) != 1 or not node.output.storage.is_float or not node.op.fragment.steps:
        return False
    return values[0].storage in _BYTES and values[0].shape == node.output.shape


def _takes(reader: GpuNode, node: GpuNode) -> bool:
    """Whether a node reads another's result in pointwise operations alone."""
    value = node.output
    if reader.is_opaque or not has_room(reader, node):
        return False
    if isinstance(reader.op, Fused):
        return value.border is None
    return value not in reader.own_inputs and value in reader.extra_inputs


def _inline(reader: GpuNode, node: GpuNode) -> None:
    fragment = node.operation(Fused).fragment
    if isinstance(reader.op, Fused):
        inputs, positions = _behind(reader.inputs, node)
        made = reader.op.fragment.reading(fragment, positions)
        reader.op = Fused(without_repetition(made, inputs, 0))
        reader.inputs = inputs
        return
    epilogue = reader.epilogue
    assert epilogue is not None
    own, (extras, positions) = reader.own_inputs, _behind(reader.extra_inputs, node)
    made = epilogue.reading(fragment, [1 + position for position in positions])
    reader.epilogue = without_repetition(made, extras, 1)
    reader.inputs = [*own, *extras]


def _behind(inputs: list[Value], node: GpuNode) -> tuple[list[Value], list[int]]:
    """Return inputs with those of a node instead of its result, and where that was."""
    positions = [number for number, value in enumerate(inputs) if value is node.output]
    kept = [value for value in inputs if value is not node.output]
    return [*kept, *node.inputs], positions
