"""HeteroRequest: runs the parts one after another and hands blobs from one to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydevice.blob import Blob
from polydevice.dtype import Array
from polydevice.errors import InferenceError, PolydeviceError
from polydevice.infer_request import InferRequest
from polydevice.node import Port
from polydevice.passes.lower_state import zeros
from polydevice.profiling import LayerCount
from polydevice.variable_state import VariableState
from polydevice_hetero.state import RequestVariable

if TYPE_CHECKING:
    from polydevice_hetero.executable import HeteroExecutable


class HeteroRequest(InferRequest):
    """One inference over all parts.

    Values pass between parts as host blobs, shared and not copied; a device that keeps its values
    elsewhere copies on its own side.
    """

    executable: HeteroExecutable

    def __init__(self, executable: HeteroExecutable) -> None:
        """Make one request of every part."""
        super().__init__(executable)
        self._parts = [part.create_infer_request() for part in executable.parts]
        self._variables = [RequestVariable(v) for v in executable.variables]

    def query_state(self) -> list[VariableState]:
        """Return the variables that this request keeps between inferences."""
        return list(self._variables)

    def _run(self, stream: int) -> None:
        executable = self.executable
        values: dict[Port, Array] = {}
        for name, port in executable.parameters.items():
            if name in executable.inputs:
                values[port] = self._blob(self._ports[name]).array
        todo = list(range(len(self._parts)))
        todo = self._start_variables(values, todo)
        for index in todo:
            self._run_part(index, values)
        for name, port in executable.sources.items():
            self._publish(name, _value(port, values))
        for variable, kept in zip(executable.variables, self._variables):
            if variable.assigned is not None:
                kept.value = _value(variable.assigned, values).copy()

    def _start_variables(self, values: dict[Port, Array], todo: list[int]) -> list[int]:
        """Feed the variables; the parts that compute a first value run before those that read it.

        A part that would need the variable to compute its own first value cannot exist: a
        variable's initial value never depends on the variable.
        """
        later = list(todo)
        for variable, kept in zip(self.executable.variables, self._variables):
            port = variable.read
            if kept.value is not None:
                values[port] = kept.value
            elif variable.initial is None:
                values[port] = zeros(variable)
            else:
                self._compute_initial(variable.initial, values)
                values[port] = _value(variable.initial, values)
        return [index for index in later if not self._is_done(index, values)]

    def _compute_initial(self, wanted: Port, values: dict[Port, Array]) -> None:
        if wanted in values or wanted.node.type == "Const":
            return
        for index, part in enumerate(self.executable.subgraphs):
            if wanted in part.targets.values():
                for port in part.sources.values():
                    self._compute_initial(port, values)
                self._run_part(index, values)
                return
        raise InferenceError(f"no part computes {wanted.name!r}")

    def _is_done(self, index: int, values: dict[Port, Array]) -> bool:
        targets = self.executable.subgraphs[index].targets.values()
        return bool(targets) and all(port in values for port in targets)

    def _run_part(self, index: int, values: dict[Port, Array]) -> None:
        part, request = self.executable.subgraphs[index], self._parts[index]
        try:
            results = request.infer(
                {name: _value(port, values) for name, port in part.sources.items()}
            )
        except PolydeviceError as error:
            raise type(error)(f"subgraph {index} on {part.device}: {error}") from error
        for name, port in part.targets.items():
            values[port] = results[name]

    def _publish(self, name: str, value: Array) -> None:
        """Give an output to the user: in place where the user set memory, else as it is."""
        blob = self._blobs.get(name)
        if blob is not None and blob.array is not value and blob.shape == value.shape:
            blob.array[...] = value
        else:
            super()._bind(name, Blob(value, self._ports[name].element_type))

    def _perf_counts(self) -> list[LayerCount]:
        counts: list[LayerCount] = []
        for index, request in enumerate(self._parts):
            for count in request._perf_counts():
                counts.append(
                    LayerCount(
                        f"subgraph{index}: {count.name}",
                        count.status,
                        count.layer_type,
                        count.exec_type,
                        count.real_time_us,
                        count.cpu_time_us,
                        len(counts),
                    )
                )
        return counts


def _value(port: Port, values: dict[Port, Array]) -> Array:
    constant = port.node.constant
    return constant if constant is not None else values[port]
