"""Range: numbers at even distances, as many as sizes tell.

With numbers for sizes it is a constant that is folded; this is for plans that serve all sizes.
"""

from __future__ import annotations

from polydevice.ops.generate import Range, Range1, RangeOp
from polydevice.symbolic_size import is_symbolic
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.kernel import Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.reason import unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target

_MOST = 1 << 24
"""Whole numbers up to here are those of every type that kernels compute in."""


@kernel(Range, Range1)
class RangeRef(SingleLaunch):
    """One work-item writes one number."""

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Its limits follow from sizes, in whole numbers."""
        known = all(value.constant is not None for value in node.inputs[:3])
        limits = [*map(_number, (node, node), (0, 2))] if known else []
        return unless(
            (known, "its limits are not known ahead"),
            (all(map(_is_whole, limits)), "its numbers are not whole, or large"),
        )

    def describe(self, call: Call, op: RangeOp, mode: Mode) -> None:
        """Count from the first number on."""
        node = call.node
        start, step = (_whole(_number(node, place)) for place in (0, 2))
        call.scalars(COUNT=node.output.shape[0], START=start, STEP=step)
        call.result()
        call.dispatch((node.output.shape[0],))


def _number(node: GpuNode, place: int) -> float:
    """One of the limits; a formula, too."""
    limit = node.inputs[place].constant
    assert limit is not None
    number: float = limit.reshape(-1)[0]
    return number


def _is_whole(number: float) -> bool:
    return is_symbolic(number) or (number == int(number) and abs(number) < _MOST)


def _whole(number: float) -> int:
    """A number as an int, unless it is a formula of one."""
    return number if is_symbolic(number) else int(number)  # type: ignore[return-value]
