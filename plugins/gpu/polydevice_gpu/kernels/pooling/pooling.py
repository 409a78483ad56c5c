"""Average and maximum pooling with a sliding window, and pooling into a number of bins."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.ops.op import Op
from polydevice.ops.pooling import (
    AdaptiveAvgPool,
    AdaptiveMaxPool,
    AvgPool,
    MaxPool,
    MaxPoolWithIndices,
    Pool,
)
from polydevice.shape import normalize_axis
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import step_along
from polydevice_gpu.kernels.geometry import (
    AXES,
    Geometry,
    declare_sizes,
    image_groups,
    spatial,
    three,
    written_groups,
)
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import NO_FLOATS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type


def lowest(kind: str) -> str:
    """Return the smallest value of a compute type, as OpenCL C."""
    names = {"char": "CHAR_MIN", "short": "SHRT_MIN", "int": "INT_MIN", "long": "LONG_MIN"}
    return names.get(kind, "-INFINITY" if kind in ("float", "double") else "0")


_BYTES = (ElementType.u8, ElementType.i8)
_ITEMS_PER_UNIT = 128
"""Work-items that a processor should have; vectors of 8 then take 0.75 of the time of 4 (H200)."""


def _declare_window(call: Call, op: Pool, x_sizes: tuple[int, ...]) -> None:
    window = op.window
    begin, end = window.pads(x_sizes)
    sizes = tuple(int(k) for k in window.kernel)
    Geometry.of(sizes, window.strides, window.dilations, begin).declare(call)
    for axis, pad in zip(AXES, three(end, 0), strict=True):
        call.define(**{f"PAD_END_{axis}": pad})
    average = isinstance(op, AvgPool)
    exclude = isinstance(op, AvgPool) and op.exclude_pad
    # OpenVINO's rule for windows that reach beyond the padding (see AvgPool).
    whole = isinstance(op, AvgPool) and op.counts_overhang and (any(begin) or any(end))
    call.define(AVERAGE=average, EXCLUDE_PAD=exclude, COUNT_WHOLE=whole and not exclude)


@kernel(AvgPool, MaxPool)
class PoolingVector(SingleLaunch):
    """One work-item computes WIDTH channels of one element; channels lie side by side."""

    modes = ({"WIDTH": 4}, {"WIDTH": 8}, {"WIDTH": 16})

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Float data, or maxima of bytes, whose channels are contiguous, in whole vectors."""
        x = node.inputs[0]
        maxima = isinstance(node.op, MaxPool) and x.storage in _BYTES
        groups = written_groups(x.rank)
        beside = step_along(x.placed, x.shape, groups) == 1
        return unless(
            (compute_type(x.storage) == "float" or maxima, NO_FLOATS),
            (beside, "its channels do not lie side by side"),
            (x.shape[1] % 4 == 0, f"its {x.shape[1]} channels are no multiple of 4"),
        )

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The device's vectors, if there are that many channels; longer ones to read less often."""
        wanted = target.vector_width
        if target.is_throughput:
            enough = 8 * _ITEMS_PER_UNIT * target.compute_units
            wanted = 8 if node.output.elements >= enough else 4
            wanted *= 2 if node.inputs[0].storage in _BYTES else 1
        fitting = [i for i, m in enumerate(self.modes) if m["WIDTH"] <= wanted]
        fitting = [i for i in fitting if node.inputs[0].shape[1] % self.modes[i]["WIDTH"] == 0]
        return max(fitting, default=0)

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Channels come in whole vectors."""
        return node.inputs[0].shape[1] % mode["WIDTH"] == 0

    def describe(self, call: Call, op: Pool, mode: Mode) -> None:
        """Loop over the window with vectors of channels."""
        node, width = call.node, mode["WIDTH"]
        x, out = node.inputs[0], node.output
        call.tensor("IN0", x, written_groups(x.rank), (width,))
        _declare_window(call, op, x.shape[2:])
        declare_sizes(call, "IN", x)
        declare_sizes(call, "OUT", out)
        kind = compute_type(x.storage)
        call.define(WIDTH=width, LOWEST=lowest(kind), LARGER="fmax" if kind == "float" else "max")
        call.scalars(CHANNELS=x.shape[1])
        call.result(written_groups(out.rank), (width,))
        z, y, across = spatial(out.shape)
        blocks = x.shape[1] // width
        lanes = call.target.scalar_lanes
        local = (min(lanes, blocks), max(1, lanes // blocks), 1) if lanes > 1 else None
        call.scalars(COLUMNS=across)
        call.dispatch((blocks, across, out.shape[0] * z * y), local)


@kernel(AvgPool, MaxPool, MaxPoolWithIndices)
class PoolingRef(SingleLaunch):
    """One work-item computes one element of the result."""

    def describe(self, call: Call, op: Pool, mode: Mode) -> None:
        """Loop over the window."""
        node = call.node
        x, out = node.inputs[0], node.output
        call.tensor("IN0", x, image_groups(x.rank))
        _declare_window(call, op, x.shape[2:])
        declare_sizes(call, "IN", x)
        declare_sizes(call, "OUT", out)
        kind = compute_type(x.storage)
        call.define(LOWEST=lowest(kind), INDICES=isinstance(op, MaxPoolWithIndices))
        call.scalars(CHANNELS=x.shape[1])
        if isinstance(op, MaxPoolWithIndices):
            call.tensor("OUT1", node.outputs[1], image_groups(out.rank))
            axis = normalize_axis(op.axis, x.rank)
            call.define(BATCH_COUNTS=axis == 0, CHANNEL_COUNTS=axis <= 1)
        call.result(written_groups(out.rank))
        z, y, across = spatial(out.shape)
        call.dispatch((across, z * y, out.shape[0] * x.shape[1]))


@kernel(AdaptiveAvgPool, AdaptiveMaxPool)
class AdaptivePoolingRef(SingleLaunch):
    """One work-item computes one bin."""

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Loop over the elements of the bin."""
        node = call.node
        x, out = node.inputs[0], node.output
        call.tensor("IN0", x, image_groups(x.rank))
        declare_sizes(call, "IN", x)
        declare_sizes(call, "OUT", out)
        maximum = isinstance(node.op, AdaptiveMaxPool)
        call.define(AVERAGE=not maximum, LOWEST=lowest(compute_type(x.storage)))
        call.scalars(CHANNELS=x.shape[1])
        if maximum:
            call.tensor("OUT1", node.outputs[1], image_groups(out.rank))
        call.result(written_groups(out.rank))
        z, y, across = spatial(out.shape)
        call.dispatch((across, z * y, out.shape[0] * x.shape[1]))
