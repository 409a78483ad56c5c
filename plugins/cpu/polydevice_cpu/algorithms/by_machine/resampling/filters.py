"""Filters: planes read around points, 16 points of any filter at a time, by AVX-512.

Positions are computed, weighed, cut, mirrored and read in one go: NumPy takes some 30 passes over
all points for that, and 60 us where there are few.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from polydevice.dtype import Array
from polydevice.ops.grid_sample import GridMode, GridPadding
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code, Told, parts_of
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    LOAD,
    MAX,
    MIN,
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
    STORE,
    SUB,
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.resampling.sampling import FAR
from polydevice_cpu.onednn.engine import address_of

MOST_AXES = 3
LARGEST = 1 << 24
"""From so many elements of an axis on positions of f32 leave some out."""

SHARED = 1 << 13
"""From so many numbers read on threads share the work."""

CUBIC = -0.75
"""The slope that ONNX and OpenVINO have."""

_STEPS = {
    GridMode.NEAREST: (0,),
    GridMode.BILINEAR: (0, 1),
    GridMode.BICUBIC: (-1, 0, 1, 2),
}
_LANES = 16


class Form(NamedTuple):
    """What code is emitted for.

    Attributes:
        mode: the filter.
        padding: what lies outside.
        axes: how many axes planes have.
        is_grid: whether coordinates lie one behind the other for each point, that of the last axis
            first, and run from -1 to 1. Else there is a row of them for each axis, in elements,
            counted from each point's own place.
        is_cut: whether nothing lies outside by a part, of points that are in elements: from the
            last element on it is repeated, and what is before the first one, or a whole element
            behind the last, is 0.
        has_factors: whether each point has a factor.
    """

    mode: GridMode
    padding: GridPadding
    axes: int
    is_grid: bool = True
    is_cut: bool = False
    has_factors: bool = False


class Points(NamedTuple):
    """How many there are of what.

    Attributes:
        images: each has its own planes and points.
        channels: planes of an image.
        sizes: of a plane.
        parts: rows of points of an image.
        points: in a row.
    """

    images: int
    channels: int
    sizes: tuple[int, ...]
    parts: int
    points: int

    @property
    def read(self) -> int:
        """How many numbers are computed."""
        return self.images * self.channels * self.parts * self.points


# What code is told: addresses first, of which those of factors are there only where there are any.
_PLANES, _COORDINATES, _FACTORS = 0, 1, 2
(_PLACES, _IMAGES, _PARTS, _POINTS, _CHANNELS, _PLANE_BYTES, _IMAGE_BYTES, _ROW_BYTES, _SKIPPED,
 _PLACE_ROW_BYTES, _SKIPPED_PLACES, _SKIPPED_FACTORS, _RESULT_PLANE_BYTES, _RESULT_PART_BYTES,
 _RESULT_IMAGE_BYTES) = range(4, 19)  # fmt: skip
"""What is skipped lies between the last whole vector of a row, which may reach beyond it, and the
next row."""

_CONSTANTS = 0.0, 1.0, 0.5, -1.0, 2.0, FAR, -FAR, CUBIC, CUBIC + 2, CUBIC + 3
_NUMBERS = 19
_AXES = _NUMBERS + len(_CONSTANTS) // 2
_OF_AXIS = "times", "less", "last", "period", "top", "stride"
_LANES_AT = _AXES + MOST_AXES * len(_OF_AXIS) // 2

_POSITION, _LOW, _BEHIND, _BEFORE, _AT, _SPARE = range(6)
_READ, _SUMS, _FACTOR, _LANE = 0, (3, 4, 5), 6, 7
_JOINED = 1
"""Vectors: while indices and weights are computed; then what is read, sums and indices by axes."""
_LIVE, _INSIDE, _OTHER = 7, 1, 4
"""Masks: the points that there are; elements inside along the axes up to each."""
_AT_LEAST, _AT_MOST, _BELOW = 0x1D, 0x12, 0x11
"""How numbers compare; not, where one is none."""


def _index(axis: int, tap: int) -> int:
    return 8 + 4 * axis + tap


def _weight(axis: int, tap: int) -> int:
    return 20 + 4 * axis + tap


class _Code(Instructions):
    """Instructions with what is told."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form
        self.steps = _STEPS[form.mode]

    def with_told(
        self, opcode: int, register: int, first: int, place: int, *, kind: int = 1, prefix: int = 0
    ) -> None:
        """Append an instruction on a vector and a number of 4 bytes that is told."""
        given = opcode, register, first, RDI
        self.vector(*given, behind=place, kind=kind, prefix=prefix, is_one=True)

    def with_constant(self, opcode: int, register: int, first: int, value: float) -> None:
        """Append one on a vector and a constant."""
        self.with_told(opcode, register, first, self.constant(value))

    def constant(self, value: float) -> int:
        """Return the place of a constant."""
        return 2 * _NUMBERS + _CONSTANTS.index(value)

    def of_axis(self, name: str, axis: int) -> int:
        """Return the place of a number about an axis."""
        return 2 * _AXES + len(_OF_AXIS) * axis + _OF_AXIS.index(name)

    def with_product(self, opcode: int, sum_: int, first: int, second: int) -> None:
        """Append a sum with a product."""
        self.vector(opcode, sum_, first, second, kind=2, prefix=1, is_memory=False)

    def rounded(self, register: int, source: int, *, down: bool) -> None:
        """Append what makes whole numbers, downwards or to the nearest even one."""
        self.vector(
            0x08, register, 0, source, kind=3, prefix=1, is_memory=False, last_byte=int(down)
        )

    def on_stack(self, opcode: int, mask: int, slot: int) -> None:
        """Append what stores a mask on the stack (0x91), or loads it (0x90)."""
        self.text += bytes((0xC5, 0xF8, opcode, 0x44 | mask << 3, 0x24, 8 * slot))

    def of_masks(self, opcode: int, mask: int, first: int, second: int) -> None:
        """Append mask = first and second (0x41), or where both agree (0x46)."""
        self.text += bytes((0xC5, 0x84 | (~first & 15) << 3, opcode, 0xC0 | mask << 3 | second))

    def holds(self, mask: int, register: int, place: int, how: int, among: int = 0) -> None:
        """Append a mask of where a vector compares so with what is told, and another mask holds."""
        self.vector(0xC2, mask, register, RDI, behind=place, is_one=True, mask=among, last_byte=how)


