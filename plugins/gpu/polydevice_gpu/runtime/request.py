"""GpuRequest: replays the plan of its executable network with its own memory."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import BlobError, InferenceError, RequestError
from polydevice.executable_network import PortInfo
from polydevice.infer_request import InferRequest, StatusCode
from polydevice.profiling import LayerCount
from polydevice.remote import Copies, RemoteBlob
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice.variable_state import VariableState
from polydevice_gpu import cl
from polydevice_gpu.blobs.blob import GpuBlob
from polydevice_gpu.blobs.buffer_blob import BufferBlob
from polydevice_gpu.graph import Value
from polydevice_gpu.kernels.types import storage_type
from polydevice_gpu.reports.report import layer_counts
from polydevice_gpu.runtime.bound_plan import BoundPlan
from polydevice_gpu.runtime.plan import Plan
from polydevice_gpu.runtime.state import GpuVariable
from polydevice_gpu.runtime.turn_lock import TurnLock

if TYPE_CHECKING:
    from polydevice_gpu.executable import GpuExecutable, Shapes

BOUND_LIMIT = 4
"""Most plans that a request keeps memory for, when the network's shapes are dynamic."""


class Job(NamedTuple):
    """One inference.

    Attributes:
        bound: the plan with its memory.
        inputs: what is read.
        outputs: what is written, except what the host computes.
    """

    bound: BoundPlan
    inputs: dict[str, Array | GpuBlob]
    outputs: dict[str, Array | GpuBlob]

    @property
    def is_remote(self) -> bool:
        """Whether nothing of it is for the host."""
        blobs = (*self.inputs.values(), *self.outputs.values())
        return not self.bound.uses_host and all(isinstance(blob, GpuBlob) for blob in blobs)


