"""The first of rows along any axis, any number of them, with their indices, by AVX-512."""

from __future__ import annotations

from array import array
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

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
    RAX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    STORE_WORDS,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.ranking.keys import (
    HIGHEST,
    KINDS,
    NAN,
    append_key,
    pair,
    turn_of,
)
from polydevice_cpu.algorithms.by_machine.ranking.order import COUNT, RADIX, SELECT
from polydevice_cpu.onednn.engine import address_of

LANES = 16

COUNTED = 128
"""Of so many elements each is compared with all; more are sorted digit by digit."""

MOST = 4096
"""So many are sorted at most: NumPy sorts more as fast."""

SHARED = 1 << 13
"""From so many elements on threads share rows."""

_MOST_ELEMENTS = 1 << 28
"""Of an array: places are numbers of 4 bytes."""

_BINS_BYTES = 8192


class Sort(Enum):
    """How pairs are brought in order: by counting, by digits, or not, as they are by index."""

    COUNT = "count"
    RADIX = "radix"
    NONE = "none"


class Form(NamedTuple):
    """What code is emitted for.

    Attributes:
        kind: of elements: f4 or i4.
        is_apart: whether others lie between the elements of a row.
        selects: whether some are selected before they are sorted.
        sort: how.
        index_bytes: 4 or 8.
    """

    kind: str
    is_apart: bool
    selects: bool
    sort: Sort
    index_bytes: int


NUMBERS = (
    *("x", "index", "values", "outer", "inner", "length", "count", "line_bytes", "outer_bytes"),
    *("eight_indices", "index_outer", "eight_values", "value_outer", "keys", "pairs", "others"),
    *("bins", "kept", "turn_highest", "nan_sixteen", "apart"),
)
"""What code is told, in numbers of 8 bytes: addresses; how many rows lie behind each other, and
beside; elements of each, how many come first, bytes between 16 of them and from row to row, the
same of 8 indices and values; where keys are kept, pairs, what is made of them, and how many of
each value there are; how many pairs are sorted; in pairs of 4 bytes what turns the order, the
largest number, NaN's, and 16; how far elements lie apart. Behind them are vectors: the opposite
bits of 16 indices, and places of 16 elements."""

_AT = {name: number for number, name in enumerate(NUMBERS)}
_PLACES_AT = 8 * len(NUMBERS)
_SLOTS = "outer", "x_outer", "index_outer", "values_outer", "inner", "x", "index", "values"
_ON_STACK = {name: number for number, name in enumerate(_SLOTS)}
_TURN, _HIGHEST, _NAN, _ZERO, _APART, _NUMBER, _SIXTEEN, _ONES, _TIMES = range(20, 29)
_SOME, _OTHER = 1, 2


def code_of(
    shape: tuple[int, int, int],
    dtype: np.dtype[np.generic],
    count: int,
    index_bytes: int,
    *,
    descending: bool,
    by_index: bool = False,
    threads: int = 1,
) -> Code | None:
    """Return code that is told addresses of x, and of the first elements' indices and values.

    Of equal ones the lower index is first; NaN is largest.

    Args:
        shape: of x, row-major: rows lie along the second axis.
        dtype: of x: f32 or i32.
        count: how many come first, up to a row's length.
        index_bytes: of an index, 4 or 8.
        descending: whether the largest ones are first.
        by_index: whether they are in the order of their indices, instead of their own.
        threads: how many share the work.

    Returns:
        None where there is no such code, or it takes longer than NumPy.
    """
    outer, length, inner = shape
    kind = KINDS.get(dtype)
    if kind is None or not has_avx512() or outer * length * inner >= _MOST_ELEMENTS:
        return None
    if not 0 < count <= min(length, MOST) or not outer * inner:
        return None
    is_short = length <= COUNTED
    selects = count < length and (by_index or not is_short)
    kept = count if selects else length
    sort = Sort.NONE if by_index else Sort.COUNT if kept <= COUNTED else Sort.RADIX
    form = Form(kind, inner > 1, selects, sort, index_bytes)
    told, rooms = list[Told](), list[Array]()
    is_much = outer * length * inner >= SHARED
    for first, behind in parts_of(outer, threads, is_worth_it=is_much):
        room = _room(length, kept)
        rooms.append(room)
        numbers = _numbers(form, (behind - first, length, inner), count, kept, descending, room)
        before = 4 * first * length * inner, first * count * inner
        skipped = before[0], index_bytes * before[1], 4 * before[1]
        told.append((function_of(_emitted(form)), (*skipped, *numbers)))
    return Code.shared(told, threads, rooms)


