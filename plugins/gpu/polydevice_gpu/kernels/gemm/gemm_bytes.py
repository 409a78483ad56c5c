"""Products of bytes through tiles in local memory, for devices that sum four of them at once."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.byte_terms import zero_of
from polydevice_gpu.kernels.gemm.convolution_shape import has_channels_inside
from polydevice_gpu.kernels.gemm.gemm import (
    ConvolutionProduct,
    MatmulProduct,
    Pace,
    Product,
    tile_modes,
)
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.reason import NO_LOCAL_MEMORY, ON_PROCESSORS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target

# Rows and columns of a tile and of a work-item's share. The paces are those of gemm_tiled, whose
# steps have a quarter of the terms.
_TILES = (
    ({"BM": 128, "BN": 128, "TM": 8, "TN": 8}, Pace(1.7, 1.7)),
    ({"BM": 128, "BN": 64, "TM": 8, "TN": 4}, Pace(1.5, 1.05)),
    ({"BM": 64, "BN": 64, "TM": 4, "TN": 4}, Pace(0.75, 0.62)),
    ({"BM": 32, "BN": 64, "TM": 4, "TN": 4}, Pace(0.55, 0.38)),
    ({"BM": 64, "BN": 16, "TM": 4, "TN": 4}, Pace(0.6, 0.25)),
)

NO_BYTES = "the device does not sum four products of bytes at once"


def declare_bytes(product: Product, call: Call, columns: int) -> None:
    """Declare what engines of bytes need: whether there is a sign, and the number that means 0.

    Args:
        product: what is multiplied.
        call: the launch.
        columns: the padded number of columns.
    """
    node = call.node
    zero, b = zero_of(node), node.inputs[1]
    call.define(SIGNED=node.inputs[0].storage is ElementType.i8, HAS_STARTS=bool(zero))
    form = call.target.byte_product
    call.define(DOT_PTX=form == "ptx", DOT_KHR=form == "khr")
    if not zero:
        call.define(ZERO=0)
        return

    def starts(array: Array) -> Array:
        sums = product.matrix(node, array).astype(np.int64).sum(1) * -zero
        return np.pad(sums, (0, columns - sums.size))

    call.scalars(ZERO=zero)
    name = f"{product.kind_of_weights(node)} {columns} sums by {-zero}"
    call.buffer("STARTS", Weights(b, name, starts, ElementType.i32), "int")


class BytesEngine(Product):
    """A work-group copies strips of both factors to local memory and multiplies them there."""

    name = "gemm_bytes"
    source = "gemm/gemm_bytes.cl"
    tiles = _TILES
    modes = tile_modes(_TILES)
    step = 64
    sums = ElementType.i32

    def widths(self) -> tuple[int, ...]:
        """Vectors of four."""
        return (4,)

    def threads(self, mode: Mode) -> int:
        """One per share of the tile."""
        return mode["BM"] // mode["TM"] * (mode["BN"] // mode["TN"])

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The group and its two strips of each factor fit the device."""
        bytes_needed = 2 * self.step * (mode["BM"] + 4 + mode["BN"])
        return (
            super().mode_supports(node, mode, target)
            and self.threads(mode) <= target.max_work_group_size
            and bytes_needed <= target.local_memory_bytes
        )

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """[term / 4, column, term % 4]."""
        make = self.padded(node, columns, terms)

        def quads(array: Array) -> Array:
            return np.asarray(make(array).reshape(columns, -1, 4).transpose(1, 0, 2))

        form = f"{self.kind_of_weights(node)} {terms}x{columns} in quads"
        return Weights(node.inputs[1], form, quads, ElementType.i8)

    def declare_engine(self, call: Call, mode: Mode) -> None:
        """Tell the kernel whether four terms can be read at once."""
        node = call.node
        x = node.inputs[0]
        inside = x.rank < 3 or has_channels_inside(x.placed, 4)
        if isinstance(self, MatmulProduct):
            inside = x.placed.pitches[-1] == 1
        call.define(TERMS_AT_ONCE=4 if inside and self.channels(node) % 4 == 0 else 1)
        tile = mode["BN"]
        declare_bytes(self, call, -(-self.sizes(node)[1] // tile) * tile)

    def misfit(self, node: GpuNode, target: Target) -> str:
        """Say why not: what the device has, and terms, as the first step is not counted."""
        return unless(
            (target.byte_product, NO_BYTES),
            (target.local_memory_bytes >= 32768, NO_LOCAL_MEMORY),
            (self.sizes(node)[2] > 0, "it has no terms"),
        )

    def yields(self, node: GpuNode, target: Target) -> str:
        """On processor cores vectors of sums are faster."""
        return unless((target.is_throughput, ON_PROCESSORS))


class ConvolutionOfBytes(BytesEngine, ConvolutionProduct):
    """Convolution of bytes through local memory."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Any size."""
        return self.no_product(node) or self.misfit(node, target)


class MatmulOfBytes(BytesEngine, MatmulProduct):
    """Product of bytes with a constant matrix through local memory."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Any size."""
        return self.no_product(node) or self.misfit(node, target)
