"""InferRequest: one inference at a time, with its own inputs and outputs."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from enum import IntEnum
from time import perf_counter, perf_counter_ns
from typing import TYPE_CHECKING, Any, NoReturn

from polydevice.arguments import integer, milliseconds
from polydevice.blob import Blob
from polydevice.bounds import Bounds, enter_bounds, inference_bounds, this_thread
from polydevice.dtype import Array
from polydevice.errors import (
    InferCancelledError,
    InferenceError,
    PolydeviceError,
    RequestError,
)
from polydevice.foreign_errors import inference_error, name_layer
from polydevice.locks import Latch
from polydevice.remote import Copies, RemoteBlob
from polydevice.runtime.executor import CLOSE_SECONDS
from polydevice.runtime.follower import Follower, Inference, log_failure
from polydevice.runtime.overlap import check_outputs, host_arrays, overwritten
from polydevice.runtime.request_memory import Inputs, RequestMemory
from polydevice.runtime.variable_state import VariableState

if TYPE_CHECKING:
    from polydevice.executable_network import ExecutableNetwork
    from polydevice.runtime.runner import Runner

_log = logging.getLogger(__name__)

_numbers = itertools.count()


class StatusCode(IntEnum):
    """State of a request, with the Inference Engine's numbers."""

    OK = 0
    GENERAL_ERROR = -1
    REQUEST_BUSY = -8
    RESULT_NOT_READY = -9
    INFER_NOT_STARTED = -11
    INFER_CANCELLED = -13


Callback = Callable[[StatusCode, Any], None]


class _Run:
    """The outcome of one inference; whoever waits holds the run it waits for."""

    __slots__ = ("done", "error", "start", "status")

    def __init__(self, status: StatusCode) -> None:
        self.status = status
        self.error: BaseException | None = None
        self.done = Latch()
        self.start = perf_counter()
        if status is not StatusCode.RESULT_NOT_READY:
            self.done.set()


_NEVER = _Run(StatusCode.INFER_NOT_STARTED)
_SUCCEEDED = _Run(StatusCode.OK)  # shared by all synchronous runs: infer() allocates nothing
_FAILED = _Run(StatusCode.GENERAL_ERROR)  # infer() itself raised the error


