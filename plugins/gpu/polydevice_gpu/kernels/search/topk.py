"""TopK: the largest or smallest elements along an axis.

All kernels agree on one total order: NaN counts as the largest number, and of equal elements the
one with the lower index comes first.
"""

from __future__ import annotations

import math

from polydevice.dtype import ElementType
from polydevice.ops.op import Op
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.shape import normalize_axis, stay_equal
from polydevice.symbolic_trace import chosen
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Scratch
from polydevice_gpu.kernels.reason import NO_LOCAL_MEMORY, NO_MODE, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import c_type, compute_type

_LEAST_LENGTH = 64
"""Of a row that a work-group sorts: lanes would be idle with a shorter one."""


def sizes_of(node: GpuNode) -> tuple[int, int, int]:
    """Return the number of rows, their length, and how many elements are wanted."""
    op, x = node.operation(TopK), node.inputs[0]
    axis = normalize_axis(op.axis, x.rank)
    rows = math.prod(size for a, size in enumerate(x.shape) if a != axis)
    return rows, x.shape[axis], node.output.shape[axis]


class Selection(SingleLaunch):
    """What all kernels have in common."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """The number must be known, as the result's shape is."""
        known = node.inputs[1].constant is not None
        return unless((known, "how many elements it takes is not known ahead"))

    def declare(self, call: Call) -> tuple[int, int, int]:
        """Declare rows, results and their order; return the sizes."""
        node = call.node
        op, x, indices = node.operation(TopK), node.inputs[0], node.outputs[1]
        rows, count, wanted = sizes_of(node)
        axis = normalize_axis(op.axis, x.rank)
        others = tuple(a for a in range(x.rank) if a != axis)
        for role, value in (("IN0", x), ("OUT1", indices)):
            call.tensor(role, value, [others, (axis,)])
        call.scalars(COUNT=count, K=wanted, ROWS=rows)
        call.define(BY_INDEX=op.sort is TopKSort.INDEX)
        more = "((a) > (b) || ((a) != (a) && (b) == (b)))"
        less = "((a) < (b) || ((b) != (b) && (a) == (a)))"
        call.define(**{"BEFORE(a, b)": more if op.mode is TopKMode.MAX else less})
        call.result([others, (axis,)])
        return rows, count, wanted


@kernel(TopK)
class TopkGroup(Selection):
    """One work-group sorts one row in local memory, a strip at a time."""

    modes = (
        {"KEPT": 256, "LANES": 128},
        {"KEPT": 1024, "LANES": 256},
    )

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Rows worth a group, no more elements wanted than a strip has, real local memory."""
        if refused := super().refuses(node, target):
            return refused
        if not target.local_memory_bytes:
            return NO_LOCAL_MEMORY
        length = sizes_of(node)[1]
        is_long = chosen(lambda: length >= _LEAST_LENGTH)
        return unless(
            (is_long, f"rows of {length} leave lanes idle"),
            (any(self.mode_supports(node, mode, target) for mode in self.modes), NO_MODE),
        )

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """What is kept and a strip fit local memory."""
        bytes_needed = 2 * mode["KEPT"] * (8 + 4) + 16
        return (
            sizes_of(node)[2] <= mode["KEPT"]
            and bytes_needed <= target.local_memory_bytes
            and mode["LANES"] <= target.max_work_group_size
        )

    def yields(self, node: GpuNode, target: Target) -> str:
        """Many short rows, of which a few elements are wanted: a work-item each is faster."""
        times = [
            _group_us(node, mode, target)
            for mode in self.modes
            if self.mode_supports(node, mode, target)
        ]
        fast = not target.is_throughput or min(times) <= _heap_us(node, target)
        return unless((fast, "a work-item for each row is expected to be faster"))

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The mode with the least expected time."""
        fitting = [i for i, m in enumerate(self.modes) if self.mode_supports(node, m, target)]
        return min(fitting, key=lambda index: _group_us(node, self.modes[index], target))

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """One group a row."""
        rows, _, _ = self.declare(call)
        call.define(**mode)
        call.dispatch((mode["LANES"], rows), (mode["LANES"], 1))


def _group_us(node: GpuNode, mode: Mode, target: Target) -> float:
    """Return the expected time of `TopkGroup`, in µs; as `_heap_us`, measured on an H200."""
    rows, count, _ = sizes_of(node)
    small = mode["KEPT"] <= 256
    sort, strip, together = (28.0, 10.0, 16) if small else (40.0, 40.0, 6)
    strips = max(0, -(-count // mode["KEPT"]) - 2)
    return max(1.0, rows / (together * target.compute_units)) * (sort + strip * strips)


def _heap_us(node: GpuNode, target: Target) -> float:
    """Return the expected time of `TopkHeap`: reading, and what enters the heap of random rows."""
    rows, count, wanted = sizes_of(node)
    entering = wanted * (1 + math.log(max(count / max(wanted, 1), 1)))
    own = 0.09 * count + 0.4 * entering * math.log2(wanted + 1)
    return max(1.0, rows / (1024 * target.compute_units)) * own


@kernel(TopK)
class TopkHeap(Selection):
    """One work-item keeps the best elements of one row in a heap, then sorts it."""

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """The heap has memory of its own; heaps of neighbours interleave on throughput devices."""
        rows, _, wanted = self.declare(call)
        alone = stay_equal(wanted, 1)
        call.define(ALONE=alone)
        call.dispatch((rows,))
        if alone:
            return
        storage = call.node.inputs[0].storage
        if compute_type(storage) == "float":
            storage = ElementType.f32
        call.buffer("KEYS", Scratch(rows * wanted, storage), c_type(storage), written=True)
        call.buffer("PLACES", Scratch(rows * wanted, ElementType.i32), "int", written=True)
        together = call.target.is_throughput
        call.scalars(ROW_PITCH=1 if together else wanted, HEAP_PITCH=rows if together else 1)


@kernel(TopK)
class TopkRef(Selection):
    """One work-item finds the elements of one row, one after the other."""

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """One work-item a row."""
        rows, _, _ = self.declare(call)
        call.dispatch((rows,))
