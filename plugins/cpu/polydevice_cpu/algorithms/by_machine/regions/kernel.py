"""Code for bins of regions: 16 channels at a time are added up, or compared, where each bin says.

Pictures lie channels last. What a bin reads is found for one region after the other, so that it
stays in a core's cache however many there are.
"""

from __future__ import annotations

import struct
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    MAX,
    MUL,
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
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.regions.geometry import ALIGNED, BINNED, ENTRY, RECORD

LANES = 16
_BLOCKS = 8, 4, 2, 1
"""Vectors of channels at once: with fewer than 8 a sum waits for the one before."""


class Bins(Enum):
    """What becomes of the elements that a bin reads."""

    SUMS = "sums of weighted elements"
    MAXIMA = "maxima of weighted elements, and of 0 where a sample lies outside"
    MAXIMA_OF_SAMPLES = "maxima of samples, each of two elements of two rows, and of 0"
    MAXIMA_OF_ELEMENTS = "maxima of the elements that a bin covers; 0 where there are none"


class Form(NamedTuple):
    """What code is emitted for.

    Attributes:
        bins: what is computed.
        image: type of the numbers that say which picture a region is of: i8, i4, or f4, which is
            the first number of a region then.
    """

    bins: Bins
    image: str

    @property
    def values(self) -> int:
        """How many arrays there are: the picture, regions, perhaps their images, the result."""
        return 3 if self.image == "f4" else 4


NUMBERS = (
    *("picture", "rois", "images", "result", "regions", "channels", "image_bytes", "image_count"),
    *("roi_bytes", "each_image_bytes", "result_bytes", "block_bytes"),
    *("down", "rows", "row_bytes", "row_records", "last_row", "row_limits"),
    *("across", "columns", "column_bytes", "column_records", "last_column", "column_limits"),
    *("ratio", "most", "merges", "is_shared", "before_scale", "behind_least", "limits"),
    *("first_maximum", "ones", "half", "half_zero", "table"),
)
"""What code is told, in numbers of 8 bytes: addresses; how many regions and channels there are,
bytes of a picture and how many there are; bytes of a region's numbers, of the number of its image,
of its result, and how far 16 channels of that lie apart; for each axis which number of a region is
its first, how many bins there are, bytes between elements, where records are kept, the last
element, and floats; samples of a bin, 0 for one per element; how many are too many; whether
elements that two samples lie beside become one, and whether samples share 1; what is added to a
region's numbers before they are scaled, the scale, what is subtracted then, and the least extent;
between what they have to lie; what a maximum begins with where no sample is outside, and where one
is; 1, -1 and halves, and how NaN is passed on. Behind them are the places of 16 channels."""

AT = {name: number for number, name in enumerate(NUMBERS)}
_SLOTS = "regions", "rois", "images", "result", "block"
_ON_STACK = {name: number for number, name in enumerate(_SLOTS)}

_SUM, _PART, _OTHER = 0, 8, 16
"""Vectors: of 8 each, what a bin has, what is added to that, and the same of a second row."""
_ROW, _NEXT_ROW, _COLUMN, _TABLE, _PLACES = 24, 25, 26, 28, 31
_REST, _LEFT = 1, 2
"""Masks: the channels of the last block, and those that are still to be stored."""


@lru_cache(maxsize=16)
def emitted(form: Form) -> bytes:
    """Return the code, which returns 1 where it refuses a region."""
    code = Instructions()
    code.begin(len(_SLOTS))
    for slot in ("regions", "rois", "images", "result"):
        number = "images" if slot == "result" and form.values == 3 else slot
        code.copy(_ON_STACK[slot], RDI, AT[number])
    code.spread(_TABLE, RDI, behind=2 * AT["table"])
    code.vector(LOAD, _PLACES, 0, RDI, offset_bytes=8 * len(NUMBERS))
    code.load(RAX, RSP, _ON_STACK["regions"])
    region = len(code.text)
    code.compare(RAX, 0)
    done = code.ahead("0f84")
    calls, refused = _append_geometry(code)
    refused += _append_image(code, form)
    code.load(R9, RSP, _ON_STACK["result"])
    code.load(R15, RDI, AT["channels"])
    for vectors in _BLOCKS:
        block = len(code.text)
        code.plain(0x81, 7, R15)
        code.text += struct.pack("<i", LANES * vectors)
        too_few = code.ahead("0f8c")  # jl
        _append_block(code, form, vectors)
        code.step(R15, -LANES * vectors)
        code.step(R8, 4 * LANES * vectors)
        for _ in range(vectors):
            code.add(R9, RDI, AT["block_bytes"])
        code.jump(block)
        code.here(too_few)
    code.compare(R15, 0)
    none = code.ahead("0f84")
    code.raw("b8ffffffffc4e200f5c0")  # mov eax, -1; bzhi eax, eax, r15d
    code.set_mask(_REST, RAX)
    _append_block(code, form, 1, mask=_REST)
    code.here(none)
    steps = ("rois", "roi_bytes"), ("images", "each_image_bytes"), ("result", "result_bytes")
    for slot, step in steps:
        code.forward(_ON_STACK[slot], RDI, AT[step])
    code.load(RAX, RSP, _ON_STACK["regions"])
    code.step(RAX, -1)
    code.store(RAX, RSP, _ON_STACK["regions"])
    code.jump(region)
    code.here(done)
    code.end(len(_SLOTS))
    for each in refused:
        code.here(each)
    code.end(len(_SLOTS), 1)
    for each in calls:
        code.here(each)
    code.text += BINNED if form.bins is Bins.MAXIMA_OF_ELEMENTS else ALIGNED
    return code.assembled()


