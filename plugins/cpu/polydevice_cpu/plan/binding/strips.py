"""Steps in strips, bound to memory: calls are made once for a request, and moved for each strip."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor, required
from polydevice_cpu.onednn.engine import Memories
from polydevice_cpu.plan.step import Piece, Strips

MOST = 256
"""Calls of a piece that are kept: one for each of the layers that compute it with weights of their
own, and some whose weights are gone."""


class StripCall(NamedTuple):
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
        self._made: WeakKeyDictionary[Piece, dict[Hashable, StripCall]] = WeakKeyDictionary()

    def calls(
        self,
        pieces: Sequence[Piece],
        constants: Sequence[int],
        whole: Sequence[tuple[int, Descriptor]],
        scratchpad: int,
    ) -> tuple[StripCall, ...]:
        """Return the calls of pieces.

        Args:
            pieces: of one step.
            constants: what they read besides: an argument's index, the handle of its memory object,
                the next one's index…
            whole: what else they read that is one for all positions: index and layout.
            scratchpad: the address of what they may write besides, if they need any.
        """
        key = (*constants, scratchpad, *[(index, layout.key) for index, layout in whole])
        found: list[StripCall] = []
        for piece in pieces:
            known = self._made.get(piece)
            if known is None:
                known = self._made[piece] = {}
            call = known.get(key)
            if call is None:
                if len(known) == MOST:
                    known.clear()
                call = _prepared(piece, constants, whole, scratchpad)
                if all(layout.key is not None for _, layout in whole):
                    known[key] = call
            found.append(call)
        return tuple(found)


def _prepared(
    piece: Piece,
    constants: Sequence[int],
    whole: Sequence[tuple[int, Descriptor]],
    scratchpad: int,
) -> StripCall:
    memories, primitive, moved = Memories(), piece.primitive, []
    handles = list(constants)
    for index, layout in (*piece.layouts.items(), *whole):
        moved.append(memories.at(layout, 0))
        handles += index, moved[-1]
    if primitive.scratchpad_bytes:
        handles += Arg.SCRATCHPAD, memories.at(primitive.scratchpad, scratchpad)
    return StripCall(primitive.call(handles, memories), moved)


def run_strips(strips: Strips, calls: Sequence[StripCall], addresses: Sequence[int]) -> int:
    """Run the calls of strips one after the other; return a status, 0 for success.

    Args:
        strips: of one step.
        calls: of each.
        addresses: of what they are strips of, then of what is one for all positions.
    """
    move = required().set_data_handle
    for piece, (start, _), (run, moved) in zip(*strips, calls, strict=True):
        steps = piece.position_bytes
        for handle, address, size in zip(moved, addresses, steps, strict=False):
            move(handle, address + start * size)
        if len(moved) > len(steps):
            for handle, address in zip(moved[len(steps) :], addresses[len(steps) :], strict=True):
                move(handle, address)
        status = run()
        if status:
            return status
    return 0
