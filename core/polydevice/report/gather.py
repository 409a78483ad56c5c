"""Collects what a report needs beyond the figures of ``polydevice bench``."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from polydevice.dtype import Array, ElementType
from polydevice.errors import PolydeviceError
from polydevice.exec_graph import NOT_EXECUTED
from polydevice.report.run import Details, DeviceShare, Fate, Layer
from polydevice.report.work import Work, elements, work_of
from polydevice.version import __version__

if TYPE_CHECKING:
    from polydevice.core import Core
    from polydevice.executable_network import ExecutableNetwork
    from polydevice.network import Network
    from polydevice.node import Node

_INFERENCES = 20
"""Over which the times of layers are averaged."""

_PERIOD_S = 0.02


class MemorySampler:
    """Notes how much memory the process holds, 50 times a second, in a thread of its own."""

    LIMIT = 3000
    """Samples that are kept; then every other one goes, and half as many are taken."""

    def __init__(self) -> None:
        """Begin at once."""
        self.samples: list[tuple[float, float]] = []
        self.marks: list[tuple[float, str]] = []
        self._start = time.perf_counter()
        self._period = _PERIOD_S
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="memory sampler", daemon=True)
        self._thread.start()

    def mark(self, what: str) -> None:
        """Note that something begins."""
        self.marks.append((time.perf_counter() - self._start, what))

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while True:
            held = resident_bytes()
            if held is None:
                return
            self.samples.append((time.perf_counter() - self._start, held))
            if len(self.samples) > self.LIMIT:
                del self.samples[::2]
                self._period *= 2
            if self._ended.wait(self._period):
                return


def resident_bytes() -> int | None:
    """Return how much memory the process holds now, in bytes; None where it is not known."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def machine(core: Core, device: str) -> dict[str, str]:
    """Describe the machine without names of users, hosts or folders."""
    import numpy as np

    found = {"polydevice": __version__, "device": device}
    for member in _members(device):
        with contextlib.suppress(PolydeviceError):
            found[member] = str(core.get_metric(member, "FULL_DEVICE_NAME"))
    for family, version in core.get_versions(device).items():
        found[f"plugin {family}"] = f"{version.major}.{version.minor}, {version.build_number}"
    found["processor"] = _processor()
    found["cores for this process"] = str(_cores())
    found["system"] = f"{_system()}, {platform.machine()}"
    found["Python"] = f"{platform.python_implementation()} {platform.python_version()}"
    found["NumPy"] = np.__version__
    return found


def _members(device: str) -> list[str]:
    from polydevice.device_name import DeviceName

    return [member.name for member in DeviceName.parse(device).members] or [device]


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in (
            Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        ):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _system() -> str:
    with contextlib.suppress(OSError, KeyError, AttributeError):
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    return platform.system()


def profile(
    executable: ExecutableNetwork,
    inputs: Sequence[Mapping[str, Array]],
    network: Network | None,
    details: Details,
) -> None:
    """Measure each layer of a network that was loaded with PERF_COUNT, and say what became of it.

    Args:
        executable: the network.
        inputs: sets of inputs; the first is used.
        network: as it was read, for operations and bytes; None where it was not read.
        details: gets `layers`, `fates`, `notes`, `places`, and `missing` for what it cannot.
    """
    request = executable.create_infer_request()
    for _ in range(_INFERENCES):
        request.infer(dict(inputs[0]))
    if network is None:
        details.missing["work"] = "the network was loaded as a file, and not read"
    with _noting(details, "layers"):
        work = {} if network is None else _work(network, inputs[0], details)
        times = {count.name: count.real_time_us for count in request.runner.counts()}
        details.layers = list(_layers(executable.get_exec_graph_info(), times, work))
    with _noting(details, "fates"):
        details.fates, details.notes = split_explanation(executable.explain(), executable.layers)
    with _noting(details, "places"):
        details.places = _places(executable)


@contextlib.contextmanager
def _noting(details: Details, part: str) -> Iterator[None]:
    """Note why a part is missing: a device need not tell everything."""
    try:
        yield
    except PolydeviceError as error:
        details.missing[part] = str(error)