@lru_cache(maxsize=64)
def _emitted(form: Form) -> bytes:
    code = _Code(form)
    slots = form.axes * len(code.steps)
    code.begin(slots)
    result = _FACTORS + form.has_factors
    places = (R8, _COORDINATES), (R10, _PLANES), (R11, _IMAGES), (R15, result)
    for register, number in places:
        code.load(register, RDI, number)
    if form.has_factors:
        code.load(R14, RDI, _FACTORS)
    code.vector(LOAD, _LANE, 0, RDI, offset_bytes=8 * _LANES_AT)
    image = len(code.text)
    code.load(R12, RDI, _PARTS)
    code.load(R13, RDI, _PLACES)
    code.move(R9, R15)
    part = len(code.text)
    code.load(RBP, RDI, _POINTS)
    code.move(RCX, R9)
    block = len(code.text)
    _append_block(code)
    code.step(RBP, -_LANES)
    code.jump(block, "0f8f")  # jg
    code.add(R8, RDI, _SKIPPED)
    code.add(R13, RDI, _SKIPPED_PLACES)
    code.add(R14, RDI, _SKIPPED_FACTORS)
    code.add(R9, RDI, _RESULT_PART_BYTES)
    code.again(R12, part)
    code.add(R15, RDI, _RESULT_IMAGE_BYTES)
    code.add(R10, RDI, _IMAGE_BYTES)
    code.again(R11, image)
    code.end(slots)
    return code.assembled()


def _append_block(code: _Code) -> None:
    """Append what computes up to 16 points of all channels."""
    form = code.form
    code.raw("b8ffffffffbe10000000")  # mov eax, -1; mov esi, 16
    code.raw("4839f5480f42f5c4e248f5c0")  # cmp rbp, rsi; cmovb rsi, rbp; bzhi eax, eax, esi
    code.set_mask(_LIVE, RAX)
    for axis in range(form.axes):
        _append_position(code, axis)
        _append_axis(code, axis)
    if form.has_factors:
        code.vector(LOAD, _FACTOR, 0, R14, mask=_LIVE)
        code.step(R14, 4 * _LANES)
    code.step(R8, 4 * _LANES * (form.axes if form.is_grid else 1))
    code.step(R13, 4 * _LANES)
    code.load(RDX, RDI, _CHANNELS)
    code.move(RAX, R10)
    code.move(RBX, RCX)
    channel = len(code.text)
    made = _append_sums(code, 0, None)
    if form.has_factors:
        code.of_vectors(MUL, made, made, _FACTOR)
    code.vector(STORE, made, 0, RBX, mask=_LIVE)
    code.add(RAX, RDI, _PLANE_BYTES)
    code.add(RBX, RDI, _RESULT_PLANE_BYTES)
    code.again(RDX, channel)
    code.step(RCX, 4 * _LANES)


