"""Convolution and GroupConvolution, 1 to 3 spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.convolution import Convolution, GroupConvolution
from polydevice.ops.op import Op
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.byte_terms import (
    EXACT_TERMS,
    declare_sums,
    is_float_or_byte_product,
)
from polydevice_gpu.kernels.convolution.convolution_bytes import ConvolutionBytes
from polydevice_gpu.kernels.convolution.convolution_words import ConvolutionWords
from polydevice_gpu.kernels.gemm.convolution_shape import (
    convolution_geometry,
    groups_of,
    has_channels_inside,
    is_flat,
    pixel_groups,
)
from polydevice_gpu.kernels.gemm.gemm_async import ConvolutionAsync
from polydevice_gpu.kernels.gemm.gemm_bytes import ConvolutionOfBytes
from polydevice_gpu.kernels.gemm.gemm_bytes_mma import ConvolutionBytesMma
from polydevice_gpu.kernels.gemm.gemm_bytes_wgmma import ConvolutionBytesWgmma
from polydevice_gpu.kernels.gemm.gemm_mma import ConvolutionMma
from polydevice_gpu.kernels.gemm.gemm_subgroup import ConvolutionSubgroup
from polydevice_gpu.kernels.gemm.gemm_tiled import ConvolutionTiled
from polydevice_gpu.kernels.gemm.gemm_wgmma import ConvolutionWgmma
from polydevice_gpu.kernels.gemm.image_bytes_mma import ConvolutionImageBytesMma
from polydevice_gpu.kernels.geometry import (
    declare_sizes,
    image_groups,
    spatial,
    weight_groups,
    written_groups,
)
from polydevice_gpu.kernels.kernel import Kernel, Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Launch, Scratch, Weights
from polydevice_gpu.kernels.product.few_rows import ConvolutionFewRows
from polydevice_gpu.kernels.reason import NO_FLOATS, VARIABLE_WEIGHTS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import c_type
from polydevice_gpu.layout import Layout, channels_last
from polydevice_gpu.ops import IntegerConvolution, IntegerGroupConvolution
from polydevice_gpu.rounded_ops import RoundedConvolution


def tile_modes(lanes: Sequence[int], pixels: Sequence[int]) -> tuple[Mode, ...]:
    """Return every combination."""
    return tuple({"LANES": n, "PIXELS": p} for n in lanes for p in pixels)


def vector_lanes(target: Target) -> int:
    """Return how many channels a work-item should compute at once."""
    return 4 if target.is_throughput else min(16, max(4, target.vector_width))


def _waste(size: int, tile: int) -> float:
    return -(-size // tile) * tile / max(size, 1)


def best_mode(modes: Sequence[Mode], lanes: int, size: int, target: Target) -> int:
    """Return the mode of those lanes whose tiles fit the width best, larger tiles preferred.

    A tile of p pixels loads p inputs and one vector of weights for p products, so that small
    tiles wait for loads: (p + 1) / p.
    """
    width = target.nominal(size)
    fitting = [i for i, mode in enumerate(modes) if mode["LANES"] == lanes]

    def cost(index: int) -> float:
        pixels = modes[index]["PIXELS"]
        return _waste(width, pixels) * (pixels + 1) / pixels

    return min(fitting, key=cost)


def pack_weights(array: Array, groups: int, lanes: int) -> Array:
    """Order weights [groups, out, in, taps] as [block, tap, in, lane], the last filled with 0."""
    out, inputs = array.shape[1], array.shape[2]
    taps = array.reshape(groups * out, inputs, math.prod(array.shape[3:]))
    blocks = -(-taps.shape[0] // lanes)
    if blocks * lanes > taps.shape[0]:
        padded = np.zeros((blocks * lanes, inputs, taps.shape[2]), array.dtype)
        padded[: taps.shape[0]] = taps
        taps = padded
    return np.asarray(taps.reshape(blocks, lanes, *taps.shape[1:]).transpose(0, 3, 2, 1))


kernel(Convolution)(ConvolutionFewRows)
kernel(Convolution, GroupConvolution)(ConvolutionWgmma)
kernel(Convolution, GroupConvolution)(ConvolutionMma)
kernel(Convolution, GroupConvolution)(ConvolutionAsync)
kernel(Convolution, GroupConvolution)(ConvolutionSubgroup)
kernel(Convolution, GroupConvolution)(ConvolutionTiled)


_SLIDING_TAPS = 7
"""Most weights of a row that are held along with the sums of its pixels."""
_ITEMS_PER_LANE = 8
"""Work-items that hide each other's waiting; rather these than more pixels for each."""


