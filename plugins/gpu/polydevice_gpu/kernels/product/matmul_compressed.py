"""Products of few rows with a matrix of 4 or 8 bits, which are bound by the matrix's bytes."""

from __future__ import annotations

import math

from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import LOCAL_MEMORY_IS_FASTER, NO_UNIT, ON_PROCESSORS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, planar
from polydevice_gpu.ops import CompressedMatMul

_LANES = 32
_MOST_THREADS = 256
_MOST_HELD = 64
"""Terms of rows that a work-item keeps in registers."""
_LONG = 8192
"""Terms of columns that keep more warps busy."""
_LOCAL_BYTES = 40 << 10
"""For rows in local memory: less than every device with matrix units has."""


class CompressedKernel(SingleLaunch):
    """What all kernels of these products have in common."""

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Rows in memory order."""
        return {0: planar(node.inputs[0].shape)}

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Rows in memory order."""
        return [planar(node.output.shape)]

    def declare(self, call: Call, op: CompressedMatMul, width: int) -> None:
        """Declare all tensors and sizes; rows are read in vectors of that width."""
        node = call.node
        x, matrix, scales, zeros = node.inputs[:4]
        rows, columns = math.prod(x.shape[:-1]), node.output.shape[-1]
        count, blocks = x.shape[-1], scales.shape[1]
        groups = [tuple(range(x.rank - 1)), (x.rank - 1,)]
        call.tensor("IN0", x, groups, (width,))
        call.pointer("MATRIX", matrix)
        call.pointer("SCALES", scales)
        call.access("SCALES", scales.storage)
        call.pointer("ZEROS", zeros)
        call.define(BITS=op.bits, MOST_ROWS=_most_rows(node))
        call.scalars(ROWS=rows, COLUMNS=columns, COUNT=count, BLOCK=count // blocks, BLOCKS=blocks)
        call.result(groups)


@kernel(CompressedMatMul)
class MatmulCompressedVector(CompressedKernel):
    """A work-item reads a column, in vectors of 16 bytes."""

    def yields(self, node: GpuNode, target: Target) -> str:
        """Neighbours of those that run in lockstep should read neighbours."""
        return unless((not target.is_throughput, LOCAL_MEMORY_IS_FASTER))

    def describe(self, call: Call, op: CompressedMatMul, mode: Mode) -> None:
        """One work-item for each column."""
        self.declare(call, op, 16)
        call.dispatch((call.node.output.shape[-1],))


@kernel(CompressedMatMul)
class MatmulCompressedMma(CompressedKernel):
    """Matrix units multiply numbers as they are stored, in half, with rows of two halves.

    Four numbers are three instructions there, and thirteen where work-items multiply. One row, 4
    bits, H200, events, the best of the others behind: 4096x14336 18.5 and 22.8 us, 14336x4096 21.1
    and 26.1, 4096x4096 11.3 and 11.6; of 8 bits 4096x14336 25.0 and 23.8, 4096x4096 13.6 and 11.8.
    """

    modes = tuple(
        {"TILES": tiles, "WARPS": warps, "DEPTH": depth}
        for tiles, warps, depth in ((1, 4, 4), (1, 8, 4), (2, 4, 8), (1, 8, 2), (2, 8, 2))
    )

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Blocks of whole shares of a column."""
        share = self._share(node)
        block = node.inputs[0].shape[-1] // node.inputs[2].shape[1]
        return unless(
            (target.matrix_unit, NO_UNIT),
            (block % share == 0, f"its blocks of {block} terms are no multiples of {share}"),
        )

    def yields(self, node: GpuNode, target: Target) -> str:
        """Those of 8 bits wait for memory anyway; more rows were not measured."""
        return unless(
            (node.operation(CompressedMatMul).bits == 4, LOCAL_MEMORY_IS_FASTER),
            (math.prod(node.inputs[0].shape[:-1]) == 1, LOCAL_MEMORY_IS_FASTER),
        )

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Rows fit in local memory, and every work-item has some of them."""
        each = mode["DEPTH"] * self._share(node) // 256
        halves = _most_rows(node) * mode["WARPS"] * mode["DEPTH"] * self._share(node) * 4
        return each > 0 and halves <= _LOCAL_BYTES and each * _most_rows(node) * 8 <= _MOST_HELD

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """More warps for long columns, more columns for each where there are few."""
        columns, terms = node.output.shape[-1], node.inputs[0].shape[-1]
        wanted = 1 if terms > _LONG else 2 if columns <= 32 * target.compute_units else 0
        order = (wanted, *range(len(self.modes)))
        found: int = next(n for n in order if self.mode_supports(node, self.modes[n], target))
        return found

    def describe(self, call: Call, op: CompressedMatMul, mode: Mode) -> None:
        """A group computes tiles of 16 columns of all rows."""
        self.declare(call, op, 4)
        call.define(**mode)
        threads = _LANES * mode["WARPS"]
        tiles = -(-call.node.output.shape[-1] // (16 * mode["TILES"]))
        call.dispatch((tiles * threads,), (threads,))

    def _share(self, node: GpuNode) -> int:
        """Return the terms of a column that four lanes have of 16 bytes each."""
        bits: int = node.operation(CompressedMatMul).bits
        return 512 // bits


@kernel(CompressedMatMul)
class MatmulCompressedStream(CompressedKernel):
    """Work-items keep their terms of the rows and read one column of the matrix after the other.

    One row on an H200, events, the other kernel behind: 4096x4096 of 8 bits 12.3 and 13.6 us,
    4096x14336 of 8 bits 23.8 and 30.4, of 4 bits 22.8 and 25.1; 4096x4096 of 4 bits 12.0 and 11.7.
    """

    modes = tuple(
        {"COLUMNS_EACH": columns, "AHEAD": ahead}
        for columns, ahead in ((8, 4), (16, 8), (8, 2), (8, 8), (16, 2), (16, 4), (32, 4))
    )

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Terms of the rows that fit in registers."""
        return unless((_pieces(node) > 0, f"it has {node.inputs[0].shape[-1]} terms"))

    def yields(self, node: GpuNode, target: Target) -> str:
        """Processor cores read vectors; more rows, and longer ones, were not measured."""
        few = node.operation(CompressedMatMul).bits == 4
        groups = node.output.shape[-1] // self.modes[1]["COLUMNS_EACH"]
        return unless(
            (target.is_throughput, ON_PROCESSORS),
            (math.prod(node.inputs[0].shape[:-1]) == 1, LOCAL_MEMORY_IS_FASTER),
            (_pieces(node) == 1, LOCAL_MEMORY_IS_FASTER),
            (not few or groups > 2 * target.compute_units, LOCAL_MEMORY_IS_FASTER),
        )

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """Half the columns, and half as many under way, where a column is twice as long."""
        return 0 if node.operation(CompressedMatMul).bits == 8 else 1

    def describe(self, call: Call, op: CompressedMatMul, mode: Mode) -> None:
        """A group computes some columns of all rows."""
        self.declare(call, op, 4)
        pieces = _pieces(call.node)
        threads = _threads(call.node, pieces)
        call.define(**mode, PIECES=pieces, THREADS=threads, LANES=_LANES)
        tiles = -(-call.node.output.shape[-1] // mode["COLUMNS_EACH"])
        call.dispatch((tiles * threads,), (threads,))


def _most_rows(node: GpuNode) -> int:
    """Return the power of two that the number of rows goes into."""
    return 1 << max(math.prod(node.inputs[0].shape[:-1]) - 1, 0).bit_length()


def _threads(node: GpuNode, pieces: int) -> int:
    """Return the work-items, in warps, that hold all terms in so many pieces each."""
    held = pieces * 128 // node.operation(CompressedMatMul).bits
    return -(-node.inputs[0].shape[-1] // (held * _LANES)) * _LANES


def _pieces(node: GpuNode) -> int:
    """Return how many pieces of 16 bytes a work-item holds; 0 where these would be too many."""
    each = 128 // node.operation(CompressedMatMul).bits * _most_rows(node)
    fitting = (
        n for n in (1, 2, 4) if n * each <= _MOST_HELD and _threads(node, n) <= _MOST_THREADS
    )
    return next(fitting, 0)


@kernel(CompressedMatMul)
class MatmulCompressedRef(CompressedKernel):
    """Work-items read 16 bytes of the matrix at a time; a group adds up what its lanes have."""

    modes = tuple(
        {"SUBS": subs, "COLUMNS_EACH": each}
        for subs, each in ((4, 1), (8, 1), (4, 2), (8, 2), (4, 4), (8, 4))
    )

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """Columns enough for a group on every processor; at most 8 by 2.

        On an H200 that took 16 us for 4096x4096 of 8 bits, 33 for 4096x14336 and 30 for 14336x4096
        of 4 bits; others up to 41. The time is that of waiting, not of the memory's 4.8 TB/s.
        """
        columns, best = node.output.shape[-1], 0
        for number, mode in enumerate(self.modes[:4]):
            if columns >= target.compute_units * mode["SUBS"] * mode["COLUMNS_EACH"]:
                best = number
        return best

    def describe(self, call: Call, op: CompressedMatMul, mode: Mode) -> None:
        """A group computes some columns of all rows."""
        self.declare(call, op, 4)
        call.define(**mode, LANES=_LANES)
        tiles = -(-call.node.output.shape[-1] // (mode["SUBS"] * mode["COLUMNS_EACH"]))
        call.dispatch((tiles * _LANES, mode["SUBS"]), (_LANES, mode["SUBS"]))