def _append_position(code: _Code, axis: int) -> None:
    """Append what loads the points' positions along an axis, in elements."""
    form, x = code.form, _POSITION
    if form.is_grid:
        code.of_masks(0x41, _OTHER, _LIVE, _LIVE)
        code.clear(x)
        code.gather(x, R8, _LANE, _OTHER, behind=form.axes - 1 - axis)
        code.with_constant(ADD, x, x, 1.0)
        code.with_told(MUL, x, x, code.of_axis("times", axis))
        code.with_told(SUB, x, x, code.of_axis("less", axis))
        code.with_constant(MUL, x, x, 0.5)
    else:
        for part, register, row in ((x, R8, _ROW_BYTES), (_LOW, R13, _PLACE_ROW_BYTES)):
            code.move(RSI, register)
            for _ in range(axis):
                code.add(RSI, RDI, row)
            code.vector(LOAD, part, 0, RSI, mask=_LIVE)
        code.of_vectors(ADD, x, x, _LOW)
    if form.is_cut:
        code.holds(_INSIDE, x, code.constant(0.0), _AT_LEAST)
        code.holds(_INSIDE, x, code.of_axis("times", axis), _BELOW, _INSIDE)
        code.with_told(MIN, x, x, code.of_axis("last", axis))
        code.spread(_SPARE, RDI, behind=code.constant(FAR))
        code.vector(0x28, _SPARE, 0, x, is_memory=False, mask=_INSIDE)
        code.vector(0x28, x, 0, _SPARE, is_memory=False)
    code.with_constant(MIN, x, x, FAR)  # which what is no number becomes, too
    code.with_constant(MAX, x, x, -FAR)


def _append_axis(code: _Code, axis: int) -> None:
    """Append what finds the indices around positions, in elements of a plane, and their weights."""
    form, steps = code.form, code.steps
    nearest = form.mode is GridMode.NEAREST
    code.rounded(_LOW, _POSITION, down=not nearest)
    if not nearest:
        _append_weights(code, axis)
    for tap, step in enumerate(steps):
        at = _AT if step else _LOW
        if step:
            code.with_constant(ADD, at, _LOW, float(step))
        elif steps[-1]:  # what others are counted from
            code.vector(0x28, _AT, 0, _LOW, is_memory=False)
            at = _AT
        last = code.of_axis("last", axis)
        if form.padding is GridPadding.ZEROS:
            code.holds(_INSIDE, at, code.constant(0.0), _AT_LEAST)
            code.holds(_INSIDE, at, last, _AT_MOST, _INSIDE)
            code.on_stack(0x91, _INSIDE, axis * len(steps) + tap)
        elif form.padding is GridPadding.REFLECTION:
            period = code.of_axis("period", axis)
            code.with_told(DIVIDE, _SPARE, at, period)
            code.rounded(_SPARE, _SPARE, down=True)
            code.with_told(0xBC, at, _SPARE, period, kind=2, prefix=1)  # at -= spare * period
            code.spread(_SPARE, RDI, behind=code.of_axis("top", axis))
            code.of_vectors(SUB, _SPARE, _SPARE, at)
            code.of_vectors(MIN, at, at, _SPARE)
        code.with_constant(MAX, at, at, 0.0)
        code.with_told(MIN, at, at, last)
        found = _index(axis, tap)
        code.vector(0x5B, found, 0, at, prefix=1, is_memory=False)  # vcvtps2dq
        if axis + 1 < form.axes:
            stride = code.of_axis("stride", axis)
            code.with_told(0x40, found, found, stride, kind=2, prefix=1)  # vpmulld


def _append_weights(code: _Code, axis: int) -> None:
    """Append the weights of elements around a position, d behind one and e = 1 - d before one."""
    d, e = _BEHIND, _BEFORE
    code.of_vectors(SUB, d, _POSITION, _LOW)
    code.spread(e, RDI, behind=code.constant(1.0))
    code.of_vectors(SUB, e, e, d)
    weights = [_weight(axis, tap) for tap in range(len(code.steps))]
    if code.form.mode is GridMode.BILINEAR:
        for weight, part in zip(weights, (e, d), strict=True):
            code.vector(0x28, weight, 0, part, is_memory=False)
        return
    far, near, next_, last = weights
    code.of_vectors(MUL, last, d, e)
    code.with_constant(MUL, last, last, CUBIC)
    code.of_vectors(MUL, far, last, e)  # CUBIC * d * e * e
    code.of_vectors(MUL, last, last, d)
    for weight, part in ((near, d), (next_, e)):  # ((CUBIC + 2) * d - (CUBIC + 3)) * d * d + 1
        code.with_constant(MUL, weight, part, CUBIC + 2)
        code.with_constant(SUB, weight, weight, CUBIC + 3)
        code.of_vectors(MUL, weight, weight, part)
        code.of_vectors(MUL, weight, weight, part)
        code.with_constant(ADD, weight, weight, 1.0)


