"""Convolution and GroupConvolution, 1 to 3 spatial axes."""

from __future__ import annotations

from polydevice.ops.convolution import Convolution, GroupConvolution
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


def convolution_geometry(node: GpuNode) -> Geometry:
    """Return the window of a convolution node."""
    op = node.op
    assert isinstance(op, Convolution)
    x, w = node.inputs[0], node.inputs[1]
    window = op.window(w.shape)
    begin, _ = window.pads(x.shape[2:])
    return Geometry.of(w.shape[3 if op.grouped else 2 :], window.strides, window.dilations, begin)


def groups_of(node: GpuNode) -> tuple[int, int, int]:
    """Return groups, output channels per group, input channels per group."""
    op, w = node.op, node.inputs[1]
    assert isinstance(op, Convolution)
    if op.grouped:
        return w.shape[0], w.shape[1], w.shape[2]
    return 1, w.shape[0], w.shape[1]


@kernel(Convolution, GroupConvolution)
class ConvolutionRef(Kernel):
    """One work-item computes one element of the result."""

    def describe(self, call: Call, mode: Mode) -> None:
        """Loop over channels of the group and the window."""
        node = call.node
        x, w = node.inputs[0], node.inputs[1]
        groups, group_out, group_in = groups_of(node)
        assert isinstance(node.op, Convolution)
        call.tensor("IN0", x, image_groups(x.rank))
        call.tensor("IN1", w, weight_groups(w.rank, node.op.grouped))
        convolution_geometry(node).declare(call)
        declare_sizes(call, "IN", x)
        declare_sizes(call, "OUT", node.output)
        call.scalars(GROUP_OUT=group_out, GROUP_IN=group_in, CHANNELS=groups * group_out)
        call.result(written_groups(node.output.rank))
        z, y, width = spatial(node.output.shape)
        call.dispatch((width, z * y, node.output.shape[0] * groups * group_out))
