"""What instructions of AVX-512 do that have others for AVX2, by table, prefix and opcode."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache
from typing import NamedTuple


class Vector(NamedTuple):
    """An instruction on vectors, as `Instructions.vector` takes it.

    Attributes:
        place: where it is in the text.
        others: see there.
    """

    place: int
    opcode: int
    register: int
    first: int
    base: int
    scaled: int | None
    times: int
    offset_bytes: int
    kind: int
    prefix: int
    is_memory: bool
    mask: int
    is_one: bool
    wide: bool
    last_byte: int | None

    @property
    def key(self) -> tuple[int, int, int]:
        """Table, prefix and opcode."""
        return self.kind, self.prefix, self.opcode


class OnMask(NamedTuple):
    """An instruction on masks: what it does, the mask, and a register or another mask."""

    place: int
    what: Masks
    mask: int
    other: int = 0


class Masks(Enum):
    """What is done with masks."""

    SET = "its elements are bits of a register"
    BITS = "a register is set to its bits"
    COPY = "it is set to another one"
    FILL = "all its elements are set"
    NONE = "for a jump: zero where it has none"
    ALL = "for a jump: carry where it has all"


class Way(Enum):
    """How an instruction is made of others."""

    MOVE = "register = last"
    STORE = "last = register"
    BINARY = "register = first and last"
    SUM = "register = register, first and last"
    UNARY = "register = of last"
    SPREAD = "register = a number in all its elements"
    COMPARE = "mask = first and last"
    TEST = "mask = whether first and last have a bit in common"
    SHIFT = "first = last by so many bits"
    WIDEN = "register = integers of last made longer"
    POWER = "register = first times 2 to the power of last"
    GATHER = "register = from places"
    INTEGER = "register = an integer in memory as a number, and zeros"
    HALF = "last = a half of register"
    QUARTERS = "register = two quarters of first, and two of last"


_FMA = range(0x96, 0xC0)

WAYS: dict[tuple[int, int, int], Way] = {
    **{(1, 0, opcode): Way.MOVE for opcode in (0x10, 0x28)},
    **{(1, prefix, 0x6F): Way.MOVE for prefix in (1, 2, 3)},
    (1, 0, 0x11): Way.STORE,
    **{(1, prefix, 0x7F): Way.STORE for prefix in (1, 2, 3)},
    # sums, products, limits, quotients, and by bits, of f32 and of f64; unpacked
    **{
        (1, prefix, opcode): Way.BINARY
        for prefix in (0, 1)
        for opcode in (0x14, 0x15, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5C, 0x5D, 0x5E, 0x5F)
    },
    # integers: by bits, sums and differences of 1, 2, 4 and 8 bytes, the larger or smaller one
    **{
        (1, 1, opcode): Way.BINARY
        for opcode in (
            *(0xD4, 0xDA, 0xDB, 0xDE, 0xDF, 0xEA, 0xEB, 0xEE, 0xEF, 0xF4, 0xF5),
            *(0xF8, 0xF9, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE),
        )
    },
    **{(2, 1, opcode): Way.BINARY for opcode in (*range(0x38, 0x41), 0x04, 0x45, 0x46, 0x47)},
    **{(2, 1, opcode): Way.SUM for opcode in _FMA if opcode & 15 >= 6 and opcode & 1 == 0},
    **{(1, 0, opcode): Way.UNARY for opcode in (0x51, 0x5B)},
    (1, 1, 0x5B): Way.UNARY,
    (1, 2, 0x5B): Way.UNARY,
    (3, 1, 0x08): Way.UNARY,
    (3, 1, 0x04): Way.UNARY,
    **{(2, 1, opcode): Way.SPREAD for opcode in (0x18, 0x58, 0x59, 0x7C)},
    (1, 0, 0xC2): Way.COMPARE,
    (1, 1, 0x66): Way.COMPARE,
    (1, 1, 0x76): Way.COMPARE,
    (3, 1, 0x1F): Way.COMPARE,
    (3, 1, 0x1E): Way.COMPARE,
    (2, 1, 0x27): Way.TEST,
    (2, 2, 0x27): Way.TEST,
    (1, 1, 0x72): Way.SHIFT,
    **{(2, 1, opcode): Way.WIDEN for opcode in (0x13, 0x21, 0x23, 0x31, 0x33)},
    (2, 1, 0x2C): Way.POWER,
    (2, 1, 0x92): Way.GATHER,
    (1, 2, 0x2A): Way.INTEGER,
    (1, 1, 0x70): Way.UNARY,
    (3, 1, 0x3B): Way.HALF,
    (3, 1, 0x23): Way.QUARTERS,
}

WITHIN_HALVES = {(2, 1, 0x16), (2, 1, 0x36), (3, 1, 0x06)}
"""Numbers of the last one by places, and quarters of two: those of one half have no others."""

WAYS |= dict.fromkeys(WITHIN_HALVES, Way.BINARY)

WIDENED = {0x13: 2, 0x21: 4, 0x23: 2, 0x31: 4, 0x33: 2}
"""Opcode → how many times as long as what is read the result is."""


def read_bytes(opcode: int, kind: int, lanes: int, *, is_one: bool, wide: bool) -> int:
    """Bytes of what an instruction reads or writes in memory, of which addresses are multiples."""
    if is_one:
        return 8 if wide else 4
    if kind == 1 and opcode == 0x2A:
        return 8
    if kind == 2 and opcode in WIDENED:
        return 4 * lanes // WIDENED[opcode]
    if kind == 2 and opcode in {0x18, 0x58, 0x92}:
        return 4
    if kind == 2 and opcode == 0x59:
        return 8
    return 4 * lanes


def has_form(each: Vector, halves: int) -> bool:
    """Return whether an instruction is made of others: of numbers of 8 bytes there are no masks.

    Args:
        each: the instruction.
        halves: how many a vector has.
    """
    is_masked = bool(each.mask)
    return _has_form(each.key, halves, each.is_memory, is_masked, each.is_one, each.wide)


@lru_cache(maxsize=1024)
def _has_form(
    key: tuple[int, int, int],
    halves: int,
    is_memory: bool,
    is_masked: bool,
    is_one: bool,
    wide: bool,
) -> bool:
    """The same of what an instruction says besides registers and places."""
    way = WAYS.get(key)
    if key in WITHIN_HALVES and halves > 1:
        return False
    if way is None or (way is Way.POWER and is_one):
        return False
    if way is Way.INTEGER:
        return is_memory and not is_masked
    of_masks = way in {Way.COMPARE, Way.TEST, Way.GATHER}
    of_integers = way is Way.BINARY and key[0] == 2  # longer ones have no such instructions
    return not wide or not (is_masked or of_masks or of_integers)
