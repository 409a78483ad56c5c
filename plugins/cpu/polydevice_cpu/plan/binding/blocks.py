"""Steps in blocks, bound to memory: what a block reads and writes are copies in the scratchpad."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import MemoryObject, address_of
from polydevice_cpu.plan.step import Block, PrimitiveStep

_Slices = tuple[slice, ...]
_Bound = tuple[list[Array], _Slices, Array, Callable[[], int], _Slices, Array]
"""Margins, what is read and where it is copied to, the call, what is written, and its copy."""


def bind_blocks(
    step: PrimitiveStep,
    arrays: Sequence[Array],
    shared: Mapping[int, MemoryObject],
    scratchpad: Array,
) -> Callable[[], int]:
    """Return a call that computes all blocks and returns a status, 0 for success.

    Args:
        step: which has blocks.
        arrays: [N, C, spatial…]: its source and its result, wherever they are when it is called.
        shared: what all blocks read besides, by index on execution.
        scratchpad: `step.scratchpad_bytes` at least; each block has it to itself.
    """
    bound = [_bind(block, step.copied(block), shared, scratchpad) for block in step.blocks]
    return partial(_run, arrays, bound)


def _bind(
    block: Block, copied: tuple[int, int], shared: Mapping[int, MemoryObject], scratchpad: Array
) -> _Bound:
    made, start = block.primitive, address_of(scratchpad)
    arguments = dict(shared)
    arguments[Arg.SRC] = MemoryObject(made.src, start)
    arguments[Arg.DST] = MemoryObject(made.dst, start + copied[0])
    if made.scratchpad_bytes:
        arguments[Arg.SCRATCHPAD] = MemoryObject(made.scratchpad, start + sum(copied))
    read, written = _plain(made.src, scratchpad, 0), _plain(made.dst, scratchpad, copied[0])
    margins = []
    for axis, part in enumerate(block.place[2:], 2):
        whole = read.swapaxes(axis, 0)
        margins += [whole[: part.start], whole[part.stop :]]
    around = [each for each in margins if each.size]
    return around, block.read, read[block.place], made.bind(arguments), block.write, written


def _plain(layout: Descriptor, data: Array, offset_bytes: int) -> Array:
    """What lies there in memory, in a layout with strides."""
    assert layout.strides is not None
    steps = [step * layout.dtype.itemsize for step in layout.strides]
    found: Array = np.ndarray(layout.shape, layout.dtype, data, offset_bytes, steps)
    return found


def _run(arrays: Sequence[Array], blocks: Sequence[_Bound]) -> int:
    source, target = arrays
    for margins, read, inside, call, write, written in blocks:
        for margin in margins:
            margin.fill(0)
        np.copyto(inside, source[read])
        status = call()
        if status:
            return status
        np.copyto(target[write], written)
    return 0
