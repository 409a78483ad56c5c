"""LayerCount: what a request counts for each layer of an inference; Trace: many of them."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["EXECUTED", "OPTIMIZED_OUT", "NOT_RUN"]


@dataclass(frozen=True)
class LayerCount:
    """Counters of one layer.

    Attributes:
        name: the layer's name in the model (or of what the device inserted).
        status: EXECUTED, OPTIMIZED_OUT (fused or turned into a view) or NOT_RUN.
        layer_type: operation type.
        exec_type: name of the kernel or primitive that ran, "undef" without one.
        real_time_us: time on the device, in microseconds.
        cpu_time_us: time on the host, in microseconds.
        execution_index: position in the execution order.
    """

    name: str
    status: Status
    layer_type: str
    exec_type: str
    real_time_us: float
    cpu_time_us: float
    execution_index: int

    def as_dict(self) -> dict[str, Any]:
        """Return the Inference Engine's form of the counters."""
        return {
            "status": self.status,
            "exec_type": self.exec_type,
            "layer_type": self.layer_type,
            "real_time": round(self.real_time_us),
            "cpu_time": round(self.cpu_time_us),
            "execution_index": self.execution_index,
        }


class Trace:
    """The counters of many inferences as a trace for chrome://tracing or Perfetto.

    The layers of an inference stand one after the other in execution order, each as long as its
    counter says: where a device runs some at once, the trace shows them in turn.
    """

    LIMIT = 1_000_000
    """Events that are kept; later inferences are counted, not kept."""

    def __init__(self) -> None:
        """Begin now."""
        self.start_ns = time.perf_counter_ns()
        self.left_out = 0
        self._events: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def add_span(self, name: str, start_ns: int) -> None:
        """Note what began at `start_ns` (of `time.perf_counter_ns`) and ends now."""
        end = time.perf_counter_ns()
        self._add([self._event("Session", name, start_ns, (end - start_ns) / 1e3, {})])

    def add_layers(self, counts: Mapping[str, Mapping[str, Any]], start_ns: int) -> None:
        """Note the layers of an inference that began at `start_ns`.

        Args:
            counts: what `InferRequest.get_perf_counts` returns.
            start_ns: of `time.perf_counter_ns`.
        """
        events = []
        for name, count in sorted(counts.items(), key=lambda item: item[1]["execution_index"]):
            if count["status"] == "EXECUTED":
                length = count["real_time"] or count["cpu_time"]
                notes = {"op_name": count["layer_type"], "exec_type": count["exec_type"]}
                events.append(self._event("Node", name, start_ns, length, notes))
                start_ns += length * 1000
        self._add(events)

    def _event(
        self, kind: str, name: str, start_ns: int, length_us: float, notes: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            "cat": kind,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "dur": round(length_us),
            "ts": (start_ns - self.start_ns) // 1000,
            "ph": "X",
            "name": name,
            "args": notes,
        }

    def _add(self, events: list[dict[str, Any]]) -> None:
        with self._lock:
            if len(self._events) + len(events) > self.LIMIT:
                self.left_out += len(events)
            else:
                self._events += events

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON, an event a line.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock:
            lines = ",\n".join(json.dumps(event) for event in self._events)
        Path(path).write_text(f"[\n{lines}\n]\n", encoding="utf-8")
