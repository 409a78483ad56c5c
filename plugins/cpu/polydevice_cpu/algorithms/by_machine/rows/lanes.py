"""Functions of single numbers of any type, 8 or 16 at a time along rows, by AVX-512.

NumPy goes from row to row in 10 ns, divides integers one by one and selects with a guess for each
condition: 2,400 quotients of i32 take it 58 us, and 2 here; 5,005 numbers selected in rows of 13 40
and 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD_WORDS,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    RAX,
    RBP,
    RBX,
    RCX,
    RDI,
    RSI,
    STORE_WORDS,
    Instructions,
)

AXES = 4
"""Axes that numbers lie along, the last one a row."""

SIZES = {
    "f32": 4, "f64": 8, "i64": 8, "u64": 8, "i32": 4, "u32": 4, "i16": 2, "u16": 2, "i8": 1,
    "byte": 1, "f16": 2,
}  # fmt: skip
"""Bytes of each kind; of bytes, booleans are some. Halves only become f32, or are made of it."""

_POINTERS, _COUNTERS = (R8, R9, R10), (RBX, RBP, R12)
_MADE, _FIRST, _ONE, _NOTHING = 3, 4, 30, 31
"""Vectors: operands are in the first three, and then come the result, others on the way, and of
all numbers 1 and 0."""

_ALL, _SOME, _TOLD, _EIGHT = range(4)
"""Masks: none, of the last numbers of a row, of what is so, and of 8 numbers."""

_F32_STEPS = {"f32 add": 0x58, "f32 subtract": 0x5C, "f32 multiply": 0x59, "f32 divide": 0x5E}
_F64_STEPS = {name.replace("32", "64"): opcode for name, opcode in _F32_STEPS.items()}
_F32_TESTS = {
    "f32 equal": 0, "f32 not equal": 4, "f32 less": 1, "f32 less or equal": 2, "f32 greater": 14,
    "f32 greater or equal": 13,
}  # fmt: skip

# Opcodes for words of 4 and of 8 bytes, and of which kind these are.
_WORD_STEPS = {
    "add": (0xFE, 0xD4, 1), "subtract": (0xFA, 0xFB, 1), "multiply": (0x40, 0x40, 2),
    "minimum": (0x39, 0x39, 2), "maximum": (0x3D, 0x3D, 2), "and": (0xDB, 0xDB, 1),
    "or": (0xEB, 0xEB, 1), "xor": (0xEF, 0xEF, 1), "shift left": (0x47, 0x47, 2),
    "shift right": (0x45, 0x45, 2), "shift down": (0x46, 0x46, 2),
}  # fmt: skip
_WORD_TESTS = {
    "equal": 0, "not equal": 4, "less": 1, "less or equal": 2, "greater": 6,
    "greater or equal": 5,
}  # fmt: skip
_QUOTIENTS = ("divide", "divide down", "remainder", "modulo")
_ALIKE = (
    *("add", "subtract", "multiply", "and", "or", "xor", "invert", "negative", "equal"),
    *("not equal", "shift left", "shift right", "select", "is not 0"),
)
"""Steps to which signs mean nothing, so that words of 4 bytes do for u32, and of 8 for u64."""

_CLASSES = {"f32 is infinite": 0x18, "f32 is finite": 0x99}
"""Classes of floats: infinities, and these and what is no number, of which it is none."""

_CONVERSIONS = {"from f32": (0x7A, 1), "f32 to i32": (0x5B, 2)}
"""Opcodes and prefixes of what cuts off fractions: to words of 8 bytes, and of 4."""

_ROUNDED = {"f32 floor": 9, "f32 ceiling": 10}
"""How the next whole number is found."""

_OTHERS = ("not", "abs", "sign", "to f32", "f32 is not 0", "f32 is NaN")
_STEPS = frozenset(
    (
        *_F32_STEPS,
        *_F64_STEPS,
        *_F32_TESTS,
        *_WORD_STEPS,
        *_WORD_TESTS,
        *_QUOTIENTS,
        *_ALIKE,
        *_OTHERS,
    )
).union(_CLASSES, _CONVERSIONS, _ROUNDED)

# What loads numbers of a kind as words of 4 and of 8 bytes, halves as f32: opcodes of the second
# kind.
_WIDENING = {
    "byte": (0x31, 0x32), "i8": (0x21, 0x22), "u16": (0x33, 0x34), "i16": (0x23, 0x24),
    "u32": (0, 0x35), "i32": (0, 0x25), "f16": (0x13, 0),
}  # fmt: skip
_NARROWING = {1: (0x31, 0x32), 2: (0x33, 0x34), 4: (0, 0x35)}
# What loads one number to RAX: movzx, movsx, mov and movsxd from an address in R8, R9 or R10.
_ONE_NUMBER = {
    "byte": "410fb6", "i8": "490fbe", "u16": "410fb7", "i16": "490fbf", "u32": "418b",
    "i32": "4963", "i64": "498b", "u64": "498b", "f32": "418b", "f64": "498b",
}  # fmt: skip


def lanes_of(reads: Sequence[str], steps: Sequence[str], store: str) -> int:
    """Return how many numbers are computed at a time; 0 where there is no code for a function.

    Args:
        reads: kinds of the operands, see `SIZES`.
        steps: what is done to them.
        store: kind of the result.
    """
    kinds = {*reads, store}
    step = steps[-1] if steps else ""
    if not kinds <= SIZES.keys() or (step and step not in _STEPS):
        return 0
    if "f16" in kinds:
        return 16 if not step and kinds == {"f16", "f32"} else 0
    if step in _QUOTIENTS:  # in f64, which holds numbers of 4 bytes
        return 16 if SIZES[reads[0]] < 8 and reads[0] not in ("u32", "f32") else 0
    if step in _CONVERSIONS:
        return 8 if step == "from f32" else 16
    if "u64" in kinds and step and step not in _ALIKE:
        return 0
    if "f32" in kinds and step and not (step.startswith("f32") or step == "to f32"):
        return 0
    if step and ("f64" in kinds) != (step in _F64_STEPS):
        return 0
    if max(SIZES[kind] for kind in kinds) == 8:
        return 8
    is_wide = "u32" in reads and (step or store) not in (*_ALIKE, "u32", "i32")
    return 8 if is_wide else 16


@lru_cache(maxsize=256)
def code_of(
    reads: tuple[str, ...], steps: tuple[str, ...], store: str, rows: tuple[bool, ...]
) -> bytes:
    """Return a function that is told addresses, sizes of axes, and steps at the end of each.

    It returns 1 where an integer is to be divided by 0, and results are no good then. Steps of the
    last axis are told, but not read.

    Args:
        reads: kinds of the operands, of a function that `lanes_of` knows.
        steps: see there.
        store: likewise.
        rows: of each operand, whether it has a number for each of a row; else one for all of it.
    """
    return _Lanes(reads, steps, store, rows).emitted()


class _Lanes(Instructions):
    """Three loops around one of rows; RDI is where numbers lie, RSI is what is returned."""

    def __init__(
        self, reads: Sequence[str], steps: Sequence[str], store: str, rows: Sequence[bool]
    ) -> None:
        super().__init__()
        self._reads, self._store, self._rows = reads, store, rows
        self._step = steps[-1] if steps else ""
        self._lanes = lanes_of(reads, steps, store)
        self._wide = self._lanes == 8
        pointers = *_POINTERS[: len(reads)], R11
        self._pointers = pointers
        kinds = zip(pointers, (*reads, store), (*rows, True), strict=True)
        self._moved = [(pointer, SIZES[kind]) for pointer, kind, is_row in kinds if is_row]

    def emitted(self) -> bytes:
        """Emit all of it, and return it."""
        self.begin(0)
        self.raw("31f6")  # xor esi, esi
        for place, pointer in enumerate(self._pointers):
            self.load(pointer, RDI, place)
        self._set_constants()
        starts = []
        for axis, counter in enumerate(_COUNTERS):
            self.load(counter, RDI, len(self._pointers) + axis)
            starts.append(len(self.text))
        self._append_row()
        number = len(self._pointers) + AXES + len(self._pointers)  # the last axis' are left out
        for counter, start in zip(reversed(_COUNTERS), reversed(starts), strict=True):
            for pointer in self._pointers:
                self.add(pointer, RDI, number)
                number += 1
            self.again(counter, start)
        self.end(0)
        self.text[-3:-1] = b"\x89\xf0"  # mov eax, esi instead of xor eax, eax
        return self.assembled()

    def _set_constants(self) -> None:
        self.raw("b8ff000000")  # mov eax, 255
        self.set_mask(_EIGHT, RAX)
        self.load(RCX, RDI, len(self._pointers) + AXES - 1)
        self.raw(f"83e1{self._lanes - 1:02x}")  # and ecx, lanes - 1
        self.raw("b801000000d3e0ffc8")  # mov eax, 1; shl eax, cl; dec eax
        self.set_mask(_SOME, RAX)
        self.raw("b801000000")  # mov eax, 1
        self._spread_word(_ONE, wide=self._wide)
        self.clear(_NOTHING)

    def _spread_word(self, register: int, *, wide: bool) -> None:
        """Fill a vector with what is in RAX."""
        self.vector(0x7C, register, 0, RAX, kind=2, prefix=1, is_memory=False, wide=wide)

    def _apply(
        self, opcode: int, made: int, first: int, second: int, *, kind: int = 1, mask: int = 0
    ) -> None:
        """Add an instruction on words."""
        self.vector(
            *(opcode, made, first, second),
            kind=kind,
            prefix=1,
            is_memory=False,
            mask=mask,
            wide=self._wide,
        )

    def _append_row(self) -> None:
        operands = list(enumerate(zip(self._reads, self._rows, strict=True)))
        for number, (kind, is_row) in operands:
            if not is_row:
                self._load_one(number, kind)
        self.load(R13, RDI, len(self._pointers) + AXES - 1)
        begin = len(self.text)
        self.compare(R13, self._lanes)
        few = self.ahead("0f82")
        self._append_vector(_ALL)
        for pointer, size in self._moved:
            self.step(pointer, self._lanes * size)
        self.step(R13, -self._lanes)
        self.jump(begin)
        self.here(few)
        self.compare(R13, 0)
        none = self.ahead("0f84")
        self._append_vector(_SOME)
        for pointer, size in self._moved:
            self.scaled(pointer, pointer, R13, size)
        self.here(none)

    def _append_vector(self, mask: int) -> None:
        for number, (kind, is_row) in enumerate(zip(self._reads, self._rows, strict=True)):
            if is_row:
                self._load(number, kind, mask)
        made = self._append_step(mask)
        self._keep(made, mask)

    # -- numbers ------------------------------------------------------------------------------

    def _load_one(self, number: int, kind: str) -> None:
        self.raw(f"{_ONE_NUMBER[kind]}{_POINTERS[number] & 7:02x}")
        self._spread_word(number, wide=self._wide and kind != "f32")

    def _load(self, number: int, kind: str, mask: int) -> None:
        pointer, size = _POINTERS[number], SIZES[kind]
        if kind == "f32" and self._wide:
            self.vector(LOAD_WORDS, number, 0, pointer, prefix=2, mask=mask or _EIGHT)
        elif size == (8 if self._wide else 4):
            self.vector(LOAD_WORDS, number, 0, pointer, prefix=2, mask=mask, wide=self._wide)
        else:
            opcode = _WIDENING[kind][self._wide]
            self.vector(opcode, number, 0, pointer, kind=2, prefix=1, mask=mask)

    def _keep(self, made: int, mask: int) -> None:
        size = SIZES[self._store]
        if self._store == "f32" and self._wide:
            self.vector(STORE_WORDS, made, 0, R11, prefix=2, mask=mask or _EIGHT)
        elif size == (8 if self._wide else 4):
            self.vector(STORE_WORDS, made, 0, R11, prefix=2, mask=mask, wide=self._wide)
        elif self._store == "f16":
            self.vector(
                0x1D, made, 0, R11, kind=3, prefix=1, mask=mask, last_byte=0
            )  # vcvtps2ph, to the nearest, ties to even
        else:
            opcode = _NARROWING[size][self._wide]
            self.vector(opcode, made, 0, R11, kind=2, prefix=2, mask=mask)

    # -- steps --------------------------------------------------------------------------------

    def _append_step(self, mask: int) -> int:
        """Append what is computed of vectors 0 to 2; return the one that it is in."""
        step = self._step
        if not step:
            return 0
        if step in _F32_STEPS:
            self.of_vectors(_F32_STEPS[step], _MADE, 0, 1)
        elif step in _F64_STEPS:
            self._apply(_F64_STEPS[step], _MADE, 0, 1)
        elif step in _WORD_STEPS:
            narrow, wide, kind = _WORD_STEPS[step]
            self._apply(wide if self._wide else narrow, _MADE, 0, 1, kind=kind)
        elif step in _QUOTIENTS:
            self._append_quotient(step, mask)
        elif step in _ROUNDED:
            self._apply(0x08, _MADE, 0, 0, kind=3)  # vrndscaleps
            self.text.append(_ROUNDED[step])
        elif step == "select":
            self._apply(0x27, _TOLD, 0, 0, kind=2)  # vptestm
            self._apply(0x64, _MADE, 2, 1, kind=2, mask=_TOLD)  # vpblendm
        elif not self._append_test(step):
            self._append_function(step)
        return _MADE

    def _append_test(self, step: str) -> bool:
        """Append what makes 1 where something is so, and 0 elsewhere; False for another step."""
        if step in _F32_TESTS:
            self._compare_floats(1, _F32_TESTS[step])
        elif step == "f32 is not 0":
            self._compare_floats(_NOTHING, 4)
        elif step == "f32 is NaN":
            self._compare_floats(0, 3)
        elif step in _CLASSES:
            self._apply(0x66, _TOLD, 0, 0, kind=3)  # vfpclassps
            self.text.append(_CLASSES[step])
        elif step in _WORD_TESTS:
            self._apply(0x1F, _TOLD, 0, 1, kind=3)  # vpcmp
            self.text.append(_WORD_TESTS[step])
        elif step == "is not 0":
            self._apply(0x27, _TOLD, 0, 0, kind=2)  # vptestm
        else:
            return False
        self._apply(LOAD_WORDS, _MADE, 0, _ONE, mask=_TOLD)  # vmovdqa
        if step == "f32 is finite":
            self._apply(0xEF, _MADE, _MADE, _ONE)  # vpxor
        return True

    def _compare_floats(self, other: int, how: int) -> None:
        self.of_vectors(0xC2, _TOLD, 0, other)
        self.text.append(how)

    def _append_function(self, step: str) -> None:
        match step:
            case "not":
                self._apply(0xEF, _MADE, 0, _ONE)  # vpxor
            case "invert":
                self._apply(0x25, _MADE, 0, 0, kind=3)  # vpternlog
                self.text.append(0x55)
            case "negative":
                self._apply(0xFB if self._wide else 0xFA, _MADE, _NOTHING, 0)  # vpsub
            case "abs":
                self._apply(0x1F if self._wide else 0x1E, _MADE, 0, 0, kind=2)
            case "sign":
                self._apply(0x39, _MADE, 0, _ONE, kind=2)  # vpmins
                self._apply(0xFB if self._wide else 0xFA, _FIRST, _NOTHING, _ONE)
                self._apply(0x3D, _MADE, _MADE, _FIRST, kind=2)  # vpmaxs
            case "to f32":  # vcvtdq2ps, vcvtqq2ps
                self.vector(0x5B, _MADE, 0, 0, is_memory=False, wide=self._wide)
            case _:
                opcode, prefix = _CONVERSIONS[step]
                self.vector(opcode, _MADE, 0, 0, prefix=prefix, is_memory=False)

    def _append_quotient(self, step: str, mask: int) -> None:
        """Divide in f64, which is exact: a fraction of numbers of 4 bytes is no less than 2^-31."""
        self.vector(0x27, _TOLD, 1, 1, kind=2, prefix=2, is_memory=False, mask=mask)  # vptestnmd
        self.get_mask(RAX, 2)
        self.plain(0x0B, RSI, RAX)  # or rsi, rax
        halves = _FIRST, _FIRST + 1
        for half, made in enumerate(halves):
            for vector, wide in ((0, made), (1, made + 2)):
                source = vector
                if half:
                    self.vector(
                        0x3B,
                        vector,
                        0,
                        wide,
                        kind=3,
                        prefix=1,
                        is_memory=False,
                        wide=True,
                        last_byte=1,
                    )  # vextracti64x4
                    source = wide
                self.vector(0xE6, wide, 0, source, prefix=2, is_memory=False)  # vcvtdq2pd
            self.vector(0x5E, made, made, made + 2, prefix=1, is_memory=False, wide=True)
            self.vector(0xE6, made, 0, made, prefix=1, is_memory=False, wide=True)  # vcvttpd2dq
        self.vector(
            *(0x3A, _MADE, halves[0], halves[1]), kind=3, prefix=1, is_memory=False, wide=True
        )
        self.text.append(1)  # vinserti64x4
        if step == "divide":
            return
        self._apply(0x40, _FIRST, _MADE, 1, kind=2)  # vpmulld
        self._apply(0xFA, _FIRST, 0, _FIRST)  # vpsubd: what is left
        if step != "remainder":  # where it has another sign than the divisor
            self._apply(0xEF, _FIRST + 1, _FIRST, 1)  # vpxord
            self._apply(0x1F, _TOLD, _FIRST + 1, _NOTHING, kind=3)  # vpcmpd
            self.text.append(1)
            self._apply(0x27, _TOLD, _FIRST, _FIRST, kind=2, mask=_TOLD)  # vptestmd
        if step == "divide down":
            self._apply(0xFA, _MADE, _MADE, _ONE, mask=_TOLD)
            return
        if step == "modulo":
            self._apply(0xFE, _FIRST, _FIRST, 1, mask=_TOLD)
        self.vector(LOAD_WORDS, _MADE, 0, _FIRST, prefix=1, is_memory=False)