kernel(IntegerConvolution)(ConvolutionImageBytesMma)
kernel(IntegerConvolution)(ConvolutionBytesWgmma)
kernel(IntegerConvolution)(ConvolutionBytesMma)
kernel(IntegerConvolution)(ConvolutionOfBytes)
kernel(IntegerConvolution)(ConvolutionBytes)
kernel(RoundedConvolution)(ConvolutionWords)


@kernel(GroupConvolution, IntegerGroupConvolution)
class ConvolutionDepthwise(SingleLaunch):
    """One work-item computes LANES channels of PIXELS neighbours, each channel for itself."""

    modes = tile_modes((4, 8, 16), (1, 2, 4, 7, 8))

    def refuses(self, node: GpuNode, target: Target) -> str:
        """One channel in and out per group, whole vectors of channels, constant weights."""
        groups, group_out, group_in = groups_of(node)
        return unless(
            (group_out == group_in == 1, "it is not depthwise"),
            (groups % 4 == 0, f"its {groups} channels are no multiple of 4"),
            (node.inputs[1].constant is not None, VARIABLE_WEIGHTS),
            (is_float_or_byte_product(node), NO_FLOATS),
            (convolution_geometry(node).taps <= EXACT_TERMS, "its window is too large"),
        )

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Channels come in whole vectors."""
        return groups_of(node)[0] % mode["LANES"] == 0

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Channels side by side."""
        return {0: channels_last(node.inputs[0].shape)}

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Channels side by side; pixels may lie further apart."""
        return not self.input_layouts(node, target).get(index) or has_channels_inside(layout)

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Channels side by side."""
        return [channels_last(node.output.shape)]

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The device's vectors, as far as the channels divide into them; work for all of it."""
        lanes = vector_lanes(target)
        while groups_of(node)[0] % lanes:
            lanes //= 2
        best = best_mode(self.modes, lanes, spatial(node.output.shape)[2], target)
        if target.is_throughput:
            wanted = _ITEMS_PER_LANE * target.compute_units * target.scalar_lanes
            most = max(1, node.output.elements // lanes // wanted)
            while self.modes[best]["PIXELS"] > most:
                best -= 1
        return best

    def mode_within(self, node: GpuNode, number: int, items: int) -> int:
        """Return a mode whose work-items compute twice as much, where so many run at once alone.

        Layers of MobileNetV2 in half, batch 1, of which an H200 runs 33,792 work-items in one
        launch: 32 channels of 112x112 3.4 -> 3.1 us, 144 of 56x56 3.9 -> 3.4, 96 to 56x56 5.2 ->
        4.7, 192 of 28x28 3.2 -> 2.4.
        """
        channels, (_, _, width) = groups_of(node)[0], spatial(node.output.shape)
        rows = node.output.elements // (channels * width)

        def needed(mode: Mode) -> int:
            return rows * -(-width // mode["PIXELS"]) * (channels // mode["LANES"])

        def size(mode: Mode) -> int:
            return mode["LANES"] * mode["PIXELS"]

        now = self.modes[number]
        if node.output.storage is not ElementType.f16 or needed(now) <= items:
            return number
        able = [
            (max(mode["LANES"] // 4, mode["PIXELS"]), other)
            for other, mode in enumerate(self.modes)
            if size(mode) == 2 * size(now)
            and not channels % mode["LANES"]
            and needed(mode) <= items
        ]
        return min(able, default=(0, number))[1]

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Loop over the window with vectors of channels."""
        node, lanes = call.node, mode["LANES"]
        x, w, out = node.inputs[0], node.inputs[1], node.output
        channels = groups_of(node)[0]
        call.tensor("IN0", x, written_groups(x.rank), (lanes,))
        form = Weights(
            w, "taps,channels", lambda a: a.reshape(channels, -1).transpose(1, 0), w.storage
        )
        call.weights("FILTER", form, (lanes,))
        geometry = convolution_geometry(node)
        geometry.declare(call)
        declare_sizes(call, "IN", x)
        declare_sizes(call, "OUT", out)
        call.define(LANES=lanes, PIXELS=mode["PIXELS"])
        slides = geometry.dilations[2] == 1 and geometry.kernel[2] <= _SLIDING_TAPS
        call.define(READS_AHEAD=call.target.is_throughput, SLIDES=slides)
        declare_sums(call)
        blocks, tiles = channels // lanes, -(-out.shape[-1] // mode["PIXELS"])
        call.scalars(CHANNELS=channels, BLOCKS=blocks, TILES=tiles)
        call.result(written_groups(out.rank), (lanes,))
        z, y, _ = spatial(out.shape)
        dispatch_tiles(call, blocks, tiles, out.shape[0] * z * y)


kernel(IntegerGroupConvolution)(ConvolutionBytes)


class _Direct(Kernel):
    """One work-item computes LANES output channels of PIXELS neighbours."""

    source = "convolution/convolution_direct.cl"
    modes = tile_modes((4, 8, 16), (1, 2, 4, 6, 7, 8))

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Groups of whole vectors of output channels; floats."""
        groups, group_out, _ = groups_of(node)
        whole = groups == 1 or group_out % 4 == 0
        return unless(
            (is_float_or_byte_product(node), NO_FLOATS),
            (whole, f"groups of {group_out} output channels are no multiple of 4"),
        )

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """A vector of output channels belongs to one group."""
        groups, group_out, _ = groups_of(node)
        return groups == 1 or group_out % mode["LANES"] == 0

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Channels side by side, unless there are so few that any layout will do."""
        x = node.inputs[0]
        return {0: channels_last(x.shape)} if x.shape[1] >= 8 else {}

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Channels side by side; pixels may lie further apart."""
        return not self.input_layouts(node, target).get(index) or has_channels_inside(layout)

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Channels side by side."""
        return [channels_last(node.output.shape)]

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The device's vectors, fewer lanes where output channels are few."""
        groups, group_out, _ = groups_of(node)
        lanes = vector_lanes(target)
        while lanes > 4 and (group_out % lanes if groups > 1 else group_out <= lanes // 2):
            lanes //= 2
        return best_mode(self.modes, lanes, pixel_groups(node)[1][3], target)

    def compute(self, call: Call, mode: Mode, filters: Weights | Scratch) -> None:
        """Loop over the window and the channels, a vector of weights at a time."""
        node, lanes = call.node, mode["LANES"]
        x = node.inputs[0]
        groups, group_out, group_in = groups_of(node)
        axes, (batch, z, y, width) = pixel_groups(node)
        call.tensor("IN0", x, axes)
        call.buffer("FILTER", filters, c_type(filters.storage))
        call.access("FILTER", filters.storage, {lanes: True})
        convolution_geometry(node).declare(call)
        sizes = (1, 1, width) if is_flat(node) else spatial(x.shape)
        call.scalars(IN_Z=sizes[0], IN_Y=sizes[1], IN_X=sizes[2], OUT_Z=z, OUT_Y=y, OUT_X=width)
        channels = groups * group_out
        blocks, tiles = -(-channels // lanes), -(-width // mode["PIXELS"])
        call.define(LANES=lanes, PIXELS=mode["PIXELS"])
        declare_sums(call)
        call.define(GROUPED=groups > 1, WHOLE_BLOCKS=channels % lanes == 0, SERVES_ALL=False)
        call.scalars(
            CHANNELS=channels, GROUP_IN=group_in, GROUP_OUT=group_out, BLOCKS=blocks, TILES=tiles
        )
        call.result(axes, (lanes,))
        dispatch_tiles(call, blocks, tiles, batch * z * y)


@kernel(Convolution, GroupConvolution, IntegerConvolution, IntegerGroupConvolution)
class ConvolutionDirect(_Direct, SingleLaunch):
    """With weights that are put in order ahead."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Constant weights, too."""
        is_constant = node.inputs[1].constant is not None
        return unless((is_constant, VARIABLE_WEIGHTS)) or super().refuses(node, target)

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Read weights as [block, tap, in, lane]."""
        w, lanes = call.node.inputs[1], mode["LANES"]
        groups, group_out, group_in = groups_of(call.node)
        form = Weights(
            w,
            f"{groups} groups in blocks of {lanes}",
            lambda a: pack_weights(a.reshape(groups, group_out, group_in, -1), groups, lanes),
            w.storage,
            only_moves=True,
        )
        self.compute(call, mode, form)


@kernel(Convolution, GroupConvolution)
class ConvolutionPacked(_Direct):
    """With weights that are computed, as by a style: a launch of its own puts them in order.

    24 channels of 32 for a picture of 32x32, a window of 3x3, on two busy cores (PoCL): 0.7 ms,
    where one work-item for each element took 17.
    """

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Weights that are no constant, too."""
        is_computed = node.inputs[1].constant is None
        return unless((is_computed, "its weights are constant")) or super().refuses(node, target)

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return what orders the weights, and what computes with them."""
        w, lanes = node.inputs[1], mode["LANES"]
        groups, group_out, group_in = groups_of(node)
        geometry, blocks = convolution_geometry(node), -(-groups * group_out // lanes)
        packed = Scratch(blocks * geometry.taps * group_in * lanes, ElementType.f32)
        pack = Call("convolution_pack", "convolution/convolution_pack.cl", node, target)
        pack.tensor("IN1", w, weight_groups(w.rank, isinstance(node.op, GroupConvolution)))
        pack.buffer("PACKED", packed, "float", written=True)
        geometry.declare(pack)
        pack.define(LANES=lanes)
        pack.scalars(CHANNELS=groups * group_out, GROUP_IN=group_in, GROUP_OUT=group_out)
        pack.dispatch((lanes, geometry.taps * group_in, blocks))
        call = Call("convolution_direct", self.source, node, target)
        self.compute(call, mode, packed)
        return [pack.launch(), call.launch()]


def dispatch_tiles(call: Call, blocks: int, tiles: int, rows: int) -> None:
    """Set the NDRange over blocks of channels, tiles of pixels and rows.

    Where work-items run in lockstep neighbours take neighbouring channels, so that they store
    side by side; on processor cores they take neighbouring tiles, which share weights in cache.
    """
    lanes = call.target.scalar_lanes
    call.define(BLOCKS_FIRST=lanes > 1)
    if lanes > 1:
        across = 1
        while across < min(lanes, blocks):
            across *= 2
        call.dispatch((blocks, tiles, rows), (across, max(1, 2 * lanes // across), 1))
    else:
        call.dispatch((tiles, blocks, rows), (1, 1, 1))


@kernel(
    *(Convolution, GroupConvolution, IntegerConvolution, IntegerGroupConvolution),
    RoundedConvolution,
)
class ConvolutionRef(SingleLaunch):
    """One work-item computes one element of the result."""

    def describe(self, call: Call, op: Convolution, mode: Mode) -> None:
        """Loop over channels of the group and the window."""
        node = call.node
        x, w = node.inputs[0], node.inputs[1]
        groups, group_out, group_in = groups_of(node)
        call.tensor("IN0", x, image_groups(x.rank))
        call.tensor("IN1", w, weight_groups(w.rank, op.grouped))
        convolution_geometry(node).declare(call)
        declare_sizes(call, "IN", x)
        declare_sizes(call, "OUT", node.output)
        call.scalars(GROUP_OUT=group_out, GROUP_IN=group_in, CHANNELS=groups * group_out)
        declare_sums(call, "IN0_C")
        call.result(written_groups(node.output.rank))
        z, y, width = spatial(node.output.shape)
        call.dispatch((width, z * y, node.output.shape[0] * groups * group_out))
