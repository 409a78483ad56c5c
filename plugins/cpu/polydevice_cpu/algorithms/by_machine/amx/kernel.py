"""Machine code for convolutions and products of bytes in AMX tiles, for pictures of any size.

32 positions of 32 channels are summed in four tiles at once. Positions are a fixed distance apart:
those of a source with windows of one element are, and others are copied into a room, row by row
with borders between, so that a window behind the end of a row begins in the next one. What is
summed for such positions is left out.
"""

from __future__ import annotations

from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.amx.copied import append_copied
from polydevice_cpu.algorithms.by_machine.amx.instructions import LANE, ROWS
from polydevice_cpu.algorithms.by_machine.amx.sums import (
    SUMS_BYTES,
    TOGETHER,
    append_loaded,
    append_moved,
    append_sums,
)
from polydevice_cpu.algorithms.by_machine.amx.tiles import TileCode
from polydevice_cpu.algorithms.by_machine.instructions import (
    R8,
    R9,
    R10,
    R11,
    R12,
    RAX,
    RBX,
    RCX,
    RDI,
    RDX,
    RSP,
)
from polydevice_cpu.algorithms.by_machine.windows.following import OF_POWERS, Function
from polydevice_cpu.algorithms.by_machine.windows.integers import Held, Integers
from polydevice_cpu.algorithms.by_machine.windows.tiles import BLOCK, Terms, Tile, append_rest
from polydevice_cpu.algorithms.by_machine.windows.window_code import AT

SIZES = (
    *("source", "other", "zero", "factor", "result"),
    *("weights", "bias", "slopes", "scales", "sums", "groups", "last_block"),
)
"""Numbers of 8 bytes that the code reads first, by name; see `layer`. Behind them is what
`windows.kernel` has behind sizes."""

SIZES_OF_DIGITS = ("floats", "other", "zero", "result", "source", *SIZES[5:])
"""The same where a source has digits, which are made of floats."""

MORE_SIZES = (
    *("stride", "second", "second_row", "lines", "chunks", "chunk", "fix", "tile", "may_repeat"),
    *("left", "slab", "wide", "pitch", "high", "tall"),
    *("apart", "row_result", "row_end", "picture_end", "start_row", "pictures", "picture_source"),
    *("picture_result", "row_bytes", "border", "line_bytes", "phases"),
    *("phase_bytes", "height", "above", "down", "more_rows", "locks", "rooms", "room_bytes"),
    *("digit_source", "digit_room"),
    *(f"tiles {number}" for number in range(8)),
)
"""What it reads behind that. Then comes where each line of a window begins."""

OWN_SLOTS = (
    *("sums", "lock", "room", "left_rows", "rows", "count", "base", "picture", "picture_row"),
    *("pictures_left", "picture_of_result", "weights_at", "bias_at", "channel", "groups_left"),
    *("done", "first", "column", "row_of_picture", "result_at", "start"),
)

RUNS = 8, 3, 1
"""How many positions what follows is computed of at once."""


class Form(NamedTuple):
    """What other code is emitted for.

    Attributes:
        is_copied: whether a source is copied to a room first.
        is_odd: whether the last group has one block of channels.
        has_bias: whether there is a bias.
        integers: how bytes are read, and what becomes of sums.
        chain: what follows.
        digits: of a number of the source, each in a byte without a sign; 2 of one of 16 bits.
    """

    is_copied: bool
    is_odd: bool
    has_bias: bool
    integers: Integers
    chain: tuple[Function, ...]
    digits: int = 1


def kernel(form: Form) -> bytes:
    """Return code that takes the address of numbers, named in `SIZES`."""
    held, loads = form.integers, (form.integers.result.value, form.integers.other.value)
    numbers = 1 + len(form.chain) + len(OF_POWERS)
    sizes = SIZES if form.digits == 1 else SIZES_OF_DIGITS
    code = TileCode((sizes, numbers, MORE_SIZES), OWN_SLOTS, loads, held.shift)
    count = code.slot_count + (form.digits * SUMS_BYTES + LANE) // 8
    code.begin(count)
    code.keep("given", RDI)
    code.begin_tiles(RDI, code.places["tiles 0"])
    code.move(RAX, RSP)
    code.step(RAX, 8 * code.slot_count + LANE - 1)
    code.raw("4883e0c0")  # and rax, -64
    code.keep("sums", RAX)
    if form.is_copied:
        _append_taken(code)
    _append_slabs(code, form)
    if form.is_copied:
        code.slot(RAX, "lock")
        code.raw("48c70000000000")  # mov qword ptr [rax], 0
    code.end_tiles()
    code.end(count)
    return code.assembled()


