"""LSTMs with weights of 8 bits: products of integers as exact as those in f32, for VNNI.

A number becomes an integer of 24 bits, and that three digits of 8 bits, which one instruction
multiplies with 64 weights. Digits have no sign: to each 128 is added, and 128 times the sum of the
weights is taken from what comes out. Weights of 320 states are a fifth of what the second cache
holds, where those of f32 do not fit in.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told, has_avx512
from polydevice_cpu.algorithms.by_machine.functions import AND, MAX_OF_INTEGERS
from polydevice_cpu.algorithms.by_machine.instructions import (
    ADD,
    DIVIDE,
    LOAD,
    MUL,
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
)
from polydevice_cpu.algorithms.by_machine.matrix_code import quarters
from polydevice_cpu.algorithms.by_machine.recurrent.loop import (
    BLOCK,
    HERE,
    ITEM,
    MORE,
    NEXT,
    NUMBERS,
    PAIRS,
    RESULT_STEP,
    ROW,
    STATE_ITEM,
    STATES,
    STEP,
    STEPS,
    TERM_BLOCKS,
    TERM_MASK,
    Form,
    Loop,
)
from polydevice_cpu.algorithms.by_machine.recurrent.steps import Layer, gate_blocks, numbers_of

LIMIT = 8_350_000
"""A little less than the largest integer of three digits."""

HUGE = 1e37
"""Where a number is larger, or none, code refuses all."""

MOST_ITEMS = 2
"""Items that share what is read of the weights: there are three sums for each gate of each."""

GROUP = 4
"""Weights that are multiplied and added in one place of a vector."""

_DIGITS, _FACTOR = 3, 4
"""Places behind those of states: digits of what is multiplied, and by what sums are multiplied."""

_PLACES = 5
_WEIGHTS, _FIRST_DIGIT, _REACH, _SCALED = 31, 25, 0, 20
_ZERO = 0x808080

NAMES = (
    *("x", "state", "cell", "bias", "w", "w_sums", "w_scales", "r", "r_sums", "r_scales"),
    *("result", "last", "last_cell", "entering", "room"),
)
"""What all code is told the addresses of."""

_OF_LOOP = {"r": "weights", "r_sums": "sums", "r_scales": "scales"}
_OF_ENTERING = {
    "x": "source",
    "w": "weights",
    "w_sums": "sums",
    "w_scales": "scales",
    "result": "",
    "entering": "result",
}


class _Digits(Loop):
    """What the loop and the product of all inputs have in common."""

    def __init__(self, form: Form, other_names: dict[str, str]) -> None:
        super().__init__(form, [other_names.get(name, name) for name in NAMES], _PLACES)
        self.refusals: list[int] = []

    def sum_of(self, digit: int, item: int, gate: int) -> int:
        """Which vector a sum is."""
        return (digit * self.form.items + item) * self.gates + gate

    def finished(self) -> bytes:
        """All of it, with what returns 1 where it refuses."""
        for jump in self.refusals:
            self.here(jump)
        self.end(1 + self.places, status=1)
        return self.assembled()

    def make_digits(self, item: int, least: float) -> None:
        """Append what makes digits of the numbers that R10 points to."""
        self.find_reach(least)
        self.fill(_SCALED, LIMIT)
        self.of_vectors(DIVIDE, _SCALED, _SCALED, _REACH)
        self.with_constant(MUL, _REACH, _REACH, 1 / LIMIT)
        self.vector(STORE, _REACH, 0, *self.rows(_FACTOR, R8, at_block=False)[item])

        def write() -> None:
            self.vector(LOAD, 1, 0, R10, R9, 1, mask=STATES)
            self.of_vectors(MUL, 1, 1, _SCALED)
            self.write_digits(1, item)

        self.blocks(write, TERM_BLOCKS, TERM_MASK)

    def find_reach(self, least: float) -> None:
        """Append what finds the size of the largest number that R10 points to.

        It refuses what is no number, or nearly infinite.
        """
        self.fill(_REACH, least)

        def compare() -> None:
            self.vector(LOAD, 1, 0, R10, R9, 1, mask=STATES)
            self.with_bits(AND, 1, 1, (1 << 31) - 1)
            self.vector(*(MAX_OF_INTEGERS, _REACH, _REACH, 1), kind=2, prefix=1, is_memory=False)

        self.blocks(compare, TERM_BLOCKS, TERM_MASK)
        for how in (0x4E, 0xB1):
            quarters(self, 1, _REACH, _REACH, how)
            self._take_larger()
        for how in (0x4E, 0xB1):
            self.vector(
                0x04, 1, 0, _REACH, kind=3, prefix=1, is_memory=False, last_byte=how
            )  # vpermilps
            self._take_larger()
        (huge,) = struct.unpack("<I", struct.pack("<f", HUGE))
        self.with_bits(0x66, 7, _REACH, huge)  # vpcmpgtd k7
        self.raw("c5f893c785c0")  # kmovw eax, k7; test eax, eax
        self.refusals.append(self.ahead("0f85"))  # jne

    def _take_larger(self) -> None:
        self.vector(*(MAX_OF_INTEGERS, _REACH, _REACH, 1), kind=2, prefix=1, is_memory=False)

    def write_digits(self, x: int, item: int) -> None:
        """Append what writes the digits of a block's numbers, which are up to `LIMIT`."""
        self.vector(0x5B, x, 0, x, prefix=1, is_memory=False)  # vcvtps2dq
        self.with_bits(0xFE, x, x, _ZERO)  # vpaddd
        self.load(R8, RSP, 1 + _DIGITS)
        for _ in range(item):
            self.add(R8, RDX)
        self.move(RCX, R9)
        self.raw("48c1e902")  # shr rcx, 2
        self.add(R8, RCX)
        self.move(RCX, RDX)
        self.raw("48c1e902")
        for number in range(3):
            self.vector(0x31, x, 0, R8, kind=2, prefix=2)  # vpmovdb
            self.vector(0x72, 2, x, x, prefix=1, is_memory=False, last_byte=8)  # vpsrld
            if number < 2:
                self.add(R8, RCX)

    def multiply_digits(self) -> None:
        """Append the products of a block's gates: sums of each item, as numbers of f32."""
        every = [(item, gate) for item in self.items for gate in range(self.gates)]
        self.find_of_gates("sums")
        for digit in range(3):
            for item, gate in every:
                self.vector(LOAD, self.sum_of(digit, item, gate), 0, R8, behind=gate)
        self.load(R8, RSP, 1 + _DIGITS)
        self.plain(0x8D, RBP, R8, 0)
        self.add(RBP, RDX)
        self.move(RAX, RDX)
        self.raw("48c1e802")  # shr rax, 2
        self.get(RCX, PAIRS)
        start = len(self.text)
        for item in self.items:
            base, digit = (R8, RBP)[item], _FIRST_DIGIT + 3 * item
            self.spread(digit, base)
            self.spread(digit + 1, base, RAX, 1)
            self.spread(digit + 2, base, RAX, 2)
        for gate in range(self.gates):
            self.vector(LOAD, _WEIGHTS, 0, RBX, behind=gate)
            for digit in range(3):
                for item in self.items:
                    self.vector(  # vpdpbusd
                        *(0x50, self.sum_of(digit, item, gate), _FIRST_DIGIT + 3 * item + digit),
                        _WEIGHTS, kind=2, prefix=1, is_memory=False,
                    )  # fmt: skip
        for base in (R8, RBP):
            self.step(base, GROUP)
        self.step(RBX, 4 * BLOCK * self.gates)
        self.again(RCX, start)
        self.find_of_gates("scales")
        for item, gate in every:
            sums = [self.sum_of(digit, item, gate) for digit in range(3)]
            for each in sums:
                self.vector(0x5B, each, 0, each, is_memory=False)  # vcvtdq2ps
            self.with_constant(0xB8, sums[0], sums[1], 1 << 8, kind=2)
            self.with_constant(0xB8, sums[0], sums[2], 1 << 16, kind=2)
            self.vector(MUL, sums[0], sums[0], R8, behind=gate)
        for item, row in enumerate(self.rows(_FACTOR, R8, at_block=False)):
            self.vector(LOAD, _WEIGHTS, 0, *row)
            for gate in range(self.gates):
                sum_ = self.sum_of(0, item, gate)
                self.of_vectors(MUL, sum_, sum_, _WEIGHTS)


