"""RowSteps: a work-item walks through a row once for each sum, and once for its results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice.symbolic_trace import gains
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import operand_step, spread, step_along
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.pointwise.fragment import (
    ROUNDED_DIVISIONS,
    Operand,
    function,
    is_vectorizable,
    needs_rounding,
)
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.layout import Layout, planar
from polydevice_gpu.ops import Fragment
from polydevice_gpu.row_ops import RowSteps

_Groups = tuple[tuple[int, ...], tuple[int, ...]]


@kernel(RowSteps)
class RowStepsRef(SingleLaunch):
    """What is read again is computed again: rows are near, and nothing else has to be kept."""

    modes = ({"WIDTH": 1}, {"WIDTH": 4}, {"WIDTH": 8}, {"WIDTH": 16})

    def fuses(self, node: GpuNode) -> bool:
        """It is made when all that could join has joined."""
        return False

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """Rows that are read across memory are written along it: vectors, and no copy behind."""
        (layout,) = super().output_layouts(node, target)
        along = node.operation(RowSteps).axis
        is_last = along == node.output.rank - 1
        if is_last and not target.is_throughput and layout.pitches[along] != 1:
            layout = planar(node.output.shape)
        return [layout]

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Vectors are of floats, side by side, and no longer than a row."""
        width = mode["WIDTH"]
        return width == 1 or (_is_dense(node) and _terms(node) >= width)

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The longest vectors of the device that a row has."""
        most = 1 if target.is_throughput or not _is_dense(node) else target.vector_width
        terms = _terms(node)

        def fits(width: int) -> bool:
            return width <= most and gains(lambda: terms >= width)

        return max(i for i, mode in enumerate(self.modes) if not i or fits(mode["WIDTH"]))

    def describe(self, call: Call, op: RowSteps, mode: Mode) -> None:
        """Write a function of each fragment, and the walks through a row that call them."""
        node, width = call.node, mode["WIDTH"]
        out, groups = node.output, _groups(node)
        widths = (width,) if width > 1 else ()
        call.vectors_anywhere()  # the end of a row is read and written in a vector
        for number, value in enumerate(node.inputs):
            layout = spread(value, out)
            call.operand(f"IN{number}", value, layout, out.shape, groups, widths)
        call.tensor("OUT0", out, groups, widths)
        call.define(WIDTH=width)
        call.scalars(ROWS=math.prod(out.shape[axis] for axis in groups[0]), COUNT=_terms(node))
        walks = []
        for number, gathering in enumerate(op.gatherings):
            terms, terms_of_vector = self._functions(
                call, f"terms{number}", gathering.terms, gathering.term_numbers, width
            )
            given = (-1, *gathering.made_numbers)
            made, _ = self._functions(call, f"made{number}", gathering.made, given, 1)
            call.define(**{f"TERM{number}(i)": terms, f"TERMS{number}(i)": terms_of_vector})
            call.define(**{f"MADE{number}(sum)": made})
            kind = compute_type(gathering.made.element_type)
            walks.append(f"GATHER({number}, {kind}, {'COUNT' if gathering.is_mean else '1'})")
        result, vector = self._functions(call, "result", op.fragment, op.numbers, width)
        call.define(**{"RESULT(i)": result, "RESULTS(i)": vector})
        kind = compute_type(op.fragment.element_type)
        call.define(RESULT_T=f"{kind}{width if width > 1 else ''}", GATHERINGS=" ".join(walks))
        call.dispatch((math.prod(out.shape[axis] for axis in groups[0]),))

    def _functions(
        self, call: Call, name: str, fragment: Fragment, numbers: Sequence[int], width: int
    ) -> tuple[str, str]:
        """Add the functions of a fragment; return how they are called, for one and for a vector.

        Args:
            call: the launch.
            name: of the function.
            fragment: what it computes.
            numbers: the values that it reads; -1 for a sum.
            width: elements of a vector.
        """
        node = call.node
        own, out, groups = len(node.inputs), node.output, _groups(node)
        operands, handed, vectors = [], [], []
        for place, number in enumerate(numbers):
            if 0 <= number < own:
                value = node.inputs[number]
                step = operand_step(value, spread(value, out), out.shape, groups)
                operands.append(Operand(f"IN{number}", step))
                continue
            operands.append(Operand(""))
            text = "sum" if number < 0 else f"row{number - own}"
            kind = compute_type(fragment.inputs[place])
            handed.append(f"{text}, ")
            vectors.append(f"({kind}{width})({text}), ")
        if needs_rounding(fragment):
            call.options(ROUNDED_DIVISIONS)
        call.function(function(name, fragment, operands, 2))
        one = f"{name}({''.join(handed)}row, i, ARGUMENTS)" if numbers[:1] != (-1,) else ""
        one = one or f"{name}({''.join(handed)}row, 0, ARGUMENTS)"
        if width == 1:
            return one, one
        call.function(function(f"{name}_{width}", fragment, operands, 2, width))
        return one, f"{name}_{width}({''.join(vectors)}row, i, ARGUMENTS)"


def _groups(node: GpuNode) -> _Groups:
    """Return the axes that rows differ in, in the order of memory, and the one along a row."""
    out, along = node.output, node.operation(RowSteps).axis
    return tuple(axis for axis in out.placed.order(out.shape) if axis != along), (along,)


def _terms(node: GpuNode) -> int:
    return node.output.shape[node.operation(RowSteps).axis]


def _is_dense(node: GpuNode) -> bool:
    """Whether results lie side by side in vectors of what fragments compute."""
    op, out = node.operation(RowSteps), node.output
    fragments = [op.fragment, *(each.terms for each in op.gatherings)]
    made = compute_type(op.fragment.element_type)
    return (
        step_along(out.placed, out.shape, _groups(node)) == 1
        and all(map(is_vectorizable, fragments))
        and compute_type(out.storage) == made
    )
