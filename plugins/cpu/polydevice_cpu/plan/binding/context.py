"""Context: what a request keeps between inferences besides memory: its variables."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from polydevice.dtype import Array

if TYPE_CHECKING:
    from polydevice.runtime.plan_cache import Bindings
    from polydevice_cpu.plan.binding.loops.rounds import Rounds
    from polydevice_cpu.plan.compiled import CompiledNetwork
    from polydevice_cpu.plan.plan import Plan
    from polydevice_cpu.plan.step import Compute


class Context:
    """Variables (ReadValue, Assign) of one request, by id.

    Attributes:
        compiled: the network the request runs; it compiles the bodies of If and Loop.
        variables: values at the start of the inference; absent until first assigned.
        assigned: values for the next inference; `commit` puts them in force, so that the order of
            reading and assigning within one inference does not matter.
        tails: what runs tails that plans share.
        rounds: what is bound of bodies for all iterations of a loop: whatever the network's plan,
            iterations of the same sizes are the same. To bind them takes 0.4 ms.
    """

    __slots__ = ("assigned", "compiled", "rounds", "tails", "variables")

    def __init__(self, compiled: CompiledNetwork) -> None:
        self.compiled = compiled
        self.variables: dict[str, Array] = {}
        self.assigned: dict[str, Array] = {}
        self.tails: dict[object, Compute] = {}
        self.rounds: WeakKeyDictionary[CompiledNetwork, Bindings[Plan, Rounds]] = (
            WeakKeyDictionary()
        )

    def commit(self) -> None:
        """End an inference."""
        self.variables.update(self.assigned)
        self.assigned.clear()
