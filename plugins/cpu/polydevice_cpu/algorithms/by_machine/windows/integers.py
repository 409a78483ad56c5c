"""Sums of products of bytes in registers, and what makes them the numbers that others follow.

A row of weights has, for each channel of the result, those of four channels of a source, which lie
next to each other: one instruction multiplies four bytes without a sign by four with one, and adds
up. Bytes with a sign are moved by 128. What a zero point (and the 128) adds to a sum is the same at
all positions of a tile, and added up once. Sums are exact, whatever the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    LOAD,
    MUL,
    R8,
    R9,
    R10,
    R11,
    R13,
    R15,
    RAX,
    RBP,
    RBX,
    RDI,
)
from polydevice_cpu.algorithms.by_machine.windows.following import AS_FLOATS
from polydevice_cpu.algorithms.by_machine.windows.window_code import WindowCode, at_positions

TOGETHER = 4
"""Channels of a source that are multiplied at once."""

_MOVED, _FACTORS, _SPREAD, _ZERO, _FLIP = range(20, 23), range(23, 29), 29, 30, 31
"""Vectors besides the sums: what moves them, weights, bytes of a source, zero points, and 128s."""

_ADD_PRODUCTS, _ADD_PAIRS, _SUBTRACT, _FLIP_BITS, _SPREAD_BYTE = 0x50, 0x52, 0xFA, 0xEF, 0x78
_AS_INTEGERS, _STORE_BYTES, _LARGER = 0x5B, 0x31, 0x3D


class Held(Enum):
    """What is read or written, by the instruction that makes bytes numbers of 32 bits."""

    FLOATS = None
    UNSIGNED = 0x31
    SIGNED = 0x21

    @property
    def size_bytes(self) -> int:
        """Bytes of a number."""
        return 4 if self is Held.FLOATS else 1


class Integers(NamedTuple):
    """How bytes are read, and what becomes of sums.

    Attributes:
        source: what a source has.
        result: what a result has.
        has_zero: whether there is a zero point, which is subtracted from each byte.
        has_factor: whether there is a number that all sums are multiplied by, besides those that
            channels have.
        rest: of windows of one element, bytes of a position behind the last four; they are read
            with those before them, whose weights are 0 then.
        other: what is added, if that lies elsewhere.
        are_floats: whether sums are such already, of which nothing is to be subtracted.
    """

    source: Held
    result: Held
    has_zero: bool = False
    has_factor: bool = False
    rest: int = 0
    other: Held = Held.FLOATS
    are_floats: bool = False

    @property
    def shift(self) -> int:
        """By how many bits places of what is added are further apart than those of the result."""
        return {1: 0, 4: 2}[self.other.size_bytes] - {1: 0, 4: 2}[self.result.size_bytes]

    @property
    def is_moved(self) -> bool:
        """Whether something is to be subtracted from sums over all channels."""
        return self.has_zero or self.source is Held.SIGNED


def append_start(code: WindowCode, blocks: int, given: Integers, *, is_own: bool) -> None:
    """Load what is the same for all terms; RDI has the address of sizes.

    Args:
        code: where to.
        blocks: of channels.
        given: how bytes are read.
        is_own: whether channels have a source each.
    """
    if given.has_zero:
        code.given(R8, "zero")
        if is_own:
            code.spread(_ZERO, R8)
        else:
            code.vector(_SPREAD_BYTE, _ZERO, 0, R8, kind=2, prefix=1)
    if is_own:
        return
    if given.source is Held.SIGNED:
        code.spread(_FLIP, RDI, behind=2 * len(code.places) + 1)
        if given.has_zero:
            _flip(code, _ZERO)
    for block in range(blocks if given.is_moved else 0):
        code.clear(_MOVED[block])


def append_line(
    code: WindowCode, blocks: int, width: int, masks: Sequence[int], given: Integers
) -> None:
    """Add a line of all channels: eight at a time, and four that are left, and the rest."""
    append = partial(_append_elements, code, blocks, width, masks, given)
    code.move(R13, R9)
    if given.rest:
        code.step(R13, -1)
    code.raw("49d1fd")  # sar r13, 1
    is_one = code.ahead("0f84")  # jz
    next_elements = len(code.text)
    append(2)
    code.again(R13, next_elements)
    code.here(is_one)
    code.raw("41f6c101")  # test r9b, 1
    is_done = code.ahead("0f85" if given.rest else "0f84")
    append(1)
    code.here(is_done)
    if given.rest:
        code.step(RBP, given.rest - TOGETHER)
        append(1)


def _append_elements(
    code: WindowCode, blocks: int, width: int, masks: Sequence[int], given: Integers, count: int
) -> None:
    """Add one or two times four channels of a line times their weights."""
    factors = [_FACTORS[number * blocks :][:blocks] for number in range(count)]
    for place, each in zip(((RDI,), (RDI, R11, 1)), factors, strict=False):
        for block, (mask, factor) in enumerate(zip(masks, each, strict=True)):
            code.vector(LOAD, factor, 0, *place, behind=block, mask=mask)
            if given.is_moved:
                zero = _ZERO if given.has_zero else _FLIP
                _add(code, _ADD_PRODUCTS, _MOVED[block], zero, factor)

    def append(position: int, *place: int) -> None:
        for number, each in enumerate(factors):
            code.spread(_SPREAD, *place, behind=number)
            if given.source is Held.SIGNED:
                _flip(code, _SPREAD)
            for block, factor in enumerate(each):
                _add(code, _ADD_PRODUCTS, block * width + position, _SPREAD, factor)

    code.move(R8, RBP)
    at_positions(code, width, R8, RAX, R15, append)
    code.scaled(RBP, RBP, R10, count)
    code.scaled(RDI, RDI, R11, count)


def append_own(code: WindowCode, width: int, block: int, mask: int, given: Integers) -> None:
    """Add one element of each channel of a block, times a weight, of which there are 16 bits."""
    factor = _FACTORS[0]
    code.vector(LOAD, factor, 0, RDI, behind=block, mask=mask)
    opcode = given.source.value
    assert opcode is not None

    def append(position: int, *place: int) -> None:
        code.vector(opcode, _SPREAD, 0, *place, behind=block, kind=2, prefix=1, mask=mask)
        if given.has_zero:
            code.vector(_SUBTRACT, _SPREAD, _SPREAD, _ZERO, prefix=1, is_memory=False)
        _add(code, _ADD_PAIRS, block * width + position, _SPREAD, factor)

    code.move(R8, RBP)
    at_positions(code, width, R8, RAX, R15, append)


def append_larger(code: WindowCode, width: int, block: int, mask: int, given: Integers) -> None:
    """Compare one element of each channel of a block with the largest so far."""
    opcode = given.source.value
    assert opcode is not None

    def append(position: int, *place: int) -> None:
        code.vector(opcode, _SPREAD, 0, *place, behind=block, kind=2, prefix=1, mask=mask)
        sum_ = block * width + position
        code.vector(_LARGER, sum_, sum_, _SPREAD, kind=2, prefix=1, is_memory=False)

    code.move(R8, RBP)
    at_positions(code, width, R8, RAX, R15, append)


def append_scaled(
    code: WindowCode,
    sums: Sequence[int],
    block: int,
    mask: int,
    given: Integers,
    *,
    is_own: bool,
    has_bias: bool,
) -> None:
    """Make sums of a block floats: multiply by what its channels have, and add their bias."""
    scales = _FACTORS[0]
    code.given(R8, "scales")
    code.vector(LOAD, scales, 0, RBX, R8, behind=block, mask=mask)
    if given.has_factor:
        code.given(R8, "factor")
        code.vector(MUL, scales, scales, R8, is_one=True)
    for sum_ in sums:
        if given.is_moved and not (is_own or given.are_floats):
            code.vector(_SUBTRACT, sum_, sum_, _MOVED[block], prefix=1, is_memory=False)
        if not given.are_floats:
            code.vector(AS_FLOATS, sum_, 0, sum_, is_memory=False)
        code.of_vectors(MUL, sum_, sum_, scales)
        if has_bias:
            code.vector(ADD, sum_, sum_, RBX, behind=block, mask=mask)


def append_stored(code: WindowCode, sum_: int, *place: int, block: int, mask: int) -> None:
    """Store a vector as bytes, whose numbers are between the least and the most of these."""
    code.vector(_AS_INTEGERS, sum_, 0, sum_, prefix=1, is_memory=False)
    append_stored_integers(code, sum_, *place, block=block, mask=mask)


def append_stored_integers(code: WindowCode, sum_: int, *place: int, block: int, mask: int) -> None:
    """Store integers that are bytes as such."""
    code.vector(_STORE_BYTES, sum_, 0, *place, behind=block, kind=2, prefix=2, mask=mask)


def _add(code: WindowCode, opcode: int, sum_: int, first: int, second: int) -> None:
    code.vector(opcode, sum_, first, second, kind=2, prefix=1, is_memory=False)


def _flip(code: WindowCode, register: int) -> None:
    """Move bytes with a sign by 128."""
    code.vector(_FLIP_BITS, register, register, _FLIP, prefix=1, is_memory=False)