def _append_geometry(code: Instructions) -> tuple[list[int], list[int]]:
    """Append what finds the bins of a region; return its calls, and jumps where it is refused."""
    calls, refused = [], []
    code.load(R8, RSP, _ON_STACK["rois"])
    for axis in ("down", "across"):
        code.plain(0x8D, RSI, RDI, 8 * AT[axis])  # lea
        calls.append(code.ahead("e8"))
        code.raw("85c0")  # test eax, eax
        refused.append(code.ahead("0f85"))
    return calls, refused


def _append_image(code: Instructions, form: Form) -> list[int]:
    """Append what finds a region's picture, in R8; return jumps where there is none."""
    refused = []
    if form.image == "f4":
        # vmovss xmm0, [r8]; vxorps xmm1, xmm1, xmm1; vucomiss xmm0, xmm1
        code.raw("c4c17a1000c5f057c9c5f82ec1")
        refused.append(code.ahead("0f82"))  # jb, where it is no number, too
        code.raw("c4e1fa2cc0")  # vcvttss2si rax, xmm0
    else:
        code.load(RSI, RSP, _ON_STACK["images"])
        code.raw("488b06" if form.image == "i8" else "486306")  # mov, movsxd rax, [rsi]
    code.plain(0x3B, RAX, RDI, 8 * AT["image_count"])
    refused.append(code.ahead("0f83"))  # jae, where it is below 0, too
    code.times(RAX, RDI, AT["image_bytes"])
    code.add(RAX, RDI, AT["picture"])
    code.move(R8, RAX)
    return refused


def _append_block(code: Instructions, form: Form, vectors: int, mask: int = 0) -> None:
    """Append what computes all bins of so many vectors of channels.

    R8: where the channels of the picture begin; R9: those of the result.
    """
    code.store(R9, RSP, _ON_STACK["block"])
    code.move(R14, R9)
    code.load(R10, RDI, AT["row_records"])
    code.load(R12, RDI, AT["rows"])
    row = len(code.text)
    code.load(R11, RDI, AT["column_records"])
    code.load(R13, RDI, AT["columns"])
    column = len(code.text)
    _append_bin(code, form, vectors, mask)
    _append_stores(code, vectors, mask)
    code.step(R14, 4)
    code.step(R11, RECORD)
    code.again(R13, column)
    code.step(R10, RECORD)
    code.again(R12, row)
    code.load(R9, RSP, _ON_STACK["block"])


def _append_bin(code: Instructions, form: Form, vectors: int, mask: int) -> None:
    """Append what computes a bin, of which R10 and R11 have the records."""
    if form.bins in (Bins.SUMS, Bins.MAXIMA_OF_SAMPLES):
        for vector in range(vectors):
            code.clear(_SUM + vector)
    else:
        code.raw("418b420c410b430c")  # mov eax, [r10+12]; or eax, [r11+12]
        code.plain(0x8D, RSI, RDI, 8 * AT["first_maximum"])  # lea
        code.spread(_SUM, RSI, RAX, 4)
        for vector in range(1, vectors):
            code.vector(0x28, _SUM + vector, 0, _SUM, is_memory=False)
    code.raw("418b4a08418b5b08")  # mov ecx, [r10+8]; mov ebx, [r11+8]
    code.raw("85c9")  # test ecx, ecx
    empty = [code.ahead("0f84")]
    code.raw("85db")  # test ebx, ebx
    empty.append(code.ahead("0f84"))
    code.load(RSI, R10)
    if form.bins is Bins.MAXIMA_OF_SAMPLES:
        _append_samples(code, vectors, mask)
    else:
        _append_elements(code, form, vectors, mask)
    for each in empty:
        code.here(each)


