"""Products with matrices of 4 or 8 bits, on integers, tile by tile.

Numbers of f32 become integers of 24 bits, each row with a factor of its own, and these three bytes
each. A row of bytes times a tile of 8-bit integers is what oneDNN computes, exactly, in 32 bits. So
the result differs from a product in f32 by no more than roundings do: rows are rounded to 2^-24 of
their largest number. Rows with negative numbers have 2^23 added, which is subtracted from the sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.implement import find_implementation
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import MemoryObject, address_of
from polydevice_cpu.onednn.library import library
from polydevice_cpu.onednn.primitive import Primitive, execution_error
from polydevice_cpu.passes.integers.compressed import CompressedMatMul
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.building.tiles import Tiling
from polydevice_cpu.plan.step import Compute

BYTES = 3
"""Of an integer that stands for a number of f32."""

_MOST = (1 << 24) - 1
HIGH_HALF, SIXTEEN = np.uint8(0xF0), np.uint8(16)


@dataclass(frozen=True)
class TiledProduct:
    """What computes y = x @ ((q - center) * scales)^T.

    Attributes:
        primitive: adds a product of BYTES * rows rows of bytes with a tile to what is there.
        rows: of x, at once.
        shared: how many blocks, each with its scales, lie in one tile.
        tiles: the matrix, see `Tiling.cut`.
        scales: of each tile and block, see `Tiling.spread`.
        offsets: [N] f32: 128 times the sum of each column of the matrix.
        q, model_scales: the matrix as the model has it, for rows with NaN and infinity.
    """

    op: CompressedMatMul
    primitive: Primitive
    rows: int
    shared: int
    tiling: Tiling
    tiles: Array
    scales: Array
    offsets: Array
    q: Array
    model_scales: Array

    @property
    def calls(self) -> int:
        """How often the primitive runs for each tile's columns."""
        return int(self.tiles.shape[1]) * self.shared

    def start(self, _: Context) -> Compute:
        """Return what computes it for one request."""
        return _Run(self)


class _Run:
    """Computes (x, y, bytes of rows, a tile as oneDNN reads it, sums): the last three are room."""

    def __init__(self, product: TiledProduct) -> None:
        self._product = product
        self._bound: _Bound | None = None

    def __call__(self, x: Array, y: Array, parts: Array, tile: Array, sums: Array) -> tuple[()]:
        made = self._product
        if self._bound is None:  # room in the arena stays where it is
            self._bound = _Bound(made, parts, tile, sums)
        x, y = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
        wild = ~(np.isfinite(x.max(axis=1)) & np.isfinite(x.min(axis=1)))
        given = np.where(wild[:, None], np.float32(0), x) if wild.any() else x
        with openmp.threads(1):
            for first in range(0, len(x), made.rows):
                some = slice(first, first + made.rows)
                self._some(given[some], y[some], parts, sums)
        if wild.any():
            self._in_floats(x[wild], y, wild)
        return ()

    def _in_floats(self, x: Array, y: Array, where: Array) -> None:
        """Rows that are no numbers times an integer."""
        made = self._product
        compute = find_implementation(type(made.op))
        assert compute is not None
        y[where] = compute(made.op, x, made.q, made.model_scales)

    def _some(self, x: Array, y: Array, parts: Array, sums: Array) -> None:
        made, bound = self._product, self._bound
        assert bound is not None
        rows, columns = len(x), made.tiling.columns
        least = x.min(axis=1, keepdims=True)
        largest = np.maximum(x.max(axis=1, keepdims=True), -least).astype(np.float64)
        is_signed = least < 0
        limit = np.where(is_signed, _MOST >> 1, _MOST)
        largest[largest == 0] = 1
        whole = np.rint(x * (limit / largest)).astype(np.int32)
        whole += is_signed * np.int32(1 << 23)  # 128 in the highest byte
        self._split(whole.view(np.uint8), parts)
        factor, offset = (largest / limit).astype(np.float32), is_signed.astype(np.float32)
        for tile in range(len(made.tiles)):
            sums.fill(0)
            bound.add(tile)
            place = slice(tile * columns, min((tile + 1) * columns, y.shape[1]))
            low, middle, high = (each[:rows, : place.stop - place.start] for each in sums)
            total = (high - offset * made.offsets[place]) * np.float32(65536)
            total += middle * np.float32(256)
            total += low
            np.multiply(total, factor, y[:, place])

    def _split(self, whole: Array, parts: Array) -> None:
        """Put bytes [rows, terms * 4] where tiles have the terms, with zeros for other blocks'."""
        rows, (_, _, at_once, terms) = len(whole), parts.shape
        shared = self._product.shared
        length = terms // shared
        parts.fill(0)
        places = parts.reshape(-1, shared, BYTES, at_once, shared, length)
        split = whole.reshape(rows, -1, shared, length, 4)
        for block in range(shared):
            for index in range(BYTES):
                part = split[:, :, block, :, index]
                places[:, block, index, :rows, block] = part.swapaxes(0, 1)


