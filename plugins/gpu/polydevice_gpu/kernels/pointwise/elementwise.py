"""Groups of pointwise operations in one launch; also every copy between layouts."""

from __future__ import annotations

import math

from polydevice.dataclass import dataclass
from polydevice.shape import all_stay_equal, is_one
from polydevice.symbolic_size import is_symbolic, number_of
from polydevice.symbolic_trace import chosen, gains
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import lies_whole, operand_step, step_along
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Launch
from polydevice_gpu.kernels.pointwise.fragment import Operand, function, is_vectorizable
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.layout import Layout, broadcast
from polydevice_gpu.ops import Fused


def iteration_groups(shape: tuple[int, ...], layouts: list[Layout]) -> list[tuple[int, ...]]:
    """Order and merge the axes of a result so that few loops remain, the densest innermost.

    Args:
        shape: of the result.
        layouts: of the result (first) and of all inputs, over the result's axes.

    Returns:
        Three groups of axes, outermost first; together they cover all axes above size 1.
    """
    axes = [axis for axis in layouts[0].order(shape) if not is_one(shape[axis])]
    groups: list[tuple[int, ...]] = []
    for axis in axes:
        if groups and all_stay_equal(
            [layout.pitches[groups[-1][-1]] for layout in layouts],
            [layout.pitches[axis] * shape[axis] for layout in layouts],
        ):
            groups[-1] = (*groups[-1], axis)
        else:
            groups.append((axis,))
    while len(groups) > 3:
        groups[:2] = [groups[0] + groups[1]]
    return [()] * (3 - len(groups)) + groups


TILE, ROWS = 32, 8
"""Squares that go through local memory, and how many of their rows a work-group moves at once."""


@dataclass(frozen=True)
class Iteration:
    """How a result is walked through.

    Attributes:
        layouts: of all inputs, over the result's axes.
        groups: the axes behind each of three coordinates, the densest last.
        sizes: of the coordinates.
    """

    layouts: list[Layout]
    groups: list[tuple[int, ...]]
    sizes: list[int]

    @classmethod
    def of(cls, node: GpuNode) -> Iteration:
        """Return the iteration over a node whose values have layouts."""
        out = node.output
        layouts = [broadcast(v.placed, v.shape, out.shape) for v in node.inputs]
        groups = iteration_groups(out.shape, [out.placed, *layouts])
        return cls(layouts, groups, [math.prod(out.shape[a] for a in group) for group in groups])

    def transposed(self, node: GpuNode) -> tuple[int, int] | None:
        """Return an input whose neighbours lie along another coordinate than the result's.

        And that coordinate; None where all lie alike.
        """
        op = node.operation(Fused)
        out = node.output
        if step_along(out.placed, out.shape, self.groups) != 1:
            return None
        for number, (value, layout) in enumerate(zip(node.inputs, self.layouts, strict=True)):
            kind = compute_type(op.fragment.inputs[number])
            if value.constant is not None or value.border is not None:
                continue
            if kind not in ("float", "int"):
                continue
            if step_along(layout, out.shape, self.groups) is not None:
                continue
            for coordinate in (1, 0):
                group = self.groups[coordinate]
                if group and layout.pitches[group[-1]] == 1:
                    return number, coordinate
        return None

    def fills_squares(self, node: GpuNode) -> bool:
        """Whether an input is transposed, and squares of it would not be mostly empty."""
        found = self.transposed(node)
        least = TILE // 2
        return found is not None and self.sizes[2] >= least and self.sizes[found[1]] >= least


_LONG = 16

_WIDTHS = 4, 32
"""Work-items across a group for rows that are not longer."""


