"""Copies between a plan and the bodies in it: one launch each, from any layout and type to another.

A copy of one part of a value, another one in each iteration, differs in one argument only.
"""

from __future__ import annotations

import math

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.shape import normalize_axis
from polydevice_gpu import cl
from polydevice_gpu.graph import GpuNode, Memory, Place, Value
from polydevice_gpu.kernels.pointwise.elementwise import ElementwiseRef
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, planar
from polydevice_gpu.ops import Fragment, Fused
from polydevice_gpu.runtime.plan import Step


def located(value: Value, memory: Memory, layout: Layout | None = None) -> Value:
    """Return a value like another in memory of its own, planar unless a layout is given."""
    made = value.like(value.name)
    made.memory, made.layout = memory, layout or planar(value.shape)
    return made


def memory_like(value: Value, name: str) -> Memory:
    """Return arena memory for a value."""
    return Memory(Place.ARENA, max(value.elements, 1), value.storage, name=name)


def copy_step(layer: GpuNode, source: Value, target: Value, device: Target) -> Step:
    """Return what copies a value; without elements it has no launches."""
    if not target.elements:
        return Step(layer)
    copier = ElementwiseRef()
    node = GpuNode(f"{layer.name}/copy", Fused(Fragment((source.storage,))), [source], [target])
    node.result_type = source.storage
    mode = copier.default_mode(node, device)
    mode = mode if not copier.modes[mode]["TILE"] else 0
    return Step(layer, copier.launches(node, copier.modes[mode], device))


@dataclass
class PartCopy:
    """A copy of which one side is part of a value, in every iteration another one.

    Attributes:
        step: its launch.
        position: of the launch's argument that says where the part begins, in elements.
        first: what that is in the first iteration.
        stride: what every iteration adds.
    """

    step: Step
    position: int = 0
    first: int = 0
    stride: int = 0

    @classmethod
    def between(
        cls,
        layer: GpuNode,
        whole: Value,
        part: Value,
        axis: int,
        starts: tuple[int, int],
        device: Target,
        *,
        into: bool,
    ) -> PartCopy:
        """Copy a part of a value to another value, or (`into`) that one to its part.

        Args:
            layer: the loop.
            whole: not among the weights.
            part: as large as a part.
            axis: along which parts lie.
            starts: where the first two parts begin along the axis.
            device: where.
            into: copy to the whole.
        """
        pitch = whole.placed.pitches[normalize_axis(axis, whole.rank)]
        first, stride = starts[0] * pitch, (starts[1] - starts[0]) * pitch
        # What all offsets can be divided by: the kernel may rely on vectors being aligned.
        seen = Value(whole.name, whole.element_type, part.shape, storage=whole.storage)
        seen.layout = Layout(whole.placed.pitches, math.gcd(first, stride))
        seen.memory = whole.memory
        source, target = (part, seen) if into else (seen, part)
        step = copy_step(layer, source, target, device)
        if not step.launches:
            return cls(step)
        arguments = step.launches[0].arguments
        position = next(i for i, a in enumerate(arguments) if a is seen) + 1
        offset = arguments[position]
        assert isinstance(offset, np.int32)
        assert offset == seen.placed.offset, "another argument than the offset"
        return cls(step, position, first, stride)

    def move(self, launches: cl.LaunchList, number: int, iteration: int) -> None:
        """Let the launch of that number copy the part of an iteration."""
        if self.step.launches:
            start = np.int32(self.first + iteration * self.stride)
            launches.set_argument(number, self.position, start)
