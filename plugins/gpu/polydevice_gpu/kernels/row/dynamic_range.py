"""DynamicRange of few elements (many are reduced by all cores), and DynamicQuantize."""

from __future__ import annotations

import math

from polydevice.dtype import ElementType
from polydevice.rewrites.integers.dynamic_range import DynamicRange
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.addressing import step_along
from polydevice_gpu.kernels.kernel import Kernel, Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Launch, Scratch
from polydevice_gpu.kernels.pointwise.fragment import ROUNDED_DIVISIONS
from polydevice_gpu.kernels.reason import NO_FLOATS, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.rounded_ops import DynamicQuantize

MOST_ELEMENTS = 1 << 16
"""So many take one core no longer than reductions take, whose launches are four: to quantise 65,536
numbers at run time takes 130 us instead of 155 (PoCL 3.1), 176 instead of 240 (Intel's runtime)."""


@kernel(DynamicRange)
class DynamicRangeRef(SingleLaunch):
    """One work-item reads everything."""

    source = "row/dynamic_range_ref.cl"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats."""
        return unless((compute_type(node.inputs[0].storage) == "float", NO_FLOATS))

    def describe(self, call: Call, op: DynamicRange, mode: Mode) -> None:
        """All elements are one row, in the order of memory, and in vectors of neighbours."""
        x, (_, zero) = call.node.inputs[0], call.node.outputs
        axes = tuple(x.placed.order(x.shape))
        vectors = step_along(x.placed, x.shape, [axes]) == 1
        width = min(16, call.target.vector_width) if vectors else 1
        call.tensor("IN0", x, [axes], (width,) if vectors else ())
        call.tensor("OUT1", zero, [()])
        call.define(WIDTH=width)
        call.scalars(COUNT=math.prod(x.shape))
        call.result([()])
        call.options(ROUNDED_DIVISIONS)
        call.dispatch((1,))


PARTS_OF_CORE = 4
"""Into how many parts a tensor is cut for each core, so that none waits long for another."""

LEAST_ELEMENTS = 1 << 15
"""So many are read and rounded by all cores, which takes two launches."""


class _Quantize(Kernel):
    """Work-items walk parts of all elements in the order of memory."""

    source = "row/dynamic_quantize.cl"

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Floats."""
        return unless((compute_type(node.inputs[0].storage) == "float", NO_FLOATS))

    def call(self, node: GpuNode, target: Target, parts: int) -> Call:
        """Return a launch that knows its input and its parts."""
        x = node.inputs[0]
        call = Call("dynamic_quantize", self.source, node, target)
        width = self.width(node, target)
        call.tensor("IN0", x, [_axes(x)], (width,) if width > 1 else ())
        length = -(-math.prod(x.shape) // parts)
        call.define(WIDTH=width)
        call.define(**{"TO_BYTES(x, n)": f"convert_uchar{width}(as_int{width}(x) + (n))"})
        call.scalars(COUNT=math.prod(x.shape), LENGTH=-(-length // width) * width, PARTS=parts)
        call.options(ROUNDED_DIVISIONS)
        call.dispatch((parts,))
        return call

    def width(self, node: GpuNode, target: Target) -> int:
        """Return how many elements are read and written at once."""
        both = (node.inputs[0], node.output)
        axes = [_axes(node.inputs[0])]
        dense = all(step_along(v.placed, v.shape, axes) == 1 for v in both)
        return min(16, max(target.vector_width, 1)) if dense else 1

    def declare_results(self, call: Call, width: int) -> None:
        """Declare the bytes, and the numbers that they were made with."""
        _, scale, zero = call.node.outputs
        call.result([_axes(call.node.inputs[0])], (width,) if width > 1 else ())
        call.tensor("OUT1", scale, [()])
        call.tensor("OUT2", zero, [()])


def _axes(x: Value) -> tuple[int, ...]:
    return tuple(x.placed.order(x.shape))


@kernel(DynamicQuantize)
class DynamicQuantizeParts(_Quantize):
    """All cores read parts, and then round them."""

    def yields(self, node: GpuNode, target: Target) -> str:
        """One core is done before others have begun."""
        many = target.nominal(math.prod(node.inputs[0].shape)) >= LEAST_ELEMENTS
        return unless((many, "one core is expected to be faster"))

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return what finds ranges of parts, and what rounds by the range of all."""
        parts = PARTS_OF_CORE * target.compute_units
        ranges = Scratch(2 * parts, ElementType.f32)
        find, quantise = (self.call(node, target, parts) for _ in range(2))
        find.define(FINDS=True, ROUNDS=False)
        find.buffer("RANGES", ranges, "float", written=True)
        quantise.define(FINDS=False, ROUNDS=True)
        quantise.buffer("RANGES", ranges, "float")
        self.declare_results(quantise, self.width(node, target))
        return [find.launch(), quantise.launch()]


@kernel(DynamicQuantize)
class DynamicQuantizeRef(_Quantize):
    """One work-item reads everything twice."""

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the launch."""
        call = self.call(node, target, 1)
        call.define(FINDS=True, ROUNDS=True)
        self.declare_results(call, self.width(node, target))
        return [call.launch()]
