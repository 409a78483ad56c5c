"""Context: what a request keeps between inferences besides memory: its variables."""

from __future__ import annotations

from polydevice.dtype import Array


class Context:
    """Variables (ReadValue, Assign) of one request, by id.

    Attributes:
        variables: values at the start of the inference; absent until first assigned.
        assigned: values for the next inference; `commit` puts them in force, so that the order of
            reading and assigning within one inference does not matter.
    """

    __slots__ = ("assigned", "variables")

    def __init__(self) -> None:
        self.variables: dict[str, Array] = {}
        self.assigned: dict[str, Array] = {}

    def commit(self) -> None:
        """End an inference."""
        self.variables.update(self.assigned)
        self.assigned.clear()
