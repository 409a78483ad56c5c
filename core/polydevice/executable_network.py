"""ExecutableNetwork: a network loaded on a device, and its requests."""

from __future__ import annotations

import atexit
import logging
import os
import time
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from typing_extensions import Self

from polydevice.arguments import integer, milliseconds, text
from polydevice.bounds import network_budget, this_thread
from polydevice.dtype import Array
from polydevice.errors import (
    BlobError,
    DeviceError,
    DeviceLostError,
    InferCancelledError,
    OptionValueError,
    RequestError,
    UnknownMetricError,
    nearest,
)
from polydevice.infer_queue import InferQueue
from polydevice.infer_request import InferRequest, StatusCode
from polydevice.inspection.placement import Placement
from polydevice.locks import Condition, RLock
from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.node import STEPS_REASON
from polydevice.runtime.executor import CLOSE_SECONDS, Executor, closing_time
from polydevice.runtime.follower import Follower
from polydevice.runtime.port_info import PortInfo, port_info
from polydevice.runtime.request_memory import Inputs

if TYPE_CHECKING:
    from polydevice.options import Options
    from polydevice.remote import RemoteContext
    from polydevice.runtime.runner import Runner

__all__ = ["ExecutableNetwork", "PortInfo"]

_log = logging.getLogger(__name__)
_LOOK_AGAIN_S = 0.02
_all: weakref.WeakSet[ExecutableNetwork] = weakref.WeakSet()


