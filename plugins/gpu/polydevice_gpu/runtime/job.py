"""Job: one inference of a request, with the memory that it reads and writes."""

from __future__ import annotations

from typing import NamedTuple

from polydevice.blob import Blob
from polydevice.dtype import Array
from polydevice.remote import RemoteBlob
from polydevice.runtime.plan_cache import Shapes
from polydevice_gpu.blobs.blob import GpuBlob
from polydevice_gpu.runtime.bound_plan import BoundPlan


class Job(NamedTuple):
    """One inference.

    Attributes:
        bound: the plan with its memory.
        inputs: what is read.
        outputs: what is written, except what the host computes.
        shapes: of inputs and variables.
    """

    bound: BoundPlan
    inputs: dict[str, Array | GpuBlob]
    outputs: dict[str, Array | GpuBlob]
    shapes: Shapes

    @property
    def is_remote(self) -> bool:
        """Whether nothing of it is for the host."""
        blobs = (*self.inputs.values(), *self.outputs.values())
        return not self.bound.uses_host and all(isinstance(blob, GpuBlob) for blob in blobs)


class KnownJob(NamedTuple):
    """An inference whose memory is all on the device, and what was bound when it was prepared."""

    job: Job
    blobs: list[Blob]
    kept: dict[str, RemoteBlob | None]

    def holds(self, blobs: dict[str, Blob], kept: dict[str, RemoteBlob | None]) -> bool:
        """Whether the same memory is bound, and still there."""
        if self.blobs != list(blobs.values()) or self.kept != kept:
            return False
        return not any(isinstance(b, GpuBlob) and b.is_released for b in self.blobs)
