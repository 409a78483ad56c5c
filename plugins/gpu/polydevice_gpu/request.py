"""GpuRequest: replays the plan of its executable network with its own memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from polydevice.blob import Blob
from polydevice.errors import InferenceError, RequestError
from polydevice.infer_request import InferRequest
from polydevice.profiling import LayerCount
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice_gpu.plan import BoundPlan
from polydevice_gpu.report import layer_counts, times_by_node

if TYPE_CHECKING:
    from polydevice_gpu.executable import GpuExecutable, Shapes

BOUND_LIMIT = 4
"""Most plans that a request keeps memory for, when the network's shapes are dynamic."""


class GpuRequest(InferRequest):
    """One inference at a time on an OpenCL device."""

    def __init__(self, executable: GpuExecutable) -> None:
        """Prepare everything that can be before inputs are known."""
        super().__init__(executable)
        self._network = executable
        self._last: BoundPlan | None = None
        self._batch = executable.batch_limit
        self._bound: OrderedDict[Shapes, BoundPlan] = OrderedDict()
        sizes = [port.sizes for port in executable.inputs.values()]
        if all(size is not None for size in sizes):
            self._bind_plan(tuple(size for size in sizes if size is not None))

    def _bind_plan(self, shapes: Shapes) -> BoundPlan:
        bound = self._bound.get(shapes)
        if bound is None:
            bound = self._network.plan(shapes).bind()
            self._bound[shapes] = bound
            while len(self._bound) > BOUND_LIMIT:
                self._bound.popitem(last=False)
        else:
            self._bound.move_to_end(shapes)
        return bound

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

    def _run(self, stream: int) -> None:
        limit, batch = self._network.batch_limit, self._batch
        inputs = {name: self._blob(port).array for name, port in self._network.inputs.items()}
        if batch < limit:
            inputs = {name: array[:batch] for name, array in inputs.items()}
        bound = self._bind_plan(tuple(array.shape for array in inputs.values()))
        outputs = {}
        for name, value in bound.plan.graph.outputs.items():
            if value.on_host:
                continue
            blob = self._blobs.get(name)
            shape = (limit, *value.shape[1:]) if limit else value.shape
            if blob is None or blob.array.shape != shape:
                blob = Blob.empty(TensorDesc(value.element_type, Shape(shape)))
                self._bind(name, blob)
            outputs[name] = blob.array[:batch] if limit else blob.array
        queue, lock = self._network.queue(stream)
        with lock:
            others = bound.run(queue, inputs, outputs)
        for name, array in others.items():
            kept = np.array(array, order="C")
            self._bind(name, Blob(kept, self._network.outputs[name].element_type))
        self._last = bound
        if self._network.profiling:
            self._network.note_times(bound.plan, bound.times())

    def _perf_counts(self) -> list[LayerCount]:
        if not self._network.profiling:
            raise InferenceError(
                "counters are off; load the network with PERF_COUNT=YES to measure layers"
            )
        if self._last is None:
            raise InferenceError("no counters yet; infer first")
        plan = self._last.plan
        return layer_counts(plan, times_by_node(plan, self._last.times()))