def _append_taken(code: TileCode) -> None:
    """Take a room: wait for one where others have all."""
    code.given(R8, "locks")
    code.given(R9, "rooms")
    code.raw("31c9")  # ecx = 0
    next_room = len(code.text)
    code.raw("ba01000000")  # mov edx, 1
    code.raw("498714c8")  # xchg [r8 + 8 * rcx], rdx
    code.raw("4885d2")  # test rdx, rdx
    is_taken = code.ahead("0f84")  # jz
    code.raw("f390")  # pause
    code.step(RCX, 1)
    code.raw("4883e13f")  # and rcx, 63
    code.jump(next_room)
    code.here(is_taken)
    code.scaled(RAX, R8, RCX, 8)
    code.keep("lock", RAX)
    code.times(RCX, RDI, code.places["room_bytes"])
    code.add(RCX, R9)
    code.keep("room", RCX)


def _append_slabs(code: TileCode, form: Form) -> None:
    """Compute slab by slab: so many rows as a room holds, or positions as a cache does."""
    code.given(RAX, "left")
    code.keep("left_rows", RAX)
    code.given(RAX, "source")
    code.keep("picture" if form.is_copied else "base", RAX)
    code.given(RAX, "result")
    code.keep("picture_of_result", RAX)
    code.given(RAX, "pictures")
    code.keep("pictures_left", RAX)
    code.raw("31c0")  # eax = 0
    for slot in ("picture_row", "positions", "left"):
        code.keep(slot, RAX)
    code.given(RAX, "start_row")
    (_append_next_rows if form.is_copied else _append_next_positions)(code)
    next_slab = len(code.text)
    code.load(RDI, RSP, AT["given"])
    code.slot(RAX, "left_rows")
    code.compare(RAX, 0)
    is_done = code.ahead("0f8e")  # jle
    code.given(RCX, "slab")
    code.least(RAX, RCX)
    code.keep("rows", RAX)
    if form.is_copied:
        append_copied(code, form.integers, form.digits)
        code.slot(RAX, "rows")
        code.step(RAX, -1)
        code.times(RAX, RDI, code.places["pitch"])
        code.add(RAX, RDI, code.places["wide"])
    code.keep("count", RAX)
    _append_groups(code, form)
    code.load(RDI, RSP, AT["given"])
    code.slot(RAX, "rows")
    code.slot(RCX, "left_rows")
    code.subtract(RCX, RAX)
    code.keep("left_rows", RCX)
    (_append_next_rows if form.is_copied else _append_next_positions)(code)
    code.jump(next_slab)
    code.here(is_done)


def _append_next_positions(code: TileCode) -> None:
    """Go to positions behind, RAX of them."""
    for slot, size in (("base", "stride"), ("picture_of_result", "apart")):
        code.move(RCX, RAX)
        code.times(RCX, RDI, code.places[size])
        code.more(RCX, slot)
        code.keep(slot, RCX)
    code.more(RAX, "positions")
    code.keep("positions", RAX)


def _append_next_rows(code: TileCode) -> None:
    """Go to the row behind a slab; RAX has how many rows that had."""
    code.more(RAX, "picture_row")
    next_picture = len(code.text)
    code.plain(0x3B, RAX, RDI, 8 * code.places["tall"])
    is_found = code.ahead("0f8c")  # jl
    code.subtract(RAX, RDI, code.places["tall"])
    for slot, size in (("picture", "picture_source"), ("picture_of_result", "picture_result")):
        code.forward(code.slots[slot], RDI, code.places[size])
    code.slot(RCX, "pictures_left")
    code.step(RCX, -1)
    code.keep("pictures_left", RCX)
    code.jump(next_picture)
    code.here(is_found)
    code.keep("picture_row", RAX)


