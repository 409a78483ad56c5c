"""DynamicRange and DynamicQuantize: by one core where there are few elements, by all otherwise."""

from __future__ import annotations

import math

from polydevice.dtype import ElementType
from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.addressing import step_along
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.launch import Launch, Scratch
from polydevice_gpu.kernels.pointwise.fragment import ROUNDED_DIVISIONS
from polydevice_gpu.kernels.reason import NO_FLOATS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.rounded_ops import DynamicQuantize

PARTS_OF_CORE = 4
"""Into how many parts a tensor is cut for each core, so that none waits long for another."""

LEAST_ELEMENTS = 1 << 15
"""So many are read (and rounded) by all cores, which takes two launches."""


class _OfAll(Kernel):
    """Work-items walk parts of all elements in the order of memory."""

    source = "row/dynamic_quantize.cl"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats."""
        return unless((compute_type(node.inputs[0].storage) == "float", NO_FLOATS))

    def call(self, node: GpuNode, target: Target, parts: int, **steps: bool) -> Call:
        """Return a launch that knows its input, its parts and what it does."""
        x = node.inputs[0]
        call = Call("dynamic_quantize", self.source, node, target)
        width = self.width(node, target)
        call.tensor("IN0", x, [_axes(x)], (width,) if width > 1 else ())
        length = -(-math.prod(x.shape) // parts)
        call.define(WIDTH=width, FLOATS_OUT=getattr(node.op, "floats", False), **steps)
        call.define(**{"TO_BYTES(x, n)": f"convert_uchar{width}(as_int{width}(x) + (n))"})
        call.scalars(COUNT=math.prod(x.shape), LENGTH=-(-length // width) * width, PARTS=parts)
        call.options(ROUNDED_DIVISIONS)
        call.dispatch((parts if any(steps.values()) else 1,))
        return call

    def width(self, node: GpuNode, target: Target) -> int:
        """Return how many elements are read (and written) at once."""
        x = node.inputs[0]
        values = [x, *(value for value in node.outputs if value.shape == x.shape)]
        dense = all(step_along(v.placed, v.shape, [_axes(x)]) == 1 for v in values)
        return min(16, max(target.vector_width, 1)) if dense else 1

    def declare_results(self, call: Call, width: int) -> None:
        """Declare scale and zero point, and the bytes if there are any."""
        rounds = isinstance(call.node.op, DynamicQuantize)
        scale, zero, *fill = call.node.outputs[1:] if rounds else call.node.outputs
        if rounds:
            call.result([_axes(call.node.inputs[0])], (width,) if width > 1 else ())
            call.tensor("OUT1", scale, [()])
            call.define(**{"PUT_SCALE(v)": "OUT1_STORE(OUT1_AT(0), v)"})
        else:
            call.result([()])
            call.define(**{"PUT_SCALE(v)": "WRITE(v, 0)"})
        role = f"OUT{1 + rounds}"
        call.tensor(role, zero, [()])
        call.define(**{"PUT_ZERO(v)": f"{role}_STORE({role}_AT(0), v)"})
        call.define(FILLS=fill[0].elements if fill else 0)
        if fill:
            call.tensor("OUT3", fill[0], [(0,)])


def _axes(x: Value) -> tuple[int, ...]:
    return tuple(x.placed.order(x.shape))


class _Parts(_OfAll):
    """All cores read parts; then scale and zero point are made of what they found."""

    def yields(self, node: GpuNode, target: Target) -> str:
        """One core is done before others have begun."""
        many = target.nominal(math.prod(node.inputs[0].shape)) >= LEAST_ELEMENTS
        return unless((many, "one core is expected to be faster"))

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return what finds ranges of parts, and what goes on with the range of all."""
        parts = PARTS_OF_CORE * target.compute_units
        ranges = Scratch(2 * parts, ElementType.f32)
        find = self.call(node, target, parts, FINDS=True, KEEPS=True, ROUNDS=False)
        find.buffer("RANGES", ranges, "float", written=True)
        rounds = isinstance(node.op, DynamicQuantize)
        use = self.call(node, target, parts, FINDS=False, KEEPS=False, ROUNDS=rounds)
        use.buffer("RANGES", ranges, "float")
        self.declare_results(use, self.width(node, target))
        return [find.launch(), use.launch()]


class _One(_OfAll):
    """One work-item reads everything."""

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the launch."""
        rounds = isinstance(node.op, DynamicQuantize)
        call = self.call(node, target, 1, FINDS=True, KEEPS=False, ROUNDS=rounds)
        self.declare_results(call, self.width(node, target))
        return [call.launch()]


@kernel(DynamicRange)
class DynamicRangeParts(_Parts):
    """The range of many elements."""


@kernel(DynamicRange)
class DynamicRangeRef(_One):
    """The range of few."""


@kernel(DynamicQuantize)
class DynamicQuantizeParts(_Parts):
    """The range of many elements, which are rounded by it."""


@kernel(DynamicQuantize)
class DynamicQuantizeRef(_One):
    """Likewise of few."""
