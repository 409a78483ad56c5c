"""Steps in strips, bound to memory: calls are made once for a request, and moved for each strip."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor, required
from polydevice_cpu.onednn.engine import Memories
from polydevice_cpu.plan.step import Piece

MOST = 256
"""Calls of a piece that are kept: one for each of the layers that compute it with weights of their
own, and some whose weights are gone."""


class _Call(NamedTuple):
    """What executes a piece, and the memory objects that are moved for it.

    Attributes:
        moved: those of the piece's layouts, in order, then those that are one for all positions.
    """

    run: Callable[[], int]
    moved: Sequence[int]


class StripCalls:
    """Calls of the pieces of a request's plans, of which one runs at a time.

    To make one takes some 8 us, to move its memory objects 0.3 us each.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._made: WeakKeyDictionary[Piece, dict[Hashable, _Call]] = WeakKeyDictionary()

    def of(
        self,
        piece: Piece,
        constants: Sequence[int],
        whole: Sequence[tuple[int, Descriptor]],
        scratchpad: int,
    ) -> _Call:
        """Return what executes a piece.

        Args:
            piece: the piece.
            constants: what it reads besides: an argument's index, the handle of its memory object,
                the next one's index…
            whole: what else it reads that is one for all positions: index and layout.
            scratchpad: the address of what it may write besides, if it needs any.
        """
        known = self._made.get(piece)
        if known is None:
            known = self._made[piece] = {}
        key = (*constants, scratchpad, *((index, layout.key) for index, layout in whole))
        made = known.get(key)
        if made is None:
            if len(known) == MOST:
                known.clear()
            made = _prepared(piece, constants, whole, scratchpad)
            if all(layout.key is not None for _, layout in whole):
                known[key] = made
        return made


def _prepared(
    piece: Piece,
    constants: Sequence[int],
    whole: Sequence[tuple[int, Descriptor]],
    scratchpad: int,
) -> _Call:
    memories, primitive, moved = Memories(), piece.primitive, []
    handles = list(constants)
    for index, layout in (*piece.layouts.items(), *whole):
        moved.append(memories.at(layout, 0))
        handles += index, moved[-1]
    if primitive.scratchpad_bytes:
        handles += Arg.SCRATCHPAD, memories.at(primitive.scratchpad, scratchpad)
    return _Call(primitive.call(handles, memories), moved)


Part = tuple[Callable[[], int], Sequence[tuple[int, int, int]]]
"""A call; and of each memory object that is moved for it the handle, the number of the address that
it is moved behind, and how many bytes."""


def part(call: _Call, piece: Piece, start: int) -> Part:
    """Return a call for the positions from `start` on."""
    behind = [start * size for size in piece.position_bytes]
    behind += [0] * (len(call.moved) - len(behind))
    return call.run, [(each, k, behind[k]) for k, each in enumerate(call.moved)]


def run_parts(parts: Sequence[Part], addresses: Sequence[int]) -> int:
    """Run calls one after the other; return a status, 0 for success."""
    move = required().set_data_handle
    for run, moves in parts:
        for handle, which, behind in moves:
            move(handle, addresses[which] + behind)
        status = run()
        if status:
            return status
    return 0