def _append_groups(code: TileCode, form: Form) -> None:
    """Compute all channels of a slab, some blocks of them at a time."""
    code.load(RDI, RSP, AT["given"])
    for slot, size in (("weights_at", "weights"), ("bias_at", "bias"), ("groups_left", "groups")):
        code.given(RAX, size)
        code.keep(slot, RAX)
    code.raw("31c0")
    code.keep("channel", RAX)
    written = form.integers.result.size_bytes
    next_group = len(code.text)
    code.slot(RAX, "groups_left")
    if form.is_odd:
        code.compare(RAX, 1)
        is_last = code.ahead("0f84")
        _append_group(code, form, 2, is_last=False)
    else:
        _append_group(code, form, 2, is_last=True)
    code.slot(RAX, "bias_at")
    code.step(RAX, 4 * BLOCK * 2)
    code.keep("bias_at", RAX)
    code.slot(RAX, "channel")
    code.step(RAX, written * BLOCK * 2)
    code.keep("channel", RAX)
    code.again(RSP, next_group, code.slots["groups_left"])
    if form.is_odd:
        code.here(is_last)
        _append_group(code, form, 1, is_last=True)


def _append_group(code: TileCode, form: Form, blocks: int, *, is_last: bool) -> None:
    """Compute all positions of a slab, one or two blocks of channels."""
    code.load(RDI, RSP, AT["given"])
    code.raw("41b8ffff0000")  # R8 = 0xffff
    if is_last:
        code.slot(RAX, "groups_left")
        code.compare(RAX, 1)
        is_whole = code.ahead("0f85")
        code.given(R8, "last_block")
        code.here(is_whole)
    code.set_mask(1, R8)
    code.slot(RBX, "bias_at")
    append_moved(code, blocks, digits=form.digits, has_zero=form.integers.has_zero)
    code.raw("31c0")
    for slot in ("done", "column", "place"):
        code.keep(slot, RAX)
    code.slot(RAX, "picture_row")
    code.keep("row_of_picture", RAX)
    code.times(RAX, RDI, code.places["row_result"])
    code.more(RAX, "picture_of_result")
    code.more(RAX, "channel")
    code.keep("result_at", RAX)
    next_positions = len(code.text)
    _append_positions(code, form, blocks)
    code.slot(RAX, "done")
    code.against_slot(RAX, "count")
    code.jump(next_positions, "0f8c")  # jl
    code.keep("weights_at", RDX)


def _append_positions(code: TileCode, form: Form, blocks: int) -> None:
    """Compute 32 positions, or what is left; RDX has where weights end then."""
    code.load(RDI, RSP, AT["given"])
    code.slot(RAX, "done")
    code.given(RCX, "may_repeat")
    code.compare(RCX, 0)
    goes_on = code.ahead("0f84")
    code.slot(RCX, "count")
    code.step(RCX, -TOGETHER)
    code.least(RAX, RCX)
    code.here(goes_on)
    code.keep("first", RAX)
    code.times(RAX, RDI, code.places["stride"])
    code.more(RAX, "room" if form.is_copied else "base")
    code.keep("start", RAX)
    code.slot(RCX, "count")
    code.less(RCX, "first")
    code.compare(RCX, ROWS)
    are_few = code.ahead("0f8e")
    are_signed = form.integers.source is Held.SIGNED
    kinds = lines_at(form), form.digits, are_signed
    append_sums(code, blocks, 2, *kinds)
    is_summed = code.ahead()
    code.here(are_few)
    append_sums(code, blocks, 1, *kinds)
    code.here(is_summed)
    _append_walk(code, form, blocks)


def lines_at(form: Form) -> int:
    """Return where, in numbers of 8 bytes, it is told where lines of a window begin."""
    return len(SIZES) + 1 + len(form.chain) + len(OF_POWERS) + len(MORE_SIZES)


