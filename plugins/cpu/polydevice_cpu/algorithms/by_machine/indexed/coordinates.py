"""Rows taken by their coordinates, by machine code for AVX-512.

NumPy takes 12 to 20 us for few of them, most of it to find out where they lie.
"""

from __future__ import annotations

import math
from functools import lru_cache

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Told
from polydevice_cpu.algorithms.by_machine.indexed.scattered import Indexing
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD_WORDS,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    RAX,
    RDI,
    STORE_WORDS,
)

_SOURCE, _INDICES, _RESULT = range(3)
_BATCHES, _ROWS, _COORDINATES, _BLOCKS, _REST, _ROW_BYTES, _BATCH_BYTES, _SIZES = range(3, 11)
"""What it is told: addresses; batches, rows of each, coordinates of a row; blocks of 64 bytes, and
which bytes the last one has; bytes of a row, and of a batch of the source; for each coordinate what
it may reach."""

_LAST = 1


@lru_cache(maxsize=2)
def _emitted(index_bytes: int) -> bytes:
    code = Indexing(index_bytes)
    code.begin(0)
    for register, number in ((R8, _SOURCE), (R9, _INDICES), (R10, _RESULT), (R13, _BATCHES)):
        code.load(register, RDI, number)
    code.load(RAX, RDI, _REST)
    code.raw("c4e1fb92c8")  # kmovq k1, rax

    def row() -> None:
        code.place(_COORDINATES, _SIZES, _ROW_BYTES)
        code.add(RAX, R8)
        code.move(R11, R10)
        code.load(R12, RDI, _BLOCKS)
        block = len(code.text)
        code.plain(0xFF, 1, R12)  # dec
        last = code.ahead("0f84")
        code.vector(LOAD_WORDS, 0, 0, RAX, prefix=2)
        code.vector(STORE_WORDS, 0, 0, R11, prefix=2)
        code.step(RAX, 64)
        code.step(R11, 64)
        code.jump(block)
        code.here(last)
        code.vector(LOAD_WORDS, 0, 0, RAX, prefix=3, mask=_LAST)  # vmovdqu8
        code.vector(STORE_WORDS, 0, 0, R11, prefix=3, mask=_LAST)
        code.add(R10, RDI, _ROW_BYTES)

    def batch() -> None:
        code.load(R14, RDI, _ROWS)
        code.repeated(R14, row)
        code.add(R8, RDI, _BATCH_BYTES)

    code.repeated(R13, batch)
    return code.finished()


def taking(
    shape: tuple[int, ...], indices: tuple[int, ...], batches: int, sizes: tuple[int, int]
) -> Told:
    """Return the function that takes rows, and what it is told but for addresses.

    It is told those of the source, of indices and of the result, and returns 1 where one lies
    outside.

    Args:
        shape: of the source, row-major, as all is, without sizes of 0.
        indices: shape of indices, whose last axis has the coordinates, up to
            `scattered.MOST_COORDINATES`.
        batches: how many first axes both have.
        sizes: bytes of an element, and of an index.
    """
    coordinates = indices[-1]
    reached = shape[batches : batches + coordinates]
    row = math.prod(shape[batches + coordinates :]) * sizes[0]
    blocks = -(-row // 64)
    rest = (1 << row - 64 * (blocks - 1)) - 1
    numbers = (
        *(math.prod(shape[:batches]), math.prod(indices[batches:-1]), coordinates, blocks),
        *(rest - (1 << 64) if rest >> 63 else rest, row, math.prod(reached) * row, *reached),
    )
    return function_of(_emitted(sizes[1])), (0, 0, 0, *numbers)
