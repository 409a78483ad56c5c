"""Sums of windows over channels in groups: of one group, or of several small ones at once."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    R8,
    R9,
    R13,
    R15,
    RAX,
    RBP,
    RDI,
    RSP,
)
from polydevice_cpu.algorithms.by_machine.windows.window_code import (
    AT,
    Bundle,
    WindowCode,
    at_positions,
)

_THERE = 1
"""Mask: which channels of the last block there are."""

_OF_GROUP = 4
"""Mask: the channels of a group in a vector."""

_PLACES, _FACTORS, _FACTORS_OF_TWO, _SOURCE, _MOVED = 12, 20, 24, 30, 31
"""Vectors besides the sums: which number of the source each number is multiplied by, for each
channel of a group; weights of these; what is read; and what is multiplied."""


def append_begin(code: WindowCode, bundle: Bundle) -> None:
    """Set vectors that stay the same: where each number is that a channel is multiplied by."""
    if not bundle.is_moved:
        return
    spread = partial(code.vector, 0x7C, kind=2, prefix=1, is_memory=False)
    for number in range(bundle.in_vector):
        code.set_bits(((1 << bundle.results) - 1) << bundle.results * number)
        code.set_mask(_OF_GROUP, RAX)
        for channel in range(bundle.given):
            if number == 0:
                code.clear(_PLACES + channel)
            code.set_bits(number * bundle.given + channel)
            spread(_PLACES + channel, 0, RAX, mask=_OF_GROUP)


def append_taps(code: WindowCode, bundle: Bundle, append: Callable[[int], None]) -> None:
    """Add a line of a group's channels, between whose elements lie those of other groups.

    Args:
        code: what has been emitted so far.
        bundle: how many groups are computed at once.
        append: adds so many channels that follow each other, and goes on to the next ones.
    """
    code.store(R9, RSP, AT["taps_left"])
    next_tap = len(code.text)
    if bundle.is_moved:
        append(bundle.given)
    else:
        pairs = bundle.given // 2
        if pairs > 1:
            code.raw("41bd")  # mov r13d, …
            code.text += struct.pack("<i", pairs)
        next_channels = len(code.text)
        if pairs:
            append(2)
        if pairs > 1:
            code.again(R13, next_channels)
        if bundle.given % 2:
            append(1)
    code.add(RBP, RSP, AT["next_tap"])
    code.again(RSP, next_tap, AT["taps_left"])


def append_channels(code: WindowCode, bundle: Bundle, width: int, count: int) -> None:
    """Add so many channels of each group of a bundle, times their weights.

    Args:
        code: what has been emitted so far.
        bundle: which groups are computed at once.
        width: how many positions are.
        count: 1 or 2; all where what is read is moved within vectors.
    """
    row_bytes = 4 * bundle.size * bundle.results
    product = partial(code.vector, 0xB8, kind=2, prefix=1)
    # (weights, the group's vector, its channel)
    first = _FACTORS if bundle.is_moved else _FACTORS_OF_TWO
    pairs = [divmod(each, bundle.vectors) for each in range(count * bundle.vectors)]
    factors = [(first + each, block, number) for each, (number, block) in enumerate(pairs)]
    for factor, block, number in factors:
        mask = _THERE if bundle.is_moved else 0
        offset_bytes = row_bytes * number + 4 * code.lanes * block
        code.vector(LOAD, factor, 0, RDI, offset_bytes=offset_bytes, mask=mask)
    code.move(R8, RBP)

    def multiplied(position: int, *place: int) -> None:
        for factor, block, number in factors:
            behind, sum_ = number + block * bundle.given, block * width + position
            product(sum_, factor, *place, behind=behind, is_one=True)

    def moved(position: int, *place: int) -> None:
        code.vector(LOAD, _SOURCE, 0, *place, mask=_THERE)
        for factor, _, number in factors:
            code.vector(
                *(0x16, _MOVED, _PLACES + number, _SOURCE), kind=2, prefix=1, is_memory=False
            )
            product(position, factor, _MOVED, is_memory=False)

    at_positions(code, width, R8, RAX, R15, moved if bundle.is_moved else multiplied)
    if not bundle.is_moved:
        code.step(RBP, 4 * count)
    code.step(RDI, row_bytes * count)
