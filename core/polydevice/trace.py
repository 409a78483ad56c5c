"""Trace: what ran when, on one time line, for Perfetto and chrome://tracing."""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from polydevice.errors import OptionValueError
from polydevice.locks import Lock
from polydevice.runtime.follower import Batch, Follower, Inference, Step

if TYPE_CHECKING:
    from polydevice.executable_network import ExecutableNetwork

_log = logging.getLogger("polydevice.trace")

Event = dict[str, Any]

_HOST, _REQUESTS, _FIRST_DEVICE = 1, 2, 3
"""Numbers of what the format calls processes: groups of lanes."""

_OF_INFERENCE = 6
"""Events of an inference besides those of its steps and commands, at most."""

_Timed = tuple[Sequence[Step], Sequence[int]]
"""Steps, and when the first began and when each ended."""


class _Own(threading.local):
    """What was told in a thread of the inference that ends there next."""

    def __init__(self) -> None:
        self.steps: list[_Timed] = []
        self.batches: list[Batch] = []


class Trace(Follower):
    """Collects what networks do, and writes it in Chrome's trace format.

    ::

        with polydevice.Trace("trace.json") as trace:
            trace.follow(executable)
            executable.infer(inputs)

    The lanes are the host's threads with inferences and their steps, the requests with the times
    that they waited for a thread, and the queues of devices with kernels and copies. Arrows lead
    from a request to its thread and to its first command on a device. While inferences run, only
    numbers are kept; what they mean is looked up when the file is written.

    Attributes:
        start_ns: of `time.perf_counter_ns`, from which the file's times count.
        left_out: what was not kept, since the trace was full.
    """

    LIMIT = 1_000_000
    """Events that are kept; what comes later is counted, not kept."""

    COMMANDS_LIMIT = 200_000
    """Commands of devices among them; drivers keep memory of each until the file is written."""

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, batches_every: int = 0
    ) -> None:
        """Begin now.

        Args:
            path: where the end of a ``with`` block writes; None to write with `write` alone.
            batches_every: of how many inferences one shows its commands on a GPU; 0 for as many
                as take half a percent of the time: all, where keeping times costs the driver
                nothing. The first shows them anyhow, and the host's steps are those of all.

        Raises:
            OptionValueError: no file can be written there, or `batches_every` is negative.
        """
        if batches_every < 0:
            raise OptionValueError(
                f"batches_every {batches_every} is not possible; use 1 or more, or 0 for as "
                "many as cost little"
            )
        self.batches_every = batches_every
        if path is not None:
            _check_place(Path(path))
        self.start_ns = time.perf_counter_ns()
        self.left_out = 0
        self._path = path
        self._events: list[Event] = []
        self._inferences: list[tuple[Inference, Sequence[_Timed], Sequence[Batch]]] = []
        self._size = self._commands = 0
        self._lock = Lock()
        self._followed: list[ExecutableNetwork] = []
        self._lanes: dict[tuple[int, str], int] = {}
        self._devices: dict[str, int] = {}
        self._threads: dict[int, str] = {}
        self._own = _Own()

    # -- collecting ---------------------------------------------------------------------------

    def follow(self, executable: ExecutableNetwork) -> None:
        """Trace the inferences of a network from now on; see `ExecutableNetwork.follow`."""
        executable.follow(self)
        self._followed.append(executable)

    def leave(self) -> None:
        """Trace nothing more."""
        while self._followed:
            self._followed.pop().leave(self)

    def inference(self, done: Inference) -> None:
        """Keep an inference, with what was told of it before in this thread."""
        own, count = self._own, _OF_INFERENCE
        steps: Sequence[_Timed] = ()
        batches: Sequence[Batch] = ()
        if own.steps:
            steps, own.steps = own.steps, []
            count += sum(len(labels) for labels, _ in steps)
        if own.batches:
            batches, own.batches = own.batches, []
        if done.thread not in self._threads:
            self._threads[done.thread] = threading.current_thread().name
        with self._lock:
            if self._size + count > self.LIMIT:
                self.left_out += count
                return
            self._size += count
            self._inferences.append((done, steps, batches))

    def steps(self, steps: Sequence[Step], marks: Sequence[int]) -> None:
        """Keep the times of steps, until their inference is told."""
        self._own.steps.append((steps, marks))

    def batch(self, batch: Batch) -> None:
        """Keep what a device did; the inference that is told of next in this thread began it."""
        commands, count = batch.count, batch.count + len(batch.enqueued)
        with self._lock:
            if self._commands + commands > self.COMMANDS_LIMIT or self._size + count > self.LIMIT:
                self.left_out += count
                return
            self._commands += commands
            self._size += count
        self._own.batches.append(batch)

    def add_span(self, name: str, start_ns: int) -> None:
        """Note what began at `start_ns` (of `time.perf_counter_ns`) in this thread and ends now."""
        end = time.perf_counter_ns()
        event = self._span("Session", name, start_ns, end, os.getpid(), threading.get_native_id())
        self._add([event])

    def add_layers(self, counts: Mapping[str, Mapping[str, Any]], start_ns: int) -> None:
        """Note the layers of an inference from its counters, one after the other.

        Args:
            counts: what `InferRequest.get_perf_counts` returns.
            start_ns: when the inference began, of `time.perf_counter_ns`.
        """
        events = []
        for name, count in sorted(counts.items(), key=lambda item: item[1]["execution_index"]):
            if count["status"] == "EXECUTED":
                end = start_ns + 1000 * (count["real_time"] or count["cpu_time"])
                notes = {"op_name": count["layer_type"], "exec_type": count["exec_type"]}
                ids = os.getpid(), threading.get_native_id()
                events.append(self._span("Node", name, start_ns, end, *ids, **notes))
                start_ns = end
        self._add(events)

    def _add(self, events: list[Event]) -> None:
        with self._lock:
            if self._size + len(events) > self.LIMIT:
                self.left_out += len(events)
                return
            self._size += len(events)
            self._events += events

    # -- writing ------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        """Return everything as events of Chrome's format; asks drivers for times once."""
        with self._lock:
            done, self._inferences = self._inferences, []
        made = [event for each in done for event in self._inference_events(*each)]
        with self._lock:
            self._events += made
        return [*self._names(), *self._events]

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON, an event a line.

        Raises:
            OSError: the file cannot be written.
        """
        lines = ",\n".join(json.dumps(event) for event in self.events())
        Path(path).write_text(f"[\n{lines}\n]\n", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        raised: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Follow nothing more and write; what the block raised goes before what writing does."""
        self.leave()
        if self._path is None:
            return
        try:
            self.write(self._path)
        except OSError as error:
            if raised is None:
                raise
            _log.error("the trace %s cannot be written: %s", self._path, error)

    def _names(self) -> Iterator[Event]:
        """Yield the names of lanes and of their groups, of those that there are."""
        used = {(event["pid"], event["tid"]) for event in self._events}
        groups = {_HOST: "host", _REQUESTS: "requests"}
        groups.update((group, device) for device, group in self._devices.items())
        lanes = {(_HOST, thread): name for thread, name in self._threads.items()}
        lanes.update(((group, number), name) for (group, name), number in self._lanes.items())
        for group, name in groups.items():
            if any(pid == group for pid, _ in used):
                yield _meta("process_name", group, 0, name=name)
                yield _meta("process_sort_index", group, 0, sort_index=group)
        for (group, number), name in lanes.items():
            if (group, number) in used:
                yield _meta("thread_name", group, number, name=name)

    def _inference_events(
        self, done: Inference, steps: Sequence[_Timed], batches: Sequence[Batch]
    ) -> Iterator[Event]:
        for each in steps:
            yield from self._step_events(*each, done.thread)
        notes: dict[str, Any] = {"device": done.device, "request": done.request}
        if done.error is not None:
            notes["error"] = f"{type(done.error).__name__}: {done.error}"
        lane = self._lane(_REQUESTS, f"request {done.request}: {done.network} on {done.device}")
        begin = done.start_ns if done.queued_ns is None else done.queued_ns
        number = f"{done.request}.{done.start_ns}"
        if done.queued_ns is not None:
            yield self._span("queue", "waiting", begin, done.start_ns, _REQUESTS, lane)
        ends = done.start_ns, done.end_ns
        yield self._span("inference", done.network, *ends, _REQUESTS, lane, **notes)
        yield self._span("inference", done.network, *ends, _HOST, done.thread, **notes)
        yield self._flow("s", number, begin, _REQUESTS, lane)
        followed = [event for batch in batches for event in self._batch_events(batch, done.thread)]
        first = next((event for event in followed if event["pid"] >= _FIRST_DEVICE), None)
        yield self._flow("t" if first else "f", number, done.start_ns, _HOST, done.thread)
        yield from followed
        if first is not None:
            end = self._flow("f", number, 0, first["pid"], first["tid"])
            yield {**end, "ts": first["ts"]}

    def _step_events(
        self, steps: Sequence[Step], marks: Sequence[int], thread: int
    ) -> Iterator[Event]:
        for step, (start, end) in zip(steps, itertools.pairwise(marks)):
            notes = {"type": step.type, "kernel": step.kernel}
            yield self._span("step", step.name, start, end, _HOST, thread, **notes)

    def _batch_events(self, batch: Batch, thread: int) -> Iterator[Event]:
        device = batch.lane.partition(",")[0]
        group = self._devices.setdefault(device, _FIRST_DEVICE + len(self._devices))
        lane = self._lane(group, batch.lane)
        for start, end, count in batch.enqueued:
            yield self._span("enqueue", f"enqueue {count}", start, end, _HOST, thread)
        for each in batch.commands():
            notes = {"bytes": each.bytes} if each.bytes else {}
            ends = each.start_ns, each.end_ns
            name = each.name if each.kind == "kernel" else f"{each.kind} {each.name}"
            yield self._span(each.kind, name, *ends, group, lane, **notes)

    def _lane(self, group: int, name: str) -> int:
        return self._lanes.setdefault((group, name), len(self._lanes) + 1)

    def _span(
        self, kind: str, name: str, start_ns: int, end_ns: int, pid: int, tid: int, **notes: Any
    ) -> Event:
        start, length = (start_ns - self.start_ns) / 1e3, (end_ns - start_ns) / 1e3
        return {
            "cat": kind, "pid": pid, "tid": tid, "ph": "X", "name": name,
            "ts": round(start, 3), "dur": round(max(length, 0.0), 3), "args": notes,
        }  # fmt: skip

    def _flow(self, phase: str, number: str, at_ns: int, pid: int, tid: int) -> Event:
        start = round((at_ns - self.start_ns) / 1e3, 3)
        made = {"cat": "flow", "name": "inference", "ph": phase, "id": number}
        return {**made, "pid": pid, "tid": tid, "ts": start, "bp": "e"}


def _check_place(path: Path) -> None:
    why = ""
    if path.is_dir():
        why = "it is a folder"
    elif not path.parent.is_dir():
        why = f"there is no folder {str(path.parent)!r}; make it first"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "permission denied"
    if why:
        raise OptionValueError(f"the trace {str(path)!r} cannot be written: {why}")


def _meta(what: str, pid: int, tid: int, **notes: Any) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": notes}
