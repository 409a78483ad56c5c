"""Machine code for products of matrices of any size, for processors with AVX-512.

Each number is a sum in the order of what is multiplied, each term rounded once, as oneDNN adds up
to 512 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from polydevice_cpu.algorithms.by_machine.emitter import (
    ADD,
    DIV,
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
    RBX,
    RCX,
    RDI,
    RDX,
    RSI,
    RSP,
    SUB,
    Emitter,
    Place,
)

BLOCK = 16
"""Numbers of a vector."""

ROWS = {1: 12, 2: 12, 3: 8, 4: 6}
"""How many rows are computed at once, by how many vectors of them."""

LONGEST = 4
"""Functions that may follow: code for more does not fit into a page."""

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
    DIV = DIV
    LINEAR = 0


Link = tuple[Function, Scope]

FIRST, SECOND, OPERANDS = range(3)
"""What there are addresses of; the last one is the result's."""

OUTER, INNER, COLUMNS, TILES, TERMS, MASK, STACK = range(7)
PACKED, PACKED_MASK, FORWARD, LAST_FORWARD, PACKED_FORWARD, LAST_PACKED_FORWARD = range(7, 13)
CONSTANTS = 13
"""Numbers behind those of addresses; see `product`."""

_MASK, _PACKED_MASK = 1, 2
_SECOND, _BROADCAST = 24, 28
"""Vectors besides the sums, which are the first ones."""


def numbers(chain: Sequence[Link]) -> tuple[int, int]:
    """Return how many addresses code has for a chain, and where what is behind them begins."""
    addresses = OPERANDS + 1 + sum(function is not Function.LINEAR for function, _ in chain)
    return addresses, (LEVELS + 4) * addresses