def _append_sums(code: _Code, axis: int, joined: int | None) -> int:
    """Append sums of elements along this axis and those behind it; return where they are.

    Args:
        code: to append to.
        axis: the axis.
        joined: indices along the axes before it; None for the first.
    """
    form, total = code.form, _SUMS[axis]
    for tap in range(len(code.steps)):
        index = _index(axis, tap)
        if joined is not None:
            index = _JOINED + axis - 1
            code.vector(0xFE, index, joined, _index(axis, tap), prefix=1, is_memory=False)
        mask = _INSIDE + axis
        if form.padding is GridPadding.ZEROS:
            code.on_stack(0x90, mask if joined is None else _OTHER, axis * len(code.steps) + tap)
            if joined is not None:
                code.of_masks(0x41, mask, mask - 1, _OTHER)
        elif axis + 1 == form.axes:
            code.of_masks(0x46, mask, mask, mask)
        if axis + 1 < form.axes:
            made = _append_sums(code, axis + 1, index)
        else:
            made = _READ
            code.clear(made)
            code.gather(made, RAX, index, mask)
        if form.mode is GridMode.NEAREST:
            return made
        if tap:
            code.with_product(0xB8, total, made, _weight(axis, tap))
        else:
            code.of_vectors(MUL, total, made, _weight(axis, tap))
    return total


def _axis(size: int, stride: int, *, align_corners: bool) -> bytes:
    """What is told about an axis, in the order of `_OF_AXIS`."""
    whole = size - 1 if align_corners else size
    period = max(2 * whole, 1)
    top = period - (not align_corners)
    # Packing alone would hide that a size is a formula.
    floats = map(float, (whole, not align_corners, size - 1, period, top))
    return struct.pack("<5fi", *floats, int(stride))


def is_known(sizes: Sequence[int]) -> bool:
    """Whether there is code for planes of these sizes."""
    return 0 < len(sizes) <= MOST_AXES and max(sizes) < LARGEST and 0 < math.prod(sizes) < 1 << 29


def code_of(
    form: Form,
    points: Points,
    threads: int,
    *,
    align_corners: bool = False,
    places: Array | None = None,
) -> Code:
    """Return code that is told where planes, coordinates, factors if any, and the result are.

    Args:
        form: what to compute.
        points: of how many.
        threads: how many may share the work.
        align_corners: whether -1 and 1 are the middles of the outermost elements, in a grid.
        places: [parts, axes, points], f32: what coordinates are counted from, without a grid.
    """
    vectors, told = -(-points.points // _LANES), list[Told]()
    for first, behind in parts_of(vectors, threads, is_worth_it=points.read >= SHARED):
        some = slice(_LANES * first, min(_LANES * behind, points.points))
        told.append(_told(form, points, some, align_corners, places))
    return Code.shared(told, threads, places)


def _told(
    form: Form, points: Points, some: slice, align_corners: bool, places: Array | None
) -> Told:
    """What is told for some points of each row."""
    count = some.stop - some.start
    each = form.axes if form.is_grid else 1
    row, reached = 4 * points.points, 4 * _LANES * -(-count // _LANES)
    plane = math.prod(points.sizes)
    addresses = [0, 4 * each * some.start, *[4 * some.start] * (1 + form.has_factors), 0][:4]
    numbers = (
        *(*addresses, 0 if places is None else address_of(places) + 4 * some.start),
        *(points.images, points.parts, count, points.channels),
        *(4 * plane, 4 * plane * points.channels, row, form.axes * row - each * reached),
        *(row, form.axes * row - reached, row - reached),
        *(row * points.parts, row, row * points.parts * points.channels),
    )
    strides = [math.prod(points.sizes[axis + 1 :]) for axis in range(form.axes)]
    axes = b"".join(
        _axis(size, stride, align_corners=align_corners)
        for size, stride in zip(points.sizes, strides, strict=True)
    )
    text = array("q", numbers).tobytes() + struct.pack(f"<{len(_CONSTANTS)}f", *_CONSTANTS)
    text += axes.ljust(MOST_AXES * 4 * len(_OF_AXIS), b"\0")
    lanes = [form.axes * lane for lane in range(_LANES)]
    return function_of(_emitted(form)), text + struct.pack(f"<{_LANES}i", *lanes)
