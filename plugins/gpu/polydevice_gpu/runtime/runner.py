"""GpuRunner: replays the plan of its executable network with its own memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polydevice.blob import Blob
from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.errors import BlobError, InferenceError, RequestError
from polydevice.profiling import LayerCount
from polydevice.remote import Copies, RemoteBlob
from polydevice.runtime.follower import Follower, log_failure
from polydevice.runtime.plan_cache import Bindings, Shapes, plans_limit
from polydevice.runtime.port_info import PortInfo
from polydevice.runtime.runner import Runner
from polydevice.runtime.variable import RequestVariable
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_gpu import cl
from polydevice_gpu.blobs.blob import GpuBlob
from polydevice_gpu.blobs.buffer_blob import BufferBlob
from polydevice_gpu.cl.memory.blocks import Blocks
from polydevice_gpu.cl.queues.turn_lock import TurnLock
from polydevice_gpu.graph import Value
from polydevice_gpu.kernels.types import storage_type
from polydevice_gpu.one_launch.joined_launches import WaitInVainError
from polydevice_gpu.runtime.bound_plan import RECENT, BoundPlan, Job, KnownJob, Replay
from polydevice_gpu.runtime.host import Requests
from polydevice_gpu.runtime.plan import Plan
from polydevice_gpu.runtime.state import GpuVariable

if TYPE_CHECKING:
    from polydevice_gpu.executable import GpuExecutable

ARENAS_BYTES = 128 << 20
"""Most that one request takes for plans that it has bound, besides those of the latest shapes."""

WAITING = 0.1
"""Share of the time for enqueuing from which on another thread may enqueue while one waits.

