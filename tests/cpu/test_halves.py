"""Instructions of AVX-512 that are made of those of AVX2, each compared with NumPy.

Vectors are many, so that some are in registers and others on the stack, and masks have any bits.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine import instructions
from polydevice_cpu.algorithms.by_machine.avx2.encoding import Place, encoded
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    LOAD,
    MAX,
    MIN,
    MUL,
    R8,
    RAX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    STORE,
    SUB,
    Instructions,
)
from tests.cpu.machine_code import with_avx2

pytestmark = with_avx2

F, INTEGERS = np.float32, np.int32
BITS = 0b1011001110001101
MASK = np.array([BITS >> lane & 1 for lane in range(16)], bool)

BINARY = {
    "add": ({"opcode": ADD}, F, np.add),
    "subtract": ({"opcode": SUB}, F, np.subtract),
    "multiply": ({"opcode": MUL}, F, np.multiply),
    "divide": ({"opcode": DIVIDE}, F, np.divide),
    "min": ({"opcode": MIN}, F, lambda a, b: np.where(a < b, a, b)),
    "max": ({"opcode": MAX}, F, lambda a, b: np.where(a > b, a, b)),
    "and": ({"opcode": 0xDB, "prefix": 1}, INTEGERS, np.bitwise_and),
    "and not": ({"opcode": 0xDF, "prefix": 1}, INTEGERS, lambda a, b: ~a & b),
    "xor": ({"opcode": 0xEF, "prefix": 1}, INTEGERS, np.bitwise_xor),
    "sum of integers": ({"opcode": 0xFE, "prefix": 1}, INTEGERS, np.add),
    "difference of integers": ({"opcode": 0xFA, "prefix": 1}, INTEGERS, np.subtract),
    "max of integers": ({"opcode": 0x3D, "kind": 2, "prefix": 1}, INTEGERS, np.maximum),
    "product of integers": ({"opcode": 0x40, "kind": 2, "prefix": 1}, INTEGERS, np.multiply),
    "shifts": ({"opcode": 0x47, "kind": 2, "prefix": 1}, np.uint32, lambda a, b: a << (b & 31)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def halved(monkeypatch):
    monkeypatch.setattr(instructions, "has_avx512", lambda *_: False)


class Code(Instructions):
    """Emits what reads two arrays and a third, computes, and stores the third and a mask."""

    def __init__(self, slots: int = 3, *, is_short: bool = False) -> None:
        super().__init__(is_short=is_short)
        self.slots = slots
        self.begin(slots)
        for slot in range(slots):
            self.copy(slot, RDI, slot)
        self.load(RAX, RDI, 3)
        self.set_mask(1, RAX)
        for register, number in ((RSI, 0), (RDX, 1), (RCX, 2)):
            self.load(register, RDI, number)

    def run(self, a, b, c, bits=BITS):
        """Return what became of the third array."""
        self.end(self.slots)
        text = self.assembled()
        function, c = function_of(text), c.copy()
        given = np.array([x.ctypes.data for x in (a, b, c)] + [bits], np.int64)
        assert text
        assert function(ctypes.c_void_p(given.ctypes.data)) == 0
        return c


def arrays(kind, seed=0):
    rng = np.random.default_rng(seed)
    if kind is F:
        return [rng.normal(size=16).astype(F) for _ in range(3)]
    return [rng.integers(-(2**31), 2**31, 16).astype(np.int64).astype(kind) for _ in range(3)]


def filled(code: Code, count: int) -> None:
    """Use other vectors more than those that are tested, so that these are on the stack."""
    for number in range(20, 20 + count):
        code.vector(LOAD, number, 0, RSI)
        for _ in range(20):
            code.of_vectors(ADD, number, number, number)


@pytest.mark.parametrize("others", [0, 8])
@pytest.mark.parametrize("how", ["vectors", "memory", "one"])
@pytest.mark.parametrize("mask", [0, 1])
@pytest.mark.parametrize("name", BINARY)
def test_of_two(name, mask, how, others):
    given, kind, oracle = BINARY[name]
    a, b, c = arrays(kind)
    if name == "shifts":
        b = b & np.uint32(31)
    code = Code()
    filled(code, others)
    code.vector(LOAD, 1, 0, RSI)
    code.vector(LOAD, 3, 0, RCX)
    if how == "vectors":
        code.vector(LOAD, 2, 0, RDX)
        code.vector(**given, register=3, first=1, base=2, is_memory=False, mask=mask)
    else:
        code.vector(**given, register=3, first=1, base=RDX, is_one=how == "one", mask=mask)
    code.vector(STORE, 3, 0, RCX)
    with np.errstate(all="ignore"):
        made = oracle(a, b[0] if how == "one" else b)
    wanted = np.where(MASK, made, c) if mask else made
    np.testing.assert_array_equal(code.run(a, b, c), wanted)


@pytest.mark.parametrize("others", [0, 8])
@pytest.mark.parametrize("mask", [0, 1])
@pytest.mark.parametrize(("opcode", "oracle"), [
    (0xB8, lambda a, b, c: a * b + c), (0xA8, lambda a, b, c: a * c + b),
    (0xBC, lambda a, b, c: c - a * b), (0x98, lambda a, b, c: c * b + a),
])  # fmt: skip
def test_sums_of_products(opcode, oracle, mask, others):
    a, b, c = arrays(F)
    code = Code()
    filled(code, others)
    for register, base in ((1, RSI), (2, RDX), (3, RCX)):
        code.vector(LOAD, register, 0, base)
    code.vector(opcode, 3, 1, 2, kind=2, prefix=1, is_memory=False, mask=mask)
    code.vector(STORE, 3, 0, RCX)
    made = oracle(*(x.astype(np.float64) for x in (a, b, c))).astype(F)
    np.testing.assert_allclose(code.run(a, b, c), np.where(MASK | (not mask), made, c), rtol=1e-6)


@pytest.mark.parametrize("others", [0, 8])
def test_moves_and_stores_by_masks(others):
    a, b, c = arrays(F)
    code = Code()
    filled(code, others)
    code.vector(LOAD, 1, 0, RSI, mask=1)  # zeros elsewhere
    code.vector(LOAD, 2, 0, RDX)
    code.vector(0x28, 2, 0, 1, is_memory=False, mask=1)
    code.vector(STORE, 2, 0, RCX, mask=1)
    np.testing.assert_array_equal(code.run(a, b, c), np.where(MASK, a, c))
    code = Code()
    code.vector(LOAD, 1, 0, RSI, mask=1)
    code.vector(LOAD, 2, 0, 1, is_memory=False)
    code.vector(LOAD, 3, 0, 2, is_memory=False, mask=1)
    code.vector(STORE, 3, 0, 2, is_memory=False, mask=1)
    code.vector(STORE, 2, 0, RCX)
    np.testing.assert_array_equal(code.run(a, b, c), np.where(MASK, a, F(0)))


def test_nothing_behind_a_mask_is_read_or_written():
    """At the end of a page, behind which there is none."""
    import mmap

    room = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    protect = ctypes.CDLL(None).mprotect
    page = ctypes.c_void_p(address + mmap.PAGESIZE)
    assert protect(page, mmap.PAGESIZE, 0) == 0
    last = np.frombuffer(room, F, 5, mmap.PAGESIZE - 20)
    last[:] = np.arange(5)
    code = Code()
    code.vector(LOAD, 1, 0, RSI, mask=1)
    code.vector(ADD, 1, 1, RSI, mask=1)
    code.vector(STORE, 1, 0, RSI, mask=1)
    code.run(last, last, last, bits=0b11111)
    np.testing.assert_array_equal(last, 2 * np.arange(5))
    protect(page, mmap.PAGESIZE, 3)


@pytest.mark.parametrize("others", [0, 8])
@pytest.mark.parametrize("how", ["floats", *range(7)])
@pytest.mark.parametrize("is_signed", [True, False])
def test_comparisons(how, is_signed, others):
    if how == 3:
        return
    floats = how == "floats"
    a, b, c = arrays(F if floats else INTEGERS if is_signed else np.uint32)
    b[::3] = a[::3]
    code = Code()
    filled(code, others)
    code.vector(LOAD, 1, 0, RSI)
    code.vector(LOAD, 2, 0, RDX)
    if floats:
        code.not_above(2, 1, 2)
    else:
        given = 0x1F if is_signed else 0x1E
        code.vector(given, 2, 1, 2, kind=3, prefix=1, is_memory=False, last_byte=how)
    code.get_mask(RAX, 2)
    code.store(RAX, RCX, 0)
    oracles = [np.equal, np.less, np.less_equal, None, np.not_equal, np.greater_equal, np.greater]
    wanted = (np.less_equal if floats else oracles[how])(a, b)
    assert int(code.run(a, b, c).view(np.uint64)[0]) == sum(
        int(found) << lane for lane, found in enumerate(wanted)
    )


def test_masks():
    a, b, c = arrays(INTEGERS)
    for bits, expected in ((BITS, 0), (0xFFFF, 1), (0, 2)):
        code = Code()
        code.copy_mask(4, 1)
        code.fill_mask(1)
        code.vector(0x27, 5, 1, 1, kind=2, prefix=1, is_memory=False, mask=4)
        code.raw("31d2")  # xor edx, edx
        code.test_any(4)
        none = code.ahead("0f84")
        code.test_all(4)
        some = code.ahead("0f83")
        code.raw("ffc2ffca")  # inc edx; dec edx
        code.raw("ffc2")
        leave = code.ahead()
        code.here(none)
        code.raw("ba02000000")  # mov edx, 2
        for jump in (some, leave):
            code.here(jump)
        code.store(RDX, RCX, 0)
        assert int(code.run(a, b, c, bits).view(np.int64)[0]) == expected


def test_numbers_in_all_elements():
    a, b, c = arrays(F)
    code = Code()
    code.spread(1, RSI, behind=3)
    code.fill_bits(2, 0x3F800000)
    code.of_vectors(ADD, 3, 1, 2)
    code.vector(LOAD, 4, 0, RDX)
    code.of_vectors(MUL, 4, 4, 3)
    code.vector(STORE, 4, 0, RCX)
    np.testing.assert_array_equal(code.run(a, b, c), b * (a[3] + F(1)))


@pytest.mark.parametrize("others", [0, 8])
def test_numbers_behind_the_code(others):
    """One number in all elements that an instruction reads; the same ones lie there once."""
    a, b, c = arrays(F)
    third, fifth = (int(F(number).view(INTEGERS)) for number in (0.3, 0.2))
    code = Code()
    filled(code, others)
    code.vector(LOAD, 1, 0, RSI)
    code.vector(LOAD, 2, 0, RDX)
    code.literal(LOAD, 3, 0, third)
    code.literal(MUL, 3, 3, fifth)
    code.literal(ADD, 4, 1, fifth)
    code.literal(0xB8, 3, 2, third, kind=2, prefix=1)  # 3 = 3 + 2 times it
    code.literal(0x98, 4, 1, third, kind=2, prefix=1)  # 4 = 4 times it + 1
    code.literal(0xDB, 2, 2, 0x7FFFFFFF, prefix=1)  # the size of a number
    code.of_vectors(SUB, 3, 3, 4)
    code.of_vectors(MUL, 3, 3, 2)
    code.vector(STORE, 3, 0, RCX)
    found = code.run(a, b, c)
    a, b, third, fifth = (np.float64(each) for each in (a, b, F(0.3), F(0.2)))
    one, other = third * fifth + b * third, (a + fifth) * third + a
    np.testing.assert_allclose(found, (one - other) * np.abs(b), rtol=1e-5, atol=1e-6)
    text = code.assembled()
    assert text.count(bytes(np.full(8, 0.3, F))) == 1
    assert text.count(bytes(np.full(8, 0.2, F))) == 1


@pytest.mark.parametrize("others", [0, 8])
def test_numbers_where_a_mask_says(others):
    a, b, c = arrays(F)
    code = Code()
    filled(code, others)
    code.vector(LOAD, 1, 0, RDX)
    code.vector(0x18, 1, 0, RSI, behind=5, kind=2, prefix=1, mask=1)
    code.vector(STORE, 1, 0, RCX)
    np.testing.assert_array_equal(code.run(a, b, c), np.where(MASK, a[5], b))


def test_powers_of_two():
    a, b, c = arrays(F)
    b[:] = [0, 1, -1, 5.0, -126, -140, 127, 128, -149, 3, 2, 60, -60, 100, -100, 7]
    code = Code()
    code.vector(LOAD, 1, 0, RSI)
    code.vector(LOAD, 2, 0, RDX)
    code.vector(0x2C, 1, 1, 2, kind=2, prefix=1, is_memory=False)
    code.vector(STORE, 1, 0, RCX)
    with np.errstate(all="ignore"):
        wanted = np.ldexp(a.astype(np.float64), b.astype(int)).astype(F)
    np.testing.assert_allclose(code.run(a, b, c), wanted, rtol=1e-7, atol=2e-45)


def test_rounding_and_integers():
    a, b, c = arrays(F)
    a *= 9
    code = Code()
    code.vector(LOAD, 1, 0, RSI)
    code.vector(0x08, 2, 0, 1, kind=3, prefix=1, is_memory=False, last_byte=1)  # down
    code.vector(0x5B, 3, 0, 1, prefix=1, is_memory=False)  # to integers
    code.shifted(3, 3, 1, is_signed=True)
    code.vector(0x5B, 3, 0, 3, is_memory=False)
    code.of_vectors(ADD, 2, 2, 3)
    code.vector(STORE, 2, 0, RCX)
    wanted = np.floor(a) + (np.rint(a).astype(INTEGERS) >> 1)
    np.testing.assert_array_equal(code.run(a, b, c), wanted)


@pytest.mark.parametrize(("opcode", "kind"), [
    (0x31, np.uint8), (0x21, np.int8), (0x33, np.uint16), (0x23, np.int16), (0x13, np.float16),
])  # fmt: skip
@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("others", [0, 8])
def test_longer_numbers(opcode, kind, in_memory, others):
    _, b, c = arrays(F)
    narrow = np.random.default_rng(1).integers(0, 200, 64).astype(kind)
    if in_memory:
        narrow = narrow[:16].copy()
    code = Code()
    filled(code, others)
    code.vector(LOAD, 1, 0, RSI)
    source, is_memory = (RSI, True) if in_memory else (1, False)
    code.vector(opcode, 1, 0, source, kind=2, prefix=1, is_memory=is_memory)
    if kind != np.float16:
        code.vector(0x5B, 1, 0, 1, is_memory=False)
    code.vector(STORE, 1, 0, RCX)
    padded = np.zeros(64, kind)
    padded[: len(narrow)] = narrow
    np.testing.assert_array_equal(code.run(padded, b, c), narrow[:16].astype(F))


def test_gathered_where_a_mask_says():
    a, _b, c = arrays(F)
    places = np.random.default_rng(2).permutation(16).astype(INTEGERS)
    code = Code()
    code.vector(LOAD, 17, 0, RDX)
    code.vector(LOAD, 2, 0, RCX)
    code.gather(2, RSI, 17, 1)
    code.vector(STORE, 2, 0, RCX)
    np.testing.assert_array_equal(code.run(a, places, c), np.where(MASK, a[places], c))


def test_quarters_and_halves():
    a, b, c = arrays(F)
    for how in (0x88, 0xDD, 0x4E):
        code = Code()
        code.vector(LOAD, 1, 0, RSI)
        code.vector(LOAD, 2, 0, RDX)
        code.vector(0x23, 1, 1, 2, kind=3, prefix=1, is_memory=False, last_byte=how)
        code.vector(STORE, 1, 0, RCX)
        parts = [x.reshape(4, 4) for x in (a, a, b, b)]
        wanted = np.concatenate([x[how >> 2 * part & 3] for part, x in enumerate(parts)])
        np.testing.assert_array_equal(code.run(a, b, c), wanted)
    for half in range(2):
        code = Code()
        code.vector(LOAD, 1, 0, RSI)
        code.vector(0x3B, 1, 0, 2, kind=3, prefix=1, is_memory=False, wide=True, last_byte=half)
        code.vector(STORE, 2, 0, RCX)
        wanted = np.concatenate([a[8 * half : 8 * half + 8], np.zeros(8, F)])
        np.testing.assert_array_equal(code.run(a, b, c), wanted)


def test_loops_jumps_and_what_lies_on_the_stack():
    """A loop adds seven times; between instructions lie numbers on the stack, and places behind."""
    a, b, c = arrays(F)
    c = np.concatenate([c, c])
    code = Code(4)
    code.raw("41b807000000")  # mov r8d, 7
    code.store(R8, RSP, 3)
    code.clear(1)
    start = len(code.text)
    code.vector(ADD, 1, 1, RSI)
    code.again(RSP, start, 3)
    code.vector(STORE, 1, 0, RCX, behind=1)
    code.load(RCX, RSP, 2)
    code.vector(STORE, 1, 0, RCX)
    found = code.run(a, b, c)
    wanted = np.zeros(16, F)
    for _ in range(7):
        wanted += a
    np.testing.assert_array_equal(found, np.concatenate([wanted, wanted]))


@pytest.mark.parametrize("sums", [3, 12, 13, 16])
@pytest.mark.parametrize("masked", [False, True])
def test_vectors_in_registers_for_what_comes_between(sums, masked):
    """Of short vectors, in loops of products; where sums are on the stack or masked, in others."""
    code = Code(is_short=True)
    for sum_ in range(sums):
        code.clear(sum_)
    code.raw("b805000000")  # mov eax, 5
    again = len(code.text)
    for factor in range(3):
        code.vector(LOAD, 18 + factor, 0, RSI, behind=factor % 2, mask=int(masked and factor == 2))
    for sum_ in range(sums):
        code.spread(21, RDX, behind=sum_ % 8)
        code.vector(0xB8, sum_, 18 + sum_ % 3, 21, kind=2, prefix=1, is_memory=False)
    code.again(RAX, again)
    for sum_ in range(1, sums):
        code.of_vectors(ADD, 0, 0, sum_)
    code.vector(STORE, 0, 0, RCX)
    a, b, c = arrays(F)
    first, second = a[:8], a[8:]
    last = np.where(MASK[:8], first, 0) if masked else first
    factors = first, second, last
    wanted = sum(5 * factors[sum_ % 3] * b[sum_ % 8] for sum_ in range(sums))
    np.testing.assert_allclose(code.run(a, b, c)[:8], wanted, rtol=1e-5, atol=1e-5)


def test_what_has_no_form_is_no_code():
    code = Code()
    code.vector(0x8A, 1, 0, RSI, kind=2, prefix=1)  # vcompressps
    code.end(3)
    assert code.assembled() == b""
    assert function_of(b"") is None


def test_encodings():
    """As an assembler writes them: vfmadd231ps ymm9, ymm2, [r13 + r12 * 4 + 300], and others."""
    place = Place(13, 12, 4, 300)
    text = encoded(0xB8, 9, 2, place, kind=2, prefix=1)
    assert text == bytes.fromhex("c4026db88ca52c010000")
    assert encoded(0x10, 15, None, Place(4, offset_bytes=64)) == bytes.fromhex("c4617c107c2440")
    assert encoded(ADD, 1, 2, 11) == bytes.fromhex("c4c16c58cb")
