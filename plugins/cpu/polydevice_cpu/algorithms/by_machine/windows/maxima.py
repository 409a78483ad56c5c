"""Maxima of windows of planes and where they lie, 16 windows of a row at a time, by AVX-512.

NumPy compares whole arrays for each element of a window, with places that it carries along: 3x3 of
64 planes of 112x112 take it 19 ms.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code, Told, has_avx512, parts_of
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
from polydevice_cpu.algorithms.by_machine.windows.axis import Axis
from polydevice_cpu.onednn.engine import address_of

LANES = 16

_MOST_BYTES = 1 << 30
"""Of a plane, and elements of a step or padding: places are numbers of 4 bytes."""

SHARED = 1 << 13
"""From so many elements of windows on threads share the work."""


_ONE = Axis(1, 1, 1, 1, 1, 0)
"""Of planes that do not have this axis."""

NUMBERS = (
    *("source", "values", "indices", "planes", "bases", "plane_bytes", "depths", "depths_read"),
    *("rows", "rows_read", "columns", "begin", "taps", "gap", "row_gap", "depth_gap", "forward"),
    *("size_gap", "steps_none", "least"),
)
"""What code is told, in numbers of 8 bytes: addresses of planes, of the results, how many planes
there are, and where the index of the first element of each is found; how many windows along two
axes, with the bytes to the first element of each and how many they read; windows in a row, bytes to
the first one, its elements and bytes between them; bytes between lines and layers of a window, and
between 16 windows; in pairs of 4 bytes the size of a row and elements between two of a window,
between 16 windows, -1, and -inf. Behind them are vectors: places of 16 windows in a row, of every
second element of two vectors, and of all of each of these."""

_AT = {name: number for number, name in enumerate(NUMBERS)}
_FIRST = len(NUMBERS)
_SLOTS = "planes", "bases", "depths", "rows", "layers", "layer"
_ON_STACK = {name: number for number, name in enumerate(_SLOTS)}

_BEST, _WHERE, _READ, _NEXT, _PLACE, _ROW = 0, 1, 2, 3, 4, 5
_BASE, _PLACES, _START, _EVEN, _LINE, _BEHIND = range(16, 22)
_SIZE, _GAP, _FORWARD, _LEAST, _NONE = range(22, 27)
"""Vectors: the best elements, their indices, what is read, its place in the row, and the row's
index; constants."""
_IN, _BETTER, _SOME, _MORE, _HIGH, _LIVE = 1, 2, 3, 4, 5, 6
"""Masks: elements inside, those that are better, others, windows of the upper half, and all."""


def code_of(
    axes: Sequence[Axis], planes: int, bases: Array, index_bytes: int, threads: int = 1
) -> Code | None:
    """Return code that is told addresses of planes, f32, and of values and indices of the maxima.

    Of equal elements it is the first one; NaN is the largest. It refuses windows in which nothing
    is larger than -inf.

    Args:
        axes: of a plane, up to three, row-major.
        planes: how many.
        bases: [planes], i32: what indices in each begin with.
        index_bytes: of an index, 4 or 8.
        threads: how many share the work.

    Returns:
        None where there is no such code.
    """
    depth, row, column = (*[_ONE] * 3, *axes)[-3:]
    layer, plane = row.size * column.size, depth.size * row.size * column.size
    read = depth.read(), row.read(), column.read()
    largest = max(4 * plane, LANES * column.step, column.gap, column.pad)
    if not has_avx512() or largest >= _MOST_BYTES:
        return None
    if read[0] is None or read[1] is None or read[2] is None:
        return None
    taps = min(column.taps, (column.size - 1 + column.pad) // column.gap + 1)
    kept = read[0] * (4 * layer, 1), read[1] * (4 * column.size, 1), bases
    results = depth.windows * row.windows * column.windows
    work = planes * results * math.prod(each.taps for each in axes)
    function, told = function_of(_emitted(min(column.step, 3), index_bytes)), list[Told]()
    for first, behind in parts_of(planes, threads, is_worth_it=work >= SHARED):
        numbers = (
            *(4 * plane * first, 4 * results * first, index_bytes * results * first),
            *(behind - first, address_of(bases) + 4 * first, 4 * plane),
            *(depth.windows, address_of(kept[0]), row.windows, address_of(kept[1])),
            *(column.windows, -4 * column.pad, taps, 4 * column.gap),
            *(4 * row.gap * column.size, 4 * depth.gap * layer, 4 * column.step * LANES),
            *(_pair(column.size, column.gap), _pair(LANES * column.step, -1)),
            *(struct.unpack("<q", struct.pack("<2f", -np.inf, 0))[0], *_vectors(column).tolist()),
        )
        told.append((function, numbers))
    return Code.shared(told, threads, kept)


def _pair(low: int, high: int) -> int:
    return int(struct.unpack("<q", struct.pack("<2i", low, high))[0])


def _vectors(column: Axis) -> array[int]:
    lanes = np.arange(LANES, dtype=np.int32)
    vectors = np.stack([lanes * column.step - column.pad, 2 * lanes, lanes, lanes + LANES])
    return array("q", vectors.tobytes())


@lru_cache(maxsize=8)
def _emitted(step: int, index_bytes: int) -> bytes:
    """Code for windows so many elements apart, 3 for any number more.

    R8: a plane; R10: bytes from a line to what the first of 16 windows begins with; R9: windows
    left; R11 and R12: results; R13 and R14: what windows read of layers and lines.
    """
    code = Instructions()
    code.begin(len(_SLOTS))
    for slot in ("planes", "bases"):
        code.copy(_ON_STACK[slot], RDI, _AT[slot])
    for register, name in ((R8, "source"), (R11, "values"), (R12, "indices")):
        code.load(register, RDI, _AT[name])
    constants = (
        *((_SIZE, "size_gap", 0), (_GAP, "size_gap", 1), (_FORWARD, "steps_none", 0)),
        *((_NONE, "steps_none", 1), (_LEAST, "least", 0)),
    )
    for register, name, behind in constants:
        code.spread(register, RDI, behind=2 * _AT[name] + behind)
    for number, register in enumerate((_START, _EVEN, _LINE, _BEHIND)):
        code.vector(LOAD, register, 0, RDI, offset_bytes=8 * _FIRST + 64 * number)
    plane = len(code.text)
    code.load(RSI, RSP, _ON_STACK["bases"])
    code.spread(_BASE, RSI)
    code.step(RSI, 4)
    code.store(RSI, RSP, _ON_STACK["bases"])
    code.copy(_ON_STACK["depths"], RDI, _AT["depths"])
    code.load(R13, RDI, _AT["depths_read"])
    layer = len(code.text)
    code.copy(_ON_STACK["rows"], RDI, _AT["rows"])
    code.load(R14, RDI, _AT["rows_read"])
    row = len(code.text)
    code.load(R9, RDI, _AT["columns"])
    code.load(R10, RDI, _AT["begin"])
    _copy(code, _PLACES, _START)
    block = len(code.text)
    refused = _append_block(code, step, index_bytes)
    code.add(R10, RDI, _AT["forward"])
    code.vector(0xFE, _PLACES, _PLACES, _FORWARD, prefix=1, is_memory=False)
    code.step(R9, -LANES)
    code.jump(block, "0f8f")  # jg
    code.scaled(R11, R11, R9, 4)  # back by what was not there
    code.scaled(R12, R12, R9, index_bytes)
    code.step(R14, 16)
    code.again(RSP, row, _ON_STACK["rows"])
    code.step(R13, 16)
    code.again(RSP, layer, _ON_STACK["depths"])
    code.add(R8, RDI, _AT["plane_bytes"])
    code.again(RSP, plane, _ON_STACK["planes"])
    code.end(len(_SLOTS))
    code.here(refused)
    code.end(len(_SLOTS), 1)
    return code.assembled()


def _append_block(code: Instructions, step: int, index_bytes: int) -> int:
    """Append what finds the maxima of 16 windows; return a jump where one has none."""
    code.raw("b8ffffffffb910000000")  # mov eax, -1; mov ecx, 16
    code.raw("4939c9490f4cc9c4e270f5c0")  # cmp r9, rcx; cmovl rcx, r9; bzhi eax, eax, ecx
    code.set_mask(_LIVE, RAX)
    code.vector(0x28, _BEST, 0, _LEAST, is_memory=False)
    _copy(code, _WHERE, _NONE)
    code.copy(_ON_STACK["layers"], R13, 1)
    code.copy(_ON_STACK["layer"], R13, 0)
    layer = len(code.text)
    code.load(RBP, RSP, _ON_STACK["layer"])
    code.add(RBP, R14, 0)
    code.load(RBX, R14, 1)
    line = len(code.text)
    code.move(RAX, RBP)
    code.vector(0x7C, _ROW, 0, RAX, kind=2, prefix=1, is_memory=False)  # vpbroadcastd
    code.raw("62f1554872d502")  # vpsrld zmm5, zmm5, 2
    code.vector(0xFE, _ROW, _ROW, _BASE, prefix=1, is_memory=False)
    code.add(RAX, R8)
    _copy(code, _PLACE, _PLACES)
    code.move(RCX, R10)
    code.load(RDX, RDI, _AT["taps"])
    tap = len(code.text)
    _append_tap(code, step)
    code.vector(0xFE, _PLACE, _PLACE, _GAP, prefix=1, is_memory=False)
    code.add(RCX, RDI, _AT["gap"])
    code.again(RDX, tap)
    code.add(RBP, RDI, _AT["row_gap"])
    code.again(RBX, line)
    code.forward(_ON_STACK["layer"], RDI, _AT["depth_gap"])
    code.again(RSP, layer, _ON_STACK["layers"])
    code.vector(0x76, _BETTER, _WHERE, _NONE, prefix=1, is_memory=False, mask=_LIVE)  # vpcmpeqd
    code.test_any(2)
    refused = code.ahead("0f85")
    code.vector(STORE, _BEST, 0, R11, mask=_LIVE)
    code.step(R11, 4 * LANES)
    _append_indices(code, index_bytes)
    return refused


def _append_tap(code: Instructions, step: int) -> None:
    """Append what compares an element of each window: the one at RAX + RCX of the first."""
    _inside(code, _IN, _PLACE, mask=_LIVE)
    if step == 1:
        code.vector(LOAD, _READ, 0, RAX, RCX, mask=_IN)
    elif step == 2:
        code.vector(0x7C, _NEXT, 0, RCX, kind=2, prefix=1, is_memory=False)
        code.raw("62f1654872e302")  # vpsrad zmm3, zmm3, 2
        code.vector(0xFE, _READ, _NEXT, _LINE, prefix=1, is_memory=False)
        code.vector(0xFE, _NEXT, _NEXT, _BEHIND, prefix=1, is_memory=False)
        _inside(code, _SOME, _READ)
        _inside(code, _MORE, _NEXT)
        code.vector(LOAD, _READ, 0, RAX, RCX, mask=_SOME)
        code.vector(LOAD, _NEXT, 0, RAX, RCX, behind=1, mask=_MORE)
        code.vector(0x7F, _READ, _EVEN, _NEXT, kind=2, prefix=1, is_memory=False)  # vpermt2ps
    else:
        code.copy_mask(3, 1)
        code.gather(_READ, RAX, _PLACE, _SOME)
    compared = (_READ, _BEST, 0x16, _IN), (_BEST, _BEST, 7, _BETTER)
    for first, second, how, mask in compared:  # not below or equal, nor behind NaN
        code.vector(0xC2, _BETTER, first, second, is_memory=False, mask=mask, last_byte=how)
    code.vector(0x28, _BEST, 0, _READ, is_memory=False, mask=_BETTER)
    code.vector(0xFE, _WHERE, _ROW, _PLACE, prefix=1, is_memory=False, mask=_BETTER)


def _inside(code: Instructions, to: int, places: int, mask: int = 0) -> None:
    """Append a mask of which places are from 0 to below the size: of numbers without a sign."""
    code.vector(0x1E, to, places, _SIZE, kind=3, prefix=1, is_memory=False, mask=mask, last_byte=1)


def _append_indices(code: Instructions, index_bytes: int) -> None:
    """Append what stores indices of 4 or 8 bytes."""
    if index_bytes == 4:
        code.vector(STORE_WORDS, _WHERE, 0, R12, prefix=2, mask=_LIVE)
    else:
        code.raw("c4e3f930ee08")  # kshiftrw k5, k6, 8
        code.vector(0x25, _READ, 0, _WHERE, kind=2, prefix=1, is_memory=False)  # vpmovsxdq
        code.raw("62f3fd483bcb01")  # vextracti64x4 ymm3, zmm1, 1
        code.vector(0x25, _NEXT, 0, _NEXT, kind=2, prefix=1, is_memory=False)
        for behind, (register, mask) in enumerate(((_READ, _LIVE), (_NEXT, _HIGH))):
            code.vector(
                STORE_WORDS, register, 0, R12, behind=behind, prefix=2, mask=mask, wide=True
            )
    code.step(R12, index_bytes * LANES)


def _copy(code: Instructions, to: int, register: int) -> None:
    code.vector(LOAD_WORDS, to, 0, register, is_memory=False, prefix=1)
