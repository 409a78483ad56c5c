"""Col2Im: windows added up to the image that they came from."""

from __future__ import annotations

from polydevice.ops.patches import Col2Im
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.geometry import AXES, Geometry, spatial, three
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.views import integers


@kernel(Col2Im)
class Col2ImRef(SingleLaunch):
    """One work-item adds up one element of the image."""

    name = "col2im_ref"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Images of one to three axes, and a kernel that is known."""
        if node.inputs[2].constant is None:
            return "the size of its windows is not known ahead"
        return unless((len(integers(node, 2)) <= 3, "its images have more than three axes"))

    def describe(self, call: Call, op: Col2Im, mode: Mode) -> None:
        """Loop over the elements of the kernel that reach the element."""
        node = call.node
        x, out = node.inputs[0], node.output
        size = integers(node, 2)
        image = tuple(range(out.rank - len(size), out.rank))
        window = op.window(size)
        batch: tuple[int, ...] = (0,) if x.rank == 3 else ()
        call.tensor("IN0", x, [batch, (x.rank - 2,), (x.rank - 1,)])
        Geometry.of(size, window.strides, window.dilations, window.pads_begin).declare(call)
        places = three(op.places([out.shape[axis] for axis in image], size), 1)
        for axis, count in zip(AXES, places, strict=True):
            call.scalars(**{f"PLACES_{axis}": count})
        z, y, width = spatial((0, 0, *(out.shape[axis] for axis in image)))
        call.scalars(CHANNELS=out.shape[image[0] - 1], OUT_Y=y)
        empty: list[tuple[int, ...]] = [()] * (3 - len(image))
        call.result([batch, (image[0] - 1,), *empty, *((axis,) for axis in image)])
        call.dispatch((width, z * y, out.elements // (z * y * width)))