class _Product(Emitter):
    """Code of a product.

    The arguments begin with addresses, of which each has: bytes that it begins behind; its step in
    each loop; in the one over rows, to the last tile; and from row to row.
    """

    def __init__(self, width: int, columns: Columns, chain: Sequence[Link]) -> None:
        super().__init__()
        self.width, self.rows, self.columns, self.chain = width, ROWS[width], columns, chain
        self.addresses, self.behind = numbers(chain)
        self.result = self.addresses - 1
        slots = (LEVELS + 1) * self.addresses + LEVELS
        self.buffer = -(-8 * slots // 64) * 64

    def given(self, number: int) -> Place:
        """One of the numbers behind those of addresses."""
        return Place(RDI, 8 * (self.behind + number))

    def step(self, level: int, address: int) -> Place:
        """A step; LEVELS: to the last tile; LEVELS + 1: from row to row."""
        return Place(RDI, 8 * ((2 + level) * self.addresses + address))

    def now(self, level: int, address: int) -> Place:
        """Where an address is in a loop; -1: before all."""
        return Place(RSP, 8 * ((1 + level) * self.addresses + address))

    def counter(self, level: int) -> Place:
        """How often a loop runs."""
        return Place(RSP, 8 * ((LEVELS + 1) * self.addresses + level))

    def code(self) -> bytes:
        """All of it."""
        self.plain(0x2B, RSP, self.given(STACK))
        self.text += bytes((0x48, 0x83, 0xE4, 0xC0))  # and rsp, -64
        for address in range(self.addresses):
            self.move(RAX, Place(RDI, 8 * address))
            self.add(RAX, Place(RDI, 8 * (self.addresses + address)))
            self.keep(RAX, self.now(-1, address))
        for mask, number in ((_MASK, MASK), (_PACKED_MASK, PACKED_MASK)):
            self.move(RAX, self.given(number))
            self.mask(mask, RAX)
        self.move(R10, self.step(LEVELS + 1, FIRST))
        self.move(RDX, self.step(LEVELS + 1, self.result))
        self.address(R11, Place(R10, 0, R10, 2))
        self.address(R12, Place(R10, 0, R10, 4))
        self.move(R14, self.step(LEVELS + 1, SECOND))
        self.loop(0, OUTER, lambda: self.loop(1, INNER, lambda: self.loop(2, COLUMNS, self.tiles)))
        return self.end()

    def enter(self, level: int) -> None:
        """Begin a loop where the one around it is."""
        for address in range(self.addresses):
            self.move(RAX, self.now(level - 1, address))
            self.keep(RAX, self.now(level, address))

    def loop(self, level: int, count: int, body: Callable[[], None]) -> None:
        """Append a loop."""
        self.move(RAX, self.given(count))
        self.keep(RAX, self.counter(level))
        self.enter(level)

        def once() -> None:
            body()
            for address in range(self.addresses):
                self.move(RAX, self.step(level, address))
                self.plain(0x01, RAX, self.now(level, address))

        self.times(self.counter(level), once)

    def tiles(self) -> None:
        """Append the loop over rows; the last ones may be computed twice."""
        level = LEVELS - 1
        if self.columns is Columns.TURNED:
            self.turn_columns()
        elif self.columns is Columns.COPIED:
            self.copy_columns()
        self.enter(level)
        self.move(R15, self.given(TILES))

        def once() -> None:
            self.tile()
            for address in range(self.addresses):
                self.move(RAX, self.step(level, address))
                self.if_equal(R15, 2, RAX, self.step(LEVELS, address))
                self.plain(0x01, RAX, self.now(level, address))

        self.times(R15, once)

    def tile(self) -> None:
        """Append the sums of some rows, what follows, and stores."""
        width, rows = range(self.width), range(self.rows)
        sums = [[row * self.width + column for column in width] for row in rows]
        for each in sums:
            for sum_ in each:
                self.clear(sum_)
        self.move(R8, self.now(LEVELS - 1, FIRST))
        self.address(R9, Place(R8, 0, R11, 2))
        if self.columns is Columns.IN_PLACE:
            self.move(R13, self.now(LEVELS - 1, SECOND))
        else:
            self.address(R13, Place(RSP, self.buffer))
        self.move(RCX, self.given(TERMS))
        self.times(RCX, lambda: self.term(sums))
        operand, constant = OPERANDS, 8 * (self.behind + CONSTANTS)
        for function, scope in self.chain:
            if function is Function.LINEAR:
                self.spread(_BROADCAST, Place(RDI, constant))
                self.spread(_BROADCAST + 1, Place(RDI, constant + 4))
                constant += 8
                for sum_ in (sum_ for each in sums for sum_ in each):
                    self.vector(0xA8, sum_, _BROADCAST, _BROADCAST + 1, kind=2, prefix=1)
            else:
                self.follow(function, scope, operand, sums)
                operand += 1
        self.move(RSI, self.now(LEVELS - 1, self.result))
        for each in sums:
            for column, sum_ in enumerate(each):
                self.store(sum_, Place(RSI, 64 * column), self.mask_of(column))
            self.add(RSI, RDX)

    def mask_of(self, column: int) -> int:
        """Which mask says what elements there are of a vector."""
        return _MASK if column == self.width - 1 else 0

    def term(self, sums: Sequence[Sequence[int]]) -> None:
        """Append what adds a product to each sum."""
        for column in range(self.width):
            mask = self.mask_of(column) if self.columns is Columns.IN_PLACE else 0
            self.load(_SECOND + column, Place(R13, 64 * column), mask)
        for row, each in enumerate(sums):
            base, number = (R8, row) if row < 6 else (R9, row - 6)
            places = (
                *(Place(base), Place(base, 0, R10), Place(base, 0, R10, 2), Place(base, 0, R11)),
                *(Place(base, 0, R10, 4), Place(base, 0, R12)),
            )
            factor = _BROADCAST + row % 4
            self.spread(factor, places[number])
            for column, sum_ in enumerate(each):
                self.multiply_add(sum_, factor, _SECOND + column)
        for register in (R8, R9):
            self.constant(register, 0, 4)
        if self.columns is Columns.IN_PLACE:
            self.add(R13, R14)
        else:
            self.constant(R13, 0, 64 * self.width)

    def follow(
        self, function: Function, scope: Scope, operand: int, sums: Sequence[Sequence[int]]
    ) -> None:
        """Append a function of sums and an operand."""
        self.move(RAX, self.now(LEVELS - 1, operand))
        if scope is Scope.ALL:
            self.spread(_BROADCAST, Place(RAX))
        if scope is Scope.EACH:
            self.move(RBX, self.step(LEVELS + 1, operand))
        for row, each in enumerate(sums):
            for column, sum_ in enumerate(each):
                if scope is Scope.EACH or (scope is Scope.COLUMN and not row):
                    self.load(_SECOND + column, Place(RAX, 64 * column), self.mask_of(column))
                other = _BROADCAST if scope is Scope.ALL else _SECOND + column
                self.vector(function.value, sum_, sum_, other)
            if scope is Scope.EACH:
                self.add(RAX, RBX)

    def copy_columns(self) -> None:
        """Append what copies them."""
        self.move(RSI, self.now(LEVELS - 2, SECOND))
        self.address(RBX, Place(RSP, self.buffer))
        self.move(RCX, self.given(TERMS))

        def once() -> None:
            for column in range(self.width):
                self.load(column, Place(RSI, 64 * column), self.mask_of(column))
                self.store(column, Place(RBX, 64 * column))
            self.add(RSI, R14)
            self.constant(RBX, 0, 64 * self.width)

        self.times(RCX, once)

    def turn_columns(self) -> None:
        """Append what lays columns next to each other, 16 times 16 of them at once.

        Rows of the second matrix are columns of what it is turned to.
        """
        self.move(RSI, self.now(LEVELS - 2, SECOND))
        self.address(RBX, Place(RSP, self.buffer))
        self.constant_of(R15, self.width)

        def column() -> None:
            self.move(R8, RSI)
            self.move(R9, RBX)
            self.move(RCX, self.given(PACKED))
            self.times(RCX, square)
            for _ in range(4):
                self.address(RSI, Place(RSI, 0, R14, 4))
            self.constant(RBX, 0, 64)

        def square() -> None:
            self.move(RAX, R8)
            for row in range(BLOCK):
                self.load(row, Place(RAX), _PACKED_MASK)
                self.add(RAX, R14)
            turn(self)
            for row in range(BLOCK):
                self.store(row, Place(R9, 64 * self.width * row))
            for register, step, last in (
                (R8, FORWARD, LAST_FORWARD),
                (R9, PACKED_FORWARD, LAST_PACKED_FORWARD),
            ):
                self.move(RAX, self.given(step))
                self.if_equal(RCX, 2, RAX, self.given(last))
                self.add(register, RAX)

        self.times(R15, column)

    def constant_of(self, register: int, number: int) -> None:
        """Set a register to a constant."""
        self.plain(0xC7, 0, register)
        self.text += number.to_bytes(4, "little")


def turn(code: Emitter) -> None:
    """Append what turns the first 16 vectors, of 16 numbers each, by way of the other 16."""
    for row in range(0, BLOCK, 2):
        for high in (False, True):
            code.unpack(BLOCK + row + high, row, row + 1, high=high, wide=False)
    for row in range(0, BLOCK, 4):
        for number in range(4):
            first = BLOCK + row + number // 2
            code.unpack(row + number, first, first + 2, high=bool(number % 2), wide=True)
    for number in range(4):
        for odd, how in ((0, 0x88), (1, 0xDD)):
            place = BLOCK + 4 * number + 2 * odd
            code.quarters(place, number, 4 + number, how)
            code.quarters(place + 1, 8 + number, 12 + number, how)
    for number in range(4):
        for odd in range(2):
            place = BLOCK + 4 * number + 2 * odd
            code.quarters(4 * odd + number, place, place + 1, 0x88)
            code.quarters(4 * (odd + 2) + number, place, place + 1, 0xDD)


def product(width: int, columns: Columns, chain: Sequence[Link]) -> bytes:
    """Return code that multiplies matrices, `width` vectors of columns at once.

    Args:
        width: 1 to 4.
        columns: how those of the second matrix are read.
        chain: what follows.
    """
    return _Product(width, columns, chain).code()