class _DigitLoop(_Digits):
    """The loop over steps: states become digits."""

    def __init__(self, form: Form) -> None:
        super().__init__(form, _OF_LOOP)

    def begin_states(self) -> None:
        """Append what makes digits of the first states, some of which may be larger than 1.

        What the cell holds tells which numbers states become.
        """
        for item in self.items:
            self._find_row(MORE, item)
            self.find_reach(1)
            self._find_row(HERE, item)
            self.make_digits(item, 1)

    def _find_row(self, place: int, item: int) -> None:
        """Append R10 = where what an item holds is kept."""
        self.load(R10, RSP, 1 + place)
        for _ in range(item):
            self.add(R10, RDX)

    def copy_states(self) -> None:
        """Append what makes the next states, which are up to 1, the present ones."""
        super().copy_states()
        for item in self.items:
            self.vector(LOAD, 1, 0, *self.rows(NEXT, R8)[item])
            self.with_constant(MUL, 1, 1, LIMIT)
            self.write_digits(1, item)
        self.fill(1, 1 / LIMIT)
        for row in self.rows(_FACTOR, R8, at_block=False):
            self.vector(STORE, 1, 0, *row)

    def multiply(self, gates: Sequence[int], place: int) -> None:
        """Append what enters gates of a block."""
        del gates, place  # all at once, of what the states are
        self.multiply_digits()
        self.find_of_gates("bias")
        self.move(RAX, R10)
        for item in self.items:
            for gate in range(self.gates):
                sum_ = self.sum_of(0, item, gate)
                self.enter(_WEIGHTS, gate, RAX)
                self.of_vectors(ADD, sum_, sum_, _WEIGHTS)
            self.add(RAX, RDI, self.behind + ITEM)


