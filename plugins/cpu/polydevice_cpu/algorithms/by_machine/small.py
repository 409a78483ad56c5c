"""Functions of few numbers, element by element, in any order of memory, by machine code.

NumPy takes 0.5 to 3 us for each, however few there are, and several times that where others' code
ran before; this takes 1 ns for an element and runs in one call with what is beside it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from polydevice.processor.machine_code import function_of, processor_flags
from polydevice.symbolic_size import always_equal, number_of
from polydevice_cpu.algorithms.by_machine.code import Told, has_avx512
from polydevice_cpu.algorithms.by_machine.rows.lanes import AXES, SIZES, code_of, lanes_of

MOST = 1024
"""Elements of a result; for more, NumPy takes less."""

MOST_OF_SHORT = 4096
"""The same where rows are short, of which each takes NumPy 10 ns."""

MOST_QUOTIENTS = 1 << 14
"""The same of quotients of i64, which take NumPy 8 ns and more each."""

MOST_PLAIN = 1 << 16
"""The same of what is only copied, or of bytes alone, where many are computed at a time."""

SHORT_ROWS = 6
"""So many elements rows have at least to be computed many at a time."""

_PIECES = {
    "A f32": "c4c17a1000",  # vmovss xmm0, [r8]
    "A f64": "c4c17b1000",  # vmovsd xmm0, [r8]
    "A i64": "498b00",  # mov rax, [r8]
    "A i32": "496300",  # movsxd rax, dword ptr [r8]
    "A byte": "410fb600",  # movzx eax, byte ptr [r8]
    "B f32": "c4c17a1009",  # vmovss xmm1, [r9]
    "B f64": "c4c17b1009",  # vmovsd xmm1, [r9]
    "B i64": "498b09",  # mov rcx, [r9]
    "B i32": "496309",  # movsxd rcx, dword ptr [r9]
    "B byte": "410fb609",  # movzx ecx, byte ptr [r9]
    "C byte": "410fb612",  # movzx edx, byte ptr [r10]
    "store f32": "c4c17a1103",  # vmovss [r11], xmm0
    "store f64": "c4c17b1103",  # vmovsd [r11], xmm0
    "store i64": "498903",  # mov [r11], rax
    "store i32": "418903",  # mov [r11], eax
    "store byte": "418803",  # mov [r11], al
    "add": "4801c8",  # add rax, rcx
    "subtract": "4829c8",  # sub rax, rcx
    "multiply": "480fafc1",  # imul rax, rcx
    # test rcx, rcx; jnz 1f; mov ecx, 1; mov esi, 1; 1:
    "refuse 0": "4885c9750ab901000000be01000000",
    "without -1": "4883f9ff750648f7d848f7d9",  # cmp rcx, -1; jne 1f; neg rax; neg rcx; 1:
    "divide": "489948f7f9",  # cqo; idiv rcx
    # cqo; idiv rcx; test rdx, rdx; jz 1f; xor rdx, rcx; jns 1f; dec rax; 1:
    "divide down": "489948f7f94885d274084831ca790348ffc8",
    "remainder": "489948f7f94889d0",  # cqo; idiv rcx; mov rax, rdx
    # cqo; idiv rcx; mov rax, rdx; test rdx, rdx; jz 1f; xor rdx, rcx; jns 1f; add rax, rcx; 1:
    "modulo": "489948f7f94889d04885d274084831ca79034801c8",
    "minimum": "4839c1480f4cc1",  # cmp rcx, rax; cmovl rax, rcx
    "maximum": "4839c1480f4fc1",  # cmp rcx, rax; cmovg rax, rcx
    "and": "4821c8",  # and rax, rcx
    "or": "4809c8",  # or rax, rcx
    "xor": "4831c8",  # xor rax, rcx
    "not": "83f001",  # xor eax, 1
    "invert": "48f7d0",  # not rax
    "zero": "31c0",  # xor eax, eax
    "own i64": "498b0b",  # mov rcx, [r11]
    "own i32": "49630b",  # movsxd rcx, dword ptr [r11]
    "equal": "4839c80f94c0",  # cmp rax, rcx; sete al
    "not equal": "4839c80f95c0",  # cmp rax, rcx; setne al
    "less": "4839c80f9cc0",  # cmp rax, rcx; setl al
    "less or equal": "4839c80f9ec0",  # cmp rax, rcx; setle al
    "greater": "4839c80f9fc0",  # cmp rax, rcx; setg al
    "greater or equal": "4839c80f9dc0",  # cmp rax, rcx; setge al
    "f32 add": "c5fa58c1",  # vaddss xmm0, xmm0, xmm1
    "f32 subtract": "c5fa5cc1",  # vsubss xmm0, xmm0, xmm1
    "f32 multiply": "c5fa59c1",  # vmulss xmm0, xmm0, xmm1
    "f32 divide": "c5fa5ec1",  # vdivss xmm0, xmm0, xmm1
    "f64 add": "c5fb58c1",  # vaddsd xmm0, xmm0, xmm1
    "f64 subtract": "c5fb5cc1",  # vsubsd xmm0, xmm0, xmm1
    "f64 multiply": "c5fb59c1",  # vmulsd xmm0, xmm0, xmm1
    "f64 divide": "c5fb5ec1",  # vdivsd xmm0, xmm0, xmm1
    "f64 to f32": "c5fb5ac0",  # vcvtsd2ss xmm0, xmm0, xmm0
    "f32 to f64": "c5fa5ac0",  # vcvtss2sd xmm0, xmm0, xmm0
    # vcmpeqss xmm0, xmm0, xmm1; vmovd eax, xmm0; and eax, 1
    "f32 equal": "c5fac2c100c5f97ec083e001",
    # vcmpneqss xmm0, xmm0, xmm1; vmovd eax, xmm0; and eax, 1
    "f32 not equal": "c5fac2c104c5f97ec083e001",
    "f32 less": "c5f82ec80f97c0",  # vucomiss xmm1, xmm0; seta al
    "f32 less or equal": "c5f82ec80f93c0",  # vucomiss xmm1, xmm0; setae al
    "f32 greater": "c5f82ec10f97c0",  # vucomiss xmm0, xmm1; seta al
    "f32 greater or equal": "c5f82ec10f93c0",  # vucomiss xmm0, xmm1; setae al
    "select": "85d2480f44c1",  # test edx, edx; cmovz rax, rcx
    "to f32": "c5f857c0c4e1fa2ac0",  # vxorps xmm0, xmm0, xmm0; vcvtsi2ss xmm0, xmm0, rax
    "from f32": "c4e1fa2cc0",  # vcvttss2si rax, xmm0
    "is not 0": "4885c00f95c0",  # test rax, rax; setne al
    # vxorps xmm1, xmm1, xmm1; vcmpneqss xmm0, xmm0, xmm1; vmovd eax, xmm0; and eax, 1
    "f32 is not 0": "c5f057c9c5fac2c104c5f97ec083e001",
    "f32 floor": "c4e3790ac009",  # vroundss xmm0, xmm0, xmm0, 9
    "f32 ceiling": "c4e3790ac00a",  # vroundss xmm0, xmm0, xmm0, 10
    "f32 is NaN": "c5f82ec00f9ac0",  # vucomiss xmm0, xmm0; setp al
    # vmovd eax, xmm0; and eax, 0x7fffffff; cmp eax, 0x7f800000; sete al
    "f32 is infinite": "c5f97ec025ffffff7f3d0000807f0f94c0",
    # vmovd eax, xmm0; and eax, 0x7fffffff; cmp eax, 0x7f800000; setb al
    "f32 is finite": "c5f97ec025ffffff7f3d0000807f0f92c0",
    "begin": "f30f1efa535541544155",  # endbr64; push rbx; push rbp; push r12; push r13
    "none refused": "31f6",  # xor esi, esi
    "end": "31c0415d415c5d5bc3",  # xor eax, eax; pop r13; pop r12; pop rbp; pop rbx; ret
    "end refused": "89f0415d415c5d5bc3",  # mov eax, esi; pop r13; pop r12; pop rbp; pop rbx; ret
}
"""What a function is made of: a, b and c are read from r8, r9 and r10 to rax, rcx and rdx (or
xmm0 and xmm1), and the result is put to r11. Steps on the way lie behind rdi, counters in rbx, rbp,
r12 and r13."""

_KINDS = {"f32", "f64", "i64", "i32", "byte"}
_POINTERS, _COUNTERS = (8, 9, 10, 11), ((3, False), (5, False), (12, True), (13, True))
_ADD, _LOAD = 0x03, 0x8B

DIVISION = _REFUSE_0, _ = "refuse 0", "without -1"
"""The steps before a division, which end the process else: for 0, 1 is returned in the end, and
results are no good; -1 becomes 1, as the least number has no quotient by it."""

Form = tuple[tuple[int, ...], tuple[int, ...]]
"""Sizes and strides in bytes."""


class Function(NamedTuple):
    """What is computed of elements.

    Attributes:
        reads: kinds of operands, see `SIZES`; nothing of one that is not read.
        steps: names of pieces, in order.
        store: kind of the result.
    """

    reads: tuple[str, ...]
    steps: tuple[str, ...]
    store: str


def prepared(function: Function, forms: Sequence[Form]) -> Told | None:
    """Return machine code and what it is told, but for the addresses of operands and result.

    Args:
        function: of elements.
        forms: of the operands, and of the result, to which they are stretched.

    Returns:
        None where there are too many elements or axes, and where the system has no such code.
    """
    sizes, steps = loops(forms)
    if math.prod(sizes) <= 0 or len(sizes) > AXES:
        return None
    code = _by_rows(function, sizes, [each[-1] for each in steps]) or _by_elements(function, sizes)
    if code is None:
        return None
    sizes = [1] * (AXES - len(sizes)) + sizes
    steps = [[0] * (AXES - len(each)) + each for each in steps]
    numbers = [0] * len(steps) + sizes
    for axis in reversed(range(AXES)):
        for each in steps:
            walked = each[axis + 1] * sizes[axis + 1] if axis + 1 < AXES else 0
            numbers.append(each[axis] - walked)
    return code, tuple(numbers)


def _by_rows(function: Function, sizes: Sequence[int], steps: Sequence[int]) -> Any | None:
    """Code for many at a time; None where they do not follow each other, and of short rows."""
    lanes = lanes_of(*function) if has_avx512() else 0
    count, kinds = math.prod(sizes), (*function.reads, function.store)
    if not lanes or sizes[-1] < SHORT_ROWS:
        return None
    if not (function.steps and max(SIZES[kind] for kind in kinds) > 1) and count > MOST_PLAIN:
        return None
    *operands, own = zip(steps, (SIZES[kind] for kind in kinds), strict=True)
    if own[0] != own[1] or any(step not in (0, size) for step, size in operands):
        return None
    if "f16" in kinds and not operands[0][0]:  # one half for all of a row
        return None
    return function_of(code_of(*function, tuple(step == size for step, size in operands)))


def _by_elements(function: Function, sizes: Sequence[int]) -> Any | None:
    """Code for one at a time; None of too many."""
    kinds = {kind for kind in (*function.reads, function.store) if kind}
    most = MOST_OF_SHORT if sizes[-1] < SHORT_ROWS else MOST
    most = MOST_QUOTIENTS if _REFUSE_0 in function.steps else most
    if not kinds <= _KINDS or math.prod(sizes) > most:
        return None
    if not _PIECES.keys() >= {*function.steps} or "avx" not in processor_flags():
        return None
    return function_of(_code(function))


def summed(kind: str, x: Form, result: Form, axes: Sequence[int]) -> list[Told] | None:
    """Return code that adds integers along axes, told addresses of x, of nothing, and the result.

    Args:
        kind: `i64` or `i32`.
        x: what is added.
        result: the sums, with or without axes of size 1.
        axes: of x, counted from the first one.
    """
    sizes, strides = result
    own = iter(strides) if len(sizes) < len(x[0]) else None
    along = []
    for axis in range(len(x[0])):
        step = strides[axis] if own is None else 0 if axis in axes else next(own)
        along.append(0 if axis in axes else step)
    nothing: Form = (), ()
    begin = prepared(Function(("", ""), ("zero",), kind), [nothing, nothing, result])
    add = Function((kind, ""), (f"own {kind}", "add"), kind)
    code = prepared(add, [x, nothing, (x[0], tuple(along))])
    return None if begin is None or code is None else [begin, code]


def loops(forms: Sequence[Form]) -> tuple[list[int], list[list[int]]]:
    """Return the sizes of axes, the outermost first, and steps in bytes of each along them.

    All are stretched to the last one's sizes; axes that lie one behind the other are one. A size
    that is a formula is taken for one of several, as which it serves 1, too, unless it is 1 now.
    """
    shape = forms[-1][0]
    steps = []
    for own, strides in forms:
        missing = len(shape) - len(own)
        along = [0] * missing + [
            stride if always_equal(size, whole) or size != 1 else 0
            for size, whole, stride in zip(own, shape[missing:], strides, strict=True)
        ]
        steps.append(along)
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in forms]
    for axis, size in enumerate(shape):
        if number_of(size) == 1 and size == 1:
            continue
        if sizes and all(k[-1] == s[axis] * size for k, s in zip(kept, steps, strict=True)):
            sizes[-1] *= size
            for k, s in zip(kept, steps, strict=True):
                k[-1] = s[axis]
        else:
            sizes.append(size)
            for k, s in zip(kept, steps, strict=True):
                k.append(s[axis])
    return (sizes, kept) if sizes else ([1], [[0] for _ in forms])


@lru_cache(maxsize=256)
def _code(function: Function) -> bytes:
    """Four loops around the function of one element."""
    pointers = (*_POINTERS[: len(function.reads)], _POINTERS[-1])
    if "select" in function.steps:  # the condition is the first operand
        pointers = _POINTERS[2], *_POINTERS[:2], _POINTERS[-1]
    names = ("C", "A", "B") if "select" in function.steps else ("A", "B")
    pairs = zip(names, function.reads, strict=False)
    reads = [f"{name} {kind}" for name, kind in pairs if kind]
    body = [*reads, *function.steps, f"store {function.store}"]
    may_refuse = _REFUSE_0 in function.steps
    code = b"".join(bytes.fromhex(_PIECES[name]) for name in body)
    return _looped(pointers, code, may_refuse=may_refuse)


def _looped(pointers: Sequence[int], body: bytes, *, may_refuse: bool) -> bytes:
    """Loops around what computes an element."""
    code = bytearray(bytes.fromhex(_PIECES["begin"]))
    code += bytes.fromhex(_PIECES["none refused"]) if may_refuse else b""
    for place, register in enumerate(pointers):
        code += _with_number(_LOAD, register, place)
    starts = []
    for axis, (register, _) in enumerate(_COUNTERS):
        code += _with_number(_LOAD, register, len(pointers) + axis)
        starts.append(len(code))
    code += body
    number = len(pointers) + AXES
    for axis in reversed(range(AXES)):
        register, is_high = _COUNTERS[axis]
        for pointer in pointers:
            code += _with_number(_ADD, pointer, number)
            number += 1
        # dec the counter; jnz start
        code += bytes((0x49 if is_high else 0x48, 0xFF, 0xC8 | register & 7, 0x0F, 0x85))
        code += struct.pack("<i", starts[axis] - len(code) - 4)
    return bytes(code + bytes.fromhex(_PIECES["end refused" if may_refuse else "end"]))


def _with_number(opcode: int, register: int, number: int) -> bytes:
    """An instruction on a register and the number of 8 bytes at this place behind rdi."""
    return bytes((0x48 | register >> 3 << 2, opcode, 0x87 | (register & 7) << 3)) + struct.pack(
        "<i", 8 * number
    )
