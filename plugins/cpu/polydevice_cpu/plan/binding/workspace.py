"""Workspace: memory for intermediate values, shared by the plans of one request."""

from __future__ import annotations

from polydevice.dtype import Array
from polydevice.memory_budget import MemoryBudget
from polydevice_cpu.onednn.engine import aligned
from polydevice_cpu.plan.binding.blocks import BlockCalls
from polydevice_cpu.plan.binding.strips import StripCalls

GROWTH = 1.5
"""A block that turns out too small is replaced by one this much larger than it, at least, so that
those of growing shapes are no more than three times the largest together."""


class Workspace:
    """An arena and a scratchpad, as large as the largest plan needs them.

    Attributes:
        arena: for intermediate values.
        scratchpad: for the primitives' own use.
        strips: calls for strips.
        blocks: calls for blocks.
    """

    def __init__(self, memory: MemoryBudget) -> None:
        """Begin with nothing; what is taken counts against the network's memory."""
        self.arena = _Block(memory)
        self.scratchpad = _Block(memory)
        self.strips = StripCalls()
        self.blocks = BlockCalls()


class _Block:
    """Bytes that are replaced by more; plans that are bound to the former ones keep those."""

    def __init__(self, memory: MemoryBudget) -> None:
        self._memory = memory
        self._bytes: Array | None = None

    def at_least(self, size_bytes: int) -> Array:
        """Return memory of this size or more.

        Raises:
            DeviceMemoryError: it is more than the network may use.
        """
        if self._bytes is None or self._bytes.size < size_bytes:
            if self._bytes is not None:
                size_bytes = max(size_bytes, int(self._bytes.size * GROWTH))
            self._bytes = None  # so that it is free where nothing is bound to it
            what = "the memory of a request"
            self._bytes = self._memory.allocated(size_bytes, what, lambda: aligned(size_bytes))
        return self._bytes
