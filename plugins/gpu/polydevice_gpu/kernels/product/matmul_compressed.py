"""Products with a matrix of 4 or 8 bits: of few rows on GPUs, which its bytes bind, or of any."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Launch, Weights
from polydevice_gpu.kernels.reason import LOCAL_MEMORY_IS_FASTER, NO_UNIT, ON_PROCESSORS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, planar
from polydevice_gpu.ops import CompressedMatMul

MOST_ROWS = 4
"""On GPUs: with more rows reading the matrix is no longer what takes the time."""

_LANES = 32
_MOST_THREADS = 256
_MOST_HELD = 64
"""Terms of rows that a work-item keeps in registers."""
_LONG = 8192
"""Terms of columns that keep more warps busy."""
_LOCAL_BYTES = 40 << 10
"""For rows in local memory: less than every device with matrix units has."""
_LARGE = 1 << 24
"""Elements of a matrix that is worth launches of its own.

Three layers of a decoder of 4096 with all its matrices of 4 bits in blocks of 32 took 320 us on an
H200, 352 where those of 4096x4096 had kernels that can be a part of larger launches.
"""
_ALL_LOCAL_BYTES = 224 << 10
"""Of a processor with matrix units of warp groups."""


class CompressedKernel(SingleLaunch):
    """What all kernels of these products have in common."""

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Rows in memory order."""
        return {0: planar(node.inputs[0].shape)}

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Rows in memory order."""
        return [planar(node.output.shape)]

    def declare(self, call: Call, op: CompressedMatMul, width: int) -> None:
        """Declare all tensors and sizes; a few rows are read in vectors of that width."""
        self.declare_matrix(call, op)
        self.declare_rows(call, width)
        call.define(MOST_ROWS=_most_rows(call.node))

    def declare_matrix(self, call: Call, op: CompressedMatMul) -> None:
        """Declare the matrix as it is stored."""
        node = call.node
        matrix, scales, zeros = node.inputs[1:4]
        call.pointer("MATRIX", matrix)
        call.pointer("SCALES", scales)
        call.access("SCALES", scales.storage)
        call.pointer("ZEROS", zeros)
        count, blocks = node.inputs[0].shape[-1], scales.shape[1]
        call.define(BITS=op.bits)
        call.scalars(BLOCK=count // blocks, BLOCKS=blocks)

    def declare_rows(self, call: Call, width: int, written: tuple[int, ...] = ()) -> None:
        """Declare rows and results, and the widths of vectors that they are read and written in."""
        x, columns = call.node.inputs[0], call.node.output.shape[-1]
        groups = [tuple(range(x.rank - 1)), (x.rank - 1,)]
        call.tensor("IN0", x, groups, (width,))
        call.scalars(ROWS=math.prod(x.shape[:-1]), COLUMNS=columns, COUNT=x.shape[-1])
        call.result(groups, written)


@kernel(CompressedMatMul)
class MatmulCompressedRows(CompressedKernel):
    """A work-item makes floats of some terms of a few columns and multiplies all rows by them.

    1024 terms, 4096 columns, 4 bits in blocks of 32, PoCL 3.1 on two cores, ms of CPU time, behind
    them those of a matrix of floats: 1 row 0.5 and 0.9, 4 rows 0.9 and 2.1, 17 rows 1.7 and 4.8,
    512 rows 42 and 93. Columns in fours or sixes, or 64 rows at once, take as long within a tenth.
    """

    modes = ({"COLUMNS_EACH": 8, "ROWS_EACH": 32, "CHUNK": 256},)

    def yields(self, node: GpuNode, target: Target) -> str:
        """Neighbours of those that run in lockstep should read neighbours."""
        return unless((not target.is_throughput, LOCAL_MEMORY_IS_FASTER))

    def describe(self, call: Call, op: CompressedMatMul, mode: Mode) -> None:
        """One work-item for some columns of some rows, in a group of its own for its arrays."""
        self.declare_matrix(call, op)
        self.declare_rows(call, 16, (mode["COLUMNS_EACH"],))
        call.define(**mode)
        rows, columns = math.prod(call.node.inputs[0].shape[:-1]), call.node.output.shape[-1]
        items = -(-columns // mode["COLUMNS_EACH"]), -(-rows // mode["ROWS_EACH"])
        call.dispatch(items, (1, 1))


@kernel(CompressedMatMul)
class MatmulCompressedFed(CompressedKernel):
    """Matrix units multiply bytes; the matrix is copied to local memory in bulk, far ahead.

    Numbers of the matrix are bytes as they are stored, and those of the rows four digits of 8 bits,
    so that a product of 16 columns and 32 terms is one instruction, and six make its bytes of 4
    bits. One row, H200, events, the best mode of the others behind: 14336 columns of 4096 terms of
    4 bits in blocks of 32 14.1 and 22.4 us, 4096 of 14336 15.1 and 23.9, 4096 of 4096 7.9 and 11.0;
    in blocks of 128 13.4 and 19.0, 14.5 and 19.3, 8.1 and 10.0; of 8 bits 20.4 and 24.0, 21.4 and
    30.6, 9.5 and 11.6; another machine took a tenth more, for copies too. A launch that does
    nothing takes 5, one that copies the matrix alone 9 to 10 (4 bits); what is left are digits of
    the rows, 2 to 3, and products, 3 to 5.
    """

    modes = tuple(
        {"WARPS": warps, "DEPTH": depth, "EACH": each}
        for warps, depth, each in (
            (16, 2, 1),
            (16, 1, 1),
            (8, 2, 2),
            (8, 1, 2),
            (8, 4, 1),
            (4, 4, 2),
        )
    )

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Blocks of parts of 32 terms, and not too many of these."""
        block = node.inputs[0].shape[-1] // node.inputs[2].shape[1]
        fits = any(self.mode_supports(node, mode, target) for mode in self.modes)
        return unless(
            (target.warp_group_unit, NO_UNIT),
            (block % _LANES == 0, f"its blocks of {block} terms are no multiples of {_LANES}"),
            (fits, f"it has {node.inputs[0].shape[-1]} terms"),
        )

    def yields(self, node: GpuNode, target: Target) -> str:
        """Small matrices become a part of larger launches; more rows were not measured."""
        columns, terms = node.output.shape[-1], node.inputs[0].shape[-1]
        return unless(
            (math.prod(node.inputs[0].shape[:-1]) == 1, LOCAL_MEMORY_IS_FASTER),
            (columns * terms >= _LARGE, LOCAL_MEMORY_IS_FASTER),
        )

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """Stages that have least to spare, large ones rather than small."""
        fitting = (n for n, mode in enumerate(self.modes) if self.mode_supports(node, mode, target))
        return min(fitting, key=lambda n: (_Feeding.of(node, self.modes[n]).eights, n))

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Rows and two stages fit in local memory."""
        return _Feeding.of(node, mode).stages > 1

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """It takes a processor's local memory: no part of other launches."""
        found = super().launches(node, mode, target)
        return [dataclasses.replace(launch, body=None) for launch in found]

    def describe(self, call: Call, op: CompressedMatMul, mode: Mode) -> None:
        """A group computes some tiles of 16 columns of all rows."""
        node, feeding = call.node, _Feeding.of(call.node, mode)
        form, numbers = feeding.form, (ElementType.u32, ElementType.f32, ElementType.u8)
        makes = (feeding.words_of, feeding.spans_of, feeding.spans_of)
        names = ("WORDS", "SCALES", "ZEROS")
        for name, value, make, kind in zip(names, node.inputs[1:4], makes, numbers, strict=True):
            call.weights(name, Weights(value, f"{form}, {name}", make, kind))
        self.declare_rows(call, 4)
        call.define(BITS=op.bits, MOST_ROWS=_most_rows(node))
        tiles = -(-node.output.shape[-1] // 16)
        groups = min(tiles, mode["EACH"] * call.target.compute_units)
        stages = min(feeding.stages, -(-tiles // groups) * feeding.steps)
        call.define(WARPS=mode["WARPS"], DEPTH=mode["DEPTH"], SPAN=feeding.span)
        call.define(EIGHTS=feeding.eights, STAGES=stages)
        call.scalars(STEPS=feeding.steps, TILES=tiles, GROUPS=groups)
        threads = _LANES * mode["WARPS"]
        call.dispatch((groups * threads,), (threads,))


@dataclass(frozen=True)
class _Feeding:
    """How a matrix is copied.

    Attributes:
        bits: of its integers.
        terms: of its columns.
        block: terms that share a scale in the model.
        chunk: terms of a stage, which are 16 columns.
        stages: how many find room in local memory beside the rows.
    """

    bits: int
    terms: int
    block: int
    chunk: int
    stages: int

    @classmethod
    def of(cls, node: GpuNode, mode: Mode) -> _Feeding:
        """By the sizes of a node."""
        bits, rows = node.operation(CompressedMatMul).bits, _most_rows(node)
        terms = node.inputs[0].shape[-1]
        chunk = mode["WARPS"] * mode["DEPTH"] * 512 // bits
        alone = cls(bits, terms, terms // node.inputs[2].shape[1], chunk, 0)
        digits = 32 * rows * alone.eights
        sums = 16 * rows * (alone.eights * 8 // min(alone.span, alone.share))
        parts = 64 * 16 * mode["WARPS"]
        stage = 16 * (chunk * bits // 8 + chunk // alone.span * 5) + 8
        room = _ALL_LOCAL_BYTES // mode["EACH"] - digits - sums - parts - 256
        return dataclasses.replace(alone, stages=room // stage)

    @property
    def share(self) -> int:
        """Terms of a column that four lanes have of 16 bytes each."""
        return 512 // self.bits

    @property
    def span(self) -> int:
        """Terms that share a scale in a stage."""
        return math.gcd(self.block, self.chunk)

    @property
    def steps(self) -> int:
        """Stages that hold all terms."""
        return -(-self.terms // self.chunk)

    @property
    def eights(self) -> int:
        """Eight terms each, of all of them and what is left of the last stage."""
        return self.steps * self.chunk // 8

    @property
    def form(self) -> str:
        """Names what lies in memory."""
        return f"{self.bits} bits in stages of {self.chunk} terms, spans of {self.span}"

    def words_of(self, packed: Array) -> Array:
        """[tile, stage, share, half, lane] of 16 bytes: every fourth eight of a share."""
        bits, tiles = self.bits, -(-len(packed) // 16)
        every = np.zeros((tiles * 16, self.steps * self.chunk * bits // 8), np.uint8)
        every[: len(packed), : packed.shape[1]] = packed
        shares, parts = self.chunk // self.share, 16 // bits
        split = every.reshape(tiles, 2, 8, self.steps, shares, parts, 4, bits)
        return np.ascontiguousarray(split.transpose(0, 3, 4, 1, 2, 6, 5, 7)).view(np.uint32)

    def spans_of(self, array: Array) -> Array:
        """[tile, stage, share, column, span] of [column, block]; 0 beyond the last.

        Of a span that is longer than a share there is one.
        """
        tiles, spans = -(-len(array) // 16), self.chunk // self.span
        inside = self.terms // self.span
        every = np.zeros((tiles * 16, self.steps * spans), array.dtype)
        every[: len(array), :inside] = np.repeat(array, self.block // self.span, axis=1)[:, :inside]
        each = max(self.share // self.span, 1)
        split = every.reshape(tiles, 16, self.steps, spans // each, each)
        return np.ascontiguousarray(split.transpose(0, 2, 3, 1, 4))


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
        """More warps for long columns, and where there are few.

        4096x4096 of 4 bits took 10.0 us with 8 of them, 10.5 with 4 and 11.4 with two tiles each.
        """
        columns, terms = node.output.shape[-1], node.inputs[0].shape[-1]
        wanted = 1 if terms > _LONG or columns <= 32 * target.compute_units else 0
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

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """As many rows as GPUs are given, which find room in registers."""
        return _most_rows(node) <= MOST_ROWS

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
