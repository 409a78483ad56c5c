"""Machine code for products of matrices of any size, for processors with AVX-512.

Each number is a sum in the order of what is multiplied, each term rounded once, as oneDNN adds up
to 512 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from polydevice_cpu.algorithms.by_machine.code import has_avx512
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
    RSP,
    STORE,
    SUB,
    Instructions,
)

_Place = tuple[int, int]
"""A register, and how many bytes behind what it points to."""

BLOCK = 16
"""Numbers of a vector."""

ROWS = {1: 12, 2: 12, 3: 8, 4: 6}
"""How many rows are computed at once, by how many vectors of them; fewer where there are few."""

ROWS_HALVED = {1: 5}
"""The same in halves of vectors: ten sums, and two for columns."""

LONGEST = 12
"""Functions that may follow: with so many code takes three pages at most. Scores that are brought
to 8 bits and back, divided, brought there and back once more and masked have ten."""

LEVELS = 4
"""Loops: over two axes of matrices, over columns, and over rows."""


class Scope(Enum):
    """What a number of an operand is for."""

    ALL = "all"
    COLUMN = "column"
    EACH = "each"


class Columns(Enum):
    """How columns of the second matrix are read."""

    IN_PLACE = "where they lie"
    COPIED = "copied next to each other"
    TURNED = "turned, where what is multiplied lies next to each other"


class Function(Enum):
    """What may follow: of a number and an operand's, or of two constants."""

    ADD = ADD
    SUB = SUB
    MUL = MUL
    DIV = DIVIDE
    LINEAR = 0
    ROUND = 1
    """To whole numbers, halves to even ones; the constants are of no use."""
    CLIP = 2
    """Between the constants."""
    SUM = 3
    """With what the result has held, so that nothing may be stored twice; likewise."""


OF_OPERANDS = (Function.ADD, Function.SUB, Function.MUL, Function.DIV)
"""Functions that read an operand; others have two constants each."""

Link = tuple[Function, Scope]

FIRST, SECOND, OPERANDS = range(3)
"""What there are addresses of; the last one is the result's."""

OUTER, INNER, COLUMNS, TILES, TERMS, MASK, STACK = range(7)
PACKED, PACKED_MASK, FORWARD, LAST_FORWARD, PACKED_FORWARD, LAST_PACKED_FORWARD = range(7, 13)
TERM, FIRST_MASK, TWICE = 13, 14, 15
CONSTANTS = 16
"""Numbers behind those of addresses; see `product`."""

_MASK, _PACKED_MASK, _FIRST_MASK = 1, 2, 3
_SECOND, _BROADCAST = 24, 28
"""Vectors besides the sums, which are the first ones."""


def rows_at_once() -> Mapping[int, int]:
    """Return how many rows are computed at once here, by how many vectors of them."""
    return ROWS if has_avx512() else ROWS_HALVED


def numbers(chain: Sequence[Link]) -> tuple[int, int]:
    """Return how many addresses code has for a chain, and where what is behind them begins."""
    addresses = OPERANDS + 1 + sum(function in OF_OPERANDS for function, _ in chain)
    return addresses, (LEVELS + 4) * addresses