class _Bound:
    """The primitive on a request's room; what it reads of the matrix changes from call to call."""

    def __init__(self, made: TiledProduct, parts: Array, tile: Array, sums: Array) -> None:
        found, tiling, primitive = library(), made.tiling, made.primitive
        assert found is not None
        self._made, self._tile = made, tile
        self._move = found.set_data_handle
        source = MemoryObject(primitive.src, address_of(parts))
        matrix = MemoryObject(tiling.layout, address_of(tile))
        scales = MemoryObject(Descriptor.dense((tiling.columns,)), address_of(made.scales))
        arguments = {
            Arg.SRC: source,
            Arg.WEIGHTS: matrix,
            Arg.DST: MemoryObject(primitive.dst, address_of(sums)),
            Arg.ATTR_SCALES | Arg.WEIGHTS: scales,
        }
        if primitive.scratchpad_bytes:
            self._scratchpad = np.empty(primitive.scratchpad_bytes + 64, np.uint8)
            start = address_of(self._scratchpad)
            place = start + -start % 64
            arguments[Arg.SCRATCHPAD] = MemoryObject(primitive.scratchpad, place)
        self._call = primitive.bind(arguments)
        self._source, self._matrix, self._scales = source.handle, matrix.handle, scales.handle
        start, step, of_scales = address_of(parts), parts.strides[0], made.scales.shape[1]
        self._sources = [
            [
                (start + number * step, number * of_scales // len(parts) * made.scales.strides[1])
                for number in range(first, first + made.shared)
            ]
            for first in range(0, len(parts), made.shared)
        ]
        runs = tile.reshape(tiling.runs, -1)[:, : tiling.used]
        self._halves = tiling.halves(runs) if tiling.bits == 4 else (runs, runs)
        self._rest = tile.reshape(tiling.runs, -1)[:, tiling.used :]

    def add(self, tile: int) -> None:
        """Add the product with all blocks of a tile to the sums."""
        made, move, call = self._made, self._move, self._call
        scales, matrix, step = address_of(made.scales[tile]), 0, made.tiles.strides[1]
        stored, few = made.tiling.is_stored, made.tiling.bits == 4
        tiles = made.tiles[tile].reshape(len(self._sources), *self._halves[0].shape)
        low, high = self._halves
        if stored:
            matrix = address_of(tiles)
        if self._rest.size:
            self._rest.fill(0)
        for block, sources in enumerate(self._sources):
            if stored:
                move(self._matrix, matrix + block * step)
            elif few:
                np.multiply(tiles[block], SIXTEEN, low)
                np.bitwise_and(tiles[block], HIGH_HALF, high)
            else:
                np.copyto(low, tiles[block])
            for source, scale in sources:
                move(self._source, source)
                move(self._scales, scales + scale)
                status = call()
                if status:
                    raise execution_error("CompressedMatMul", status)