class GpuRequest(InferRequest):
    """One inference at a time on an OpenCL device."""

    def __init__(self, executable: GpuExecutable) -> None:
        """Prepare everything that can be before inputs are known."""
        super().__init__(executable)
        self._network = executable
        self._last: BoundPlan | None = None
        self._last_plan: Plan | None = None
        self._batch = executable.batch_limit
        self._copies = Copies()
        self._job: Job | None = None
        self._end: cl.Event | None = None
        self._bound: OrderedDict[Shapes, BoundPlan] = OrderedDict()
        self._variables = {
            variable.output: GpuVariable(
                variable, executable.starts[variable.name], executable.context
            )
            for variable in executable.variables
        }
        sizes = [port.sizes for port in executable.inputs.values()]
        if all(size is not None for size in sizes):
            self._bind_plan((*sizes, *self._state_sizes()))

    def _state_sizes(self) -> Shapes:
        values = [variable.value for variable in self._variables.values()]
        return tuple(None if value is None else value.shape for value in values)

    def _variable_states(self) -> list[VariableState]:
        """Return the variables that this request keeps between inferences."""
        return list(self._variables.values())

    def _bind_plan(self, shapes: Shapes) -> BoundPlan:
        bound = self._bound.get(shapes)
        if bound is None:
            bound = BoundPlan(self._network.plan(shapes), self._network.device_memory)
            self._bound[shapes] = bound
            while len(self._bound) > BOUND_LIMIT:
                self._bound.popitem(last=False)
        else:
            self._bound.move_to_end(shapes)
        return bound

    def release_memory(self) -> None:
        """Let go of the memory that launches use, once the network is closed; blobs stay."""
        self._bound.clear()
        self._job = self._last = None

    def set_batch(self, size: int) -> None:
        """Let the next inferences compute the first items of the batch only.

        What that needs is compiled now, if no request asked for this size before.
        """
        limit = self._network.batch_limit
        if not limit:
            super().set_batch(size)
        if not 1 <= size <= limit:
            raise RequestError(
                f"batch {size} is not possible for {self._network.name!r}; legal: 1 to {limit}"
            )
        self._enter()
        try:
            sizes = [port.sizes for port in self._network.inputs.values()]
            self._bind_plan(tuple((size, *each[1:]) for each in sizes if each is not None))
            self._batch = size
        finally:
            self._busy.release()

    # -- device memory ------------------------------------------------------------------------

    def _check_remote(self, port: PortInfo, blob: RemoteBlob) -> None:
        """Refuse memory that the launches cannot use."""
        context = self._network.context
        if not isinstance(blob, GpuBlob) or not context.shares_memory_with(blob.context):
            raise BlobError(
                f"{port.kind} {port.name!r} cannot be {blob!r}: the blob is memory of another "
                "context than the network's. Make it with executable.get_context().create_blob(), "
                "or load the network with core.load_network(network, blob.context)"
            )
        blob.check_usable()
        reason = blob.allows(port.kind)
        stored = storage_type(port.element_type, fp64=context.device.capabilities.fp64)
        if stored is not port.element_type:
            held = f"is held as {stored}" if stored else "cannot be held"
            reason = f"{port.element_type} {held} on this device; use another precision"
        if reason:
            raise BlobError(f"{port.kind} {port.name!r} cannot be {blob!r}: {reason}")

    @property
    def copies(self) -> Copies:
        """What the last inference copied between host and device, and within the device."""
        return self._copies

    # -- running ------------------------------------------------------------------------------

    def _begin(self) -> bool:
        """Enqueue in the caller's thread on a user's queue, so that the order is the caller's."""
        if not self._network.context.has_queue:
            return False
        job = self._prepare()
        if job.bound.uses_host:
            return False
        queue, lock = self._network.queue(0)
        with lock:
            self._enqueue(job, queue)
            self._mark(job, queue)
        self._job = job
        return True

    def _run(self, stream: int) -> None:
        job, self._job = self._job, None
        # Begun in start_async(); a job of another run is one that was cancelled or dropped.
        if self._begun and job is not None and self._end is not None:
            self._end.wait()
            self._finish(job)
            return
        job = self._prepare()
        queue, lock = self._network.queue(stream)
        # What is on a user's queue stays together: it may own objects of another interface.
        turns = None if self._network.context.has_queue else lock
        with lock:
            self._enqueue(job, queue, turns)
            if self._network.context.has_queue and job.is_remote and not queue.profiling:
                self._mark(job, queue)
            else:
                self._end = None
                queue.finish()
        self._finish(job)

    def wait(self, timeout_ms: float | None = None) -> StatusCode:
        """Wait for the last inference; also for one that `infer` left on a user's queue."""
        status, end = super().wait(timeout_ms), self._end
        if status is not StatusCode.OK or end is None:
            return status
        forever = timeout_ms is None or timeout_ms == -1
        done = end.wait(None if forever else (timeout_ms or 0) / 1e3)
        return StatusCode.OK if done else StatusCode.RESULT_NOT_READY

    def _prepare(self) -> Job:
        """Gather what the next inference reads and writes."""
        limit, batch = self._network.batch_limit, self._batch
        inputs: dict[str, Array | GpuBlob] = {}
        shapes: list[tuple[int, ...] | None] = []
        for name, port in self._network.inputs.items():
            blob = self._blob(port)
            if port.desc.kind != "tensor":
                shapes.append(None)  # how many items it has is not their shape
            else:
                shapes.append(blob.shape if batch == limit else (batch, *blob.shape[1:]))
            if isinstance(blob, GpuBlob):
                inputs[name] = blob
            else:
                inputs[name] = blob.array if batch == limit else blob.array[:batch]
        for variable in self._variables.values():
            if (value := variable.value) is not None:
                inputs[variable.variable.input] = value
        bound = self._bind_plan((*shapes, *self._state_sizes()))
        return Job(bound, inputs, self._outputs(bound))

    def _outputs(self, bound: BoundPlan) -> dict[str, Array | GpuBlob]:
        """Return the memory of the outputs whose sizes the plan knows, allocating what is new."""
        limit, batch = self._network.batch_limit, self._batch
        outputs: dict[str, Array | GpuBlob] = {}
        for name, value in bound.plan.graph.outputs.items():
            if value.on_host:
                continue
            if name in self._variables:
                outputs[name] = self._variables[name].target(value)
                continue
            shape = (limit, *value.shape[1:]) if limit else value.shape
            if name in self._kept and value.storage is value.element_type:
                outputs[name] = self._blobs[name] = self._memory_to_keep(name, value, shape)
                continue
            blob = self._blobs.get(name)
            if isinstance(blob, GpuBlob):
                if blob.shape != shape:
                    raise BlobError(
                        f"output {name!r} has shape {Shape(shape)} with these inputs, but is "
                        f"{blob!r}; set a blob of that shape"
                    )
                outputs[name] = blob
                continue
            if blob is None or blob.shape != shape:
                desc = TensorDesc(value.element_type, Shape(shape))
                blob = self._empty(desc, f"output {name!r}")
                self._bind(name, blob)
            outputs[name] = blob.array[:batch] if limit else blob.array
        return outputs

    def _memory_to_keep(self, name: str, value: Value, shape: tuple[int, ...]) -> GpuBlob:
        """Return device memory of the request's own for an output, allocated when it changes."""
        held = self._kept[name]
        if not isinstance(held, GpuBlob) or held.is_released or held.shape != shape:
            desc = TensorDesc(value.element_type, Shape(shape))
            held = self._kept[name] = BufferBlob.allocated(self._network.context, desc)
        return held

    def _enqueue(self, job: Job, queue: cl.Queue, turns: TurnLock | None = None) -> None:
        before = dataclasses.replace(queue.copies)
        job.bound.enqueue(queue, job.inputs, job.outputs, turns)
        self._copies = queue.copies.since(before).since(job.bound.backlog.copies_of_others)
        for name, variable in self._variables.items():
            if name in job.outputs:
                variable.advance(job.outputs[name])

    def _mark(self, job: Job, queue: cl.Queue) -> None:
        """Note where on the user's queue the inference ends; its memory lives until then."""
        self._end = queue.mark()
        self._network.context.keep_until(self._end, job)

    def _finish(self, job: Job) -> None:
        """Publish what the host gets."""
        for name, array in job.bound.complete(job.outputs).items():
            if name in self._variables:
                self._variables[name].advance(array.copy())
                continue
            port, blob = self._network.outputs[name], self._blobs.get(name)
            if isinstance(blob, GpuBlob) and name not in self._kept:
                # Computed by the host: the only way is an upload.
                port.check(port.element_type, array.shape)
                blob.copy_from(array)
                self._copies.uploads += 1
                continue
            self._bind(name, port.blob(np.array(array, order="C")))
        self._last, self._last_plan = job.bound, job.bound.plan
        if self._network.profiling:
            job.bound.plan.times.add(job.bound.layer_times())
            self._network.note_plan(job.bound.plan)

    def _perf_counts(self) -> list[LayerCount]:
        if not self._network.profiling:
            raise InferenceError(
                "counters are off; load the network with PERF_COUNT=YES to measure layers"
            )
        plan = self._last_plan or self._network.latest_plan()
        return layer_counts(plan, plan.times.averages())
