"""GpuRequest: replays the plan of its executable network with its own memory."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np

from polydevice.blob import Blob
from polydevice.errors import InferenceError
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

    def _run(self, stream: int) -> None:
        inputs = {name: self._blob(port).array for name, port in self._network.inputs.items()}
        bound = self._bind_plan(tuple(array.shape for array in inputs.values()))
        outputs = {}
        for name, value in bound.plan.graph.outputs.items():
            if value.on_host:
                continue
            blob = self._blobs.get(name)
            if blob is None or blob.array.shape != value.shape:
                blob = Blob.empty(TensorDesc(value.element_type, Shape(value.shape)))
                self._bind(name, blob)
            outputs[name] = blob.array
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
