"""Products of many rows with matrices of 4 or 8 bits: each tile becomes one of f32, once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.engine import MemoryObject, address_of, aligned
from polydevice_cpu.onednn.library import library
from polydevice_cpu.onednn.primitive import Primitive, execution_error
from polydevice_cpu.plan.array_steps.compressed import HIGH_HALF, SIXTEEN
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.building.tiles import Tiling
from polydevice_cpu.plan.step import Compute


@dataclass(frozen=True)
class UnpackedProduct:
    """What computes y = x @ ((q - center) * scales)^T.

    Attributes:
        primitive: adds a product of all rows' terms of a tile with the tile to what is there.
        threads: of the primitive.
        tiling: of tiles [terms, columns] that lie row by row.
        tiles: the matrix, see `Tiling.cut`.
        scales: of each tile's columns and block, see `Tiling.spread`.
    """

    primitive: Primitive
    threads: int
    tiling: Tiling
    tiles: Array
    scales: Array

    def start(self, _: Context) -> Compute:
        """Return what computes it for one request."""
        return _Run(self)


class _Run:
    """Computes (x, y, bytes of a tile, numbers of a tile): the last two are room."""

    def __init__(self, product: UnpackedProduct) -> None:
        self._product = product
        self._scratchpad = aligned(max(product.primitive.scratchpad_bytes, 1))

    def __call__(self, x: Array, y: Array, whole: Array, tile: Array) -> tuple[()]:
        made = self._product
        found, primitive = library(), made.primitive
        assert found is not None
        rows, result = np.ascontiguousarray(x), y.reshape(-1, y.shape[-1])
        source = MemoryObject(primitive.src, address_of(rows))
        target = MemoryObject(primitive.dst, address_of(result))
        arguments: dict[int, MemoryObject] = {
            Arg.SRC: source,
            Arg.WEIGHTS: MemoryObject(primitive.weights, address_of(tile)),
            Arg.DST: target,
        }
        if primitive.scratchpad_bytes:
            place = address_of(self._scratchpad)
            arguments[Arg.SCRATCHPAD] = MemoryObject(primitive.scratchpad, place)
        call, move = primitive.bind(arguments), found.set_data_handle
        terms, columns = made.tiling.terms, made.tiling.columns
        result.fill(0)
        if made.threads > 1:
            openmp.keep_apart(made.threads)
        with openmp.threads(made.threads):
            for across in range(len(made.tiles)):
                move(target.handle, address_of(result) + 4 * columns * across)
                for down in range(made.tiles.shape[1]):
                    self._unpack(across, down, whole, tile)
                    move(source.handle, address_of(rows) + 4 * terms * down)
                    status = call()
                    if status:
                        raise execution_error("CompressedMatMul", status)
        return ()

    def _unpack(self, across: int, down: int, whole: Array, tile: Array) -> None:
        """Make numbers of f32 of a tile, by way of bytes where two integers lie in one."""
        made = self._product
        stored, scales = made.tiles[across, down], made.scales[across]
        if made.tiling.bits == 4:
            low, high = np.split(whole, 2)
            np.multiply(stored, SIXTEEN, low)
            np.bitwise_and(stored, HIGH_HALF, high)
            stored = whole
        numbers = stored.view(np.int8).reshape(tile.shape)
        blocks, parts = len(scales), made.tiles.shape[1]
        if blocks < parts:  # of more terms than a tile has
            np.multiply(numbers, scales[down * blocks // parts], tile)
            return
        each = blocks // parts
        factors = scales[down * each : (down + 1) * each, None]
        split = (each, -1, tile.shape[1])
        np.multiply(numbers.reshape(split), factors, tile.reshape(split))
