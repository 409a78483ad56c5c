"""Decisions: what was found out about a network's layers when it was planned, for its next shapes.

Which layers one primitive computes together, and in which layout, oneDNN has to be asked for every
step of the way. The answers hardly ever depend on sizes, so a network's next plan assumes them and
asks once per step, for the primitive that runs. Where that turns out otherwise (`Unlike`), the plan
is made again from the beginning, and what was assumed is not assumed any more.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polydevice.ops.io import Constant
from polydevice.ops.op import Op

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.pending import Extension


class Unlike(Exception):  # noqa: N818 - no error: what is raised is caught where plans are made
    """A layer does not turn out as it did for other sizes; `assumed` is what was relied on."""

    def __init__(self, assumed: Iterable[Hashable]) -> None:
        """Say what must not be assumed any more."""
        super().__init__()
        self.assumed = tuple(assumed)


@dataclass(frozen=True)
class Fusion:
    """A node that was fused into what computes one of its inputs, the others being constants.

    Attributes:
        ops: the operation, and those of its other inputs.
        place: of the input.
        extension: what it changed.
    """

    ops: tuple[Op, ...]
    place: int
    extension: Extension


class Decisions:
    """Of one network; for one thread at a time."""

    def __init__(self) -> None:
        """Begin with nothing to rely on."""
        self._known: dict[Hashable, Hashable] = {}
        self._varying: set[Hashable] = set()
        self._relied_on = True
        self._fusions: dict[str, Fusion] = {}

    def copy(self) -> Decisions:
        """Return one that knows as much; what is noted there is for formulas alone."""
        made = Decisions()
        made._known, made._fusions = dict(self._known), dict(self._fusions)
        made._varying = set(self._varying)
        return made

    def fusion(self, node: Node) -> Fusion | None:
        """Return how a node was fused the last time; None: find out."""
        known = self._fusions.get(node.name) if self._relied_on else None
        if known is None or any(a is not b for a, b in zip(known.ops, _ops(node, known.place))):
            return None
        return known

    def note_fusion(self, node: Node, place: int, extension: Extension) -> None:
        """Remember how a node was fused into what computes an input, unless others vary too."""
        ops = _ops(node, place)
        if all(isinstance(op, Constant) for op in ops[1:]):
            self._fusions[node.name] = Fusion(ops, place, extension)

    def assumed(self, key: Hashable) -> Hashable | None:
        """Return what was decided the last time; None: ask."""
        return self._known.get(key) if self._relied_on else None

    def note(self, key: Hashable, value: Hashable) -> None:
        """Remember a decision, unless it has been different before."""
        if key not in self._varying:
            self._known[key] = value

    def vary(self, keys: Iterable[Hashable]) -> None:
        """Ask every time from now on: the answers depend on sizes."""
        for key in keys:
            self._varying.add(key)
            self._known.pop(key, None)

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Rely on nothing for the time being."""
        self._relied_on = False
        try:
            yield
        finally:
            self._relied_on = True


def _ops(node: Node, place: int) -> tuple[Op, ...]:
    """The operation of a node, and those that its inputs but one come from."""
    others = [port.node.op for number, port in enumerate(node.inputs) if number != place]
    return (node.op, *others)
