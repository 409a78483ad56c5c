"""Blocks: the memory that the plans of one request take in turn.

A request runs one plan at a time, and nothing that is in its memory is read by the next inference.
So plans for other sizes run in the same memory, as far as it is large enough: drivers allocate when
memory is first used, which took 2 to 4 ms of a first inference with a shape (H200, 30 MB).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from polydevice.errors import DeviceMemoryError
from polydevice.memory_budget import MemoryBudget
from polydevice_gpu.cl.memory.allocator import Allocator, Buffer


class Block:
    """A piece of memory; it counts against a network's as long as somebody uses it."""

    def __init__(self, buffer: Buffer) -> None:
        """Describe it; made by `Blocks`."""
        self.buffer = buffer


class Blocks:
    """Blocks of device memory that grow as plans need it. For one thread at a time."""

    def __init__(self, memory: Allocator, budget: MemoryBudget | None = None) -> None:
        """Begin without any.

        Args:
            memory: of the device.
            budget: of the network, against which blocks count; None to count nothing.
        """
        self._memory = memory
        self._budget = budget
        self._blocks: list[Block] = []

    def of(self, sizes: Sequence[int]) -> list[Block]:
        """Return blocks of at least these sizes.

        Raises:
            DeviceMemoryError: they are more than the network may use, or than there is.
        """
        taken: list[Block] = []
        for place, size in enumerate(sizes):
            block = self._blocks[place] if place < len(self._blocks) else None
            if block is None or block.buffer.size_bytes < size:
                before = 0 if block is None else block.buffer.size_bytes
                block = None  # what nobody else uses is free before more is allocated
                del self._blocks[place : place + 1]
                block = self._grown(size, before)
                self._blocks.insert(place, block)
            taken.append(block)
        return taken

    def bytes_kept_by(self, taken: Sequence[Block]) -> int:
        """Return how much of what was taken is free once a plan lets go: what has been replaced."""
        return sum(block.buffer.size_bytes for block in taken if block not in self._blocks)

    def _grown(self, size: int, before: int) -> Block:
        """Allocate a block, larger than needed where plans have needed less before."""
        if before:
            with contextlib.suppress(DeviceMemoryError):
                return self._allocated(max(size, before + before // 2))
        return self._allocated(size)

    def _allocated(self, size: int) -> Block:
        def allocate() -> Block:
            return Block(self._memory.allocate(size, "arena"))

        if self._budget is None:
            return allocate()
        return self._budget.allocated(size, "the memory of a request", allocate)

    def clear(self) -> None:
        """Let go of all; plans that are bound keep theirs."""
        self._blocks.clear()
