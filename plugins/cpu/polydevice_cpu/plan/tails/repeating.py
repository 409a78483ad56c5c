"""Repeating: light parts of a tail, planned for sizes that come back.

A loop that reads a row of a table at its iteration's number, say: only the data tells that it is
one row, which it always is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polydevice.dtype import Array
from polydevice.node import Node
from polydevice.ops.gather import GatherElements, GatherND
from polydevice.ops.op import Op
from polydevice.ops.scatter import ScatterElementsUpdate, ScatterNDUpdate
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice_cpu.plan.step import Compute, TailStep

if TYPE_CHECKING:
    from polydevice_cpu.plan.compiled import RequestPlans

FEWEST = 5
"""Nodes that are worth it: one by one they take 2 to 3 µs each, a plan 6 and next to nothing for
each."""

_SLOW: dict[type[Op], int] = {
    **dict.fromkeys((GatherElements, GatherND, ScatterElementsUpdate, ScatterNDUpdate), 2),
    **dict.fromkeys((LogSoftmax, SoftMax), 4),
}
"""Operations that take NumPy as long as so many others, and count as many."""

OFTEN = 4
"""How often sizes come before they have a plan, which takes as long as some hundred nodes."""

KEPT = 256
"""Sizes that are counted."""


def may_repeat(nodes: Sequence[Node]) -> bool:
    """Whether a part may be planned, and it is worth it."""
    count = sum(_SLOW.get(type(node.op), 1) for node in nodes)
    return count >= FEWEST and not any(
        node.op.has_bodies
        or node.op.is_stateful
        or node.op.has_side_effect
        or any(port.desc.kind != "tensor" for port in (*node.inputs, *node.outputs))
        for node in nodes
    )


class Repeating:
    """A part of a tail for one request: node by node, or by the plan for its sizes."""

    __slots__ = ("_counts", "_plans", "_walk", "_walked")

    def __init__(self, walk: Compute, plans: RequestPlans, walked: int) -> None:
        """Begin with no sizes.

        Args:
            walk: computes node by node.
            plans: of the part as a network.
            walked: how many arrays are what `walk` reads; those behind them are what plans read.
        """
        self._walk, self._plans, self._walked = walk, plans, walked
        self._counts: dict[tuple[Any, ...], int] = {}

    def __call__(self, *arrays: Array) -> Sequence[Array]:
        """Compute."""
        read = arrays[self._walked :]
        sizes = tuple([array.shape for array in read])
        count = self._counts.get(sizes, 0)
        if count >= OFTEN:
            return self._plans.infer(read, sizes)
        if count >= 0:
            if len(self._counts) >= KEPT:
                self._counts.clear()
            self._counts[sizes] = count + 1 if count + 1 < OFTEN or self._is_whole(sizes) else -1
        found = self._walk(*arrays[: self._walked])
        return found if isinstance(found, (list, tuple)) else (found,)

    def _is_whole(self, sizes: tuple[Any, ...]) -> bool:
        """Whether the plan knows all sizes; one with a tail of its own takes longer."""
        steps = self._plans.compiled.plan(sizes).steps
        return not any(isinstance(step, TailStep) for step in steps)
