"""ConvolutionBackpropData and GroupConvolutionBackpropData: transposed convolution."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.convolution import ConvolutionBackpropData, GroupConvolutionBackpropData
from polydevice.ops.op import Op
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.convolution.convolution import (
    best_mode,
    dispatch_tiles,
    pack_weights,
    tile_modes,
    vector_lanes,
)
from polydevice_gpu.kernels.convolution.deconvolution_phases import DeconvolutionPhases
from polydevice_gpu.kernels.gemm.convolution_shape import has_channels_inside
from polydevice_gpu.kernels.geometry import (
    Geometry,
    declare_sizes,
    image_groups,
    spatial,
    weight_groups,
    written_groups,
)
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.reason import NO_FLOATS, VARIABLE_WEIGHTS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.layout import Layout, channels_last


def deconvolution_geometry(node: GpuNode) -> Geometry:
    """Return the window; its pads are what is cropped from the beginning of the full result."""
    op = node.operation(ConvolutionBackpropData)
    x, w = node.inputs[0], node.inputs[1]
    window = op.window(w.shape)
    crops = op.crops(x.shape[2:], window, node.output.shape[2:])
    return Geometry.of(w.shape[3 if op.grouped else 2 :], window.strides, window.dilations, crops)


def groups_of(node: GpuNode) -> tuple[int, int, int]:
    """Return groups, output channels per group, input channels per group."""
    op, w = node.operation(ConvolutionBackpropData), node.inputs[1]
    if op.grouped:
        return w.shape[0], w.shape[2], w.shape[1]
    return 1, w.shape[1], w.shape[0]


def _is_depthwise(node: GpuNode) -> bool:
    groups, group_out, group_in = groups_of(node)
    return group_out == group_in == 1 and groups % 4 == 0


kernel(ConvolutionBackpropData)(DeconvolutionPhases)


@kernel(ConvolutionBackpropData, GroupConvolutionBackpropData)
class DeconvolutionDirect(SingleLaunch):
    """One work-item computes LANES channels of PIXELS elements that lie a stride apart.

    The same window positions reach all of them, from inputs side by side: for each remainder of
    the stride the transposed convolution is an ordinary one.
    """

    modes = tile_modes((4, 8, 16), (1, 2, 4, 6, 7, 8))

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Constant weights; groups of whole vectors of channels, or of one each; floats."""
        groups, group_out, _ = groups_of(node)
        whole = groups == 1 or group_out % 4 == 0 or _is_depthwise(node)
        return unless(
            (node.inputs[1].constant is not None, VARIABLE_WEIGHTS),
            (compute_type(node.inputs[0].storage) == "float", NO_FLOATS),
            (whole, f"groups of {group_out} output channels are no multiple of 4"),
        )

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """A vector of channels belongs to one group, or each of them to its own."""
        groups, group_out, _ = groups_of(node)
        channels = groups if _is_depthwise(node) else group_out
        return groups == 1 or channels % mode["LANES"] == 0

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Channels side by side, unless there are so few that any layout will do."""
        x = node.inputs[0]
        return {0: channels_last(x.shape)} if x.shape[1] >= 8 or _is_depthwise(node) else {}

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Channels side by side; pixels may lie further apart."""
        return not self.input_layouts(node, target).get(index) or has_channels_inside(layout)

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Channels side by side."""
        return [channels_last(node.output.shape)]

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The device's vectors, fewer lanes where channels are few."""
        groups, group_out, _ = groups_of(node)
        lanes = vector_lanes(target)
        if groups > 1:
            while (groups if _is_depthwise(node) else group_out) % lanes:
                lanes //= 2
        while groups == 1 and lanes > 4 and group_out <= lanes // 2:
            lanes //= 2
        stride = deconvolution_geometry(node).strides[2]
        width = -(-spatial(node.output.shape)[2] // stride)
        return best_mode(self.modes, lanes, width, target)

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Loop over the window positions that reach the tile, and the channels."""
        node, lanes = call.node, mode["LANES"]
        x, w, out = node.inputs[0], node.inputs[1], node.output
        groups, group_out, group_in = groups_of(node)
        channels = groups * group_out
        depthwise = _is_depthwise(node)

        def packed(array: Array) -> Array:
            split = array.reshape(groups, group_in, group_out, -1).transpose(0, 2, 1, 3)
            return pack_weights(np.asarray(split), groups, lanes)

        call.tensor("IN0", x, written_groups(x.rank), (lanes,) if depthwise else ())
        form = Weights(w, f"{groups} groups turned, {lanes}", packed, w.storage, only_moves=True)
        call.weights("FILTER", form, (lanes,))
        geometry = deconvolution_geometry(node)
        geometry.declare(call)
        declare_sizes(call, "IN", x)
        declare_sizes(call, "OUT", out)
        z, y, width = spatial(out.shape)
        stride = geometry.strides[2]
        blocks, tiles = -(-channels // lanes), -(-width // (stride * mode["PIXELS"])) * stride
        call.define(LANES=lanes, PIXELS=mode["PIXELS"], DEPTHWISE=depthwise)
        call.define(GROUPED=groups > 1, WHOLE_BLOCKS=channels % lanes == 0)
        call.scalars(CHANNELS=channels, GROUP_IN=group_in, GROUP_OUT=group_out)
        call.scalars(BLOCKS=blocks, TILES=tiles)
        call.result(written_groups(out.rank), (lanes,))
        dispatch_tiles(call, blocks, tiles, out.shape[0] * z * y)


@kernel(ConvolutionBackpropData, GroupConvolutionBackpropData)
class DeconvolutionRef(SingleLaunch):
    """One work-item gathers one element of the result."""

    def describe(self, call: Call, op: ConvolutionBackpropData, mode: Mode) -> None:
        """Loop over the window positions that reach the element."""
        node = call.node
        x, w = node.inputs[0], node.inputs[1]
        groups, group_out, group_in = groups_of(node)
        call.tensor("IN0", x, image_groups(x.rank))
        call.tensor("IN1", w, weight_groups(w.rank, op.grouped))
        deconvolution_geometry(node).declare(call)
        declare_sizes(call, "IN", x)
        declare_sizes(call, "OUT", node.output)
        call.scalars(GROUP_OUT=group_out, GROUP_IN=group_in, CHANNELS=groups * group_out)
        call.result(written_groups(node.output.rank))
        z, y, width = spatial(node.output.shape)
        call.dispatch((width, z * y, node.output.shape[0] * groups * group_out))
