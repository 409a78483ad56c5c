"""ExecutableNetwork: a network that was loaded."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polydevice.compat.inference_engine.constants import StatusCode
from polydevice.compat.inference_engine.descriptions import CDataPtr, InputInfoCPtr, loaded
from polydevice.compat.inference_engine.network import IENetwork
from polydevice.compat.inference_engine.request import InferRequest
from polydevice.compat.inference_engine.surface import Surface
from polydevice.compat.openvino.errors import translated
from polydevice.dtype import Array
from polydevice.executable_network import ExecutableNetwork as CoreExecutable


class ExecutableNetwork(Surface):
    """A network that was loaded; `IECore.load_network` makes one."""

    def __init__(self, executable: CoreExecutable) -> None:
        """Show core's, which is closed when nothing refers to this any more."""
        self._executable = executable
        self._requests: list[InferRequest] | None = None
        weakref.finalize(self, executable.close).atexit = False  # threads end by themselves then

    @property
    def requests(self) -> list[InferRequest]:
        """The requests."""
        if self._requests is None:
            self._requests = self._made()
        return self._requests

    @translated
    def _made(self) -> list[InferRequest]:
        return [InferRequest(request) for request in self._executable.requests]

    def infer(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Run the first request, and return name → copy of an output.

        Raises:
            AssertionError: there is no input of that name.
            ValueError: an array of another shape.
            RuntimeError: the inference failed.
        """
        requests = self._requests or self.requests
        return {name: array.copy() for name, array in requests[0]._run(inputs).items()}

    def start_async(self, request_id: int, inputs: Mapping[str, Any] | None = None) -> InferRequest:
        """Start the request of that number, and return it.

        Raises:
            ValueError: there is none of that number.
        """
        if not 0 <= request_id < len(self.requests):
            raise ValueError(
                f"Incorrect request_id specified: {request_id}; there are 0 to "
                f"{len(self.requests) - 1}"
            )
        request = self.requests[request_id]
        request.async_infer(inputs)
        return request

    @translated
    def wait(self, num_requests: int | None = None, timeout: int | None = None) -> StatusCode:
        """Wait until so many requests, by default all, are idle; -1 or None waits without limit."""
        return StatusCode(int(self._executable.wait(num_requests, timeout)))

    def get_idle_request_id(self) -> int:
        """Return the number of a request that is idle, or -1."""
        return self._executable.get_idle_request_id()

    @property
    def input_info(self) -> dict[str, InputInfoCPtr]:
        """Name → input."""
        return {n: InputInfoCPtr(port) for n, port in sorted(self._executable.inputs.items())}

    @property
    def inputs(self) -> dict[str, CDataPtr]:
        """Name → input; `input_info` says more."""
        warnings.warn(
            "'inputs' property of ExecutableNetwork class is deprecated. To access DataPtrs user "
            "need to use 'input_data' property of InputInfoCPtr objects which can be accessed by "
            "'input_info' property.",
            DeprecationWarning,
            stacklevel=2,
        )
        return {name: loaded(port) for name, port in sorted(self._executable.inputs.items())}

    @property
    def outputs(self) -> dict[str, CDataPtr]:
        """Name → output."""
        return {name: loaded(port) for name, port in sorted(self._executable.outputs.items())}

    @translated
    def get_exec_graph_info(self) -> IENetwork:
        """Return the graph that the device runs."""
        return IENetwork._of(self._executable.get_exec_graph_info())

    @translated
    def get_metric(self, metric_name: str) -> Any:
        """Return a metric; raises RuntimeError when there is none of that name."""
        return self._executable.get_metric(metric_name)

    @translated
    def get_config(self, config_name: str) -> str:
        """Return a key's value; raises RuntimeError when there is none of that name."""
        return self._executable.get_config(config_name)

    @translated
    def export(self, model_file: Any) -> None:
        """Write the loaded network to a file, for `IECore.import_network`."""
        Path(model_file).write_bytes(self._executable.export())