def _work(network: Network, inputs: Mapping[str, Array], details: Details) -> dict[str, Work]:
    """Return the work of layers, with the sizes that the inputs have."""
    if network.is_dynamic:
        network = network.clone()
        try:
            network.reshape({name: list(array.shape) for name, array in inputs.items()})
        except PolydeviceError as error:
            details.missing["work"] = str(error)
    return work_of(network)


def _layers(
    graph: Network, times: Mapping[str, float], work: Mapping[str, Work]
) -> Iterator[Layer]:
    """Yield the steps of an execution graph that take time of their own, in their order."""
    steps = [node for node in graph.nodes() if "execOrder" in node.rt_info]
    for node in sorted(steps, key=lambda step: int(str(step.rt_info["execOrder"]))):
        notes = {key: str(value) for key, value in node.rt_info.items()}
        measured = notes.get("execTimeMcs", NOT_EXECUTED)
        if measured == NOT_EXECUTED:
            continue
        origins = _names(notes.get("originalLayersNames", ""), work)
        parts = [work[name] for name in origins if name in work]
        counted = [part.operations for part in parts]
        operations = None if None in counted or not work else sum(filter(None, counted))
        yield Layer(
            name=node.name,
            type=notes.get("layerType", node.type),
            kernel=notes.get("primitiveType", ""),
            time_us=times.get(node.name, float(measured)),
            layers=origins,
            element_type=notes.get("runtimePrecision", ""),
            operations=operations,
            bytes=_bytes(node, notes, sum(part.constants for part in parts)) if work else None,
        )


def _names(text: str, known: Mapping[str, object]) -> list[str]:
    """Split names at commas, of which they may have some themselves."""
    found: list[str] = []
    pieces = text.split(",") if text else []
    while pieces:
        count = next((n for n in range(len(pieces), 0, -1) if ",".join(pieces[:n]) in known), 1)
        found.append(",".join(pieces[:count]))
        del pieces[:count]
    return found


def _bytes(node: Node, notes: Mapping[str, str], constants: int) -> int | None:
    """Return what a step reads and writes, each tensor once."""
    sizes = [elements(port.desc) for port in (*dict.fromkeys(node.inputs), *node.outputs)]
    types = [port.desc.element_type for port in (*dict.fromkeys(node.inputs), *node.outputs)]
    if None in sizes or ElementType.string in types or ElementType.dynamic in types:
        return None
    moved = sum((size or 0) * kind.dtype.itemsize for size, kind in zip(sizes, types, strict=True))
    widths = [
        kind.dtype.itemsize for kind in types if kind.precision == notes.get("runtimePrecision")
    ]
    return moved + constants * (widths[0] if widths else 4)


def split_explanation(text: str, layers: Mapping[str, str]) -> tuple[list[Fate], list[str]]:
    """Split what `explain` says into what became of each layer, and further lines.

    Args:
        text: lines "name  type  what became of it", in columns.
        layers: name → type of the layers that there are.
    """
    fates: list[Fate] = []
    notes: list[str] = []
    for line in text.splitlines():
        found = _fate(line, layers)
        if found is None:
            notes.append(line)
        else:
            fates.append(found)
    return fates, notes


def _fate(line: str, layers: Mapping[str, str]) -> Fate | None:
    """Read a line that begins with a layer's name and type, whatever blanks the name has."""
    end = line.find("  ")
    while end >= 0:
        name, rest = line[:end], line[end:].lstrip()
        kind = layers.get(name)
        if kind is not None and rest.startswith(f"{kind} "):
            return Fate(name=name, type=kind, reason=rest[len(kind) :].strip())
        end = line.find("  ", end + 1)
    return None


def _places(executable: ExecutableNetwork) -> list[DeviceShare]:
    rows = [row for row in executable.placement() if row.type != "Const"]
    counts = Counter((row.device, row.reason) for row in rows)
    crossing = Counter[tuple[str, str]]()
    for row in rows:
        crossing[row.device, row.reason] += row.bytes_in or 0
    return [
        DeviceShare(device=device, reason=reason, layers=count, bytes_in=crossing[device, reason])
        for (device, reason), count in counts.most_common()
    ]