class _Entering(_Digits):
    """The product of all inputs: so many at once as there are items."""

    def __init__(self, form: Form) -> None:
        super().__init__(form, _OF_ENTERING)

    def code(self) -> bytes:
        """All of it."""
        self.begin(1 + self.places)
        self.plain(0x8D, RSI, RDI, 8 * (self.behind + NUMBERS))
        self.get(RDX, ROW)
        self.scaled(R11, RDX, RDX, 2)
        self.load(RAX, RDI, self.at("room"))
        for place in range(self.places):
            self.store(RAX, RSP, 1 + place)
            for _ in self.items:
                self.add(RAX, RDX)
        self.load(R13, RDI, self.at("result"))
        self.load(R14, RDI, self.at("source"))
        self.get(R12, STEPS)
        start = len(self.text)
        for item in self.items:
            self.move(R10, R14)
            for _ in range(item):
                self.add(R10, RDI, self.behind + STATE_ITEM)
            self.make_digits(item, 1e-30)
        self.load(RBX, RDI, self.at("weights"))
        self.move(R10, R13)

        def body() -> None:
            self.multiply_digits()
            self.move(RAX, R10)
            for item in self.items:
                for gate in range(self.gates):
                    self.vector(STORE, self.sum_of(0, item, gate), 0, RAX, behind=gate)
                self.add(RAX, RDI, self.behind + ITEM)
            self.step(R10, 4 * BLOCK * self.gates)

        self.blocks(body)
        self.add(R13, RDI, self.behind + STEP)
        self.add(R14, RDI, self.behind + RESULT_STEP)
        self.again(R12, start)
        self.end(1 + self.places)
        return self.assembled()


def is_there() -> bool:
    """Whether the processor multiplies so."""
    return has_avx512("avx512_vnni")


@lru_cache(maxsize=16)
def _function(form: Form, *, is_loop: bool) -> tuple[Any, bytes] | None:
    made = _DigitLoop(form) if is_loop else _Entering(form)
    made.code()
    function = function_of(made.finished())
    return None if function is None else (function, b"".join(made.constants))


