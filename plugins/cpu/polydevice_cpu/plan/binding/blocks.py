"""Steps in blocks, bound to memory: what a block reads and writes are copies in the scratchpad."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import Memories, address_of
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.plan.step import Block, PrimitiveStep

_Slices = tuple[slice, ...]
_Call = tuple[Callable[[], int], list[Array]]
"""What executes a primitive, and the copies of its source, its result and operands."""
_Copy = tuple[int, _Slices, Array]
"""Which array is copied, what part of it, and where to."""
_Bound = tuple[list[Array], list[_Copy], Callable[[], int], _Slices, Array]
"""Margins, what is copied, the call, what is written, and its copy."""


MOST = 256
"""Calls of a primitive that are kept, as of `StripCalls`."""


class BlockCalls:
    """Calls of the blocks of a request's plans, of which one runs at a time.

    To make one takes some 30 us.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._made: WeakKeyDictionary[Primitive, dict[Hashable, _Call]] = WeakKeyDictionary()
        self._scratchpad: Array | None = None

    def bind(
        self,
        step: PrimitiveStep,
        arrays: Sequence[Array],
        shared: Sequence[int],
        scratchpad: Array,
        zero: Sequence[Array],
    ) -> Callable[[], int]:
        """Return a call that computes all blocks of a step and returns a status, 0 for success.

        Args:
            step: which has blocks.
            arrays: [N, C, spatial…]: its source, its result and operands of that size, wherever
                they are at the call.
            shared: what all blocks read besides, constants if there are to be calls for other
                steps: an index on execution, the handle of its memory object, the next index…
            scratchpad: `step.scratchpad_bytes` at least; each block has it to itself.
            zero: the source's zero point, if it has one: [1].
        """
        if scratchpad is not self._scratchpad:  # calls keep it in memory
            self._made.clear()
            self._scratchpad = scratchpad
        key = tuple(shared)
        bound = []
        for block in step.blocks:
            made = block.primitive
            known = self._made.get(made)
            if known is None:
                known = self._made[made] = {}
            call = known.get(key)
            if call is None:
                if len(known) == MOST:
                    known.clear()
                call = known[key] = _call(block, step.copied(block), shared, scratchpad)
            bound.append(_bind(block, *call))
        return partial(_run, arrays, bound, zero)


def _call(block: Block, copied: Sequence[int], shared: Sequence[int], scratchpad: Array) -> _Call:
    """What executes a primitive, and the copies that it reads and writes."""
    made, memories = block.primitive, Memories()
    layouts = {Arg.SRC: made.src, Arg.DST: made.dst, **block.operands}
    start, offset, arguments, copies = address_of(scratchpad), 0, [*shared], []
    for (index, layout), size in zip(layouts.items(), copied, strict=True):
        arguments += [index, memories.at(layout, start + offset)]
        copies.append(_plain(layout, scratchpad, offset))
        offset += size
    if made.scratchpad_bytes:
        arguments += [Arg.SCRATCHPAD, memories.at(made.scratchpad, start + offset)]
    return made.call(arguments, memories), copies


def _bind(block: Block, call: Callable[[], int], copies: Sequence[Array]) -> _Bound:
    read, written, *operands = copies
    margins = []
    for axis, part in enumerate(block.place[2:], 2):
        whole = read.swapaxes(axis, 0)
        margins += [whole[: part.start], whole[part.stop :]]
    around = [each for each in margins if each.size]
    moves: list[_Copy] = [(0, block.read, read[block.place])]
    if block.sums:
        moves.append((1, block.write, written))
    moves += [(number, block.write, each) for number, each in enumerate(operands, 2)]
    return around, moves, call, block.write, written


def _plain(layout: Descriptor, data: Array, offset_bytes: int) -> Array:
    """What lies there in memory, in a layout with strides."""
    assert layout.strides is not None
    steps = [step * layout.dtype.itemsize for step in layout.strides]
    found: Array = np.ndarray(layout.shape, layout.dtype, data, offset_bytes, steps)
    return found


def _run(arrays: Sequence[Array], blocks: Sequence[_Bound], zero: Sequence[Array]) -> int:
    target, nothing = arrays[1], zero[0][0] if zero else 0
    for margins, moves, call, write, written in blocks:
        for margin in margins:
            margin.fill(nothing)
        for number, part, place in moves:
            np.copyto(place, arrays[number][part])
        status = call()
        if status:
            return status
        np.copyto(target[write], written)
    return 0
