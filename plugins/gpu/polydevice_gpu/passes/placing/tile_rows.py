"""tile_rows: rows that only products by warps read lie as these read them.

A warp of `gemm_warps` takes 32 terms of eight rows at a time, which are eight pieces of 64 bytes
where rows lie one after the other. In tiles of eight rows by 32 columns they are 512 bytes side by
side, as its weights are: on an H200, as a stage of one launch, 128x768x3072 takes 6.0 us instead of
8.7, 197x768x3072 8.4 instead of 10.7, and with 768 terms 3.3 instead of 3.8 and 3.9 instead of 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from polydevice.dtype import ElementType
from polydevice_gpu.graph import GpuGraph, GpuNode, Memory, Place, Value
from polydevice_gpu.kernels.kernel import Kernel
from polydevice_gpu.kernels.row_tiles import TILE_COLUMNS, TILE_ROWS
from polydevice_gpu.passes.select_kernels import is_whole

_Uses = dict[Memory, list[tuple[GpuNode, int]]]
"""Memory → nodes, and the number of their input or output."""


def tile_rows(graph: GpuGraph, outside: AbstractSet[Memory]) -> None:
    """Put rows into tiles where one kernel makes them and products by warps alone read them.

    Args:
        graph: with kernels chosen.
        outside: memory that others know, too.
    """
    nodes = [node for node in graph.nodes if not node.is_view]
    makers = _uses((node, node.outputs) for node in nodes)
    readers = _uses((node, node.inputs) for node in nodes)
    known = {value.memory for value in (*graph.inputs.values(), *graph.outputs.values())}
    for memory, uses in readers.items():
        if memory in known or memory in outside or memory.place is not Place.ARENA:
            continue
        made = makers.get(memory, [])
        if len(made) != 1 or not _writes(*made[0]) or not all(_reads(*use) for use in uses):
            continue
        first, *others = (node.inputs[number] for node, number in uses)
        if all(value.shape[-1] == first.shape[-1] for value in others):  # views may be of others
            _tile(memory, first)


def _uses(nodes: Iterable[tuple[GpuNode, Sequence[Value]]]) -> _Uses:
    found: _Uses = {}
    for node, values in nodes:
        for number, value in enumerate(values):
            if value.memory is not None:
                found.setdefault(value.memory, []).append((node, number))
    return found


def _kernel(node: GpuNode) -> Kernel | None:
    return None if node.is_opaque or node.choice is None else node.choice.kernel


def _writes(node: GpuNode, number: int) -> bool:
    """Whether a node stores the whole memory, wherever it is told to."""
    kernel, value = _kernel(node), node.outputs[number]
    memory = value.memory
    if kernel is None or memory is None or not kernel.writes_tiles or number:
        return False
    return value.storage is ElementType.f16 and memory.elements == value.elements


def _reads(node: GpuNode, number: int) -> bool:
    """Whether a node reads the whole memory as rows, which may lie in tiles."""
    kernel, value = _kernel(node), node.inputs[number]
    if kernel is None or not kernel.reads_tiles or number:
        return False
    return is_whole(value) and value.shape[-1] % TILE_COLUMNS == 0


def _tile(memory: Memory, value: Value) -> None:
    columns = value.shape[-1]
    rows = value.elements // columns
    memory.row_tiles = columns
    memory.elements = -(-rows // TILE_ROWS) * TILE_ROWS * columns
