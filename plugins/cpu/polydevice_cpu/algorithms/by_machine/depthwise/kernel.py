"""Machine code for depthwise convolutions of bfloat16, for processors with AVX512-BF16.

For a block of 32 channels, or 16 where no more are left, lines of the source become f32 in a ring
on the stack, once, with zeros around the picture; windows are added up from there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    LOAD_WORDS,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    STORE,
    STORE_WORDS,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.windows.following import (
    OF_POWERS,
    Function,
    append_function,
)

LANES = 16
"""Channels of a vector; a block is two: those with even numbers, and those with odd ones."""

HIGHEST = 7
"""Rows that a window has at most."""

SIZES = (
    *("source", "weights", "bias", "result", "items", "each", "taken", "blocks", "bands_across"),
    *("bands_down", "columns", "rows", "last_column", "last_row", "across", "down", "before"),
    *("above", "pixel", "row", "picture", "result_row", "result_picture", "block_weights"),
    *("height", "width", "read", "ring_row", "ring", "tiles", "last_tile", "last_result", "mask"),
)
"""Numbers of 8 bytes that the code reads, by name; see `kernel`."""

AT = {name: number for number, name in enumerate(SIZES)}

_FLOATS = len(SIZES)
"""Where pairs of floats are: 1 and 0, the mask of odd channels and 0, those of each function,
those of powers, and 64 bytes by which even and odd channels are put in order."""

_LOCALS = (
    *("stack", "item", "left", "bias_of_block", "zeros_before", "inside", "zeros_behind"),
    *(f"line{number}" for number in range(HIGHEST)),
)
_LOCAL = {name: number for number, name in enumerate(_LOCALS)}
_RING_AT = 128
"""Bytes from the stack's top to the ring; what is before that are `_LOCALS`."""

_THERE = 1
"""The mask of channels that there are."""


class Form(NamedTuple):
    """What code is emitted for.

    Attributes:
        high, wide: sizes of a window.
        across: positions between two.
        width: how many are computed at once.
        has_pairs: whether there are blocks of more than 16 channels.
        has_half: whether the last block has 16 channels or fewer.
    """

    high: int
    wide: int
    across: int
    width: int
    has_pairs: bool
    has_half: bool


