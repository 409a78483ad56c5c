"""CpuRunner: runs the bound plan for the shapes of its inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from weakref import ref

import numpy as np

from polydevice.blob import Blob, RoiBlob
from polydevice.dtype import Array
from polydevice.errors import InferenceError, RequestError
from polydevice.profiling import LayerCount
from polydevice.runtime.executor import is_stream_thread
from polydevice.runtime.follower import Follower, log_failure
from polydevice.runtime.layer_times import LayerTime
from polydevice.runtime.runner import Runner
from polydevice.runtime.variable import RequestVariable
from polydevice_cpu.cores import keep_to
from polydevice_cpu.onednn import openmp
from polydevice_cpu.plan.binding.bound import BoundPlan
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.places import OwnPlaces, is_small
from polydevice_cpu.plan.binding.silence import about_errors, ignore_errors, restore
from polydevice_cpu.plan.compiled import shapes_of
from polydevice_cpu.report import layer_counts
from polydevice_cpu.variable import variables

if TYPE_CHECKING:
    from polydevice_cpu.executable import CpuExecutableNetwork


KEPT_BYTES = 1 << 20
"""Outputs of that size together are kept with a bound plan: where 30 shapes take turns, five of
some 100 KB cost 5 µs so, and 100 where their memory goes from shape to shape."""


def _no_plan() -> None:
    """Return nothing, in the place of the bound plan that ran last."""


class CpuRunner(Runner):
    """Memory of its own; the plan and the weights are the network's."""

    executable: CpuExecutableNetwork

    def __init__(self, executable: CpuExecutableNetwork) -> None:
        """Prepare to run a network, which is planned when shapes are known."""
        super().__init__(executable)
        self._context = Context(executable.compiled)
        self.plans = executable.compiled.request_plans(self._context)
        self.bound: BoundPlan | None = None
        self._latest: Callable[[], BoundPlan | None] = _no_plan
        self._places: dict[str, tuple[int, bool, tuple[int, ...]]] = {}
        self._sources: dict[int, Array] = {}
        self._regions: list[RoiBlob] = []
        self._batch = executable.batch_limit  # items of the next inferences; 0 for all there are
        self._variables = variables(executable.variables, self._context)
        ports = executable.ports
        self._outputs = [(key, ports[key]) for key in executable.output_keys]
        self._followers: tuple[Follower, ...] = ()
        self._is_timed = executable.perf_count

    def bind(self, name: str, blob: Blob) -> None:
        """Point the bound plan to other memory."""
        bound, self.bound = self.bound, None  # Ctrl-C may end this anywhere
        before = self.blobs.get(name)
        self.blobs[name] = blob
        if isinstance(blob, RoiBlob) or isinstance(before, RoiBlob):
            self._regions = [each for each in self.blobs.values() if isinstance(each, RoiBlob)]
        if bound is None:
            return
        place = self._places.get(name)
        if place is None:  # what a tail computes is handed out, not written in place
            self.bound = bound
            return
        index, is_input, shape = place
        if blob.array.shape != shape:
            return
        if index in self._sources and is_input:
            self._sources[index] = self._items(blob.array)
        elif is_input:
            bound.set_input(index, self._items(blob.array))
        else:
            bound.set_output(index, self._items(blob.array))
            if bound.own_places is not None:
                bound.own_places.is_current = False
        self.bound = bound

    def copies_input(self, blob: Blob | None) -> bool:
        """Small inputs are copied to where the plan reads them."""
        return type(blob) is Blob and is_small(blob.array)

    def release(self) -> None:
        """Let go of the plan and its memory, once the network is closed; blobs stay."""
        self.bound = None
        self.plans.release()
        self._context.tails.clear()
        self.spare.close()

    def set_batch(self, size: int) -> None:
        """Let the next inferences compute the first items of the batch only."""
        limit = self.executable.largest_batch
        if not limit:
            super().set_batch(size)
        if not 1 <= size <= limit:
            raise RequestError(
                f"batch {size} is not possible for {self.executable.name!r}; legal: 1 to {limit}"
            )
        self._batch, self.bound = size, None

    def _items(self, array: Array) -> Array:
        """Return the part of an input or output that is computed."""
        return array if self._batch == self.executable.batch_limit else array[: self._batch]

    def begin(self) -> None:
        """Leave the cores to the streams' threads, if synchronous inferences ran in this one."""
        if not is_stream_thread():
            openmp.stop_workers()

    def run(self, stream: int) -> None:
        """Run the plan, on the cores of the stream if it has some."""
        if self.executable.cores and is_stream_thread():
            keep_to(self.executable.cores[stream % len(self.executable.cores)])
        bound = self.bound
        if bound is None or bound.lacks_arrays or not bound.plan.is_final:
            bound = self._prepare()
        for region in self._regions:
            region.gather()
        for index, place in bound.input_places.items():
            place[...] = self._sources[index]
        if bound.computes_arrays:
            before = about_errors()
            try:
                ignore_errors()
                self._compute(bound)
            finally:
                restore(before)
        else:
            self._compute(bound)
        if bound.tail_outputs:
            self._hand_out(bound)
        if self._variables:
            self._context.commit()

    def _hand_out(self, bound: BoundPlan) -> None:
        """Publish what a tail has computed.

        Nothing is bound to memory of such outputs but what a user sets, so that most of them need
        not be: 0.7 instead of 2 µs each.
        """
        new, given, blobs = bound.plan.new_results, self.given, self.blobs
        is_free = not (given or self._regions)
        for index, array in bound.tail_outputs.items():
            name, port = self._outputs[index]
            if not is_free and (name in given or isinstance(blobs.get(name), RoiBlob)):
                self.publish(name, array, is_new=index in new)
                continue
            if index not in new or not array.flags.c_contiguous:
                array = array.copy(order="C")
            blobs[name] = port.blob(array)

    def _compute(self, bound: BoundPlan) -> None:
        if self._is_timed:
            self._run_timed(bound)
        else:
            bound.run()

    def _run_timed(self, bound: BoundPlan) -> None:
        """Run, and note the times of the steps for counters and followers."""
        marks = bound.run_marked()
        for follower in self._followers:
            try:
                follower.steps(bound.plan.labels, marks)
            except Exception:  # noqa: BLE001 - who follows must not end an inference
                log_failure(follower)
        if self.executable.perf_count:
            lengths = ((end - start) / 1e3 for start, end in itertools.pairwise(marks))
            bound.plan.times.add({n: LayerTime(us, us) for n, us in enumerate(lengths)})

    def follow(self, followers: tuple[Follower, ...]) -> None:
        """Tell these followers of the steps."""
        self._followers = followers
        self._is_timed = bool(followers) or self.executable.perf_count

    def _prepare(self) -> BoundPlan:
        """Choose the plan for the inputs' shapes and point it to inputs and outputs."""
        arrays = [self._items(self.array(name)) for name in self.executable.inputs]
        bound = self.plans.bound(shapes_of(arrays))
        before = self._latest()
        if before is not bound:
            if before is not None:
                before.leave()
            self._latest = ref(bound)
        own, is_free = bound.own_places, not (self.given or self.is_part)
        if own is None or not is_free or bound.lacks_arrays or own.shares(arrays):
            self._point(bound, arrays)
        else:
            self._use_own(bound, own, arrays)
        self.bound = bound
        return bound

    def _use_own(self, bound: BoundPlan, own: OwnPlaces, arrays: Sequence[Array]) -> None:
        """Use the memory that is kept for these shapes."""
        self._sources = {index: arrays[index] for index in own.small}
        for index in own.large:
            bound.set_input(index, arrays[index])
        if not own.is_current:
            for index, _, blob in own.outputs:
                bound.set_output(index, blob.array, is_own=True)
            own.is_current = True
        for _, name, blob in own.outputs:
            self.blobs[name] = blob
        self._places = own.names

    def _point(self, bound: BoundPlan, arrays: Sequence[Array]) -> None:
        """Point a plan to inputs, and to memory of outputs, which is kept if it is small."""
        self._sources = {}
        for index, array in enumerate(arrays):
            if is_small(array):
                self._sources[index] = array
                if index not in bound.input_places:
                    bound.input_places[index] = np.empty(array.shape, array.dtype)
                bound.set_input(index, bound.input_places[index], is_own=True)
            else:
                bound.set_input(index, array)
        self._places = {
            name: (index, True, self.array(name).shape)
            for index, name in enumerate(self.executable.inputs)
        }
        limit, outputs = self.executable.batch_limit, []
        is_free = not (limit or self.given or self.is_part)
        is_own = is_free and bound.own_places is None and bound.plan.result_bytes <= KEPT_BYTES
        for index in bound.plan.whole_outputs:
            name, (shape, _) = self.executable.output_keys[index], bound.plan.results[index]
            blob = self.blobs.get(name)
            if limit:
                shape = limit, *shape[1:]
            if blob is None or blob.shape != shape:
                blob = self.allocate_sizes(name, shape)
            bound.set_output(index, self._items(blob.array), is_own=is_own)
            self._places[name] = (index, False, shape)
            outputs.append((index, name, blob))
        bound.lacks_arrays = False
        if is_own:
            large = [index for index in range(len(arrays)) if index not in self._sources]
            bound.own_places = OwnPlaces(list(self._sources), large, outputs, self._places)
            bound.held_bytes += bound.plan.result_bytes
        elif bound.own_places is not None:
            bound.own_places.is_current = False

    def counts(self) -> list[LayerCount]:
        """Return the times of the bound plan's layers, on average."""
        if not self.executable.perf_count:
            raise InferenceError(
                "the network was loaded without PERF_COUNT; load it with {'PERF_COUNT': 'YES'}"
            )
        if self.bound is None:
            return layer_counts(self.executable.latest_plan(), self.executable.layers)
        return layer_counts(self.bound.plan, self.executable.layers)

    def variables(self) -> Sequence[RequestVariable]:
        """Return the variables that are kept between inferences."""
        return self._variables
