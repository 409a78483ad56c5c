"""Convolutions of images of bytes on matrix units: a pixel of up to four channels is one word."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.gemm.convolution_shape import convolution_geometry
from polydevice_gpu.kernels.gemm.gemm import ConvolutionProduct
from polydevice_gpu.kernels.gemm.gemm_bytes_mma import declare_matrix_bytes
from polydevice_gpu.kernels.gemm.gemm_wgmma import for_eights
from polydevice_gpu.kernels.geometry import spatial
from polydevice_gpu.kernels.kernel import Mode
from polydevice_gpu.kernels.launch import Launch, Weights
from polydevice_gpu.kernels.reason import NO_UNIT, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target

_CHANNELS = 4
"""Bytes of a word."""
_TAPS = 8
"""That an instruction multiplies: its 32 bytes are as many words."""
_WIDE = 16
"""Pixels of an instruction, which are neighbours in a row."""
_LOCAL_BYTES = 40 << 10
"""Less than every device with these units has."""


class ConvolutionImageBytesMma(ConvolutionProduct):
    """Convolution of an image of bytes, which goes through local memory as it is.

    Its terms are words, of which every lane reads its own; no piece of neighbouring terms is put
    together, which takes most of the time of `gemm_bytes_mma` there: 32 images of 224x224, window
    7x7 by 2, 64 columns, H200: 168 -> 47 us, for one 19 -> 11.
    """

    name = "image_bytes_mma"
    source = "gemm/image_bytes_mma.cl"
    modes = (
        {"TILE_Y": 16, "BN": 64, "WARPS": 8},
        {"TILE_Y": 8, "BN": 64, "WARPS": 4},
        {"TILE_Y": 8, "BN": 32, "WARPS": 4},
        {"TILE_Y": 8, "BN": 64, "WARPS": 8},
        {"TILE_Y": 4, "BN": 32, "WARPS": 4},
    )

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Images of few channels, and windows of which a tile's pixels fit in local memory."""
        geometry, columns = convolution_geometry(node), self.sizes(node)[1]
        return self.no_product(node) or unless(
            (target.matrix_unit, NO_UNIT),
            (self.channels(node) <= _CHANNELS, f"it has {self.channels(node)} channels"),
            (node.output.rank <= 4, "its window has three axes"),
            (columns % 8 == 0, f"{columns} columns are no multiple of 8"),
            (geometry.taps > 1, "its window is one pixel"),
            (self._local_bytes(node, self.modes[-1]) <= _LOCAL_BYTES, "its window is too large"),
        )

    def yields(self, node: GpuNode, target: Target) -> str:
        """Tiles of several rows; sequences were not measured."""
        rows = spatial(node.output.shape)[1]
        return unless((rows >= self.modes[-1]["TILE_Y"], f"its result has {rows} rows"))

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The image's part and the weights fit in local memory."""
        return self._local_bytes(node, mode) <= _LOCAL_BYTES

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The largest tile that fits and leaves a work-group for every processor."""
        batch, (_, y, x) = node.output.shape[0], spatial(node.output.shape)
        columns, fitting = node.output.shape[1], []
        for number, mode in enumerate(self.modes):
            if self.mode_supports(node, mode, target):
                fitting.append(number)
                groups = (
                    batch * -(-y // mode["TILE_Y"]) * -(-x // _WIDE) * -(-columns // mode["BN"])
                )
                if groups >= 2 * target.compute_units and columns > mode["BN"] // 2:
                    return number
        return fitting[-1]

    def _local_bytes(self, node: GpuNode, mode: Mode) -> int:
        """Return what a work-group takes of local memory."""
        geometry = convolution_geometry(node)
        sides = [
            (pixels - 1) * geometry.strides[axis]
            + (geometry.kernel[axis] - 1) * geometry.dilations[axis]
            + 1
            for pixels, axis in ((mode["TILE_Y"], 1), (_WIDE, 2))
        ]
        weights = -(-geometry.taps // _TAPS) * _TAPS * mode["BN"]
        return _CHANNELS * (sides[0] * sides[1] + weights)

    def widths(self) -> tuple[int, ...]:
        """Results leave in eights."""
        return (8,)

    def threads(self, mode: Mode) -> int:
        """Of so many warps."""
        return 32 * mode["WARPS"]

    def form(self, node: GpuNode, columns: int, terms: int) -> Weights:
        """Words as lanes have them: [eight columns, step, lane, two words].

        A lane has column lane / 4 of eight, and taps lane % 4 and that + 4 of a step; columns are
        in the order of `for_eights`.
        """

        def make(array: Array) -> Array:
            out, inputs = array.shape[:2]
            taps = self.matrix(node, array).reshape(out, -1, inputs)
            full = np.zeros((columns, terms // _CHANNELS, _CHANNELS), np.int8)
            full[:out, : taps.shape[1], :inputs] = taps
            parts = for_eights(full).reshape(columns // 8, 8, -1, 2, 4, _CHANNELS)
            return np.ascontiguousarray(parts.transpose(0, 2, 1, 4, 3, 5))

        form = f"{self.kind_of_weights(node)} {columns}x{terms} words for lanes"
        return Weights(node.inputs[1], form, make, ElementType.i8)

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """One launch, a work-group for each tile of pixels and columns."""
        _, columns, _ = self.sizes(node)
        steps = -(-convolution_geometry(node).taps // _TAPS)
        batch, (_, y, x) = node.output.shape[0], spatial(node.output.shape)
        tiles_n, tiles = -(-columns // mode["BN"]), (-(-y // mode["TILE_Y"]), -(-x // _WIDE))
        call = Call(self.name, self.source, node, target)
        groups = self.declare(call, self.widths())
        filled = self.form(node, tiles_n * mode["BN"], steps * _TAPS * _CHANNELS)
        call.weights("FILTER", filled, self.widths())
        call.define(**mode, STEPS=steps, CHANNELS_IN=self.channels(node))
        declare_matrix_bytes(self, call, mode, outside=False)
        call.scalars(COLUMNS=columns, TILES_Y=tiles[0], TILES_X=tiles[1])
        call.result(groups, self.widths())
        threads = self.threads(mode)
        call.dispatch((tiles_n * threads, batch * tiles[0] * tiles[1]), (threads, 1))
        return [call.launch()]
