"""Windows laid over each other: columns added up to the image they came from, by AVX-512.

NumPy adds a strided view of the image for each element of a window: 3x3 over 16 channels of 56x56
take it 0.42 ms.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_avx512, parts_of
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    EXPAND,
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
    STORE,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.windows.axis import Axis
from polydevice_cpu.onednn.engine import address_of

LANES = 16

SHARED = 1 << 14
"""From so many numbers of images on threads share the work."""

_MOST = 1 << 29
"""Numbers of the columns of an image: places are bytes in 4."""

_GATHERED, _EXPANDED = 18, 3
"""Cycles for 16 numbers fetched one by one, and for such that lie behind each other."""


_NUMBERS = (
    *("source", "result", "planes", "plane_bytes", "high", "rows", "blocks", "columns"),
    "rest",
)
"""What code is told, in numbers of 8 bytes: addresses, how many planes there are, and bytes of the
columns of one; rows of an image, and for each where it is told which lines of columns it is the sum
of, in bytes, and how many; blocks of 16 numbers of a row, and for each where its parts are told of,
and how many; which numbers the last block has."""
_AT = {name: number for number, name in enumerate(_NUMBERS)}
_SUM, _PART, _PLACES = 0, 1, 2
_SOME, _REST = 1, 2
_PART_BYTES = {False: 16, True: 72}
"""Of what is told of a part: its place and mask; or the mask, and 16 places."""


def code_of(down: Axis, across: Axis, planes: int, threads: int = 1) -> Code | None:
    """Return code that is told addresses of columns [planes, taps, windows], f32, and of images.

    Args:
        down: rows of an image.
        across: its columns.
        planes: images, each of one channel.
        threads: how many share the work.

    Returns:
        None where there is no such code, or too much to be told.
    """
    windows = down.windows * across.windows
    column_count = windows * down.taps * across.taps
    tables = across.size * across.taps + down.size * down.taps
    if not has_avx512() or column_count >= _MOST or tables > 1 << 20:
        return None
    fetched = -(-across.taps // across.step) * _GATHERED < across.taps * _EXPANDED
    rows, kept_rows = _rows(down, across, windows)
    columns, kept_columns = _columns(across, windows, fetched=fetched)
    kept = [rows, kept_rows, columns, kept_columns]
    image = down.size * across.size
    rest = (across.size - 1) % LANES + 1
    told = list[Told]()
    for first, behind in parts_of(planes, threads, is_worth_it=planes * image >= SHARED):
        numbers = (
            *(4 * column_count * first, 4 * image * first, behind - first, 4 * column_count),
            *(down.size, address_of(rows), len(columns), address_of(columns), (1 << rest) - 1),
        )
        told.append((function_of(_emitted(fetched=fetched)), numbers))
    return Code.shared(told, threads, kept)


def _listed(found: Array, counts: Array, each_bytes: int) -> Array:
    """Return [lists, 2]: the address of each of the lists that follow each other, and its size."""
    starts = address_of(found) + each_bytes * (np.cumsum(counts) - counts)
    return np.ascontiguousarray(np.stack([starts, counts], 1), np.int64)


def _rows(down: Axis, across: Axis, windows: int) -> tuple[Array, Array]:
    """Lists of the lines of columns that each row of an image is the sum of, in bytes."""
    is_there, window = down.windows_of()
    taps = np.arange(down.taps) * (across.taps * windows)
    lines = np.ascontiguousarray(4 * (taps + window * across.windows)[is_there], np.int64)
    lines = lines if lines.size else np.zeros(1, np.int64)
    return _listed(lines, is_there.sum(1), 8), lines


def _columns(across: Axis, windows: int, *, fetched: bool) -> tuple[Array, Array]:
    """Lists of the parts that each block of 16 numbers of a row is the sum of."""
    blocks = -(-across.size // LANES)
    is_there, window = across._replace(size=blocks * LANES).windows_of()
    is_there[across.size :] = False
    places = np.arange(across.taps) * windows + window
    bits = 1 << np.arange(LANES, dtype=np.int64)
    of_blocks = (blocks, LANES, across.taps)
    is_there, places = is_there.reshape(of_blocks), places.reshape(of_blocks)
    if fetched:  # of each number the first part, then of those that have one the second…
        order = np.argsort(~is_there, axis=2, kind="stable")
        is_there, places = (np.take_along_axis(each, order, 2) for each in (is_there, places))
    masks = (is_there * bits[:, np.newaxis]).sum(1)
    at, tap = masks.nonzero()
    parts = np.zeros((max(len(at), 1), _PART_BYTES[fetched] // 8), np.int64)
    if fetched:
        parts[: len(at), 0] = masks[at, tap]
        chosen = np.where(is_there, places, 0)[at, :, tap].astype(np.int32)
        parts[: len(at), 1:] = np.ascontiguousarray(chosen).view(np.int64)
    else:
        first = is_there.argmax(1)
        parts[: len(at), 0] = 4 * np.take_along_axis(places, first[:, np.newaxis], 1)[at, 0, tap]
        parts[: len(at), 1] = masks[at, tap]
    return _listed(parts, (masks != 0).sum(1), _PART_BYTES[fetched]), parts


@lru_cache(maxsize=2)
def _emitted(*, fetched: bool) -> bytes:
    """Code. R8: the columns of an image; R9: it; R12: its row; R14: a block of this."""
    code = Instructions()
    code.begin(0)
    for register, name in ((R8, "source"), (R9, "result"), (R10, "planes")):
        code.load(register, RDI, _AT[name])
    code.load(RAX, RDI, _AT["rest"])
    code.set_mask(_REST, RAX)
    plane = len(code.text)
    code.load(R11, RDI, _AT["high"])
    code.load(R12, RDI, _AT["rows"])
    row = len(code.text)
    code.load(R13, RDI, _AT["blocks"])
    code.load(R14, RDI, _AT["columns"])
    block = len(code.text)
    code.clear(_SUM)
    code.load(RSI, R12, 0)
    code.load(RDX, R12, 1)
    code.load(R15, R14, 1)
    empty = []
    for register in (RDX, R15):
        code.compare(register, 0)
        empty.append(code.ahead("0f84"))
    line = len(code.text)
    code.load(RBX, RSI)
    code.add(RBX, R8)
    code.load(RBP, R14, 0)
    code.load(RCX, R14, 1)
    part = len(code.text)
    if fetched:
        code.load(RAX, RBP)
        code.set_mask(_SOME, RAX)
        code.vector(LOAD_WORDS, _PLACES, 0, RBP, offset_bytes=8, prefix=2)
        code.clear(_PART)
        code.gather(_PART, RBX, _PLACES, _SOME)
    else:
        code.load(RAX, RBP, 1)
        code.set_mask(_SOME, RAX)
        code.load(RAX, RBP)
        code.vector(EXPAND, _PART, 0, RBX, RAX, kind=2, prefix=1, mask=_SOME)
    code.of_vectors(ADD, _SUM, _SUM, _PART)
    code.step(RBP, _PART_BYTES[fetched])
    code.again(RCX, part)
    code.step(RSI, 8)
    code.again(RDX, line)
    for each in empty:
        code.here(each)
    code.step(R14, 16)
    code.compare(R13, 1)
    last = code.ahead("0f84")
    code.vector(STORE, _SUM, 0, R9)
    code.step(R9, 4 * LANES)
    code.again(R13, block)
    code.here(last)
    code.vector(STORE, _SUM, 0, R9, mask=_REST)
    code.load(RAX, RDI, _AT["rest"])
    code.raw("f3480fb8c0")  # popcnt rax, rax
    code.scaled(R9, R9, RAX, 4)
    code.step(R12, 16)
    code.again(R11, row)
    code.add(R8, RDI, _AT["plane_bytes"])
    code.again(R10, plane)
    code.end(0)
    return code.assembled()
