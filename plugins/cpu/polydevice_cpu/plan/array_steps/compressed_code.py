"""Products with matrices of 4 or 8 bits by machine code that unpacks them as it goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from polydevice.dtype import Array
from polydevice.symbolic_size import largest, smallest
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.compressed import product as on_integers
from polydevice_cpu.algorithms.by_machine.compressed.packing import Matrix
from polydevice_cpu.algorithms.by_machine.panels import product as in_floats
from polydevice_cpu.plan.step import ByMachine
from polydevice_cpu.plan.value import Value


class ProductCode(NamedTuple):
    """What multiplies any number of rows.

    Attributes:
        computed: it.
        reads: how often it is told of the rows, before results and room.
        room: returns how many bytes of room it takes for so many rows.
    """

    computed: ByMachine
    reads: int
    room: Callable[[int], int]


def of_digits(matrix: Matrix, threads: int, *, rounds_rows: bool) -> ProductCode:
    """Multiply digits of rows, or parts of numbers in tiles; rounded rows are one digit."""
    digits = 1 if rounds_rows else 3

    def compute(x: Array, y: Array, _: Array) -> tuple[()]:
        on_integers.multiplied(matrix, x, y)
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        return on_integers.code_of(matrix, values[0].shape[0], digits, threads)

    def room(rows: int) -> int:
        return on_integers.room(matrix, rows, digits, threads)

    return ProductCode(ByMachine(compute, prepare), 1, room)


def of_floats(panels: in_floats.Panels, threads: int) -> ProductCode:
    """Multiply rows with numbers of f32 that are made of the matrix."""

    def compute(x: Array, _: Array, y: Array, __: Array) -> tuple[()]:
        in_floats.multiplied(panels, x, y)
        return ()

    def prepare(values: Sequence[Value]) -> Code | None:
        return in_floats.code_of(panels, values[0].shape[0], threads)

    def room(rows: int) -> int:
        are_many = smallest([rows // (in_floats.MOST_FEW + 1), 1])
        numbers: int = largest([in_floats.room(panels, threads) * are_many, 1])
        return 4 * numbers

    return ProductCode(ByMachine(compute, prepare, may_refuse=False), 2, room)