def _append_elements(code: Instructions, form: Form, vectors: int, mask: int) -> None:
    """Append loops over the elements of a bin, which count by themselves."""
    row = len(code.text)
    code.load(RAX, RSI)
    code.add(RAX, R8)
    code.spread(_ROW, RSI, behind=2)
    if form.bins is Bins.SUMS:
        for vector in range(vectors):
            code.clear(_PART + vector)
    code.load(RDX, R11)
    code.raw("418b5b08")  # mov ebx, [r11+8]
    column = len(code.text)
    code.load(RBP, RDX)
    code.add(RBP, RAX)
    code.spread(_COLUMN, RDX, behind=2)
    if form.bins is Bins.MAXIMA:
        code.of_vectors(MUL, _COLUMN, _COLUMN, _ROW)
    for vector in range(vectors):
        part = _PART + vector
        if form.bins is Bins.SUMS:
            _add_product(code, part, _COLUMN, RBP, vector, mask)
            continue
        if form.bins is Bins.MAXIMA:
            code.vector(MUL, part, _COLUMN, RBP, behind=vector, mask=mask)
        else:
            code.vector(LOAD, part, 0, RBP, behind=vector, mask=mask)
        _append_maximum(code, _SUM + vector, part)
    code.step(RDX, ENTRY)
    code.again(RBX, column)
    if form.bins is Bins.SUMS:
        for vector in range(vectors):
            given = 0xB8, _SUM + vector, _ROW, _PART + vector
            code.vector(*given, kind=2, prefix=1, is_memory=False)
    code.step(RSI, ENTRY)
    code.again(RCX, row)


def _append_samples(code: Instructions, vectors: int, mask: int) -> None:
    """Append loops over samples, each of two rows and two elements of these."""
    row = len(code.text)
    for register, vector, entry in ((RAX, _ROW, 0), (RBP, _NEXT_ROW, 1)):
        code.load(register, RSI, entry * ENTRY // 8)
        code.add(register, R8)
        code.spread(vector, RSI, behind=entry * ENTRY // 4 + 2)
    code.load(RDX, R11)
    code.raw("418b5b08")  # mov ebx, [r11+8]
    column = len(code.text)
    for entry in range(2):
        code.load(R9, RDX, entry * ENTRY // 8)
        code.spread(_COLUMN, RDX, behind=entry * ENTRY // 4 + 2)
        for vector in range(vectors):
            for part, base in ((_PART, RAX), (_OTHER, RBP)):
                given = part + vector, _COLUMN, base, R9
                if entry:
                    code.vector(0xB8, *given, behind=vector, kind=2, prefix=1, mask=mask)
                else:
                    code.vector(MUL, *given, behind=vector, mask=mask)
    for vector in range(vectors):
        part, other = _PART + vector, _OTHER + vector
        code.of_vectors(MUL, part, part, _ROW)
        code.vector(0xB8, part, other, _NEXT_ROW, kind=2, prefix=1, is_memory=False)
        _append_maximum(code, _SUM + vector, part)
    code.step(RDX, 2 * ENTRY)
    code.step(RBX, -2)
    code.jump(column, "0f85")
    code.step(RSI, 2 * ENTRY)
    code.step(RCX, -2)
    code.jump(row, "0f85")


def _add_product(
    code: Instructions, total: int, factor: int, base: int, vector: int, mask: int
) -> None:
    code.vector(0xB8, total, factor, base, behind=vector, kind=2, prefix=1, mask=mask)


def _append_maximum(code: Instructions, largest: int, other: int) -> None:
    """Append largest = the larger of both; NaN, if one is.

    A maximum passes on the second number where one is NaN, and what follows NaN of the first.
    """
    code.of_vectors(MAX, largest, other, largest)
    code.vector(
        0x54, largest, other, _TABLE, kind=3, prefix=1, is_memory=False, last_byte=0
    )  # vfixupimmps


def _append_stores(code: Instructions, vectors: int, mask: int) -> None:
    """Append what puts a bin of all channels where it belongs, from R14 on."""
    code.move(RAX, R14)
    for vector in range(vectors):
        if mask:
            code.copy_mask(2, 1)
        else:
            code.fill_mask(2)
        # Indices have their fifth bit where others have that of a first vector.
        given = 0xA2, _SUM + vector, _PLACES & 16, RAX, _PLACES & 15, 4
        code.vector(*given, kind=2, prefix=1, mask=_LEFT)
        if vector + 1 < vectors:
            code.add(RAX, RDI, AT["block_bytes"])
