"""Context: what a request keeps between inferences besides memory: its variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydevice.dtype import Array

if TYPE_CHECKING:
    from polydevice_cpu.plan.compiled import CompiledNetwork
    from polydevice_cpu.plan.step import Compute


class Context:
    """Variables (ReadValue, Assign) of one request, by id.

    Attributes:
        compiled: the network the request runs; it compiles the bodies of If and Loop.
        variables: values at the start of the inference; absent until first assigned.
        assigned: values for the next inference; `commit` puts them in force, so that the order of
            reading and assigning within one inference does not matter.
        tails: what runs tails that plans share.
    """

    __slots__ = ("assigned", "compiled", "tails", "variables")

    def __init__(self, compiled: CompiledNetwork) -> None:
        self.compiled = compiled
        self.variables: dict[str, Array] = {}
        self.assigned: dict[str, Array] = {}
        self.tails: dict[object, Compute] = {}

    def commit(self) -> None:
        """End an inference."""
        self.variables.update(self.assigned)
        self.assigned.clear()
