"""Where machine code for windows has its sizes and places, and how it goes from one to the next."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.instructions import (
    R8,
    R9,
    R11,
    R13,
    R14,
    R15,
    RAX,
    RBP,
    RDI,
    RSI,
    RSP,
    Instructions,
)

SIZES = (
    *("source", "other", "result", "weights", "bias", "tiles", "element", "weights_row"),
    *("last_block", "slopes", "pictures", "picture_source", "picture_result", "picture_weights"),
    *("rows", "columns", "row_source", "row_result", "column_source", "column_result", "line"),
    *("tap", "line_elements", "tap_elements"),
)
"""Numbers of 8 bytes that the code reads first, by name; see `kernel`."""

SIZES_OF_BYTES = ("source", "other", "zero", "factor", *SIZES[2:10], "scales", *SIZES[10:])
"""The same where sources are bytes."""

SIZES_OF_GROUPS = (
    *SIZES[:10],
    *("groups", "group_source", "group_result", "group_weights"),
    *SIZES[10:],
)
"""The same where channels are in groups."""

OTHERS = ("other", *(f"other {number}" for number in range(1, 24)))
"""Names of what lies elsewhere and is added."""


def with_others(sizes: Sequence[str], count: int) -> tuple[str, ...]:
    """Return sizes with the addresses of so many tensors that lie elsewhere."""
    first, _, *rest = sizes
    return first, *OTHERS[:count], *rest


KIND = 4
"""Numbers of a kind of rows or columns."""

SLOTS = (
    *("given", "pictures", "source_of_picture", "result_of_picture", "weights_of_picture"),
    *("row", "rows", "source_of_row", "result_of_row", "weights_of_row", "lines", "high"),
    *("column", "columns", "source_of_line", "result_of_line", "weights"),
    *("next_source", "next_weights", "positions", "apart", "lines_left", "left"),
    *("source", "result", "line_source", "line_result", "place"),
    *("groups", "bias", "first_column", "next_tap", "taps_left"),
)
"""What lies on the stack, in numbers of 8 bytes from its top."""

AT = {name: number for number, name in enumerate(SLOTS)}


@lru_cache(maxsize=1)
def lanes() -> int:
    """Return how many numbers a vector has: 8 with AVX2, which fill a register."""
    return 16 if has_avx512() else 8


class Bundle(NamedTuple):
    """Groups of channels that are computed at once, as their results lie next to each other.

    Attributes:
        groups: how many there are in all.
        given: channels of the source that a group has.
        results: of the result.
        in_vector: how many groups share a vector.
        vectors: how many vectors are computed at once, of other groups each.
    """

    groups: int
    given: int
    results: int
    in_vector: int = 1
    vectors: int = 1

    @classmethod
    def of(cls, groups: int, given: int, results: int) -> Bundle:
        """Return those that are computed the fastest."""
        if 1 < given == results:
            for size in range(lanes() // results, 1, -1):
                if groups % size == 0:
                    return cls(groups, given, results, size)
        return cls(groups, given, results, 1, 2 if results == lanes() and groups % 2 == 0 else 1)

    @property
    def size(self) -> int:
        """How many groups are computed at once."""
        return self.in_vector * self.vectors

    @property
    def is_faster(self) -> bool:
        """Whether sums take less time than in oneDNN's code, with windows of 3x3.

        Of groups of 4 channels over 56x56 450 us (128 in all; oneDNN 680), of 12 over 28x28 90 (48;
        150), of 24 over 14x14 225 (384; 270); of 8 and 16 as long or up to a fifth longer, of 32
        and more 0.8 to 1.2 times.
        """
        if self.in_vector > 1:
            return self.results < lanes() // 2
        return lanes() // 2 < self.results < 2 * lanes() and self.results != lanes()

    @property
    def is_moved(self) -> bool:
        """Whether what is read is moved within vectors, to where it is multiplied."""
        return self.in_vector > 1


class WindowCode(Instructions):
    """Instructions, and what is done with sizes between them.

    Attributes:
        places: of the sizes, by name.
        pairs: where, in numbers of 8 bytes, two numbers of each function begin, behind a first two.
        loads: the instruction that makes results of 8 bits numbers of 32; None where they are such.
        loads_other: the same of what lies elsewhere and is added.
        shift: by how many bits places of that are further apart than those of the result.
        bundle: of groups of channels; None where there are no groups.
    """

    def __init__(
        self,
        sizes: Sequence[str] = SIZES,
        loads: int | None = None,
        loads_other: int | None = None,
        shift: int = 0,
        bundle: Bundle | None = None,
    ) -> None:
        super().__init__(is_short=True)
        self.places = {name: number for number, name in enumerate(sizes)}
        self.pairs = len(self.places) + 1
        self.loads, self.loads_other, self.shift = loads, loads_other, shift
        self.bundle = bundle

    def given(self, register: int, name: str) -> None:
        """Load a size; RDI has their address."""
        self.load(register, RDI, self.places[name])

    def product(self, register: int, base: int, number: int, name: str) -> None:
        """Register = a number of 8 bytes times a size."""
        self.load(register, base, number)
        self.times(register, RDI, self.places[name])

    def _begin(self, kind: str, step: str, *, behind: str, to: tuple[str, str]) -> None:
        """Find where a kind of rows (columns) is read and written; RAX has where its weights are.

        Args:
            kind: "row" or "column".
            step: from one line (element of a line) of a window to the next.
            behind: what the kind is a part of.
            to: the slots of source and result.
        """
        self.load(RDI, RSP, AT["given"])
        self.load(RBP, RSP, AT[kind])
        self.product(RAX, RBP, 0, f"{kind}_source")
        self.product(RSI, RBP, 2, step)
        self.add(RAX, RSI)
        self.add(RAX, RSP, AT[f"source_of_{behind}"])
        self.store(RAX, RSP, AT[to[0]])
        self.product(RAX, RBP, 0, f"{kind}_result")
        self.add(RAX, RSP, AT[f"result_of_{behind}"])
        self.store(RAX, RSP, AT[to[1]])
        self.product(RAX, RBP, 2, f"{step}_elements")
        self.times(RAX, R11)
        self.add(RAX, RSP, AT[f"weights_of_{behind}"])

    def begin_row(self) -> None:
        """Take the next kind of rows."""
        self._begin("row", "line", behind="picture", to=("source_of_row", "result_of_row"))
        self.store(RAX, RSP, AT["weights_of_row"])
        self.load(RAX, RBP, 3)
        self.load(RSI, RBP, 2)
        self.subtract(RAX, RSI)
        self.store(RAX, RSP, AT["lines"])
        self.copy(AT["high"], RBP, 1)
        self.step(RBP, 8 * KIND)
        self.store(RBP, RSP, AT["row"])
        # Columns are behind the rows that are left.
        self.load(RAX, RSP, AT["rows"])
        self.step(RAX, -1)
        self.raw("48c1e005")  # shl rax, 5
        self.add(RAX, RBP)
        self.store(RAX, RSP, AT["column"])
        self.copy(AT["columns"], RDI, self.places["columns"])

    def begin_column(self, width: int) -> None:
        """Take the next kind of columns; those of fewer than `width` are computed downwards."""
        self._begin("column", "tap", behind="row", to=("source_of_line", "result_of_line"))
        self.store(RAX, RSP, AT["weights"])
        self.copy(AT["place"], RBP, 0)
        self.load(R9, RBP, 3)
        self.load(RSI, RBP, 2)
        self.subtract(R9, RSI)
        self.given(RAX, "line")
        self.move(RSI, R9)
        self.times(RSI, RDI, self.places["tap"])
        self.subtract(RAX, RSI)
        self.store(RAX, RSP, AT["next_source"])
        self.times(R9, RDI, self.places["tap_elements"])
        self.given(RAX, "line_elements")
        self.subtract(RAX, R9)
        self.times(RAX, R11)
        self.store(RAX, RSP, AT["next_weights"])
        if self.bundle is not None:
            self._begin_groups(self.bundle)
        # What lies in a line, and how many lines there are.
        self.load(RSI, RBP, 1)
        self.load(R8, RSP, AT["high"])
        for slot, name in (("line_source", "row_source"), ("line_result", "row_result")):
            self.given(RAX, name)
            self.store(RAX, RSP, AT[slot])
        self.given(RAX, "column_source")
        self.given(R13, "column_result")
        self.compare(RSI, width)
        are_many = self.ahead("0f8d")  # jge
        self.plain(0x3B, RSI, R8)
        is_wide = self.ahead("0f8d")
        self.store(RAX, RSP, AT["line_source"])
        self.store(R13, RSP, AT["line_result"])
        self.move(R14, RSI)
        self.move(RSI, R8)
        self.move(R8, R14)
        self.given(RAX, "row_source")
        self.given(R13, "row_result")
        for each in (are_many, is_wide):
            self.here(each)
        self.store(RSI, RSP, AT["positions"])
        self.store(R8, RSP, AT["lines_left"])
        self.store(R13, RSP, AT["apart"])
        self.scaled(R15, RAX, RAX, 2)
        self.step(RBP, 8 * KIND)
        self.store(RBP, RSP, AT["column"])

    def _begin_groups(self, bundle: Bundle) -> None:
        """Let R9 be how many elements a line of a window has, and say where the next one lies."""
        self.load(R9, RBP, 3)
        self.subtract(R9, RBP, 2)
        self.given(RAX, "tap")
        self.step(RAX, 0 if bundle.is_moved else -4 * bundle.given)
        self.store(RAX, RSP, AT["next_tap"])

    def forward_by(self, positions: int) -> None:
        """Go to a position behind; RSI has how many if there are 0."""
        if positions:
            self.raw("be")  # mov esi, …
            self.text += struct.pack("<i", positions)
        self.plain(0x29, RSI, RSP, 8 * AT["left"])
        self.move(RDI, RSI)
        self.times(RSI, RAX)
        self.plain(0x01, RSI, RSP, 8 * AT["source"])
        self.times(RDI, RSP, AT["apart"])
        self.plain(0x01, RDI, RSP, 8 * AT["result"])


def at_positions(
    code: Instructions,
    width: int,
    start: int,
    step: int,
    steps: int,
    access: Callable[..., None],
) -> None:
    """Access so many places, `step` apart; `steps` is three times as much. Moves the start."""
    for first in range(0, width, 4):
        if first:
            code.scaled(start, start, step, 4)
        places = ((start,), (start, step, 1), (start, step, 2), (start, steps, 1))
        for position, place in zip(range(first, min(first + 4, width)), places, strict=False):
            access(position, *place)