def most_at_once(wide: int) -> int:
    """How many positions may be computed at once, with windows of such a width."""
    return min(24 // 2, (32 - 2 * wide - 2) // 2)


def kernel(form: Form, chain: Sequence[Function]) -> bytes:
    """Return code that any number of threads may run at once.

    It takes the address of numbers, named in `SIZES`: the addresses of source, weights, bias and
    result; how many parts there are, how many of these a thread takes at a time and how many are
    taken; into how many blocks of channels, bands of columns and of rows a picture is cut; how many
    columns and rows these have, and where the last ones begin; positions between two windows, and
    how far the first reach over the beginning; bytes from a pixel to the next, and from one row and
    picture of the source, row and picture of the result, block of weights to the next; rows and
    columns of the source; how many columns of it a band reads; bytes of a line of the ring, and of
    all of it; how many tiles a line has, bytes to the last one's in the ring and in the result; and
    which channels of the last block there are, as bits. Then come floats.

    Args:
        form: what differs.
        chain: what follows.
    """
    code = Instructions()
    code.begin(0)
    code.move(RBP, RSP)
    code.load(RAX, RDI, AT["ring"])
    code.subtract(RSP, RAX)
    code.raw("4883e4c0")  # and rsp, -64
    code.store(RBP, RSP, _LOCAL["stack"])
    claim = len(code.text)
    code.load(RAX, RDI, AT["each"])
    code.move(RDX, RAX)
    code.raw(f"f0480fc147{8 * AT['taken']:02x}")  # lock xadd [rdi + …], rax
    code.load(R11, RDI, AT["items"])
    code.plain(0x3B, RAX, R11)
    at_end = code.ahead("0f83")  # jae
    code.add(RDX, RAX)
    code.plain(0x3B, RDX, R11)
    code.raw("490f47d3")  # cmova rdx, r11
    code.subtract(RDX, RAX)
    code.store(RAX, RSP, _LOCAL["item"])
    code.store(RDX, RSP, _LOCAL["left"])
    next_item = len(code.text)
    _append_places(code, form)
    done = []
    if form.has_pairs and form.has_half:
        is_half = code.ahead("0f84")  # je: it is the last block
        _append_part(code, form, chain, 2)
        done.append(code.ahead())
        code.here(is_half)
        _append_part(code, form, chain, 1)
    else:
        _append_part(code, form, chain, 2 if form.has_pairs else 1)
    for each in done:
        code.here(each)
    code.plain(0xFF, 0, RSP, 8 * _LOCAL["item"])
    code.again(RSP, next_item, _LOCAL["left"])
    code.jump(claim)
    code.here(at_end)
    # One thread has taken all: the next call begins anew.
    code.load(RAX, RDI, AT["each"])
    code.plain(0x3B, RAX, RDI, 8 * AT["items"])
    is_shared = code.ahead("0f82")  # jb
    code.raw("31c0")  # xor eax, eax
    code.store(RAX, RDI, AT["taken"])
    code.here(is_shared)
    code.load(RSP, RSP, _LOCAL["stack"])
    code.end(0)
    return code.assembled()


def _append_places(code: Instructions, form: Form) -> None:
    """Find out where a part lies. It compares the block with the last one, as the last thing.

    R8: the source's next line. R9: the result's line. R10: bytes of a pixel. R12: number of the
    source's next line. R14: lines left. R15: lines to read. RBX: weights.
    """
    code.load(RAX, RSP, _LOCAL["item"])
    _append_quotient(code, "blocks")
    code.move(R13, RDX)
    _append_quotient(code, "bands_across")
    _append_start(code, "columns", "last_column")
    code.move(RCX, RDX)
    _append_quotient(code, "bands_down")
    _append_start(code, "rows", "last_row")
    # RAX: picture; RDX: row; RCX: column; R13: block.
    code.load(R10, RDI, AT["pixel"])
    code.load(R9, RDI, AT["result"])
    code.move(R8, RDX)
    code.times(R8, RDI, AT["result_row"])
    code.add(R9, R8)
    code.move(R8, RCX)
    code.times(R8, R10)
    code.add(R9, R8)
    code.move(R8, RAX)
    code.times(R8, RDI, AT["result_picture"])
    code.add(R9, R8)
    code.move(R12, RDX)
    code.times(R12, RDI, AT["down"])
    code.load(RSI, RDI, AT["above"])
    code.subtract(R12, RSI)
    code.times(RCX, RDI, AT["across"])
    code.load(RSI, RDI, AT["before"])
    code.subtract(RCX, RSI)
    code.load(R8, RDI, AT["source"])
    code.times(RAX, RDI, AT["picture"])
    code.add(R8, RAX)
    code.move(RSI, R12)
    code.times(RSI, RDI, AT["row"])
    code.add(R8, RSI)
    code.move(RSI, RCX)
    code.times(RSI, R10)
    code.add(R8, RSI)
    code.move(RSI, R13)
    code.raw("48c1e606")  # shl rsi, 6
    code.add(R8, RSI)
    code.add(R9, RSI)
    code.add(RSI, RSI)
    code.add(RSI, RDI, AT["bias"])
    code.store(RSI, RSP, _LOCAL["bias_of_block"])
    code.load(RBX, RDI, AT["weights"])
    code.move(RSI, R13)
    code.times(RSI, RDI, AT["block_weights"])
    code.add(RBX, RSI)
    # Zeros before the picture, what is in it, and zeros behind.
    code.raw("31c0")  # xor eax, eax
    code.move(RDX, RAX)
    code.subtract(RDX, RCX)
    code.raw("480f48d0")  # cmovs rdx, rax
    code.store(RDX, RSP, _LOCAL["zeros_before"])
    code.add(RCX, RDI, AT["read"])
    code.load(RSI, RDI, AT["width"])
    code.subtract(RCX, RSI)
    code.raw("480f48c8")  # cmovs rcx, rax
    code.store(RCX, RSP, _LOCAL["zeros_behind"])
    code.load(RSI, RDI, AT["read"])
    code.subtract(RSI, RDX)
    code.subtract(RSI, RCX)
    code.store(RSI, RSP, _LOCAL["inside"])
    code.raw("488d8c24")  # lea rcx, [rsp + …]
    code.text += struct.pack("<i", _RING_AT)
    code.load(RAX, RDI, AT["ring_row"])
    for line in range(form.high):
        code.store(RCX, RSP, _LOCAL["line0"] + line)
        code.add(RCX, RAX)
    code.load(R14, RDI, AT["rows"])
    code.raw("41bf")  # mov r15d, …
    code.text += struct.pack("<i", form.high)
    # The last block may have fewer channels.
    code.raw("b8ffffffff")  # mov eax, -1
    code.load(RSI, RDI, AT["mask"])
    code.load(RDX, RDI, AT["blocks"])
    code.step(RDX, -1)
    code.plain(0x3B, R13, RDX)
    code.raw("480f44c6")  # cmove rax, rsi
    code.raw("c5fb92c8")  # kmovd k1, eax


def _append_quotient(code: Instructions, name: str) -> None:
    """RAX = RAX / a number; RDX = what is left."""
    code.raw("31d2")  # xor edx, edx
    code.plain(0xF7, 6, RDI, 8 * AT[name])


def _append_start(code: Instructions, each: str, last: str) -> None:
    """RDX = where so many of these begin; the last ones may have some of those before."""
    code.times(RDX, RDI, AT[each])
    code.load(RSI, RDI, AT[last])
    code.plain(0x3B, RDX, RSI)
    code.raw("480f47d6")  # cmova rdx, rsi


def _append_part(code: Instructions, form: Form, chain: Sequence[Function], vectors: int) -> None:
    """Compute all lines of a part, of which a pixel is one vector or two."""
    next_row = len(code.text)
    next_line = len(code.text)
    _append_line(code, form, vectors)
    code.again(R15, next_line)
    code.load(RCX, RDI, AT["tiles"])
    code.raw("31c0")  # xor eax, eax
    code.move(RDX, R9)
    next_tile = len(code.text)
    _append_tile(code, form, chain, vectors)
    code.step(RCX, -1)
    is_done = code.ahead("0f84")  # jz
    code.step(RAX, 4 * LANES * vectors * form.width * form.across)
    code.compare(RCX, 1)
    is_not_last = code.ahead("0f85")  # jne
    code.load(RAX, RDI, AT["last_tile"])
    if vectors == 1:
        code.raw("48d1f8")  # sar rax, 1
    code.load(RDX, RDI, AT["last_result"])
    code.add(RDX, R9)
    code.here(is_not_last)
    code.jump(next_tile)
    code.here(is_done)
    code.add(R9, RDI, AT["result_row"])
    code.load(R15, RDI, AT["down"])
    code.again(R14, next_row)


def _append_line(code: Instructions, form: Form, vectors: int) -> None:
    """Read the next line of the source into the place of the oldest one."""
    code.load(RSI, RSP, _LOCAL["line0"])
    for line in range(form.high - 1):
        code.load(RAX, RSP, _LOCAL["line0"] + line + 1)
        code.store(RAX, RSP, _LOCAL["line0"] + line)
    code.store(RSI, RSP, _LOCAL["line0"] + form.high - 1)
    code.clear(0)
    code.load(RAX, RDI, AT["height"])
    code.plain(0x3B, R12, RAX)
    is_inside = code.ahead("0f82")  # jb, as numbers without a sign
    code.load(RCX, RDI, AT["read"])
    _append_zeros(code, vectors)
    is_outside = code.ahead()
    code.here(is_inside)
    code.load(RCX, RSP, _LOCAL["zeros_before"])
    code.move(RDX, RCX)
    code.times(RDX, R10)
    code.add(RDX, R8)
    _append_zeros(code, vectors)
    code.load(RCX, RSP, _LOCAL["inside"])
    _append_wide(code, vectors)
    code.load(RCX, RSP, _LOCAL["zeros_behind"])
    _append_zeros(code, vectors)
    code.here(is_outside)
    code.step(R12, 1)
    code.add(R8, RDI, AT["row"])


def _append_zeros(code: Instructions, vectors: int) -> None:
    """Write RCX pixels of zeros to RSI."""
    code.plain(0x85, RCX, RCX)
    is_none = code.ahead("0f84")
    next_ = len(code.text)
    for vector in range(vectors):
        code.vector(STORE, 0, 0, RSI, behind=vector)
    code.step(RSI, 4 * LANES * vectors)
    code.again(RCX, next_)
    code.here(is_none)


def _append_wide(code: Instructions, vectors: int) -> None:
    """Write RCX pixels to RSI, as f32, from RDX."""
    for count in (4, 1):
        next_ = len(code.text)
        code.step(RCX, -count)
        is_over = code.ahead("0f88")  # js
        for pixel in range(count):
            _append_pixel(code, pixel, vectors)
            code.add(RDX, R10)
        code.step(RSI, 4 * LANES * vectors * count)
        code.jump(next_)
        code.here(is_over)
        code.step(RCX, count)


def _append_pixel(code: Instructions, pixel: int, vectors: int) -> None:
    both, even, odd = (3 * pixel + 1 + number for number in range(3))
    code.vector(LOAD_WORDS, both, 0, RDX, prefix=3, wide=True, mask=_THERE)
    if vectors == 1:
        code.vector(0x33, both, 0, both, kind=2, prefix=1, is_memory=False)
    code.vector(0x72, 6, even, both, prefix=1, is_memory=False, last_byte=16)
    code.vector(STORE, even, 0, RSI, behind=pixel * vectors)
    if vectors == 2:
        code.vector(0xDB, odd, both, RDI, behind=2 * _FLOATS + 2, prefix=1, is_one=True)
        code.vector(STORE, odd, 0, RSI, behind=pixel * 2 + 1)


def _append_tile(code: Instructions, form: Form, chain: Sequence[Function], vectors: int) -> None:
    """Compute so many positions, from RAX bytes behind the ring's lines to RDX."""
    sums = range(form.width * vectors)
    code.load(RBP, RSP, _LOCAL["bias_of_block"])
    for sum_ in sums:
        code.vector(LOAD, sum_, 0, RBP, behind=sum_ % vectors)
    code.move(RBP, RBX)
    code.raw("41bd")  # mov r13d, …
    code.text += struct.pack("<i", form.high)
    code.raw("488d7424")  # lea rsi, [rsp + …]
    code.text.append(8 * _LOCAL["line0"])
    next_line = len(code.text)
    code.load(R11, RSI)
    code.add(R11, RAX)
    _append_products(code, form, vectors)
    code.step(RBP, 4 * LANES * 2 * form.wide)
    code.step(RSI, 8)
    code.again(R13, next_line)
    of_powers = 2 * (_FLOATS + 2 + len(chain))
    for number, function in enumerate(chain):
        own = 2 * (_FLOATS + 2 + number)
        append_function(code, sums, function, (own, of_powers, 2 * _FLOATS))
    _append_stores(code, form, vectors, of_powers + 2 * len(OF_POWERS))


def _append_products(code: Instructions, form: Form, vectors: int) -> None:
    """Add a line of windows; each element of the ring is read once."""
    first = form.width * vectors
    weights = [first + number for number in range(form.wide * vectors)]
    element = first + len(weights)
    for number, weight in enumerate(weights):
        tap, vector = divmod(number, vectors)
        code.vector(LOAD, weight, 0, RBP, behind=2 * tap + vector)
    for place in range((form.width - 1) * form.across + form.wide):
        readers = [
            (position, place - position * form.across)
            for position in range(form.width)
            if 0 <= place - position * form.across < form.wide
        ]
        for vector in range(vectors):
            at = 4 * LANES * (place * vectors + vector)
            if len(readers) > 1:
                code.vector(LOAD, element + vector, 0, R11, offset_bytes=at)
            for position, tap in readers:
                sum_, weight = position * vectors + vector, weights[tap * vectors + vector]
                if len(readers) > 1:
                    code.vector(
                        0xB8, sum_, weight, element + vector, kind=2, prefix=1, is_memory=False
                    )
                else:
                    code.vector(0xB8, sum_, weight, R11, offset_bytes=at, kind=2, prefix=1)


def _append_stores(code: Instructions, form: Form, vectors: int, order: int) -> None:
    """Round to bfloat16, and store where the next tile begins behind."""
    if vectors == 2:
        code.vector(LOAD, 31, 0, RDI, offset_bytes=4 * order)
    for position in range(form.width):
        sum_ = position * vectors
        if vectors == 2:
            code.vector(0x72, sum_, sum_ + 1, sum_, kind=2, prefix=3, is_memory=False)
            code.vector(0x8D, sum_, 31, sum_, kind=2, prefix=1, wide=True, is_memory=False)
        else:
            code.vector(0x72, sum_, 0, sum_, kind=2, prefix=2, is_memory=False)
        code.vector(STORE_WORDS, sum_, 0, RDX, prefix=3, wide=True, mask=_THERE)
        code.add(RDX, R10)
