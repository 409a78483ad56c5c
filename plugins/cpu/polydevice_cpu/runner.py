"""CpuRunner: runs the bound plan for the shapes of its inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, ref

import numpy as np

from polydevice.blob import Blob, RoiBlob
from polydevice.dtype import Array
from polydevice.errors import InferenceError, RequestError
from polydevice.profiling import LayerCount
from polydevice.runtime.executor import is_stream_thread
from polydevice.runtime.follower import Follower, log_failure
from polydevice.runtime.layer_times import LayerTime
from polydevice.runtime.runner import Runner
from polydevice.runtime.spare_memory import LEAST_BYTES
from polydevice.runtime.variable import RequestVariable
from polydevice_cpu.cores import keep_to
from polydevice_cpu.onednn import openmp
from polydevice_cpu.plan.binding.bound import BoundPlan
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.places import is_small
from polydevice_cpu.plan.compiled import shapes_of
from polydevice_cpu.report import layer_counts
from polydevice_cpu.variable import variables

if TYPE_CHECKING:
    from polydevice_cpu.executable import CpuExecutableNetwork


KEPT_BYTES = 1 << 18
"""Outputs of that size together are kept with a bound plan, where none is so large that its memory
goes from shape to shape."""


def _no_plan() -> None:
    """Return nothing, in the place of the bound plan that ran last."""


@dataclass(frozen=True)
class _Ready:
    """What is as it was when the shapes of a bound plan come back.

    Attributes:
        places: see `CpuRunner`.
        outputs: number, key and memory of those that the plan computes.
    """

    places: dict[str, tuple[int, bool, tuple[int, ...]]]
    outputs: list[tuple[int, str, Blob]]


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
        self._ready: WeakKeyDictionary[BoundPlan, _Ready] = WeakKeyDictionary()
        self._regions: list[RoiBlob] = []
        self._batch = executable.batch_limit  # items of the next inferences; 0 for all there are
        self._variables = variables(executable.variables, self._context)
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
            with np.errstate(all="ignore"):  # infinities and NaN are values like others
                self._compute(bound)
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
        keys, ports = self.executable.output_keys, self.executable.ports
        for index, array in bound.tail_outputs.items():
            name = keys[index]
            is_new = index in bound.plan.new_results
            if name in self.given or isinstance(self.blobs.get(name), RoiBlob):
                self.publish(name, array, is_new=is_new)
                continue
            if not is_new or not array.flags.c_contiguous or array.dtype.hasobject:
                array = array.copy(order="C")
            self.blobs[name] = ports[name].blob(array)

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
        if before is not None and before is not bound:
            before.leave()
        self._latest = ref(bound)
        self._sources = {}
        for index, array in enumerate(arrays):
            if is_small(array):
                self._sources[index] = array
                place = bound.input_places.setdefault(index, np.empty(array.shape, array.dtype))
                array = place
            bound.set_input(index, array)
        ready = self._ready.get(bound)
        if ready is None or not self._take(ready, bound, arrays):
            self._place_outputs(bound)
        bound.lacks_arrays = False
        self.bound = bound
        return bound

    def _take(self, ready: _Ready, bound: BoundPlan, arrays: Sequence[Array]) -> bool:
        """Use the memory of outputs that is kept; False where it must not be written."""
        if self.given or self.is_part:
            return False
        for _, _, blob in ready.outputs:
            for array in arrays:  # the user may hand over what an earlier inference returned
                if np.may_share_memory(array, blob.array):
                    return False
        for index, name, blob in ready.outputs:
            self.blobs[name] = blob
            bound.set_output(index, blob.array)
        self._places = ready.places
        return True

    def _place_outputs(self, bound: BoundPlan) -> None:
        """Give outputs memory where what they have does not fit, and keep it if it is small."""
        self._places = {
            name: (index, True, self.array(name).shape)
            for index, name in enumerate(self.executable.inputs)
        }
        limit, outputs, largest = self.executable.batch_limit, [], 0
        for index in bound.plan.whole_outputs:
            name, (shape, _) = self.executable.output_keys[index], bound.plan.results[index]
            blob = self.blobs.get(name)
            if limit:
                shape = limit, *shape[1:]
            if blob is None or blob.shape != shape:
                blob = self.allocate_sizes(name, shape)
            bound.set_output(index, self._items(blob.array))
            self._places[name] = (index, False, shape)
            outputs.append((index, name, blob))
            largest = max(largest, blob.array.nbytes)
        size, has_own = bound.plan.result_bytes, not (limit or self.given or self.is_part)
        if bound not in self._ready and has_own and size <= KEPT_BYTES and largest < LEAST_BYTES:
            self._ready[bound] = _Ready(self._places, outputs)
            bound.held_bytes += size

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
