"""ConvolutionBackpropData and GroupConvolutionBackpropData: transposed convolution."""

from __future__ import annotations

from polydevice.ops.convolution import ConvolutionBackpropData, GroupConvolutionBackpropData
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.geometry import (
    Geometry,
    declare_sizes,
    image_groups,
    spatial,
    weight_groups,
    written_groups,
)
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.source import Call


def deconvolution_geometry(node: GpuNode) -> Geometry:
    """Return the window; its pads are what is cropped from the beginning of the full result."""
    op = node.op
    assert isinstance(op, ConvolutionBackpropData)
    x, w = node.inputs[0], node.inputs[1]
    window = op.window(w.shape)
    crops = op.crops(x.shape[2:], window, node.output.shape[2:])
    return Geometry.of(w.shape[3 if op.grouped else 2 :], window.strides, window.dilations, crops)


@kernel(ConvolutionBackpropData, GroupConvolutionBackpropData)
class DeconvolutionRef(Kernel):
    """One work-item gathers one element of the result."""

    def describe(self, call: Call, mode: Mode) -> None:
        """Loop over the window positions that reach the element."""
        node = call.node
        op, x, w = node.op, node.inputs[0], node.inputs[1]
        assert isinstance(op, ConvolutionBackpropData)
        groups = w.shape[0] if op.grouped else 1
        group_in, group_out = w.shape[1:3] if op.grouped else w.shape[:2]
        call.tensor("IN0", x, image_groups(x.rank))
        call.tensor("IN1", w, weight_groups(w.rank, op.grouped))
        deconvolution_geometry(node).declare(call)
        declare_sizes(call, "IN", x)
        declare_sizes(call, "OUT", node.output)
        call.scalars(GROUP_OUT=group_out, GROUP_IN=group_in, CHANNELS=groups * group_out)
        call.result(written_groups(node.output.rank))
        z, y, width = spatial(node.output.shape)
        call.dispatch((width, z * y, node.output.shape[0] * groups * group_out))
