"""InferQueue: keeps a set of requests busy, from plain threads or from asyncio."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from polydevice.arguments import milliseconds, number_of_requests, shown
from polydevice.dtype import Array
from polydevice.errors import OptionValueError, RequestError
from polydevice.infer_request import InferRequest, StatusCode
from polydevice.locks import Condition
from polydevice.runtime.request_memory import Inputs

if TYPE_CHECKING:
    import asyncio  # where it is used, a coroutine runs, which has imported it

    from polydevice.executable_network import ExecutableNetwork


Done = Callable[[InferRequest, Any], None]


class InferQueue:
    """A fixed set of requests; each start takes an idle one, waiting for it when all are busy.

    ::

        queue = InferQueue(executable)
        queue.set_callback(lambda request, image: show(image, request.get_blob("prob").array))
        for image in images:
            queue.start_async({"data": image}, image)
        queue.wait_all()

    or, in a coroutine, ``result = await queue.infer({"data": image})``. Memory is bounded by the
    number of requests, whatever the number of inferences.
    """

    def __init__(
        self, executable: ExecutableNetwork, jobs: int = 0, *, ordered: bool = False
    ) -> None:
        """Make `jobs` requests; 0 makes the device's optimal number.

        Args:
            executable: the network.
            jobs: how many requests.
            ordered: whether the callback is called, and failures are noted, in the order in which
                inferences were started. A request whose inference ends before its turn waits,
                with its outputs, and is not idle.

        Raises:
            OptionValueError: for a negative number, or an order that is no truth value.
        """
        if not isinstance(ordered, bool):
            raise OptionValueError(f"ordered={shown(ordered)} is not possible; give True or False")
        jobs = number_of_requests(jobs, "jobs")
        number = jobs or executable.get_metric("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
        self._requests = [executable.create_infer_request() for _ in range(number)]
        self._idle: deque[int] = deque(range(number))
        self._changed = Condition()
        self._callback: Done | None = None
        self._userdata: list[Any] = [None] * number
        self._failures: list[BaseException] = []
        self._turns: deque[int] | None = deque() if ordered else None  # requests, as started
        self._early: dict[int, StatusCode] = {}  # ended before their turn
        self._serving = False  # somebody calls back in turn
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[int]]] = deque()
        for index, request in enumerate(self._requests):
            request.set_completion_callback(self._completed, index)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[InferRequest]:
        return iter(self._requests)

    def __getitem__(self, index: int) -> InferRequest:
        return self._requests[index]

    def set_callback(self, callback: Done | None) -> None:
        """Call ``callback(request, userdata)`` after each inference that succeeded.

        It runs in a stream's thread, before the request becomes idle, so that it may read the
        request's outputs. An exception in it is raised by `wait_all`.
        """
        self._callback = callback

    def start_async(
        self,
        inputs: Inputs | None = None,
        userdata: Any = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Start an inference on an idle request, waiting for one while all are busy.

        Args:
            inputs: as `InferRequest.infer` takes them, copied.
            userdata: handed to the callback.
            timeout_ms: how long to wait for an idle request; None waits without limit.

        Raises:
            RequestError: when no request became idle in time.
            BlobError: inputs that do not fit.
        """
        self._start(self._take(timeout_ms), inputs, userdata)

    def _take(self, timeout_ms: float | None) -> int:
        with self._changed:
            self._wait_for_idle(timeout_ms)
            return self._idle.popleft()

    def _wait_for_idle(self, timeout_ms: float | None) -> None:
        limit = milliseconds(timeout_ms, RequestError)
        if not self._changed.wait_for(lambda: self._idle, limit):
            raise RequestError(
                f"none of the {len(self)} requests became idle within {timeout_ms:g} ms"
            )

    def _start(self, index: int, inputs: Inputs | None, userdata: Any) -> None:
        self._userdata[index] = userdata
        if self._turns is not None:
            with self._changed:
                self._turns.append(index)
        try:
            self._requests[index].start_async(inputs)
        except BaseException:
            if self._turns is not None:
                with self._changed:
                    self._turns.remove(index)
                self._publish_in_turn()
            self._release(index)
            raise

    def _completed(self, status: StatusCode, index: int) -> None:
        if self._turns is None:
            self._publish(status, index)
            return
        with self._changed:
            self._early[index] = status
        self._publish_in_turn()

    def _publish_in_turn(self) -> None:
        """Publish what has ended and whose turn it is, one after the other."""
        assert self._turns is not None
        with self._changed:
            if self._serving:
                return  # who serves looks again after each
            self._serving = True
        while True:
            with self._changed:
                if not self._turns or self._turns[0] not in self._early:
                    self._serving = False
                    return
                index = self._turns.popleft()
                status = self._early.pop(index)
            self._publish(status, index)

    def _publish(self, status: StatusCode, index: int) -> None:
        request, userdata = self._requests[index], self._userdata[index]
        error = request._outcome.error
        try:
            if isinstance(userdata, _Awaited):
                userdata.settle(request, error)
            elif status is StatusCode.OK:
                if self._callback is not None:
                    self._callback(request, userdata)
            elif error is not None:
                self._fail(error)
        except Exception as error:  # noqa: BLE001 - wait_all() raises it
            self._fail(error)
        finally:
            self._userdata[index] = None
            self._release(index)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._failures.append(error)

    def _release(self, index: int) -> None:
        with self._changed:
            while self._waiters:
                loop, future = self._waiters.popleft()
                if not loop.is_closed():
                    loop.call_soon_threadsafe(self._hand_over, future, index)
                    return
            self._idle.append(index)
            self._changed.notify_all()

    def _hand_over(self, future: asyncio.Future[int], index: int) -> None:
        if future.done():  # the waiting coroutine was cancelled meanwhile
            self._release(index)
        else:
            future.set_result(index)

    def is_ready(self) -> bool:
        """Whether a request is idle, so that `start_async` would not wait."""
        with self._changed:
            return bool(self._idle)

    def get_idle_request_id(self, timeout_ms: float | None = None) -> int:
        """Wait until a request is idle and return its number, without taking it."""
        with self._changed:
            self._wait_for_idle(timeout_ms)
            return self._idle[0]

    def wait_all(self, timeout_ms: float | None = None) -> None:
        """Wait until every request is idle.

        Raises:
            RequestError: when that takes longer than `timeout_ms`.
            PolydeviceError: (or what a callback raised) the first failure since the last call;
                further ones are noted in its `__notes__` where Python has them.
        """
        limit = milliseconds(timeout_ms, RequestError)
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._idle) == len(self), limit):
                raise RequestError(f"requests are still running after {timeout_ms:g} ms")
            failures, self._failures = self._failures, []
        if failures:
            if len(failures) > 1 and hasattr(failures[0], "add_note"):
                failures[0].add_note(f"{len(failures) - 1} further inferences failed")
            raise failures[0]

    async def infer(self, inputs: Inputs | None = None) -> dict[str, Array]:
        """Run one inference from a coroutine; returns name → output array, copied.

        Waiting for an idle request and for the result leaves the event loop free. Cancelling the
        coroutine drops the inference when it has not begun.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        index = await self._take_async(loop)
        awaited = _Awaited(loop)
        self._start(index, inputs, awaited)
        try:
            return await awaited.result
        except asyncio.CancelledError:
            with self._changed:
                if self._userdata[index] is awaited:  # else another has the request by now
                    self._requests[index].cancel()
            raise

    async def _take_async(self, loop: asyncio.AbstractEventLoop) -> int:
        import asyncio

        with self._changed:
            if self._idle:
                return self._idle.popleft()
            future: asyncio.Future[int] = loop.create_future()
            self._waiters.append((loop, future))
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                self._release(future.result())
            raise


class _Awaited:
    """Carries one result from a stream's thread to the event loop that awaits it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.result: asyncio.Future[dict[str, Array]] = loop.create_future()

    def settle(self, request: InferRequest, error: BaseException | None) -> None:
        if self.loop.is_closed():
            return
        if error is None:
            copied = {name: array.copy() for name, array in request._results().items()}
            self.loop.call_soon_threadsafe(self._set, copied, None)
        else:
            self.loop.call_soon_threadsafe(self._set, None, error)

    def _set(self, value: dict[str, Array] | None, error: BaseException | None) -> None:
        if self.result.done():
            return
        if error is not None:
            self.result.set_exception(error)
        elif value is not None:
            self.result.set_result(value)
