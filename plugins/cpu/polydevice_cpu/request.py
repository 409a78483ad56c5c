"""CpuInferRequest: runs the bound plan for the shapes of its inputs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from polydevice.blob import Blob, RoiBlob
from polydevice.errors import InferenceError
from polydevice.executor import is_stream_thread
from polydevice.infer_request import InferRequest
from polydevice.profiling import LayerCount
from polydevice.variable_state import VariableState
from polydevice_cpu.onednn import openmp
from polydevice_cpu.plan.bound import BoundPlan
from polydevice_cpu.plan.compiled import shapes_of
from polydevice_cpu.plan.context import Context
from polydevice_cpu.report import layer_counts
from polydevice_cpu.variable import variables

if TYPE_CHECKING:
    from polydevice_cpu.executable import CpuExecutableNetwork


class CpuInferRequest(InferRequest):
    """A request with memory of its own; the plan and the weights are the network's."""

    executable: CpuExecutableNetwork

    def __init__(self, executable: CpuExecutableNetwork) -> None:
        """Make an idle request."""
        super().__init__(executable)
        self._context = Context(executable.compiled)
        self._execution = executable.compiled.execution(self._context)
        self._bound: BoundPlan | None = None
        self._places: dict[str, tuple[int, bool, tuple[int, ...]]] = {}
        self._regions: list[RoiBlob] = []
        self._threads = executable.threads
        self._get_threads, self._set_threads = openmp.functions()
        self._variables = variables(executable.compiled.network, self._context)

    def _bind(self, name: str, blob: Blob) -> None:
        before = self._blobs.get(name)
        self._blobs[name] = blob
        if isinstance(blob, RoiBlob) or isinstance(before, RoiBlob):
            self._regions = [each for each in self._blobs.values() if isinstance(each, RoiBlob)]
        if self._bound is None:
            return
        index, is_input, shape = self._places.get(name, (0, True, None))
        if blob.array.shape != shape:
            self._bound = None
        elif is_input:
            self._bound.set_input(index, blob.array)
        else:
            self._bound.set_output(index, blob.array)

    def _begin(self) -> bool:
        """Leave the cores to the streams' threads, if synchronous inferences ran in this one."""
        if not is_stream_thread():
            openmp.stop_workers()
        return False

    def _run(self, stream: int) -> None:
        before = self._get_threads()
        if before == self._threads:
            self._compute()
            return
        self._set_threads(self._threads)
        try:
            self._compute()
        finally:
            self._set_threads(before)

    def _compute(self) -> None:
        bound = self._bound or self._prepare()
        for region in self._regions:
            region.gather()
        if self.executable.perf_count:
            bound.plan.times.add(bound.run_timed())
        else:
            bound.run()
        if bound.tail_outputs:
            names = list(self.executable.outputs)
            for index, array in bound.tail_outputs.items():
                self._blobs[names[index]] = Blob(array.copy(order="C"))
        if self._variables:
            self._context.commit()

    def _prepare(self) -> BoundPlan:
        """Choose the plan for the inputs' shapes and point it to inputs and outputs."""
        arrays = [self._blob(port).array for port in self.executable.inputs.values()]
        self._places = {
            name: (index, True, array.shape)
            for index, (name, array) in enumerate(zip(self.executable.inputs, arrays, strict=True))
        }
        bound = self._execution.bound(shapes_of(arrays))
        for index, array in enumerate(arrays):
            bound.set_input(index, array)
        for index, (name, value) in enumerate(
            zip(self.executable.outputs, bound.plan.outputs, strict=True)
        ):
            if value is None:
                continue
            blob = self._blobs.get(name)
            if blob is None or blob.shape != value.shape:
                element_type = self.executable.outputs[name].element_type
                size = math.prod(value.shape) * value.dtype.itemsize
                memory = self.executable.memory
                array = memory.allocated(size, f"output {name!r}", value.allocate)
                blob = self._blobs[name] = Blob(array, element_type)
            bound.set_output(index, blob.array)
            self._places[name] = (index, False, value.shape)
        self._bound = bound
        return bound

    def _perf_counts(self) -> list[LayerCount]:
        if not self.executable.perf_count:
            raise InferenceError(
                "the network was loaded without PERF_COUNT; load it with {'PERF_COUNT': 'YES'}"
            )
        if self._bound is None:
            return layer_counts(self.executable.latest_plan(), self.executable.layers)
        return layer_counts(self._bound.plan, self.executable.layers)

    def _variable_states(self) -> list[VariableState]:
        """Return the variables that this request keeps between inferences."""
        return list[VariableState](self._variables)
