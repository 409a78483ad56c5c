"""AsyncInferQueue: a set of requests that are kept busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from polydevice.compat.openvino.errors import failure, translated
from polydevice.compat.openvino.requests.infer_request import InferRequest
from polydevice.compat.openvino.surface import Surface
from polydevice.errors import PolydeviceError
from polydevice.infer_request import InferRequest as CoreRequest

if TYPE_CHECKING:
    from polydevice.compat.openvino.devices.compiled_model import CompiledModel


class AsyncInferQueue(Surface):
    """A set of requests; each start takes an idle one, and waits while all are busy."""

    __slots__ = ("__weakref__", "_by_core", "_callback", "_loaded", "_queue", "_requests")

    @translated
    def __init__(self, model: CompiledModel, jobs: int = 0) -> None:
        """Make so many requests; 0 takes the device's optimal number."""
        self._loaded = model._loaded
        self._queue = model._loaded.executable.infer_queue(jobs)
        self._requests = [InferRequest._of(model, request) for request in self._queue]
        self._by_core = {id(request._request): request for request in self._requests}
        self._callback: Callable[[InferRequest, Any], Any] | None = None
        self._queue.set_callback(self._done)

    def _done(self, request: CoreRequest, userdata: Any) -> None:
        ours = self._by_core[id(request)]
        ours.userdata = userdata
        if self._callback is not None:
            self._callback(ours, userdata)

    def set_callback(self, callback: Callable[[InferRequest, Any], Any]) -> None:
        """Call ``callback(request, userdata)`` after each inference."""
        self._callback = callback

    def start_async(
        self, inputs: Any = None, userdata: Any = None, share_inputs: bool = False
    ) -> None:
        """Start an inference on an idle request, waiting for one while all are busy.

        Args:
            inputs: as `InferRequest.infer` takes them; always copied, as requests take turns.
            userdata: handed to the callback.
            share_inputs: has no effect.

        Raises:
            RuntimeError: inputs that do not fit.
        """
        try:
            if inputs is None:
                self._queue.start_async(None, userdata)
                return
            loaded = self._loaded
            feed = loaded.feed(inputs)
            ready = {name: loaded.shared(name, value) for name, value in feed.items()}
            self._queue.start_async(ready, userdata)
        except PolydeviceError as error:
            raise failure(error) from error

    def is_ready(self) -> bool:
        """Whether a request is idle."""
        return self._queue.is_ready()

    def get_idle_request_id(self) -> int:
        """Wait until a request is idle, and return the number of the one that starts next."""
        return self._queue.get_idle_request_id()

    @translated
    def wait_all(self) -> None:
        """Wait until all requests are idle; raises what an inference or the callback raised."""
        self._queue.wait_all()

    @property
    def userdata(self) -> list[Any]:
        """What each request was started with last."""
        return [request.userdata for request in self._requests]

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[InferRequest]:
        return iter(self._requests)

    def __getitem__(self, i: int) -> InferRequest:
        return self._requests[i]
