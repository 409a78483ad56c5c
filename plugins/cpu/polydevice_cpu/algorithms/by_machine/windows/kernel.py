"""Machine code for convolutions and pools of pictures of any size.

oneDNN generates its own for every size. Numbers are added in the order in which oneDNN does.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence
from functools import partial

from polydevice_cpu.algorithms.by_machine.instructions import R10, R11, RAX, RBP, RDI, RSI, RSP
from polydevice_cpu.algorithms.by_machine.windows.following import OF_POWERS, Function, others_of
from polydevice_cpu.algorithms.by_machine.windows.groups import append_begin
from polydevice_cpu.algorithms.by_machine.windows.integers import Integers
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms, Tile, append_item
from polydevice_cpu.algorithms.by_machine.windows.window_code import (
    AT,
    KIND,
    SIZES,
    SIZES_OF_BYTES,
    SIZES_OF_GROUPS,
    SLOTS,
    Bundle,
    WindowCode,
    with_others,
)

NARROW = 8, 7, 6, 5, 4, 3, 2, 1
"""Positions that are computed at once where a tile has more: 1 takes as long as 4."""

IN_TWO = {12: (13, 15, 8), 8: (9, 11, 6)}
"""Width → of how many positions, from and to, fewer are computed at once, and how many, so that not
a few are left: 13, as every other one of 28x28 has with a border, take a fifth less as 8 and 5."""


def kernel(
    tile: Tile,
    chain: Sequence[Function],
    *,
    terms: Terms,
    has_bias: bool,
    integers: Integers | None = None,
    bundle: Bundle | None = None,
    is_padded: bool = False,
) -> bytes:
    """Return code that computes a tile of positions and channels at once.

    It takes the address of numbers, named in `SIZES`: the addresses of source (where the window of
    the first position begins, in or before the picture), of what is added to the result and lies as
    that does (of each, where there are several), result, weights (a row of channels for each
    element of a window) and bias; how many tiles of channels there are; bytes between two elements
    of a window, and between two rows of weights; which elements of the last block there are, as
    bits; the bytes from bias to slopes; how many pictures there are, and bytes from one to the next
    in source, result and weights; how many kinds of rows there are, and of columns; bytes from what
    is read for a row (column) to what is read for the next, and between these; bytes between two
    lines of a window, and between two elements of a line; how many rows of weights a line has, and
    how many belong to one of its elements. Behind them are floats: 1 and 0 (the least number of
    all, where the largest is looked for), two for each function that follows, and `OF_POWERS`. Then
    kinds of rows, and of columns: the first one, how many there are, the first line (element) of
    their windows that is in the picture, and the first behind it.

    Of bytes, it takes those named in `SIZES_OF_BYTES`: besides, the addresses of a zero point (of 4
    bytes) and of a factor (a float), and the bytes from bias to what sums of each channel are
    multiplied by. An element is four channels then, and 128s take the place of the 0.

    Of channels in groups, it takes those named in `SIZES_OF_GROUPS`: besides, how many bundles of
    them there are, and the bytes from one to the next in source, result (and bias) and weights.

    Args:
        tile: how much.
        chain: what follows.
        terms: what is added up.
        has_bias: whether there is a bias.
        integers: how bytes are read and what becomes of their sums; None where there are floats.
        bundle: of groups of channels; None where there are no groups.
        is_padded: whether rows of weights are whole vectors.
    """
    sizes = with_others(SIZES if bundle is None else SIZES_OF_GROUPS, others_of(chain))
    code = WindowCode(sizes, bundle=bundle)
    if integers is not None:
        held = integers.result.value, integers.other.value
        code = WindowCode(SIZES_OF_BYTES, *held, integers.shift)
    code.begin(len(SLOTS))
    code.store(RDI, RSP, AT["given"])
    for register, name in ((R10, "element"), (R11, "weights_row")):
        code.load(register, RDI, code.places[name])
    if bundle is not None:
        append_begin(code, bundle)
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
    are_no_rows = code.ahead_unless(RSP, AT["high"])
    next_group = 0 if bundle is None else _begin_groups(code)
    next_column = len(code.text)
    code.begin_column(tile.width)
    are_no_columns = code.ahead_unless(RBP, 1 - KIND)
    next_line = len(code.text)
    for slot in ("source", "result"):
        code.copy(AT[slot], RSP, AT[f"{slot}_of_line"])
    code.copy(AT["left"], RSP, AT["positions"])
    append = partial(
        append_item, terms=terms, has_bias=has_bias, integers=integers, is_padded=is_padded
    )
    _append_line(code, tile, chain, append)
    code.forward(AT["source_of_line"], RSP, AT["line_source"])
    code.forward(AT["result_of_line"], RSP, AT["line_result"])
    code.again(RSP, next_line, AT["lines_left"])
    code.here(are_no_columns)
    code.again(RSP, next_column, AT["columns"])
    if bundle is not None:
        _next_group(code, next_group)
    code.here(are_no_rows)
    code.again(RSP, next_row, AT["rows"])
    code.load(RDI, RSP, AT["given"])
    for name in ("source", "result", "weights"):
        code.forward(AT[f"{name}_of_picture"], RDI, code.places[f"picture_{name}"])
    code.again(RSP, next_picture, AT["pictures"])
    code.end(len(SLOTS))
    return code.assembled()


def _begin_groups(code: WindowCode) -> int:
    """Begin with the first bundle of groups; return where one begins."""
    for name in ("groups", "bias"):
        code.copy(AT[name], RDI, code.places[name])
    code.copy(AT["first_column"], RSP, AT["column"])
    return len(code.text)


def _next_group(code: WindowCode, start: int) -> None:
    """Go to the next bundle of groups, of the same rows, while there is one."""
    code.load(RDI, RSP, AT["given"])
    for name in ("source", "result", "weights"):
        code.forward(AT[f"{name}_of_row"], RDI, code.places[f"group_{name}"])
    code.forward(AT["bias"], RDI, code.places["group_result"])
    code.copy(AT["column"], RSP, AT["first_column"])
    code.copy(AT["columns"], RDI, code.places["columns"])
    code.again(RSP, start, AT["groups"])


def _append_line(
    code: WindowCode,
    tile: Tile,
    chain: Sequence[Function],
    append: Callable[[WindowCode, Tile, Sequence[Function]], None],
) -> None:
    """Compute positions of a line: as many as a tile has, and what is left."""
    may_repeat = Function.SUM not in chain
    widths = tile.width, *(width for width in NARROW if width < tile.width)
    in_two = dict[int, int]()
    for width, narrower in itertools.pairwise((*widths, 0)):
        if width in in_two:
            code.here(in_two.pop(width))
        next_item = len(code.text)
        code.load(RSI, RSP, AT["left"])
        left_out = []
        if width in IN_TWO:
            least, most, other = IN_TWO[width]
            code.compare(RSI, least)
            is_one = code.ahead("0f8c")  # jl
            code.compare(RSI, most)
            in_two[other] = code.ahead("0f8e")  # jle
            code.here(is_one)
        if may_repeat and width > narrower + 1:
            # The last ones may overlap those before: go back by as many as are missing.
            code.compare(RSI, narrower)
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