class _Product(Instructions):
    """Code of a product.

    The arguments begin with addresses, of which each has: bytes that it begins behind; its step in
    each loop; in the one over rows, to the last tile; and from row to row.
    """

    def __init__(
        self,
        width: int,
        columns: Columns,
        chain: Sequence[Link],
        rows: int,
        turned: int,
        *,
        is_apart: bool,
    ) -> None:
        super().__init__()
        self.is_apart = is_apart
        self.width, self.rows, self.columns, self.chain = width, rows, columns, chain
        self.turned = turned
        self.is_sum = any(function is Function.SUM for function, _ in chain)
        self.addresses, self.behind = numbers(chain)
        self.result = self.addresses - 1
        slots = (LEVELS + 1) * self.addresses + LEVELS
        self.buffer = -(-8 * slots // 64) * 64

    def given(self, number: int) -> _Place:
        """One of the numbers behind those of addresses."""
        return RDI, 8 * (self.behind + number)

    def stride(self, level: int, address: int) -> _Place:
        """A step in a loop; LEVELS: to the last tile; LEVELS + 1: from row to row."""
        return RDI, 8 * ((2 + level) * self.addresses + address)

    def now(self, level: int, address: int) -> _Place:
        """Where an address is in a loop; -1: before all."""
        return RSP, 8 * ((1 + level) * self.addresses + address)

    def counter(self, level: int) -> int:
        """Which number on the stack says how often a loop runs."""
        return (LEVELS + 1) * self.addresses + level

    def get(self, register: int, place: _Place) -> None:
        """Load a number of 8 bytes."""
        self.plain(0x8B, register, *place)

    def put(self, register: int, place: _Place) -> None:
        """Store one."""
        self.plain(0x89, register, *place)

    def get_last(self, register: int, counter: int, place: _Place, last: _Place) -> None:
        """Load a number, or another one where a counter says that what follows is the last."""
        self.get(register, place)
        self.compare(counter, 2)
        self.set_if_equal(register, *last)

    def repeated(self, body: Callable[[], None], register: int, number: int | None = None) -> None:
        """Append what runs as often as a counter says, once at least."""
        start = len(self.text)
        body()
        self.again(register, start, number)

    def code(self) -> bytes:
        """All of it."""
        self.begin(0)
        self.move(RBP, RSP)
        self.plain(0x2B, RSP, *self.given(STACK))
        self.text += bytes((0x48, 0x83, 0xE4, 0xC0))  # and rsp, -64
        for address in range(self.addresses):
            self.load(RAX, RDI, address)
            self.plain(0x03, RAX, RDI, 8 * (self.addresses + address))
            self.put(RAX, self.now(-1, address))
        masks = (_MASK, MASK), (_PACKED_MASK, PACKED_MASK), (_FIRST_MASK, FIRST_MASK)
        for mask, number in masks:
            self.get(RAX, self.given(number))
            self.set_mask(mask, RAX)
        self.get(R10, self.stride(LEVELS + 1, FIRST))
        self.get(RDX, self.stride(LEVELS + 1, self.result))
        self.scaled(R11, R10, R10, 2)
        self.scaled(R12, R10, R10, 4)
        self.get(R14, self.stride(LEVELS + 1, SECOND))
        self.loop(0, OUTER, lambda: self.loop(1, INNER, lambda: self.loop(2, COLUMNS, self.tiles)))
        self.move(RSP, RBP)
        self.end(0)
        return self.assembled()

    def enter(self, level: int) -> None:
        """Begin a loop where the one around it is."""
        for address in range(self.addresses):
            self.get(RAX, self.now(level - 1, address))
            self.put(RAX, self.now(level, address))

    def loop(self, level: int, count: int, body: Callable[[], None]) -> None:
        """Append a loop."""
        self.get(RAX, self.given(count))
        self.store(RAX, RSP, self.counter(level))
        self.enter(level)

        def once() -> None:
            body()
            for address in range(self.addresses):
                self.get(RAX, self.stride(level, address))
                self.plain(0x01, RAX, *self.now(level, address))

        self.repeated(once, RSP, self.counter(level))

    def tiles(self) -> None:
        """Append the loop over rows; the last ones may be computed twice."""
        level = LEVELS - 1
        if self.columns is Columns.TURNED:
            self.turn_columns()
        elif self.columns is Columns.COPIED:
            self.copy_columns()
        self.enter(level)
        self.get(R15, self.given(TILES))

        def once() -> None:
            self.tile()
            for address in range(self.addresses):
                last = self.stride(LEVELS, address)
                self.get_last(RAX, R15, self.stride(level, address), last)
                self.plain(0x01, RAX, *self.now(level, address))

        self.repeated(once, R15)

    def tile(self) -> None:
        """Append the sums of some rows, what follows, and stores."""
        width, rows = range(self.width), range(self.rows)
        sums = [[row * self.width + column for column in width] for row in rows]
        for each in sums:
            for sum_ in each:
                self.clear(sum_)
        self.get(R8, self.now(LEVELS - 1, FIRST))
        self.scaled(R9, R8, R11, 2)
        if self.columns is Columns.IN_PLACE:
            self.get(R13, self.now(LEVELS - 1, SECOND))
        else:
            self.plain(0x8D, R13, RSP, self.buffer)
        if self.is_apart:
            self.get(RBX, self.given(TERM))
        self.get(RCX, self.given(TERMS))
        self.repeated(lambda: self.term(sums), RCX)
        operand, constant = OPERANDS, 8 * (self.behind + CONSTANTS)
        for function, scope in self.chain:
            if function in OF_OPERANDS:
                self.follow(function, scope, operand, sums)
                operand += 1
                continue
            if function is Function.SUM:
                self.follow(Function.ADD, Scope.EACH, self.result, sums)
            else:
                self.follow_constants(function, constant, [each for row in sums for each in row])
            constant += 8
        self.stores(sums)

    def stores(self, sums: Sequence[Sequence[int]]) -> None:
        """Append stores of all sums; none a second time of what is added to what was there."""
        self.get(RSI, self.now(LEVELS - 1, self.result))
        if self.is_sum:  # RBX counts the rows that the tile before the last one has stored
            self.get(RBX, self.given(TWICE))
            self.compare(R15, 1)
            is_last = self.ahead("0f84")  # je
            self.raw("31db")  # xor ebx, ebx
            self.here(is_last)
        for each in sums:
            is_stored = 0
            if self.is_sum:
                self.raw("4883eb01")  # sub rbx, 1
                is_stored = self.ahead("0f89")  # jns
            for column, sum_ in enumerate(each):
                mask = self.mask_of(column)
                if self.is_sum and not column:
                    mask = _FIRST_MASK
                self.vector(STORE, sum_, 0, RSI, behind=column, mask=mask)
            if self.is_sum:
                self.here(is_stored)
            self.add(RSI, RDX)

    def follow_constants(self, function: Function, constant: int, sums: Sequence[int]) -> None:
        """Append a function of sums and two constants, so many bytes behind RDI."""
        first, second = _BROADCAST, _BROADCAST + 1
        if function is not Function.ROUND:
            self.plain(0x8D, RAX, RDI, constant)
            self.spread(first, RAX)
            self.spread(second, RAX, behind=1)
        for sum_ in sums:
            if function is Function.ROUND:
                self.vector(
                    0x08, sum_, 0, sum_, kind=3, prefix=1, is_memory=False, last_byte=0
                )  # to the nearest
            elif function is Function.CLIP:
                self.of_vectors(MAX, sum_, sum_, first)
                self.of_vectors(MIN, sum_, sum_, second)
            else:
                self.vector(0xA8, sum_, first, second, kind=2, prefix=1, is_memory=False)

    def mask_of(self, column: int) -> int:
        """Which mask says what elements there are of a vector."""
        return _MASK if column == self.width - 1 else 0

    def term(self, sums: Sequence[Sequence[int]]) -> None:
        """Append what adds a product to each sum."""
        for column in range(self.width):
            mask = self.mask_of(column) if self.columns is Columns.IN_PLACE else 0
            self.vector(LOAD, _SECOND + column, 0, R13, behind=column, mask=mask)
        for row, each in enumerate(sums):
            base, number = (R8, row) if row < 6 else (R9, row - 6)
            places = (
                *((base,), (base, R10, 1), (base, R10, 2), (base, R11, 1)),
                *((base, R10, 4), (base, R12, 1)),
            )
            factor = _BROADCAST + (0 if self.is_halved else row % 4)
            self.spread(factor, *places[number])
            for column, sum_ in enumerate(each):
                second = _SECOND + column
                self.vector(0xB8, sum_, factor, second, kind=2, prefix=1, is_memory=False)
        for register in (R8, R9):
            if self.is_apart:
                self.add(register, RBX)
            else:
                self.step(register, 4)
        if self.columns is Columns.IN_PLACE:
            self.add(R13, R14)
        else:
            self.step(R13, 64 * self.width)

    def follow(
        self, function: Function, scope: Scope, operand: int, sums: Sequence[Sequence[int]]
    ) -> None:
        """Append a function of sums and an operand."""
        self.get(RAX, self.now(LEVELS - 1, operand))
        if scope is Scope.ALL:
            self.spread(_BROADCAST, RAX)
        if scope is Scope.EACH:
            self.get(RBX, self.stride(LEVELS + 1, operand))
        for row, each in enumerate(sums):
            for column, sum_ in enumerate(each):
                if scope is Scope.EACH or (scope is Scope.COLUMN and not row):
                    mask = self.mask_of(column)
                    self.vector(LOAD, _SECOND + column, 0, RAX, behind=column, mask=mask)
                other = _BROADCAST if scope is Scope.ALL else _SECOND + column
                self.of_vectors(function.value, sum_, sum_, other)
            if scope is Scope.EACH:
                self.add(RAX, RBX)

    def copy_columns(self) -> None:
        """Append what copies them."""
        self.get(RSI, self.now(LEVELS - 2, SECOND))
        self.plain(0x8D, RBX, RSP, self.buffer)
        self.get(RCX, self.given(TERMS))

        def once() -> None:
            for column in range(self.width):
                mask = self.mask_of(column)
                self.vector(LOAD, column, 0, RSI, behind=column, mask=mask)
                self.vector(STORE, column, 0, RBX, behind=column)
            self.add(RSI, R14)
            self.step(RBX, 64 * self.width)

        self.repeated(once, RCX)

    def turn_columns(self) -> None:
        """Append what lays columns next to each other, 16 times 16 of them at once.

        Rows of the second matrix are columns of what it is turned to.
        """
        self.get(RSI, self.now(LEVELS - 2, SECOND))
        self.plain(0x8D, RBX, RSP, self.buffer)
        self.plain(0xC7, 0, R15)
        self.text += self.width.to_bytes(4, "little")

        def column() -> None:
            self.move(R8, RSI)
            self.move(R9, RBX)
            self.get(RCX, self.given(PACKED))
            self.repeated(square, RCX)
            for _ in range(4):
                self.scaled(RSI, RSI, R14, 4)
            self.step(RBX, 64)

        def square() -> None:
            self.move(RAX, R8)
            for row in range(self.turned):
                self.vector(LOAD, row, 0, RAX, mask=_PACKED_MASK)
                self.add(RAX, R14)
            turn(self)
            for row in range(BLOCK):
                self.vector(STORE, row, 0, R9, behind=self.width * row)
            for register, step, last in (
                (R8, FORWARD, LAST_FORWARD),
                (R9, PACKED_FORWARD, LAST_PACKED_FORWARD),
            ):
                self.get_last(RAX, RCX, self.given(step), self.given(last))
                self.add(register, RAX)

        self.repeated(column, R15)


def turn(code: Instructions) -> None:
    """Append what turns the first 16 vectors, of 16 numbers each, by way of the other 16."""
    for row in range(0, BLOCK, 2):
        for high in (False, True):
            _unpack(code, BLOCK + row + high, row, row + 1, high=high)
    for row in range(0, BLOCK, 4):
        for number in range(4):
            first = BLOCK + row + number // 2
            _unpack(code, row + number, first, first + 2, high=bool(number % 2), wide=True)
    for number in range(4):
        for odd, how in ((0, 0x88), (1, 0xDD)):
            place = BLOCK + 4 * number + 2 * odd
            quarters(code, place, number, 4 + number, how)
            quarters(code, place + 1, 8 + number, 12 + number, how)
    for number in range(4):
        for odd in range(2):
            place = BLOCK + 4 * number + 2 * odd
            quarters(code, 4 * odd + number, place, place + 1, 0x88)
            quarters(code, 4 * (odd + 2) + number, place, place + 1, 0xDD)


def _unpack(
    code: Instructions, register: int, first: int, second: int, *, high: bool, wide: bool = False
) -> None:
    """Elements of both by turns, of 4 or 8 bytes, from halves of every 16 bytes."""
    code.vector(
        *(0x14 + high, register, first, second), prefix=int(wide), is_memory=False, wide=wide
    )


def quarters(code: Instructions, register: int, first: int, second: int, how: int) -> None:
    """Append what sets a vector to two times 16 bytes of each of both, which a byte says."""
    code.vector(0x23, register, first, second, kind=3, prefix=1, is_memory=False, last_byte=how)


def product(
    width: int,
    columns: Columns,
    chain: Sequence[Link],
    rows: int = 0,
    turned: int = BLOCK,
    *,
    is_apart: bool = False,
) -> bytes:
    """Return code that multiplies matrices, `width` vectors of columns at once.

    Args:
        width: 1 to 4.
        columns: how those of the second matrix are read.
        chain: what follows.
        rows: how many are computed at once; 0 for as many as there are registers for.
        turned: how many columns there are, where fewer than a vector's are turned.
        is_apart: whether terms of the first matrix do not lie next to each other.
    """
    rows = rows or rows_at_once()[width]
    return _Product(width, columns, chain, rows, turned, is_apart=is_apart).code()