class ExecutableNetwork(ABC):
    """A network loaded on a device.

    A device implements `create_runner` and may override `export`, `explain` and others. It passes
    the number of streams it runs at once; asynchronous requests share that many threads.

    Attributes:
        name: of the network.
        device: its name, such as "GPU.0".
        options: the configuration it was loaded with.
        streams: how many requests run at the same time.
        inputs: name → type, shape and layout; `outputs` likewise. An input and an output may
            have one name.
        ports: key → input or output, for devices, which keep memory by keys (`PortInfo`).
        output_keys: keys of the outputs, in order.
        layers: layer of the model that is no constant → type of its operation.
        noted_lines: which layers are kept in f32, and which attention is left in steps, for
            `explain`, which ends with them.
        from_cache: whether it was imported from the folder of CACHE_DIR instead of compiled.
        memory: what all requests together may use; whoever allocates asks it first.
        executor: the threads of the streams.
        closing_end: until when closing waits, of ``time.monotonic()``; for `release`.
        followers: are told of inferences (`follow`).
    """

    survives_fork: ClassVar[bool] = False
    """Whether a process that is forked later can go on using the network. Drivers of devices do
    not allow that; what computes in the process itself can."""

    def __init__(
        self,
        network: Network,
        device: str,
        options: Options,
        *,
        streams: int = 1,
        executor: Executor | None = None,
    ) -> None:
        """Describe a loaded network.

        Args:
            network: as it was given to the device, with its final inputs and outputs.
            device: the device's name, such as "GPU.0".
            options: the configuration it was loaded with.
            streams: how many requests run at the same time.
            executor: shared by several networks (EXCLUSIVE_ASYNC_REQUESTS); else one of its own.
        """
        self.name = network.name
        self.device = device
        self.options = options
        self.streams = streams
        self.inputs = {
            name: port_info("input", name, port, port.node) for name, port in network.input_ports()
        }
        self.outputs = {
            name: port_info("output", name, port, result, key)
            for name, (key, port), result in zip(
                network.output_names(), network.output_ports(), network.results, strict=True
            )
        }
        self.ports = {p.key: p for p in (*self.inputs.values(), *self.outputs.values())}
        self.output_keys = [port.key for port in self.outputs.values()]
        self.executor = executor or Executor(f"{device}:{network.name}", streams)
        self._owns_executor = executor is None
        self._nodes = [(node.name, node.type) for node in network.nodes()]
        self.layers = {name: kind for name, kind in self._nodes if kind != "Const"}
        self.noted_lines = [*KeptLayers.of(network).lines(network), *_steps_of_attention(network)]
        self.from_cache = False
        self.timeout_ms = options.infer_timeout_ms
        self.memory = network_budget(options.memory_limit, f"network {self.name!r} on {device}")
        self._requests: list[InferRequest] | None = None
        self._num_requests = 1
        self._made: weakref.WeakSet[InferRequest] = weakref.WeakSet()
        self.followers: tuple[Follower, ...] = ()
        self._lock = RLock()
        self._idle = Condition()
        self._closed = False
        self._lost = False
        self._left_behind: weakref.WeakSet[InferRequest] = weakref.WeakSet()
        self.closing_end = 0.0
        _all.add(self)

    def _reserve_requests(self, number: int) -> None:
        """Fix how many requests `requests` lists; called once by the core."""
        self._num_requests = number

    # -- what a device implements -------------------------------------------------------------

    @abstractmethod
    def create_runner(self) -> Runner:
        """Make what computes for one more request."""

    def export(self) -> bytes:
        """Return the compiled network as bytes for ``Core.import_network``."""
        raise DeviceError(f"{self.device} cannot export networks; read the model again instead")

    def get_context(self) -> RemoteContext:
        """Return the context in which the network was loaded.

        Raises:
            DeviceError: for devices that have none.
        """
        raise DeviceError(f"a network on {self.device} has no context of its own")

    def get_exec_graph_info(self) -> Network:
        """Return the graph that the device runs, as a network for inspection."""
        raise DeviceError(f"{self.device} does not describe its execution graph")

    def explain(self) -> str:
        """Say what became of each layer; one line a layer."""
        lines = [
            f"{row.node}  {row.type}  {row.device or 'no device'}: {row.reason}"
            for row in self.placement()
            if row.type != "Const"
        ]
        return "\n".join([*lines, *self.noted_lines])

    def placement(self) -> list[Placement]:
        """Say for every node on which device it runs, why, and what crosses to reach it."""
        reason = f"the network was loaded on {self.device}"
        return [Placement(name, kind, self.device, reason) for name, kind in self._nodes]

    def metrics(self) -> dict[str, Any]:
        """Return the device's further metrics of this network; see `get_metric`."""
        return {}

    def stop(self) -> None:
        """End what the device does by itself, without waiting. Called once, as closing begins."""

    def release(self) -> None:
        """Release what the device holds; no request is running. Called once, by `close`.

        What is waited for here is waited for until `closing_end` at most.
        """

    # -- requests -----------------------------------------------------------------------------

    def create_infer_request(self) -> InferRequest:
        """Make a request of its own, not listed in `requests`."""
        self.check_open()
        made = InferRequest(self, self.create_runner())
        with self._lock:
            closed = self._closed
            if not closed:
                self._made.add(made)
                if self.followers:
                    made.follow(self.followers)
        if closed:  # meanwhile, without this one
            made.runner.release()
            self.check_open()
        return made

    def follow(self, follower: Follower) -> None:
        """Tell a follower of every inference, of requests that are made later as well.

        Inferences that run are not told of, and waited for.

        Raises:
            OptionValueError: it is no `Follower`.
            DeviceError: the network is closed.
            RequestBusyError: an inference goes on for 10 s.
        """
        if not isinstance(follower, Follower):
            raise OptionValueError(
                f"{follower!r} is no follower; give an object of a class derived from "
                "polydevice.Follower"
            )
        self.check_open()
        self._set_followers((*self.followers, follower))

    def leave(self, follower: Follower) -> None:
        """Tell a follower nothing more; the network may be closed."""
        self._set_followers(tuple(each for each in self.followers if each is not follower))

    def _set_followers(self, followers: tuple[Follower, ...]) -> None:
        with self._lock:
            self.followers = followers
            for request in list(self._made):
                request.follow(followers)

    def check_open(self) -> None:
        """Return if the network can be used.

        Raises:
            DeviceError: it is closed.
            DeviceLostError: it was loaded before this process was forked.
        """
        if self._lost:
            raise DeviceLostError(
                f"this process was forked after network {self.name!r} was loaded on {self.device}, "
                "whose driver does not survive a fork. Load it in the child process, and start "
                "that with multiprocessing.get_context('spawn')"
            )
        if self._closed:
            raise DeviceError(f"network {self.name!r} is closed; load it again")

    def check_going_on(self) -> None:
        """Return if an inference that has begun may go on.

        Raises:
            InferCancelledError: the network was closed meanwhile.
        """
        if self._closed:
            raise InferCancelledError(self._closing)

    @property
    def _closing(self) -> str:
        return f"network {self.name!r} was closed"

    @property
    def requests(self) -> list[InferRequest]:
        """The requests asked for with ``num_requests``, made on first use.

        Raises:
            DeviceError: the network is closed, which lets go of them and of their outputs.
        """
        with self._lock:
            if self._requests is None:
                self._requests = [self.create_infer_request() for _ in range(self._num_requests)]
            return self._requests

    def infer(self, inputs: Inputs | None = None) -> dict[str, Array]:
        """Run the first request and return name → output array, copied.

        Args:
            inputs: as `InferRequest.infer` takes them.
        """
        return {k: v.copy() for k, v in self.requests[0].infer(inputs).items()}

    def start_async(self, request_id: int, inputs: Inputs | None = None) -> InferRequest:
        """Start the request of that number and return it.

        Raises:
            RequestError: for a number that does not exist.
        """
        request_id = integer(request_id, "request_id", RequestError)
        if not 0 <= request_id < len(self.requests):
            raise RequestError(
                f"no request {request_id}; this network has 0 to {len(self.requests) - 1} "
                "(num_requests of load_network)"
            )
        request = self.requests[request_id]
        request.start_async(inputs)
        return request

    def infer_queue(self, jobs: int = 0, *, ordered: bool = False) -> InferQueue:
        """Make a queue of `jobs` requests (0: the device's optimal number) for many inferences.

        Args:
            jobs: how many requests.
            ordered: whether results come in the order in which inferences were started.
        """
        return InferQueue(self, jobs, ordered=ordered)

    def get_idle_request_id(self) -> int:
        """Return the number of a request that is not running, or -1."""
        for index, request in enumerate(self.requests):
            if not request.is_busy:
                return index
        return -1

    def wait(self, num_requests: int | None = None, timeout_ms: float | None = None) -> StatusCode:
        """Wait until at least `num_requests` (default: all) requests are idle.

        Args:
            num_requests: how many must be idle.
            timeout_ms: None or -1 waits without limit; else milliseconds.

        Returns:
            OK, or RESULT_NOT_READY when the time is over.
        """
        requests = self.requests  # closing meanwhile lets go of them
        wanted = number = len(requests)
        if num_requests is not None:
            wanted = integer(num_requests, "num_requests", RequestError, least=0, most=number)
        limit = milliseconds(timeout_ms, RequestError)

        def enough() -> bool:
            return sum(not request.is_busy for request in requests) >= wanted

        # A synchronous run ends without a word to others, so that it costs nothing: look again.
        end = None if limit is None else time.monotonic() + limit
        with self._idle:
            while not (done := enough()) and (end is None or time.monotonic() < end):
                self._idle.wait(_LOOK_AGAIN_S if end is None else min(_LOOK_AGAIN_S, limit or 0))
        return StatusCode.OK if done else StatusCode.RESULT_NOT_READY

    def _submit(self, request: InferRequest, queued: list[bool]) -> None:
        task = request._run_task

        def dropped() -> None:
            request._complete(InferCancelledError(f"network {self.name!r} was closed"))

        request._task = task
        self.executor.submit(task, dropped, queued)

    def _withdraw(self, request: InferRequest) -> bool:
        task = request._task
        return task is not None and self.executor.remove(task)

    def _completed(self) -> None:
        with self._idle:
            self._idle.notify_all()

    # -- questions ----------------------------------------------------------------------------

    def port_by_tensor_name(self, name: str) -> PortInfo | None:
        """Return the input or output that the framework called `name`."""
        text(name, "the name of a tensor", BlobError)
        for port in (*self.inputs.values(), *self.outputs.values()):
            if name in port.tensor_names:
                return port
        return None

    def get_config(self, key: str) -> str:
        """Return the value of a configuration key, as this network was loaded."""
        return self.options.read(key)

    def get_metric(self, name: str) -> Any:
        """Return a metric of this network.

        Raises:
            UnknownMetricError: naming the ones that exist.
        """
        text(name, "metric", UnknownMetricError)
        metrics = {
            "NETWORK_NAME": self.name,
            "SUPPORTED_CONFIG_KEYS": self.options.keys(),
            "OPTIMAL_NUMBER_OF_INFER_REQUESTS": self.streams,
            **self.metrics(),
        }
        metrics["SUPPORTED_METRICS"] = sorted([*metrics, "SUPPORTED_METRICS"])
        if name not in metrics:
            raise UnknownMetricError(
                f"network on {self.device} has no metric {name!r}.{nearest(name, metrics)} "
                f"Legal: {', '.join(sorted(metrics))}"
            )
        return metrics[name]

    def close(self) -> None:
        """Cancel what is queued and what runs, and release the device's memory.

        A launch or primitive that runs is waited for, but no longer than 10 s in all; then its
        memory stays, and a warning is logged.
        """
        self.close_by(closing_time())

    def close_by(self, end: float) -> None:
        """Close, as a part of what closes several; waits until `end`, of ``time.monotonic()``."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self.closing_end = end
        if self._lost:
            return
        self.stop()
        self._cancel_all(self._closing)
        if self._owns_executor:
            self.executor.close(end)
        if not self._has_ended(end):
            _log.warning("%r still infers %g s after closing it", self, CLOSE_SECONDS)
            return
        self.release()
        for request in self._living():
            request.runner.release()
        with self._lock:
            self._requests = None  # they hold their outputs and refer to this: a cycle

    def _living(self) -> list[InferRequest]:
        """Return the requests that somebody holds; the garbage collector may take others away."""
        with self._lock:
            return list(self._made)

    def _cancel_all(self, reason: str) -> None:
        """Cancel every inference of the network."""
        for request in self._living():
            if request.is_busy:
                request._cancel(reason)

    def _has_ended(self, end: float) -> bool:
        """Wait for the inferences that run in threads of the user's; says whether all ended."""
        for request in self._living():
            if request in self._left_behind:
                continue
            if not request._busy.acquire(timeout=max(end - time.monotonic(), 0)):
                return False
            request._busy.release()
        return True

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be copied or pickled; export() it to bytes, or load the network again"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"ExecutableNetwork({self.name!r} on {self.device})"


def _steps_of_attention(network: Network) -> list[str]:
    """Say which attention is in steps although the model has it as one operator, and why."""
    noted = (
        (n.name, n.rt_info[STEPS_REASON]) for n in network.nodes() if STEPS_REASON in n.rt_info
    )
    return [f"{STEPS_REASON}: {name}: {reason}" for name, reason in noted]


def _cancel_everything() -> None:
    """At exit: what runs must not keep the interpreter, whose executors wait for their threads."""
    for network in list(_all):
        network._cancel_all("the interpreter exits")


def _after_fork() -> None:
    """Of the parent's threads only the one that forked is there; what others were at never ends."""
    for network in list(_all):
        network._lost = not network.survives_fork
        network._lock, network._idle = RLock(), Condition()
        if this_thread.bounds is None:  # else one of them may be what this thread is at
            network._left_behind.update(r for r in network._made if r.is_busy)


atexit.register(_cancel_everything)  # after the executors' own, hence called before it
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
