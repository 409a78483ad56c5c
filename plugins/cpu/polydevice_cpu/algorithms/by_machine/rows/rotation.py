"""Rows whose halves are turned by angles, in any order of memory, by machine code for AVX-512.

In steps each of them reads and writes all of it, nine for a rotary embedding, at 0.7 us where there
are few rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
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
    Instructions,
)
from polydevice_cpu.algorithms.by_machine.small import Form, loops

AXES = 3
"""Axes of rows that are left where those that lie one behind the other are one."""

_POINTERS = R8, R9, R10, R11
_SIZES, _STEPS = 4, 4 + AXES
_HALF = _STEPS + 4 * AXES
_HALF_BYTES, _ANGLE_BYTES, _MASK = _HALF + 1, _HALF + 2, _HALF + 3
"""What it is told: addresses of rows, cosines, sines and results; sizes of axes, and how far each
pointer goes along them, the last axis first; how long a half is, in numbers and in bytes, how far
the second half's cosines are behind the first's, and which of the last 16 numbers there are."""

_WHOLE, _PART = 1, 2
"""Masks."""


@lru_cache(maxsize=1)
def _turning() -> bytes:
    code = Instructions()
    code.begin(0)
    for number, register in enumerate(_POINTERS):
        code.load(register, RDI, number)
    code.load(R15, RDI, _HALF_BYTES)
    code.load(RBP, RDI, _ANGLE_BYTES)
    code.raw("b8ffff0000")  # mov eax, 0xffff
    code.set_mask(_WHOLE, RAX)
    code.load(RAX, RDI, _MASK)
    code.set_mask(_PART, RAX)
    counters, starts = (RBX, R12, R13), []
    for axis, counter in enumerate(counters):
        code.load(counter, RDI, _SIZES + axis)
        starts.append(len(code.text))
    _append_row(code)
    for axis in reversed(range(AXES)):
        for number, register in enumerate(_POINTERS):
            code.add(register, RDI, _STEPS + 4 * (AXES - 1 - axis) + number)
        code.again(counters[axis], starts[axis])
    code.end(0)
    return code.assembled()


def _append_row(code: Instructions) -> None:
    """Append what turns a row, whose pointers stay."""
    walking = RAX, RDX, RSI, R14
    for register, pointer in zip(walking, _POINTERS):
        code.move(register, pointer)
    code.load(RCX, RDI, _HALF)
    some = len(code.text)
    code.step(RCX, -16)
    short = code.ahead("0f8c")  # jl
    _append_numbers(code, _WHOLE)
    for register in walking:
        code.step(register, 64)
    code.jump(some)
    code.here(short)
    code.compare(RCX, -16)
    none = code.ahead("0f84")  # je
    _append_numbers(code, _PART)
    code.here(none)


def _append_numbers(code: Instructions, mask: int) -> None:
    x, cos, sin, y = RAX, RDX, RSI, R14
    first, second, one, other = 0, 1, 6, 7
    for register, place in (
        *((first, (x,)), (second, (x, R15)), (2, (cos,)), (3, (sin,))),
        *((4, (cos, RBP)), (5, (sin, RBP))),
    ):
        code.vector(LOAD, register, 0, *place, mask=mask)
    code.of_vectors(MUL, one, first, 2)
    code.of_vectors(MUL, other, second, 4)
    for opcode, sum_, left, right in ((0xBC, one, second, 3), (0xB8, other, first, 5)):
        code.vector(opcode, sum_, left, right, kind=2, prefix=1, is_memory=False)
    code.vector(STORE, one, 0, y, mask=mask)
    code.vector(STORE, other, 0, y, R15, mask=mask)


def prepared(forms: Sequence[Form]) -> Told | None:
    """Return machine code, and what it is told but for the addresses.

    Args:
        forms: of rows, cosines, sines and results, f32, to which the others are stretched; the
            elements of a row lie one behind the other.

    Returns:
        None where there are too many axes or no rows, and where rows have gaps.
    """
    half = forms[-1][0][-1] // 2
    if any(steps[-1] != 4 for _, steps in forms) or 0 in forms[-1][0]:
        return None
    sizes, steps = loops([(shape[:-1], strides[:-1]) for shape, strides in forms])
    if len(sizes) > AXES:
        return None
    sizes = [1] * (AXES - len(sizes)) + sizes
    steps = [[0] * (AXES - len(each)) + each for each in steps]
    numbers = [0] * len(_POINTERS) + sizes
    for axis in reversed(range(AXES)):
        for each in steps:
            walked = each[axis + 1] * sizes[axis + 1] if axis + 1 < AXES else 0
            numbers.append(each[axis] - walked)
    apart = 4 * half if forms[1][0][-1] > half else 0
    numbers += [half, 4 * half, apart, (1 << half % 16) - 1]
    return function_of(_turning()), tuple(numbers)