Two H200s, MULTI over one of them, when threads wait so and when they keep the queue: BERT-base, one
item, which waits 1.5 times as long as it enqueues, 2.11 and 1.76; ResNet-50 (0.36) 2.03 and 1.69;
EfficientNet-Lite0 (0.04) 1.13 and 1.30.
"""


class GpuRunner(Runner):
    """One inference at a time on an OpenCL device."""

    executable: GpuExecutable

    def __init__(self, executable: GpuExecutable) -> None:
        """Prepare everything that can be before inputs are known."""
        super().__init__(executable)
        self._last_plan: Plan | None = None
        self._known: list[KnownJob] = []
        self._replay: Replay | None = None
        self._batch = executable.batch_limit
        self._on_users_queue = executable.context.has_queue
        self._copies = Copies()
        self._waits = True  # longer than it takes to do something else meanwhile
        self._enqueued = 0.0  # when all was, of time.perf_counter()
        self._end: cl.Event | None = None
        self._followers: tuple[Follower, ...] = ()
        limit = min(ARENAS_BYTES, plans_limit(executable.device_memory))
        self._plans = executable.plans
        self._bindings = Bindings[Plan, BoundPlan](executable.plans, limit)
        self._blocks = Blocks(executable.context.device.memory, executable.device_memory)
        # Times of layers are those of a shape, and each request has its own.
        self._requests = None if executable.profiling else Requests()
        self._variables = {
            variable.output: GpuVariable(
                variable, executable.starts[variable.name], executable.context
            )
            for variable in executable.variables
        }
        sizes = [port.sizes for port in executable.inputs.values()]
        if all(size is not None for size in sizes) and not executable.size_inputs:
            self._bind_plan((*sizes, *self._state_sizes()))

    def _state_sizes(self) -> Shapes:
        values = [variable.value for variable in self._variables.values()]
        return tuple(None if value is None else value.shape for value in values)

    def variables(self) -> Sequence[RequestVariable]:
        """Return the variables that are kept between inferences."""
        return list(self._variables.values())

    def _bind_plan(self, shapes: Shapes) -> BoundPlan:
        plan = self.executable.plan(shapes)
        return self._bindings.get(plan, lambda: BoundPlan(plan, self._blocks, self._requests))

    def bind(self, name: str, blob: Blob) -> None:
        """Note that `blob` now is the memory of an input or output."""
        self._forget()  # which would keep what was there before
        super().bind(name, blob)

    def keep(self, name: str, memory: RemoteBlob | None) -> None:
        """Note that an output is to be left in device memory."""
        self._forget()
        super().keep(name, memory)

    def release(self) -> None:
        """Let go of the memory that launches use, once the network is closed; blobs stay."""
        self._forget()
        self._bindings.clear()
        self._blocks.clear()

    def _forget(self) -> None:
        """Look at everything again in the next inference."""
        self._replay = None
        self._known.clear()

    @property
    def last(self) -> BoundPlan | None:
        """The plan of the last inference with its memory, if there was any."""
        return self._bindings.latest()

    def set_batch(self, size: int) -> None:
        """Let the next inferences compute the first items of the batch only.

        What that needs is compiled now, if no request asked for this size before.
        """
        limit = self.executable.batch_limit
        if not limit:
            super().set_batch(size)
        if not 1 <= size <= limit:
            raise RequestError(
                f"batch {size} is not possible for {self.executable.name!r}; legal: 1 to {limit}"
            )
        sizes = [port.sizes for port in self.executable.inputs.values()]
        self._replay = None
        self._bind_plan(tuple((size, *each[1:]) for each in sizes if each is not None))
        self._batch = size

    # -- device memory ------------------------------------------------------------------------

    def check_remote(self, port: PortInfo, blob: RemoteBlob) -> None:
        """Refuse memory that the launches cannot use."""
        context = self.executable.context
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

    def begin(self) -> Callable[[], None] | None:
        """Enqueue in the caller's thread on a user's queue, so that the order is the caller's."""
        if not self._on_users_queue:
            return None
        job = self._prepare()
        if job.bound.uses_host:
            return None
        queue, lock = self.executable.queue(0)
        try:
            with lock:
                self._enqueue(job, queue)
                end = self._mark(job, queue)
                self._advance(job)  # the next one may be enqueued before this one ends
        except KeyboardInterrupt:
            lock.release()
            raise

        def ending() -> None:
            end.wait()
            self._finish(job)

        return ending

    def run(self, stream: int) -> None:
        """Enqueue the plan on a stream's queue and wait for it, unless it is a user's queue.

        Where several threads use the queue, the next one enqueues while this one waits, if that
        is to be long: waiting for an event takes more calls than waiting for the queue.
        """
        queue, lock = self.executable.queue(stream)
        replay, self._replay = self._replay, None
        if replay is not None and not lock.is_shared and replay.may_run(self._plans.changes):
            self._run_again(replay, queue, lock)
            return
        self.executable.inferring.add(self)
        try:
            self._run_anew(queue, lock)
        finally:
            self.executable.inferring.discard(self)

    def _run_anew(self, queue: cl.Queue, lock: TurnLock) -> None:
        changes = self._plans.changes
        job = self._prepare()
        # What is on a user's queue stays together: it may own objects of another interface.
        turns = None if self._on_users_queue else lock
        end: cl.Event | None = None
        try:
            with lock:
                start = time.perf_counter()
                if self._on_users_queue and job.is_remote and not queue.profiling:
                    self._enqueue(job, queue, turns)
                    self._mark(job, queue)
                elif lock.is_shared and self._may_overlap(job, queue):
                    self._enqueue(job, queue, turns)
                    self._end, end = None, queue.mark()
                else:
                    self._end = None
                    self._run_to_end(job, queue, turns)
                if self._followers:
                    self.executable.note_time(job.bound.plan, queue, time.perf_counter() - start)
                    self._tell(queue)
        except KeyboardInterrupt:
            lock.release()
            raise
        if end is not None:
            end.wait()
            self._repeat_if_void(job, queue, lock)
        waited = time.perf_counter() - self._enqueued
        self._waits = waited > WAITING * (self._enqueued - start)
        self._finish(job)
        self._advance(job)  # what failed before has changed nothing
        self._may_replay(job, changes)

    def _may_replay(self, job: Job, changes: int) -> None:
        """Have the next inference be this one again, as long as nothing else is to be done."""
        known = self._known and self._known[-1].job is job and not self._variables
        plain = not (self._on_users_queue or self._followers or self.executable.profiling)
        if known and plain and job.bound.plan.is_final and job.bound.replays:
            self._replay = Replay(self._known[-1], changes)

    def _run_again(self, replay: Replay, queue: cl.Queue, lock: TurnLock) -> None:
        """Run the last inference again. Whatever can waits until the device has work."""
        job = replay.known.job
        bound = job.bound
        try:
            with lock:
                current_bounds().check()
                try:
                    bound.replay(queue)
                    self._plans.touch(job.shapes)
                    self._copies, self._end = Copies(), None
                    queue.finish()
                    bound.check()
                except WaitInVainError as error:
                    self._repeat(job, queue, None, error)
        except KeyboardInterrupt:
            lock.release()
            raise
        self._replay = replay

    def follow(self, followers: tuple[Follower, ...]) -> None:
        """Tell these followers what is enqueued."""
        self._replay = None
        self._followers = followers

    def _tell(self, queue: cl.Queue) -> None:
        """Tell what was enqueued since the last time, with the queue's lock."""
        if isinstance(queue, cl.RecordingQueue):
            batch = queue.take()
            for follower in self._followers:
                try:
                    follower.batch(batch)
                except Exception:  # noqa: BLE001 - who follows must not end an inference
                    log_failure(follower)

    def wait(self, seconds: float | None) -> bool:
        """Wait for an inference that `run` left on a user's queue."""
        return self._end is None or self._end.wait(seconds)

    def _prepare(self) -> Job:
        """Gather what the next inference reads and writes; as before, while that stays."""
        variables = self._variables.values()
        for known in self._known:
            job = known.job
            if known.holds(variables) and self._bind_plan(job.shapes) is job.bound:
                return job
        values = [variable.value for variable in variables]
        job = self._gather()
        on_device = [value for value in values if isinstance(value, GpuBlob)]
        is_fixed = not (self.executable.batch_limit or self.executable.size_inputs)
        if job.is_remote and len(on_device) == len(values) and is_fixed:
            self._known = [*self._known[1 - RECENT :], KnownJob(job, job.blobs, on_device)]
        return job

    def _gather(self) -> Job:
        """Gather what the next inference reads and writes."""
        limit, batch = self.executable.batch_limit, self._batch
        inputs: dict[str, Array | GpuBlob] = {}
        shapes: list[tuple[int, ...] | None] = []
        for name, port in self.executable.inputs.items():
            blob = self.blob(name)
            if name in self.executable.size_inputs:
                shapes.append(_values(blob))
            elif port.desc.kind != "tensor":
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
        all_shapes = (*shapes, *self._state_sizes())
        bound = self._bind_plan(all_shapes)
        return Job(bound, inputs, self._outputs(bound), all_shapes)

    def _outputs(self, bound: BoundPlan) -> dict[str, Array | GpuBlob]:
        """Return the memory of the outputs whose sizes the plan knows, allocating what is new."""
        limit, batch = self.executable.batch_limit, self._batch
        outputs: dict[str, Array | GpuBlob] = {}
        for name, value in bound.plan.contents.outputs.items():
            if value.on_host:
                continue
            if name in self._variables:
                outputs[name] = self._variables[name].target(value)
                continue
            shape = (limit, *value.shape[1:]) if limit else value.shape
            if name in self.kept and value.storage is value.element_type:
                outputs[name] = self.blobs[name] = self._memory_to_keep(name, value, shape)
                continue
            blob = self.blobs.get(name)
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
                blob = self.allocate(name, desc)
            outputs[name] = blob.array[:batch] if limit else blob.array
        return outputs

    def _memory_to_keep(self, name: str, value: Value, shape: tuple[int, ...]) -> GpuBlob:
        """Return device memory of the request's own for an output, allocated when it changes."""
        held = self.kept[name]
        if not isinstance(held, GpuBlob) or held.is_released or held.shape != shape:
            desc = TensorDesc(value.element_type, Shape(shape))
            held = self.kept[name] = BufferBlob.allocated(self.executable.context, desc)
        return held

    def _may_overlap(self, job: Job, queue: cl.Queue) -> bool:
        """Whether others may use the queue until the plan ends; see `WAITING`."""
        alone = self._followers or queue.profiling
        if job.bound.plan.joined:  # which may have to be repeated, also in the midst
            alone = alone or self._on_users_queue or job.bound.uses_host
        return self._waits and not alone

    def _run_to_end(self, job: Job, queue: cl.Queue, turns: TurnLock | None) -> None:
        """Enqueue the plan and wait; once more where what ran as one launch did not end."""
        try:
            self._enqueue(job, queue, turns)
            queue.finish()
            job.bound.check()
        except WaitInVainError as error:
            self._repeat(job, queue, turns, error)

    def _repeat_if_void(self, job: Job, queue: cl.Queue, lock: TurnLock) -> None:
        """Run again where what ran as one launch did not end, behind what others enqueued."""
        try:
            job.bound.check()
        except WaitInVainError as error:
            with lock:
                self._repeat(job, queue, lock, error)

    def _repeat(
        self, job: Job, queue: cl.Queue, turns: TurnLock | None, error: WaitInVainError
    ) -> None:
        """Run again, launch by launch, unless inputs are overwritten."""
        if not job.bound.may_repeat(job.inputs, job.outputs):
            raise error
        job.bound.clear_kept(queue)
        self._enqueue(job, queue, turns)
        queue.finish()

    def _enqueue(self, job: Job, queue: cl.Queue, turns: TurnLock | None = None) -> None:
        before = queue.copies.copy()
        job.bound.enqueue(queue, job.inputs, job.outputs, turns)
        self._copies = queue.copies.since(before).since(job.bound.backlog.copies_of_others)
        self._enqueued = time.perf_counter()

    def _advance(self, job: Job) -> None:
        """Let the variables that the device computed have their next values."""
        for name, variable in self._variables.items():
            if name in job.outputs:
                variable.advance(job.outputs[name])

    def _mark(self, job: Job, queue: cl.Queue) -> cl.Event:
        """Note where on the user's queue the inference ends; its memory lives until then."""
        self._end = end = queue.mark()
        self.executable.context.keep_until(end, job)
        return end

    def _finish(self, job: Job) -> None:
        """Publish what the host gets."""
        computed = job.bound.complete(job.outputs)
        for name, array in computed.items():
            if name in self._variables:
                continue
            port, blob = self.executable.ports[name], self.blobs.get(name)
            if isinstance(blob, GpuBlob) and name not in self.kept:
                # Computed by the host: the only way is an upload.
                port.check(port.element_type, array.shape)
                blob.copy_from(array)
                self._copies.uploads += 1
                continue
            self.publish(name, array)
        for name, variable in self._variables.items():
            if name in computed:
                variable.advance(computed[name].copy())
        self._last_plan = job.bound.plan
        if self.executable.profiling:
            job.bound.plan.times.add(job.bound.layer_times())
            self.executable.note_plan(job.bound.plan)

    def counts(self) -> list[LayerCount]:
        """Return the times of the last plan's layers, on average."""
        if not self.executable.profiling:
            raise InferenceError(
                "counters are off; load the network with PERF_COUNT=YES to measure layers"
            )
        plan = self._last_plan or self.executable.latest_plan()
        return self.executable.layer_counts(plan)


def _values(blob: Blob) -> tuple[int, ...]:
    """Return the elements of an input whose values say sizes."""
    if not isinstance(blob, GpuBlob):
        return tuple(blob.array.reshape(-1).tolist())
    array = np.empty(blob.shape, blob.element_type.dtype)
    blob.copy_to(array)
    return tuple(array.reshape(-1).tolist())