def groups(terms: int) -> int:
    """Groups of weights that are multiplied at once."""
    return -(-terms // GROUP)


def room(layer: Layer, terms: int) -> int:
    """Numbers that code wants room for, of which `terms` enter a step."""
    return _PLACES * MOST_ITEMS * max(layer.blocks, -(-terms // BLOCK)) * BLOCK


def weights(layer: Layer, given: Array) -> Array:
    """[D, 4H, C], i8, as they are multiplied: [D, blocks, groups, gates, states, group]."""
    count, _, terms = given.shape
    blocks = gate_blocks(layer, given)
    padded = np.zeros((*blocks.shape[:4], groups(terms) * GROUP), np.int8)
    padded[..., :terms] = blocks
    parted = padded.reshape(*blocks.shape[:4], -1, GROUP).transpose(0, 2, 4, 1, 3, 5)
    return np.ascontiguousarray(parted).reshape(count, -1)


def sums(layer: Layer, given: Array) -> Array:
    """What sums begin with, i32, as `entering_weights` orders what is for each gate."""
    total = given.sum(axis=2, dtype=np.int32) * np.int32(-128)
    return of_gates(layer, total)


def of_gates(layer: Layer, given: Array) -> Array:
    """[D, 4H] as the loop reads it."""
    blocks = gate_blocks(layer, given[..., np.newaxis])
    return np.ascontiguousarray(blocks[..., 0].transpose(0, 2, 1, 3)).reshape(len(given), -1)


def steps(layer: Layer, time: int, batch: int, terms: int) -> list[Told] | None:
    """Return calls that compute a layer for inputs of so many terms; None without code.

    They are told `NAMES`: x [T, B, C]; states [D, B, H]; the bias; weights, sums and scales of both
    products; the result [T, B, D * H], the last states; room for what enters, and more.
    """
    found: list[Told] = []
    for direction in range(len(layer.backwards)):
        for is_loop, total in ((False, time * batch), (True, batch)):
            first = 0
            while first < total:
                items = min(total - first, MOST_ITEMS)
                count = 1 if is_loop else (total - first) // items
                form = layer.form._replace(items=items)
                code = _function(form, is_loop=is_loop)
                if code is None:
                    return None
                numbers = _numbers(layer, (time, batch, terms), direction, first, count, is_loop)
                found.append((code[0], numbers + code[1]))
                first += count * items
    return found


def _numbers(
    layer: Layer,
    sizes: tuple[int, int, int],
    direction: int,
    first: int,
    count: int,
    is_loop: bool,
) -> bytes:
    time, batch, terms = sizes
    begins, numbers = numbers_of(layer, (time, batch), direction, first)
    gates = layer.gates * layer.blocks * BLOCK
    for name, width in (("w", terms), ("r", layer.hidden)):
        begins[name] = direction * gates * groups(width) * GROUP
        begins[f"{name}_sums"] = begins[f"{name}_scales"] = direction * gates * 4
    if is_loop:
        numbers[PAIRS] = groups(layer.hidden)
        numbers[TERM_BLOCKS], numbers[TERM_MASK] = layer.blocks, (1 << BLOCK) - 1
    else:
        blocks = -(-terms // BLOCK)
        begins["x"] = first * terms * 4
        begins["entering"] = first * layer.columns * 4 + direction * gates * 4
        numbers[STEPS], numbers[ITEM], numbers[STATE_ITEM] = count, layer.columns * 4, terms * 4
        items = min(time * batch - first, MOST_ITEMS)
        numbers[STEP], numbers[RESULT_STEP] = items * layer.columns * 4, items * terms * 4
        numbers[PAIRS], numbers[ROW] = groups(terms), blocks * BLOCK * 4
        numbers[TERM_BLOCKS] = blocks
        numbers[TERM_MASK] = (1 << (terms - (blocks - 1) * BLOCK)) - 1
    told = [*(begins.get(name, 0) for name in NAMES), *numbers]
    return struct.pack(f"@{len(told)}q", *told)