def _append_walk(code: TileCode, form: Form, blocks: int) -> None:
    """Compute what follows sums, row by row, of positions that there are.

    R9 has where sums lie, R10 how many positions are left, R11 how many of a row, R12 the column,
    and RCX the result.
    """
    size = LANE * blocks
    code.slot(RAX, "done")
    code.less(RAX, "first")
    code.slot(R10, "count")
    code.less(R10, "first")
    code.raw("41bb")  # r11d = …
    code.text += TOGETHER.to_bytes(4, "little")
    code.least(R10, R11)
    code.move(R11, R10)
    code.more(R11, "first")
    code.keep("done", R11)
    code.subtract(R10, RAX)
    code.raw("48c1e0" + f"{size.bit_length() - 1:02x}")  # shl rax, …
    code.slot(R9, "sums")
    code.add(R9, RAX)
    code.slot(RCX, "result_at")
    code.slot(RBX, "bias_at")
    if not form.is_copied:
        code.move(R11, R10)
        _append_run(code, form, blocks)
        code.keep("result_at", RCX)
        return
    code.slot(R12, "column")
    next_row = len(code.text)
    code.load(RDI, RSP, AT["given"])
    code.given(R11, "wide")
    code.subtract(R11, R12)
    is_gap = code.ahead("0f8e")  # jle
    code.least(R11, R10)
    code.add(R12, R11)
    code.subtract(R10, R11)
    code.slot(RAX, "row_of_picture")
    code.plain(0x3B, RAX, RDI, 8 * code.places["high"])
    is_there = code.ahead("0f8c")  # jl
    # Rows behind a picture's are left out.
    code.move(RAX, R11)
    code.times(RAX, RDI, code.places["apart"])
    code.add(RCX, RAX)
    code.raw("49c1e3" + f"{size.bit_length() - 1:02x}")  # shl r11, …
    code.add(R9, R11)
    is_left_out = code.ahead()
    code.here(is_there)
    _append_run(code, form, blocks)
    code.here(is_left_out)
    code.compare(R10, 0)
    code.jump(next_row, "0f85")
    is_done = code.ahead()
    code.here(is_gap)
    _append_gap(code, size)
    code.compare(R10, 0)
    code.jump(next_row, "0f85")
    code.here(is_done)
    code.keep("column", R12)
    code.keep("result_at", RCX)


def _append_gap(code: TileCode, size: int) -> None:
    """Leave out positions behind a row's, and go to the next row behind the last one."""
    code.given(R11, "pitch")
    code.subtract(R11, R12)
    code.least(R11, R10)
    code.add(R12, R11)
    code.subtract(R10, R11)
    code.raw("49c1e3" + f"{size.bit_length() - 1:02x}")  # shl r11, …
    code.add(R9, R11)
    code.plain(0x3B, R12, RDI, 8 * code.places["pitch"])
    is_within = code.ahead("0f8c")  # jl
    code.raw("4531e4")  # r12d = 0
    code.add(RCX, RDI, code.places["row_end"])
    code.slot(RAX, "row_of_picture")
    code.step(RAX, 1)
    code.plain(0x3B, RAX, RDI, 8 * code.places["tall"])
    is_same = code.ahead("0f8c")
    code.raw("31c0")
    code.add(RCX, RDI, code.places["picture_end"])
    code.here(is_same)
    code.keep("row_of_picture", RAX)
    code.here(is_within)


def _append_run(code: TileCode, form: Form, blocks: int) -> None:
    """Compute what follows sums of positions next to each other, of which R11 has how many."""
    size = LANE * blocks
    ends = []
    for count in RUNS:
        next_run = len(code.text)
        code.compare(R11, count)
        ends.append(code.ahead("0f8c"))  # jl
        _append_some(code, form, Tile(blocks, count))
        code.step(R9, size * count)
        code.load(RDI, RSP, AT["given"])
        code.given(RAX, "apart")
        if count > 1:
            code.text += bytes((0x48, 0x6B, 0xC0, count))  # imul rax, rax, …
        code.add(RCX, RAX)
        code.step(R11, -count)
        if Function.MOVE in form.chain:
            code.load(RAX, RSP, AT["place"])
            code.step(RAX, count)
            code.store(RAX, RSP, AT["place"])
        code.jump(next_run)
        code.here(ends.pop())


def _append_some(code: TileCode, form: Form, tile: Tile) -> None:
    """Compute what follows sums of so many positions, and store it."""
    code.load(RDI, RSP, AT["given"])
    code.given(RAX, "apart")
    code.store(RAX, RSP, AT["apart"])
    append_loaded(code, tile, form.digits)
    are_floats = form.digits > 1
    # What is moved is to be subtracted.
    given = form.integers._replace(has_zero=True, are_floats=are_floats)
    append_rest(
        *(code, tile, [0] * (tile.blocks - 1) + [1], form.chain),
        terms=Terms.ALL_CHANNELS,
        has_bias=form.has_bias,
        integers=given,
    )