@kernel(Fused)
class ElementwiseRef(SingleLaunch):
    """One work-item computes WIDTH neighbours along the innermost axis in memory.

    With TILE, what an input transposes goes through local memory in squares.
    """

    source = "pointwise/elementwise_ref.cl"
    modes = (
        {"WIDTH": 1, "TILE": 0},
        {"WIDTH": 4, "TILE": 0},
        {"WIDTH": 8, "TILE": 0},
        {"WIDTH": 16, "TILE": 0},
        {"WIDTH": 1, "TILE": TILE},
    )

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """Use squares for transposes, and the device's vectors where all types are floats.

        Shorter ones where they fit the innermost axis better: what is left over goes one by one.
        """
        iteration = Iteration.of(node)
        in_squares = target.is_throughput and self.mode_supports(node, self.modes[4], target)
        if in_squares and iteration.fills_squares(node):
            return 4
        if not _is_vectorizable(node):
            return 0
        most = 4 if target.is_throughput else target.vector_width
        size = iteration.sizes[2]
        if size >= _LONG:  # shorter ones are channels, as a rule, which do not vary
            size = target.nominal(size)
        fitting = [i for i, m in enumerate(self.modes[:4]) if m["WIDTH"] <= min(most, max(size, 1))]

        def cost(index: int) -> int:
            width = self.modes[index]["WIDTH"]
            return size // width + 2 * (size % width)

        return min(reversed(fitting), key=cost)

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Squares need local memory; vectors are of floats."""
        if mode["WIDTH"] > 1:
            return _is_vectorizable(node)
        enough = target.local_memory_bytes >= 4 * TILE * (TILE + 1)
        return not mode["TILE"] or (enough and target.max_work_group_size >= TILE * ROWS)

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Take the source that moves squares where an input is transposed."""
        iteration = Iteration.of(node)
        transposed = iteration.transposed(node) if mode["TILE"] else None
        if transposed is None:
            return super().launches(node, mode, target)
        call = Call("elementwise_tiled", "pointwise/elementwise_tiled.cl", node, target)
        self._describe_tiled(call, iteration, *transposed)
        return [call.launch()]

    def _describe_tiled(self, call: Call, iteration: Iteration, source: int, across: int) -> None:
        """Let one input come from local memory; all others as usual."""
        node, groups, sizes = call.node, iteration.groups, iteration.sizes
        op = node.operation(Fused)
        out, fragment = node.output, op.fragment
        operands = []
        for number, (value, layout) in enumerate(zip(node.inputs, iteration.layouts, strict=True)):
            role = f"IN{number}"
            operands.append(Operand(role))
            if number != source:
                call.operand(role, value, layout, out.shape, groups)
                continue
            call.pointer("SOURCE", value)
            call.access("SOURCE", value.storage)
            call.index("SOURCE", value, layout, out.shape, groups)
            call.local("TILE_MEMORY", compute_type(value.storage), TILE * (TILE + 1))
            place = f"(((c{across}) % {TILE}) * {TILE + 1} + (c2) % {TILE})"
            call.define(**{f"{role}_LOAD(i)": "tile_memory[i]", f"{role}_AT(c0, c1, c2)": place})
        call.tensor("OUT0", out, groups)
        call.function(function("compute", fragment, operands, 3))
        call.define(TILE=TILE, ROWS=ROWS, ACROSS_FIRST=across == 0)
        call.scalars(INNER=sizes[2], ACROSS=sizes[across])
        squares = [-(-size // TILE) for size in (sizes[2], sizes[across])]
        rest = sizes[1 - across]
        call.dispatch((squares[0] * TILE, squares[1] * ROWS, rest), (TILE, ROWS, 1))

    def describe(self, call: Call, op: Fused, mode: Mode) -> None:
        """Iterate over the result; every input is addressed by its own pitches."""
        node = call.node
        out, fragment = node.output, op.fragment
        iteration = Iteration.of(node)
        layouts, groups, sizes = iteration.layouts, iteration.groups, iteration.sizes
        width = mode["WIDTH"]
        contiguous = step_along(out.placed, out.shape, groups) == 1
        # Vectors are right for shorter rows as well, and serve them without a choice.
        is_long = number_of(sizes[2]) >= width or gains(lambda: sizes[2] >= width)
        if not (_is_vectorizable(node) and contiguous and is_long):
            width = 1
        widths = (width,) if width > 1 else ()
        operands = []
        for number, (value, layout) in enumerate(zip(node.inputs, layouts, strict=True)):
            role = f"IN{number}"
            call.operand(role, value, layout, out.shape, groups, widths)
            step = operand_step(value, layout, out.shape, groups)
            whole = lies_whole(value, layout, out.shape, groups)
            operands.append(Operand(role, step, is_whole=whole))
        call.tensor("OUT0", out, groups, widths)
        call.function(function("compute", fragment, operands, 3))
        if width > 1:
            call.function(function(f"compute{width}", fragment, operands, 3, width))
        call.define(WIDTH=width)
        call.scalars(SIZE=sizes[2])
        columns = -(-sizes[2] // width)
        lanes = call.target.scalar_lanes
        local = None
        if lanes > 1:
            most = min(call.target.max_work_group_size, 4 * lanes)
            local = _group(columns, sizes[1], most)
        shared = local is not None and local[1] > 1
        call.define(ROWS_SHARE=shared)
        if shared:
            call.scalars(MIDDLE=sizes[1])
        call.dispatch((columns, sizes[1], sizes[0]), local)


def _group(columns: int, rows: int, most: int) -> tuple[int, int, int]:
    """Return the local size for rows of so many work-items.

    Short rows share a group, which would be nearly empty otherwise: pictures of three channels took
    1.3 ms on an H100 where their bytes take 25 us. A program has one size: where numbers vary there
    are few of them, as one that is right for few rows serves all.
    """
    if is_symbolic(columns):
        across = min(most, chosen(lambda: next((n for n in _WIDTHS if columns <= n), most)))
    else:
        across = min(most, 1 << max(columns - 1, 0).bit_length())
    together = most // across
    if not is_symbolic(rows):
        together = min(together, 1 << max(rows - 1, 0).bit_length())
    return across, together, 1


def _is_vectorizable(node: GpuNode) -> bool:
    fragment = node.operation(Fused).fragment
    made = compute_type(fragment.element_type)
    return is_vectorizable(fragment) and compute_type(node.output.storage) == made