class InferRequest(RequestMemory):
    """One inference at a time, with its own inputs and outputs.

    States, waiting, callbacks and checks are here, once for all devices; what a device does for a
    request is its `runner`. All methods may be called from any thread; a busy request refuses what
    would disturb it (RequestBusyError).

    Attributes:
        executable: the network.
        runner: computes; for devices that run networks of others.
        number: unique among the requests of the process.
    """

    def __init__(self, executable: ExecutableNetwork, runner: Runner) -> None:
        """Make an idle request of an executable network; see `create_infer_request` there."""
        super().__init__(executable, runner)
        self.number = next(_numbers)
        self._followers: tuple[Follower, ...] = ()
        self._output_keys = [(port.name, port.key) for port in executable.outputs.values()]
        self._shared: list[str] = []  # inputs in memory that an inference writes
        self._outcome = _NEVER
        self._callback: tuple[Callback, Any] | None = None
        self._callback_thread: int | None = None
        self._bounds = self._endless = Bounds(memory=executable.memory)
        self._ending: Callable[[], None] | None = None  # of what the device has begun
        self._task: Callable[[int], None] | None = None
        self._latency_ms = 0.0

    @property
    def copies(self) -> Copies:
        """What the last inference copied between host and device, and within the device."""
        return self.runner.copies

    def set_batch(self, size: int) -> None:
        """Let the next inferences compute only the first `size` items of the batch.

        Inputs and outputs keep their shapes; the items beyond are not read, and not written.

        Raises:
            RequestError: the network was not loaded for that, or has no such batch.
            RequestBusyError: while the request runs.
        """
        size = integer(size, "the batch", RequestError)
        self._enter()
        try:
            self.runner.set_batch(size)
        finally:
            self._busy.release()

    def query_state(self) -> list[VariableState]:
        """Return the variables (ReadValue, Assign) that this request keeps between inferences."""
        return [VariableState(variable, self._busy) for variable in self.runner.variables()]

    # -- running ------------------------------------------------------------------------------

    def infer(self, inputs: Inputs | None = None, *, stream: int = 0) -> dict[str, Array]:
        """Run one inference in the calling thread. The completion callback is not called.

        Args:
            inputs: name, or number from 0, → array or blob; a list or tuple of all of them in
                order; or the value of the only input. An array of the right type, shape and C
                order is read in place; any other is converted. Inputs not named keep their memory.
            stream: of the network, to run on; for devices that run networks of others in threads
                of their own.

        Returns:
            Name → array of the outputs in host memory. The arrays are the request's own memory:
            the next inference writes into them, so copy what must outlive it. Outputs in device
            memory are not among them; see `get_blob`.

        Raises:
            BlobError: inputs that do not fit; the request keeps its former inputs.
            RequestBusyError: while the request runs.
            InferCancelledError: `cancel` was called meanwhile, or the network was closed.
            InferTimeoutError: it took longer than INFER_TIMEOUT_MS.
            DeviceError: the network is closed, or was loaded before this process was forked.
            InferenceError: (or a DeviceError) when the inference fails.
            InternalError: an assumption of polydevice's own did not hold; says how to report it.
        """
        for taken in self._takes:  # as `_enter` does, without the time of a call
            if taken:
                break
            raise self._busy_error()
        try:
            if inputs is not None:
                self._set_inputs(inputs, copy=False)
            self._outcome, self._ending = _FAILED, None
            start = perf_counter()
            enclosing, thread = this_thread.bounds, this_thread
            thread.bounds = self._begin(start, enclosing)
            try:
                if self._is_plain:
                    self.runner.run(stream)
                else:
                    self._run(stream)
            except PolydeviceError as error:
                name_layer(error, self.executable.layers)
                raise
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise self._failure(error) from error
            finally:
                thread.bounds = enclosing
            self._latency_ms = (perf_counter() - start) * 1e3
            self._outcome = _SUCCEEDED
            return self._results()
        finally:
            self._busy.release()

    def _run(self, stream: int) -> None:
        """Run, with copies of those inputs that share host memory with what is written."""
        if self._rebound:
            self._find_shared()
        if self._is_plain:
            self.runner.run(stream)
        elif self._followers:
            self._run_followed(stream)
        else:
            self._run_apart(stream)

    def _run_apart(self, stream: int) -> None:
        held = {name: self._blobs[name] for name in self._shared}
        try:
            for name, blob in held.items():
                self.runner.bind(name, Blob(blob.array.copy(), blob.element_type))
            self.runner.run(stream)
        finally:
            for name, blob in held.items():
                self.runner.bind(name, blob)

    # -- followers ----------------------------------------------------------------------------

    def follow(self, followers: tuple[Follower, ...]) -> None:
        """Tell these followers, and no others, of each inference; see `ExecutableNetwork.follow`.

        What was enqueued on a user's own queue is not told: nobody waits for its end.

        Raises:
            RequestBusyError: an inference runs, and goes on for 10 s.
        """
        if not self._busy.acquire(timeout=CLOSE_SECONDS):
            raise self._busy_error()
        try:
            self.runner.follow(followers)
            self._followers = followers
            self._is_plain = not (self._rebound or self._shared or followers)
        finally:
            self._busy.release()

    def _run_followed(self, stream: int) -> None:
        """Run, and tell the followers."""
        outcome, error = self._outcome, None
        run = self._run_apart if self._shared else self.runner.run
        start = perf_counter_ns()
        try:
            run(stream)
        except BaseException as raised:
            error = raised
            raise
        finally:
            end, network = perf_counter_ns(), self.executable
            queued = None if outcome is _FAILED else round(outcome.start * 1e9)
            thread = threading.get_native_id()
            done = Inference(
                network.name, network.device, self.number, queued, start, end, thread, error
            )
            for follower in self._followers:
                try:
                    follower.inference(done)
                except Exception:  # noqa: BLE001 - who follows must not end an inference
                    log_failure(follower)

    def _find_shared(self) -> None:
        blobs, copies = self._blobs, self.runner.copies_input
        in_place = [name for name in self.executable.inputs if not copies(blobs.get(name))]
        inputs = host_arrays(blobs, in_place)
        check_outputs(host_arrays(self._blobs, self.executable.output_keys))
        self._shared = overwritten(inputs, self.runner.written())
        self._is_plain = not self._shared and not self._followers
        self._rebound = False

    def _begin(self, start: float, outer: Bounds | None) -> Bounds:
        """Return bounds for the inference that begins, which `cancel` and closing find.

        Raises:
            DeviceError: the network is closed.
            DeviceLostError: the network does not work in this forked process.
        """
        network = self.executable
        if outer is None and not network.timeout_ms:  # nothing differs from the last ones
            self._bounds = bounds = self._endless
            bounds.begin_again()
        else:
            self._bounds = bounds = inference_bounds(network.timeout_ms, start, network.memory)
        network.check_open()  # who closes it from here on cancels these bounds
        return bounds

    def _results(self) -> dict[str, Array]:
        results, blobs = {}, self._blobs
        for name, key in self._output_keys:
            blob = blobs[key]
            if type(blob) is Blob or not isinstance(blob, RemoteBlob):
                results[name] = blob.array
        return results

    def start_async(self, inputs: Inputs | None = None) -> None:
        """Start an inference on the network's streams and return at once.

        Args:
            inputs: as `infer` takes them, copied into the request (the caller may reuse its
                arrays);
                memory given to `set_blob` is used in place instead.

        Raises:
            BlobError: inputs that do not fit.
            DeviceError: the network is closed, or was loaded before this process was forked.
            RequestBusyError: while the request runs.
        """
        queued = [False]
        self._enter()
        try:
            if inputs is not None:
                self._set_inputs(inputs, copy=True)
            self._outcome, self._ending = _Run(StatusCode.RESULT_NOT_READY), None
            if self._rebound:
                self._find_shared()
            began = self._begin(self._outcome.start, this_thread.bounds)
            enclosing = enter_bounds(began)
            try:
                if self._is_plain and self.runner.start(self._complete):
                    return
                self._ending = None if self._shared else self.runner.begin()
            finally:
                enter_bounds(enclosing)
            self.executable._submit(self, queued)
        except BaseException:
            if queued[0] and not self.executable._withdraw(self):
                raise  # interrupted while it runs already, and ends by itself
            self._outcome = _FAILED
            self._busy.release()
            raise

    def _run_task(self, stream: int) -> None:
        failure: BaseException | None = None
        enclosing = enter_bounds(self._bounds)
        try:
            self._bounds.check()
            if self._ending is None:
                self._run(stream)
            else:
                self._ending()
        except BaseException as error:  # noqa: BLE001 - wait() raises it
            failure = error
        finally:
            enter_bounds(enclosing)
        self._complete(failure)

    def _complete(self, error: BaseException | None) -> None:
        """Publish the outcome, run the callback, then wake the waiters."""
        outcome = self._outcome
        self._latency_ms = (perf_counter() - outcome.start) * 1e3
        if error is None:
            outcome.status = StatusCode.OK
        elif isinstance(error, InferCancelledError):
            outcome.status, outcome.error = StatusCode.INFER_CANCELLED, error
        else:
            if isinstance(error, PolydeviceError):
                name_layer(error, self.executable.layers)
            else:
                error = self._failure(error)
            outcome.error = error
            outcome.status = StatusCode.GENERAL_ERROR
        call = self._callback
        self._ending = self._task = None  # they hold the request, and memory of the inference
        self._busy.release()  # from here the callback, or anyone, may start the request again
        if call is not None:
            callback, data = call
            self._callback_thread = threading.get_ident()
            try:
                callback(outcome.status, data)
            except Exception as failure:  # noqa: BLE001 - logged, and wait() raises it
                _log.exception("completion callback of %r failed", self.executable.name)
                wrapped = InferenceError(f"the completion callback failed: {failure!r}")
                wrapped.__cause__ = failure
                outcome.error = outcome.error or wrapped
            finally:
                if self._callback_thread == threading.get_ident():  # not that of a later run
                    self._callback_thread = None
        outcome.done.set()
        self.executable._completed()

    def _failure(self, error: BaseException) -> PolydeviceError:
        network = self.executable
        doing = f"inference of {network.name!r} on {network.device} failed"
        failure = inference_error(doing, error, network.layers)
        failure.__cause__ = error
        return failure

    def wait(self, timeout_ms: float | None = None) -> StatusCode:
        """Wait for the inference that `start_async` began.

        Args:
            timeout_ms: None or -1 waits until it is done; 0 only asks; else milliseconds.

        Returns:
            OK, RESULT_NOT_READY when the time is over, or INFER_NOT_STARTED.

        Raises:
            InferCancelledError: the inference was cancelled.
            InferTimeoutError: it took longer than INFER_TIMEOUT_MS.
            InferenceError: (or a DeviceError) the inference, or its callback, failed.
            RequestError: for a time that is no number of milliseconds.
        """
        outcome = self._outcome
        limit = milliseconds(timeout_ms, RequestError)
        if self._callback_thread != threading.get_ident() and not outcome.done.wait(limit):
            return StatusCode.RESULT_NOT_READY
        if outcome.error is not None:
            raise outcome.error
        if outcome.status is StatusCode.OK and not self.runner.wait(limit):
            return StatusCode.RESULT_NOT_READY
        return outcome.status

    def cancel(self) -> None:
        """Give up the inference that runs or waits to run, from any thread.

        It ends with InferCancelledError as soon as the device can stop: at once while it waits to
        run; else at the next iteration of a loop, step of its plan or layer on the host. One
        that completes before that is OK; so is one that is on a user's queue already.
        """
        self._cancel("the request was cancelled")

    def _cancel(self, reason: str) -> None:
        if self._ending is not None:
            return
        self._bounds.cancel(reason)
        if self.executable._withdraw(self) or self.runner.withdraw():
            self._complete(InferCancelledError(f"{reason} before it ran"))

    def set_completion_callback(self, callback: Callback | None, data: Any = None) -> None:
        """Call ``callback(status, data)`` after each asynchronous inference; None removes it.

        An exception in the callback is logged and raised by the next `wait`.

        Raises:
            RequestBusyError: while the request runs.
        """
        self._enter()
        self._callback = None if callback is None else (callback, data)
        self._busy.release()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a request of {self.executable.name!r} cannot be copied or pickled; make another with "
            "create_infer_request()"
        )

    @property
    def latency(self) -> float:
        """Milliseconds that the last inference took, from its start to its completion."""
        return self._latency_ms

    @property
    def is_busy(self) -> bool:
        """Whether an inference is running or queued."""
        return self._busy.locked()

    def get_perf_counts(self) -> dict[str, dict[str, Any]]:
        """Return layer name → counters (status, exec_type, layer_type, times in µs, index).

        Raises:
            InferenceError: when the network was loaded without PERF_COUNT.
            RequestBusyError: while the request runs.
        """
        self._enter()
        try:
            return {count.name: count.as_dict() for count in self.runner.counts()}
        finally:
            self._busy.release()
