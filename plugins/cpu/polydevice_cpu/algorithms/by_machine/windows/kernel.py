"""Machine code for convolutions and pools of pictures of any size, for processors with AVX-512.

oneDNN generates its own for every size. Numbers are added in the order in which oneDNN does.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from functools import partial

from polydevice_cpu.algorithms.by_machine.instructions import R10, R11, RAX, RDI, RSI, RSP
from polydevice_cpu.algorithms.by_machine.windows.following import OF_POWERS, Function
from polydevice_cpu.algorithms.by_machine.windows.integers import Integers
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms, Tile, append_item
from polydevice_cpu.algorithms.by_machine.windows.window_code import (
    AT,
    SIZES_OF_BYTES,
    SLOTS,
    WindowCode,
)

NARROW = 8, 5, 4, 1
"""Positions that are computed at once where fewer than a tile's are left."""


def kernel(
    tile: Tile,
    chain: Sequence[Function],
    *,
    terms: Terms,
    has_bias: bool,
    integers: Integers | None = None,
) -> bytes:
    """Return code that computes a tile of positions and channels at once.

    It takes the address of numbers, named in `SIZES`: the addresses of source (where the window of
    the first position begins, in or before the picture), of what is added to the result and lies
    as that does, result, weights (a row of channels for each element of a window) and bias; how
    many tiles of channels there are; bytes between two elements of a window, and between two rows
    of weights; which elements of the last block there are, as bits; the bytes from bias to slopes;
    how many pictures there are, and bytes from one to the next in source, result and weights; how
    many kinds of rows there are, and of columns; bytes from what is read for a row (column) to what
    is read for the next, and between these; bytes between two lines of a window, and between two
    elements of a line; how many rows of weights a line has, and how many belong to one of its
    elements. Behind them are floats: 1 and 0 (the least number of all, where the largest is looked
    for), two for each function that follows, and `OF_POWERS`. Then kinds of rows, and of columns:
    the first one, how many there are, the first line (element) of their windows that is in the
    picture, and the first behind it.

    Of bytes, it takes those named in `SIZES_OF_BYTES`: besides, the addresses of a zero point (of 4
    bytes) and of a factor (a float), and the bytes from bias to what sums of each channel are
    multiplied by. An element is four channels then, and 128s take the place of the 0.

    Args:
        tile: how much.
        chain: what follows.
        terms: what is added up.
        has_bias: whether there is a bias.
        integers: how bytes are read and what becomes of their sums; None where there are floats.
    """
    code = WindowCode()
    if integers is not None:
        held = integers.result.value, integers.other.value
        code = WindowCode(SIZES_OF_BYTES, *held, integers.shift)
    code.begin(len(SLOTS))
    code.store(RDI, RSP, AT["given"])
    for register, name in ((R10, "element"), (R11, "weights_row")):
        code.load(register, RDI, code.places[name])
    for slot, name in zip(SLOTS[1:5], ("pictures", "source", "result", "weights"), strict=True):
        code.copy(AT[slot], RDI, code.places[name])
    next_picture = len(code.text)
    code.load(RDI, RSP, AT["given"])
    first_kind = len(code.places) + 1 + len(chain) + len(OF_POWERS)
    code.raw("488d87")  # rax = rdi + …
    code.text += struct.pack("<i", 8 * first_kind)
    code.store(RAX, RSP, AT["row"])
    code.copy(AT["rows"], RDI, code.places["rows"])
    next_row = len(code.text)
    code.begin_row()
    next_column = len(code.text)
    code.begin_column(tile.width)
    next_line = len(code.text)
    for slot in ("source", "result"):
        code.copy(AT[slot], RSP, AT[f"{slot}_of_line"])
    code.copy(AT["left"], RSP, AT["positions"])
    append = partial(append_item, terms=terms, has_bias=has_bias, integers=integers)
    _append_line(code, tile, chain, append)
    code.forward(AT["source_of_line"], RSP, AT["line_source"])
    code.forward(AT["result_of_line"], RSP, AT["line_result"])
    code.again(RSP, next_line, AT["lines_left"])
    code.again(RSP, next_column, AT["columns"])
    code.again(RSP, next_row, AT["rows"])
    code.load(RDI, RSP, AT["given"])
    for name in ("source", "result", "weights"):
        code.forward(AT[f"{name}_of_picture"], RDI, code.places[f"picture_{name}"])
    code.again(RSP, next_picture, AT["pictures"])
    code.end(len(SLOTS))
    return bytes(code.text)


def _append_line(
    code: WindowCode,
    tile: Tile,
    chain: Sequence[Function],
    append: Callable[[WindowCode, Tile, Sequence[Function]], None],
) -> None:
    """Compute positions of a line: as many as a tile has, and what is left."""
    may_repeat = Function.SUM not in chain
    widths = tile.width, *(width for width in NARROW if width < tile.width)
    for width, narrower in itertools.pairwise((*widths, 1)):
        next_item = len(code.text)
        code.load(RSI, RSP, AT["left"])
        left_out = []
        if may_repeat and width > 1:
            # The last ones may overlap those before: go back by as many as are missing.
            code.compare(RSI, narrower if narrower > 1 else 0)
            left_out.append(code.ahead("0f8e"))  # jle
            code.load(RDI, RSP, AT["positions"])
            code.compare(RDI, width)
            left_out.append(code.ahead("0f8c"))  # jl
            code.step(RSI, -width)
            is_enough = code.ahead("0f8d")  # jge
            code.forward_by(0)
            code.here(is_enough)
        else:
            code.compare(RSI, width)
            left_out.append(code.ahead("0f8c"))
        append(code, Tile(tile.blocks, width), chain)
        code.forward_by(width)
        code.jump(next_item)
        for each in left_out:
            code.here(each)
