"""Convolution and MatMul as one product of rows (pixels) and columns (channels).

A `Product` says what is multiplied; an engine (`gemm_mma`, `gemm_async`, `gemm_subgroup`,
`gemm_tiled`) says how.
Each kernel of the families is one of each.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.matmul import MatMul
from polydevice.processor.strips import copy_matrix
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import Groups
from polydevice_gpu.kernels.byte_terms import fill_of
from polydevice_gpu.kernels.gemm.convolution_shape import (
    convolution_geometry,
    groups_of,
    has_channels_inside,
    is_flat,
    pixel_groups,
    taps_of,
)
from polydevice_gpu.kernels.gemm.matmul_shape import matrices
from polydevice_gpu.kernels.geometry import Geometry, spatial
from polydevice_gpu.kernels.kernel import Kernel, Mode
from polydevice_gpu.kernels.launch import Launch, Scratch, Weights
from polydevice_gpu.kernels.reason import VARIABLE_WEIGHTS, WIDE_WEIGHTS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.layout import Layout, channels_last, planar

SPLITS = (1, 2, 4, 8, 16)
"""Into how many parts the terms of a product may be cut, each for other work-groups."""

CHANNELS_SIDE_BY_SIDE = 8
"""Fewest input channels for which a convolution asks for channels-last data."""


class Pace(NamedTuple):
    """How fast work-groups of a tile take their steps; for choosing a mode.

    Attributes:
        alone_us: time of a step where processors have few groups, so that each waits for itself.
        shared_us: a processor's time for one step of one group, where it has many.
        together: groups that a processor runs at the same time, where those that are left over in
            the end count; 0 where they do not.
    """

    alone_us: float
    shared_us: float
    together: int = 0

    def steps_us(self, groups: int, units: int) -> float:
        """Return how long one step of all groups takes on that many processors."""
        if not self.together:
            return max(self.alone_us, -(-groups // units) * self.shared_us)
        rounds, rest = divmod(groups, units * self.together)
        last = max(self.alone_us, -(-rest // units) * self.shared_us) if rest else 0.0
        return rounds * max(self.alone_us, self.together * self.shared_us) + last


Tile = tuple[Mode, Pace]
"""Macros of a tile, and its pace."""

_START_US = 6.0
_SECOND_LAUNCH_US = 10.0
_PART_BYTES_PER_US = 1.5e6
"""Measured on an H100, with the paces: 180 layers and modes are met within 10 % on average."""


def tile_modes(tiles: Sequence[Tile]) -> tuple[Mode, ...]:
    """Return every tile with every split."""
    return tuple({**tile, "SPLIT": split} for tile, _ in tiles for split in SPLITS)


class Product(Kernel):
    """What is multiplied, and the launches that all engines have in common.

    Attributes:
        tiles: of the engine.
        step: terms that a work-group takes at a time, unless that depends on the mode.
        alignment: pixels and rows must begin at multiples of so many elements.
        joins_parts: whether the last work-group at a tile adds up the parts of its terms, so that
            no second launch is needed.
        start_us: how long the first step takes to begin.
        sums: in which partial sums are kept.
        joining_us: how long adding up takes in either case, beyond what reading the parts takes.
    """

    tiles: Sequence[Tile]
    step = 0
    alignment = 1
    joins_parts = False
    sums = ElementType.f32
    start_us = _START_US
    joining_us = _SECOND_LAUNCH_US

    # -- what is multiplied -----------------------------------------------------------------------

    @abstractmethod
    def sizes(self, node: GpuNode) -> tuple[int, int, int]:
        """Return rows, columns and terms of the product."""

    @abstractmethod
    def matrix(self, node: GpuNode, array: Array) -> Array:
        """Return the weights as [column, term]."""

    @abstractmethod
    def declare(self, call: Call, widths: Sequence[int]) -> Groups:
        """Declare the input and its window; return the axes behind rows and columns."""

    @abstractmethod
    def channels(self, node: GpuNode) -> int:
        """Return how many neighbouring terms come from neighbouring elements."""

    # -- what engines decide ----------------------------------------------------------------------

    @abstractmethod
    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """Return the weights padded to that many columns and terms, as the engine wants them."""

    @abstractmethod
    def widths(self) -> tuple[int, ...]:
        """Return the vector widths in which inputs are read and results written."""

    def step_of(self, mode: Mode) -> int:
        """Return the terms that a work-group takes at a time."""
        return self.step

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Declare what the engine's .cl file needs beyond what all of them do."""

    # -- common -----------------------------------------------------------------------------------

    def kind_of_weights(self, node: GpuNode) -> str:
        """Name how `matrix` reads the weights, for names of forms."""
        turned = " turned" if getattr(node.op, "transpose_b", False) else ""
        return type(node.op).__name__ + turned

    def padded(self, node: GpuNode, columns: int, terms: int) -> Callable[[Array], Array]:
        """Return the function that makes [column, term] of the padded size."""

        def make(array: Array) -> Array:
            matrix = self.matrix(node, array)
            if matrix.shape == (columns, terms):
                return matrix
            full = np.zeros((columns, terms), matrix.dtype)
            copy_matrix(full[: matrix.shape[0], : matrix.shape[1]], matrix)
            return full

        return make

    def term_rows(self, node: GpuNode, columns: int, terms: int, storage: ElementType) -> Weights:
        """Return the weights as [term, column] of that type, for `form`."""
        make = self.padded(node, columns, terms)
        form = f"{self.kind_of_weights(node)} {terms}x{columns} transposed"
        return Weights(node.inputs[1], form, lambda array: make(array).T, storage, only_moves=True)

    def pace(self, number: int) -> Pace:
        """Return the pace of a mode's tile."""
        return self._paces[number]

    @functools.cached_property
    def _paces(self) -> list[Pace]:
        return [
            next(pace for tile, pace in self.tiles if {**tile, "SPLIT": mode["SPLIT"]} == mode)
            for mode in self.modes
        ]

    def expected_us(self, node: GpuNode, number: int, target: Target) -> float:
        """Return the expected time of a mode, in the time of an H100's processors."""
        rows, columns, terms = self.sizes(node)
        mode, pace = self.modes[number], self.pace(number)
        if not self.mode_supports(node, mode, target):
            return math.inf
        groups = -(-rows // mode["BM"]) * -(-columns // mode["BN"]) * mode["SPLIT"]
        steps = -(-terms // self.step_of(mode) // mode["SPLIT"])
        time = self.start_us + steps * pace.steps_us(groups, target.compute_units)
        if mode["SPLIT"] > 1:  # every part is written and read, perhaps by another launch
            time += self.joining_us
            time += rows * columns * 8 * mode["SPLIT"] / _PART_BYTES_PER_US
        return time

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The tile and split with the least expected time."""
        return min(range(len(self.modes)), key=lambda n: self.expected_us(node, n, target))

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Every part has at least four steps."""
        steps = -(-self.sizes(node)[2] // self.step_of(mode))
        return mode["SPLIT"] == 1 or 4 * mode["SPLIT"] <= steps

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the product, and the sum of the parts if it is split."""
        rows, columns, terms = self.sizes(node)
        split, step = mode["SPLIT"], self.step_of(mode)
        steps = -(-terms // (step * split))
        tiles_n = -(-columns // mode["BN"])
        parts = Scratch(split * rows * columns, self.sums) if split > 1 else None
        kind = compute_type(self.sums)
        call = Call(self.name, self.source, node, target)
        groups = self.declare(call, self.widths())
        padded = steps * split * step
        call.weights("FILTER", self.form(node, tiles_n * mode["BN"], padded), self.widths())
        call.define(**mode, SUM=kind)
        self.declare_engine(call, mode)
        call.scalars(ROWS=rows, COLUMNS=columns, STEPS=steps, TERMS=padded)
        call.scalars(CHANNELS_IN=self.channels(node), COLUMNS_PADDED=tiles_n * mode["BN"])
        tiles_m = -(-rows // mode["BM"])
        if parts is not None:
            call.buffer("PARTS", parts, kind, written=True)
        if parts is not None and self.joins_parts:
            arrivals = Scratch(tiles_m * tiles_n, ElementType.u32, kept=True)
            call.buffer("ARRIVALS", arrivals, "uint", written=True)
        if parts is None or self.joins_parts:
            call.result(groups, self.widths())
        threads = self.threads(mode)
        call.dispatch((tiles_n * threads, tiles_m, split), (threads, 1, 1))
        found = [call.launch()]
        if parts is not None and not self.joins_parts:
            total = Call("sum_parts", "gemm/sum_parts.cl", node, target)
            total.buffer("PARTS", parts, kind)
            total.define(SUM=kind)
            total.scalars(ROWS=rows, COLUMNS=columns, SPLIT=split)
            total.result(groups)
            total.dispatch((columns, rows), (32, 4))
            found.append(total.launch())
        return found

    @abstractmethod
    def threads(self, mode: Mode) -> int:
        """Return the work-items of a group."""


class ConvolutionProduct(Product):
    """Convolution without groups: pixels by output channels, terms are taps by input channels."""

    def no_product(self, node: GpuNode) -> str:
        """Say why the node is no product of this kind: groups, variable weights."""
        return unless(
            (groups_of(node)[0] == 1, "it has groups"),
            (node.inputs[1].constant is not None, VARIABLE_WEIGHTS),
            (node.inputs[1].storage is not ElementType.i16, WIDE_WEIGHTS),
            (fill_of(node) is None, "its zero point is found at run time"),
        )

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Channels side by side, unless there are so few that any layout will do."""
        x = node.inputs[0]
        return {0: channels_last(x.shape)} if x.shape[1] >= CHANNELS_SIDE_BY_SIDE else {}

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Channels side by side; pixels may lie further apart."""
        if index not in self.input_layouts(node, target):
            return True
        return has_channels_inside(layout, self.alignment)

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Channels side by side."""
        return [channels_last(node.output.shape)]

    def sizes(self, node: GpuNode) -> tuple[int, int, int]:
        """Pixels, output channels, taps times input channels."""
        _, out, inputs = groups_of(node)
        pixels = node.output.elements // max(out, 1)
        return pixels, out, taps_of(node) * inputs

    def channels(self, node: GpuNode) -> int:
        """Input channels."""
        return node.inputs[0].shape[1]

    def matrix(self, node: GpuNode, array: Array) -> Array:
        """Order weights as [out, tap × in]."""
        _, out, inputs = groups_of(node)
        return np.asarray(array.reshape(out, inputs, -1).transpose(0, 2, 1).reshape(out, -1))

    def declare(self, call: Call, widths: Sequence[int]) -> Groups:
        """Declare image and window."""
        node = call.node
        x, out = node.inputs[0], node.output
        flat = is_flat(node)
        axes, (_, *sizes) = pixel_groups(node)
        call.tensor("IN0", x, axes, widths)
        convolution_geometry(node).declare(call)
        call.define(FLAT=flat)
        for role, size in (("IN", sizes if flat else spatial(x.shape)), ("OUT", sizes)):
            z, y, width = size
            call.scalars(**{f"{role}_Z": z, f"{role}_Y": y, f"{role}_X": width})
        return [(0, *range(2, out.rank)), (1,)]


class MatmulProduct(Product):
    """Product with a constant matrix: every row of every batch is a pixel."""

    def no_product(self, node: GpuNode) -> str:
        """Say why the node is no product of this kind: one constant matrix, rows one by one."""
        op, b = node.operation(MatMul), node.inputs[1]
        if b.constant is None:
            return "its second factor is no constant"
        return unless(
            (b.rank >= 2 and math.prod(b.shape[:-2]) == 1, "its constant is not one matrix"),
            (not op.transpose_a, "its first factor is transposed"),
            (b.storage is not ElementType.i16, WIDE_WEIGHTS),
        )

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Rows in memory order."""
        return {0: planar(node.inputs[0].shape)}

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Rows in memory order, the first one aligned."""
        aligned = index > 0 or layout.offset % self.alignment == 0
        return aligned and super().accepts_layout(node, index, layout, target)

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Rows in memory order."""
        return [planar(node.output.shape)]

    def sizes(self, node: GpuNode) -> tuple[int, int, int]:
        """All rows, columns, terms."""
        a, b = node.inputs[0], node.inputs[1]
        columns = b.shape[-2 if node.operation(MatMul).transpose_b else -1]
        return math.prod(a.shape[:-1]), columns, a.shape[-1]

    def channels(self, node: GpuNode) -> int:
        """All terms."""
        return node.inputs[0].shape[-1]

    def matrix(self, node: GpuNode, array: Array) -> Array:
        """Order weights as [column, term]."""
        op = node.operation(MatMul)
        matrix = array.reshape(array.shape[-2:])
        return matrix if op.transpose_b else matrix.T

    def declare(self, call: Call, widths: Sequence[int]) -> Groups:
        """Declare rows as one line of pixels."""
        node = call.node
        shape = matrices(node)
        a = node.inputs[0]
        rows = tuple(range(len(shape.batch) + 1))
        call.pointer("IN0", a)
        line: Groups = [(), (), (), rows, (len(rows),)]
        sizes = (*shape.batch, shape.m, shape.k)
        call.access("IN0", a.storage, call.aligned(shape.a, sizes, line, widths))
        call.index("IN0", a, shape.a, sizes, line)
        Geometry.of((1,), (1,), (1,), (0,)).declare(call)
        call.define(FLAT=True)
        total = shape.batches * shape.m
        call.scalars(IN_Z=1, IN_Y=1, IN_X=total, OUT_Z=1, OUT_Y=1, OUT_X=total)
        batch, m_axis, n_axis = shape.result
        return [(*batch, *m_axis), tuple(n_axis)]
