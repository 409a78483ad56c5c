"""LSTMs with weights of 8 bits: each step is a product of integers, as exact as one in f32.

A number becomes an integer of 24 bits, and that three digits of 8 bits with a sign, which oneDNN
multiplies with the weights exactly. A step of one item with 1,024 states reads 4 MiB, not 16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.recurrent import Direction
from polydevice_cpu.implement import run
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.engine import MemoryObject, address_of, aligned
from polydevice_cpu.onednn.primitive import Primitive, execution_error
from polydevice_cpu.passes.integers.compressed_recurrent import CompressedLSTM
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.step import Compute

DIGITS = 3
LIMIT = 8_350_000
"""A little less than the largest integer of three digits from -128 to 127, 0x7F7F7F."""

_PLACES = np.array([1, 1 << 8, 1 << 16], np.float32) / np.float32(LIMIT)
_HALVES = np.int32(0x808080)
_TINY, _ONE = np.float32(1e-30), np.float32(1)

Gates = Callable[[Array, tuple[Array]], tuple[Array, ...]]
"""f(what enters the gates [4H, B], (C,)) returns the new H and C [H, B]."""


@dataclass(frozen=True)
class DigitProduct:
    """What multiplies so many rows with the weights of each direction.

    Attributes:
        weights: of each direction, as oneDNN reads them.
        scales: [D, 4H].
    """

    primitive: Primitive
    rows: int
    weights: list[Array]
    scales: Array

    @property
    def room(self) -> list[tuple[tuple[int, int, int], np.dtype[np.generic]]]:
        """Sizes and types of digits and sums."""
        (_, terms), (_, columns) = self.primitive.src.shape, self.primitive.dst.shape
        return [
            ((DIGITS, self.rows, terms), np.dtype(np.int8)),
            ((DIGITS, self.rows, columns), np.dtype(np.float32)),
        ]

    def bind(self, digits: Array, sums: Array) -> list[_Multiplication]:
        """Return what computes it for each direction."""
        return [_Multiplication(self, d, digits, sums) for d in range(len(self.weights))]


class _Multiplication:
    """A product on a request's room."""

    def __init__(self, product: DigitProduct, direction: int, digits: Array, sums: Array) -> None:
        made, self._scales = product.primitive, product.scales[direction]
        self._digits, self._sums = digits, sums.reshape(DIGITS, -1)
        arguments: dict[int, MemoryObject] = {
            Arg.SRC: MemoryObject(made.src, address_of(digits)),
            Arg.WEIGHTS: MemoryObject(made.weights, address_of(product.weights[direction])),
            Arg.DST: MemoryObject(made.dst, address_of(sums)),
        }
        if made.scratchpad_bytes:
            self._scratchpad = aligned(made.scratchpad_bytes)
            arguments[Arg.SCRATCHPAD] = MemoryObject(made.scratchpad, address_of(self._scratchpad))
        self._call = made.bind(arguments)

    def __call__(self, x: Array, largest: Array | np.float32) -> Array:
        """Rows, none of whose numbers is beyond `largest`, times the weights."""
        whole = np.rint(x * (LIMIT / largest)).astype(np.int32)
        whole += _HALVES
        whole ^= _HALVES  # each byte less 128
        parts = whole.view(np.int8).reshape(*whole.shape, 4)[:, :, :DIGITS]
        np.copyto(self._digits, parts.transpose(2, 0, 1))
        status = self._call()
        if status:
            raise execution_error("CompressedLSTM", status)
        total: Array = np.dot(_PLACES, self._sums).reshape(len(x), -1)
        total *= self._scales
        total *= largest
        return total


@dataclass(frozen=True)
class CompressedLayer:
    """What computes an LSTM of whole sequences.

    Attributes:
        entering, carried: what multiplies with W, so many rows at once, and with R.
        weights: W, R, B and the scales, for numbers that are not finite.
    """

    op: CompressedLSTM
    entering: DigitProduct
    carried: DigitProduct
    weights: tuple[Array, ...]
    pass_gates: Gates

    def start(self, _: Context) -> Compute:
        """Return what computes it for one request."""
        return _Run(self)


class _Run:
    """Computes a layer for one request: (x [T, B, C], h, c, the three results, room)."""

    def __init__(self, layer: CompressedLayer) -> None:
        self._layer = layer
        self._bound: list[tuple[_Multiplication, _Multiplication]] = []

    def __call__(self, x: Array, h: Array, c: Array, y: Array, *rest: Array) -> tuple[()]:
        last_h, last_c, *room = rest
        entering, carried = self._layer.entering, self._layer.carried
        if not self._bound:  # room in the arena stays where it is
            pairs = zip(entering.bind(*room[:2]), carried.bind(*room[2:]), strict=True)
            self._bound = list(pairs)
        hidden = y.reshape(*y.shape[:2], h.shape[1], -1)
        largest = np.maximum(np.abs(x).max(axis=2, keepdims=True), _TINY)
        reach = np.abs(h).max(axis=2, keepdims=True, initial=1)
        if not np.isfinite((largest.max(), reach.max(), np.abs(c).max())).all():
            lengths = np.full(len(h), len(x))
            inputs = [x.swapaxes(0, 1), h, c, lengths, *self._layer.weights]
            made = run(self._layer.op, inputs)
            hidden[...] = made[0].transpose(2, 0, 1, 3)
            last_h[...], last_c[...] = made[1:]
            return ()
        with openmp.threads(carried.primitive.threads):
            for d in range(h.shape[1]):
                begin = h[:, d], c[:, d], reach[:, d]
                last_h[:, d], last_c[:, d] = self._steps(d, x, largest, begin, hidden[:, :, d])
        return ()

    def _steps(
        self,
        d: int,
        x: Array,
        largest: Array,
        begin: tuple[Array, Array, Array],
        hidden: Array,
    ) -> tuple[Array, Array]:
        """Write H of all steps [T, B, H]; return the last H and C."""
        by_w, by_r = self._bound[d]
        projected = self._projected(by_w, x, largest)
        projected += self._layer.weights[2][d]
        state, cell, most = begin[0], begin[1].T, begin[2]
        backwards = d == 1 or self._layer.op.direction is Direction.REVERSE
        for t in reversed(range(len(x))) if backwards else range(len(x)):
            total = by_r(state, most)
            total += projected[t]
            new, cell = self._layer.pass_gates(total.T, (cell,))
            state = hidden[t] = new.T
            most = _ONE  # no state after the first is beyond it
        return state, cell.T

    def _projected(self, by_w: _Multiplication, x: Array, largest: Array) -> Array:
        """X times W, so many rows at once as there is code for."""
        count, (steps, batch, size) = self._layer.entering.rows, x.shape
        rows, bounds = x.reshape(-1, size), largest.reshape(-1, 1)
        parts = [slice(first, first + count) for first in range(0, steps * batch, count)]
        return np.concatenate([by_w(rows[part], bounds[part]) for part in parts]).reshape(
            steps, batch, -1
        )