def _room(length: int, kept: int) -> Array:
    """Room for keys, pairs, what is made of either, and how many there are of each value."""
    keys, pairs = 4 * (length + LANES), 8 * (kept + 2 * LANES)
    return np.empty(-(-(keys + pairs + max(keys, pairs) + _BINS_BYTES) // 8) + 3, np.int64)


def _numbers(
    form: Form,
    shape: tuple[int, int, int],
    count: int,
    kept: int,
    descending: bool,
    room: Array,
) -> tuple[int, ...]:
    """What code is told behind the addresses."""
    outer, length, inner = shape
    pairs = address_of(room) + _BINS_BYTES
    keys = pairs + 8 * (kept + 2 * LANES)
    others = keys + 4 * (length + LANES) + 4 * (length % 2)
    lanes = np.arange(LANES, dtype=np.int32)
    vectors = array("q", np.stack([~lanes, lanes * inner]).tobytes())
    item = form.index_bytes
    return (
        *(outer, inner, length, count, 4 * LANES * inner, 4 * length * inner),
        *(8 * item * inner, item * count * inner, 32 * inner, 4 * count * inner),
        *(keys, pairs, others, address_of(room), kept),
        *(pair(turn_of(descending=descending), HIGHEST), pair(NAN, LANES), inner, *vectors),
    )


@lru_cache(maxsize=32)
def _emitted(form: Form) -> bytes:
    code = Instructions()
    code.begin(len(_SLOTS))
    for slot, name in zip(_SLOTS[:4], ("outer", "x", "index", "values"), strict=True):
        code.copy(_ON_STACK[slot], RDI, _AT[name])
    _append_constants(code)
    outer = len(code.text)
    code.copy(_ON_STACK["inner"], RDI, _AT["inner"])
    for slot in ("x", "index", "values"):
        code.copy(_ON_STACK[slot], RSP, _ON_STACK[f"{slot}_outer"])
    row = len(code.text)
    _append_keys(code, form)
    calls = [(code.ahead("e8"), SELECT)] if form.selects else []
    if form.sort is Sort.NONE:
        code.load(RAX, RDI, _AT["pairs"])
    else:
        calls.append((code.ahead("e8"), COUNT if form.sort is Sort.COUNT else RADIX))
    _append_results(code, form)
    for slot, size in (("x", 4), ("index", form.index_bytes), ("values", 4)):
        code.load(RSI, RSP, _ON_STACK[slot])
        code.step(RSI, size)
        code.store(RSI, RSP, _ON_STACK[slot])
    code.again(RSP, row, _ON_STACK["inner"])
    steps = ("x", "outer_bytes"), ("index", "index_outer"), ("values", "value_outer")
    for slot, name in steps:
        code.forward(_ON_STACK[f"{slot}_outer"], RDI, _AT[name])
    code.again(RSP, outer, _ON_STACK["outer"])
    code.end(len(_SLOTS))
    for call, function in calls:
        code.here(call)
        code.text += function
    return code.assembled()


def _append_constants(code: Instructions) -> None:
    constants = (
        (_TURN, "turn_highest", 0),
        (_HIGHEST, "turn_highest", 1),
        (_TIMES, "apart", 0),
    )
    for register, name, behind in (
        *constants,
        (_SIXTEEN, "nan_sixteen", 1),
        (_NAN, "nan_sixteen", 0),
    ):
        code.spread(register, RDI, behind=2 * _AT[name] + behind)
    code.clear(_ZERO)
    code.vector(LOAD, _APART, 0, RDI, offset_bytes=_PLACES_AT + 4 * LANES)
    code.vector(
        0x25, _ONES, _ONES, _ONES, kind=3, prefix=1, is_memory=False, last_byte=0xFF
    )  # vpternlogd


def _append_keys(code: Instructions, form: Form) -> None:
    """Append what makes keys of a row, or pairs where none are selected."""
    code.vector(LOAD, _NUMBER, 0, RDI, offset_bytes=_PLACES_AT)
    code.load(R9, RSP, _ON_STACK["x"])
    code.load(RSI, RDI, _AT["keys" if form.selects else "pairs"])
    code.load(RCX, RDI, _AT["length"])
    line = len(code.text)
    code.raw("b8ffffffff4883f9107305c4e270f5c0")  # mov eax, -1; cmp rcx, 16; jae over; bzhi
    code.set_mask(_SOME, RAX)
    _append_read(code, 1, R9, form, line="line_bytes")
    append_key(code, form.kind, 1, 2, (_TURN, _HIGHEST, _NAN, _ZERO), _OTHER)
    if form.selects:
        code.vector(STORE_WORDS, 1, 0, RSI, prefix=2)
        code.step(RSI, 4 * LANES)
    else:
        _append_pairs(code)
    code.step(RCX, -LANES)
    code.jump(line, "0f8f")  # jg


def _append_read(code: Instructions, to: int, base: int, form: Form, *, line: str) -> None:
    """Append what reads up to 16 elements of a row, and goes on to the next."""
    if not form.is_apart:
        code.vector(LOAD, to, 0, base, mask=_SOME)
        code.step(base, 4 * LANES)
        return
    code.copy_mask(2, 1)
    code.clear(to)
    code.gather(to, base, _APART, _OTHER)
    code.add(base, RDI, _AT[line])


def _append_pairs(code: Instructions) -> None:
    """Append what stores zmm1's keys with their numbers, and goes on to the next."""
    for half in range(2):
        key, number = 1, _NUMBER
        if half:
            key, number = 4, 5
            for source, upper in ((1, key), (_NUMBER, number)):
                code.vector(
                    0x3B,
                    source,
                    0,
                    upper,
                    kind=3,
                    prefix=1,
                    is_memory=False,
                    wide=True,
                    last_byte=1,
                )  # vextracti64x4
        code.vector(0x35, 2, 0, key, kind=2, prefix=1, is_memory=False)  # vpmovzxdq
        code.vector(0x35, 3, 0, number, kind=2, prefix=1, is_memory=False)
        code.raw("62f1ed4873f220")  # vpsllq zmm2, zmm2, 32
        code.vector(0xEB, 2, 2, 3, prefix=1, is_memory=False, wide=True)  # vporq
        code.vector(STORE_WORDS, 2, 0, RSI, behind=half, prefix=2, wide=True)
    code.step(RSI, 8 * LANES)
    code.vector(0xFA, _NUMBER, _NUMBER, _SIXTEEN, prefix=1, is_memory=False)


def _append_results(code: Instructions, form: Form) -> None:
    """Append what writes the indices of pairs at RAX, and the elements that they are of."""
    code.load(R8, RSP, _ON_STACK["x"])
    code.load(R9, RSP, _ON_STACK["index"])
    code.load(R10, RSP, _ON_STACK["values"])
    code.load(RCX, RDI, _AT["count"])
    eight = len(code.text)
    code.raw("baff0000004883f9087305c4e270f5d2")  # mov edx, 255; cmp rcx, 8; jae over; bzhi
    code.set_mask(_SOME, RDX)
    code.vector(LOAD_WORDS, 1, 0, RAX, prefix=2, wide=True)
    code.vector(0x35, 1, 0, 0, kind=2, prefix=2, is_memory=False)  # vpmovqd
    code.vector(0xEF, 0, 0, _ONES, prefix=1, is_memory=False)
    place = 0
    if form.is_apart:
        place = 1
        code.vector(0x40, place, 0, _TIMES, kind=2, prefix=1, is_memory=False)  # vpmulld
    code.copy_mask(2, 1)
    code.clear(2)
    code.gather(2, R8, place, _OTHER)
    _append_stored(code, form, 2, R10, is_index=False)
    if form.index_bytes == 8:
        code.vector(0x35, 0, 0, 0, kind=2, prefix=1, is_memory=False)  # vpmovzxdq
    _append_stored(code, form, 0, R9, is_index=True)
    code.step(RAX, 64)
    code.step(RCX, -8)
    code.jump(eight, "0f8f")  # jg


def _append_stored(
    code: Instructions, form: Form, register: int, base: int, *, is_index: bool
) -> None:
    """Append what stores eight numbers of a row, and goes on to the next."""
    wide = is_index and form.index_bytes == 8
    size = 8 if wide else 4
    if not form.is_apart:
        code.vector(STORE_WORDS, register, 0, base, prefix=2, mask=_SOME, wide=wide)
        code.step(base, 8 * size)
        return
    code.copy_mask(2, 1)
    # Indices have their fifth bit where others have that of a first vector.
    given = 0xA0, register, _APART & 16, base, _APART & 15, size
    code.vector(*given, kind=2, prefix=1, mask=_OTHER, wide=wide)
    code.add(base, RDI, _AT["eight_indices" if is_index else "eight_values"])
