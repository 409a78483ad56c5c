"""Device: one OpenCL device opened in this process, with its context, memory and queues."""

from __future__ import annotations

import copy
import ctypes
import functools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyopencl as ocl

from polydevice.errors import (
    DeviceLostError,
    DeviceNotFoundError,
    OptionValueError,
    PolydeviceError,
)
from polydevice.locks import Lock, RLock, attempts
from polydevice_gpu.cl import child_process, discovery, library, on_device, runtime
from polydevice_gpu.cl.capabilities import Capabilities, capabilities, probed_capabilities
from polydevice_gpu.cl.discovery.facts import DeviceFacts, Enumeration
from polydevice_gpu.cl.discovery.selection import AdmittedDevice
from polydevice_gpu.cl.discovery.troubles import mend
from polydevice_gpu.cl.memory.allocator import Allocator
from polydevice_gpu.cl.queues.queue import Queue
from polydevice_gpu.cl.queues.recording_queue import RecordingQueue
from polydevice_gpu.cl.status import check, translated

_OUT_OF_ORDER, _PROFILING = 1 << 0, 1 << 1
_QUEUE_PROPERTIES = 0x1093
_QUEUE_PRIORITY = 0x1096
_QUEUE_THROTTLE = 0x1097
# Plugin value (1 low, 2 medium, 3 high) to the extensions' bits.
_HINT = {1: 1 << 2, 2: 1 << 1, 3: 1 << 0}

_lock = Lock()
_open: dict[tuple[object, ...], Device] = {}


def open_device(admitted: AdmittedDevice) -> Device:
    """Open a device that discovery admitted; the same object for the same device every time.

    After a driver failure that a context does not survive, the device is opened anew.

    Raises:
        DeviceLostError: in a forked process, or when not even the simplest kernel runs. What goes
            wrong while drivers start and make a context, in a thread, `Device.context` raises.
    """
    found = discovery.enumerate_once()
    key = (*admitted.facts.identity, found.twin(admitted.facts))
    with _lock:
        runtime.claim_process()
        if key not in _open or not _open[key].is_usable:
            _open[key] = Device(admitted, found)
        return _open[key]


def handles_of(admitted: AdmittedDevice) -> tuple[int, int]:
    """Return OpenCL's handles of the platform and of a device, without opening it.

    Raises:
        DeviceNotFoundError: if this process's OpenCL does not offer it (any more).
    """
    found = discovery.enumerate_once()
    runtime.start(found)
    return _find(admitted.facts, found.twin(admitted.facts))


def _find(facts: DeviceFacts, twin: int) -> tuple[int, int]:
    try:
        return library.find_device(library.library(), facts.identity, twin)
    except LookupError as error:
        raise DeviceNotFoundError(
            f"{facts.name} was found by a child process, but not by this one: {error}. "
            "If this program used OpenCL before polydevice, load polydevice's network first"
        ) from error


def _make_context(device: int, name: str) -> ocl.Context:
    """Make a context by ctypes, so that other threads run meanwhile: drivers take up to 0.4 s."""
    status, devices = ctypes.c_int(), (ctypes.c_void_p * 1)(device)
    made = library.library().clCreateContext(None, 1, devices, None, None, ctypes.byref(status))
    check(status.value, f"making a context on {name}")
    return ocl.Context.from_int_ptr(made, retain=False)


@dataclass(frozen=True)
class _Opened:
    """OpenCL's handles of a platform and a device, and a context."""

    platform: int
    device: int
    context: ocl.Context


class _Opening:
    """A thread that starts the drivers and makes a context, beside the making of a graph."""

    def __init__(self, facts: DeviceFacts, found: Enumeration) -> None:
        self._facts, self._found = facts, found
        self._opened: _Opened | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._open, name="polydevice-context")
        self._thread.start()

    def _open(self) -> None:
        try:
            runtime.start(self._found)
            platform, device = _find(self._facts, self._found.twin(self._facts))
            context = _make_context(device, self._facts.name)
            self._opened = _Opened(platform, device, context)
        except BaseException as error:  # noqa: BLE001 - raised for who asks
            self._error = error

    def opened(self) -> _Opened:
        """Return what there is once it is there; raises what opening raised."""
        runtime.claim_process()  # a process that was forked meanwhile has no such thread
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._opened is not None
        return self._opened


class Device:
    """An opened device. Usable from many threads; queues are not.

    Attributes:
        facts: what the driver says about it.
        capabilities: what it can do; the first time on a machine that takes seconds to find out.
        capability_reasons: name of a probe to why its answer is no.
        enqueuing: held while a list of launches is enqueued. On an H200 (driver 580.159) a launch
            takes 4.2 µs from one thread, and 13.4 from each of two with queues of their own. Who
            times something holds it meanwhile, so that nobody else begins.
        attempts_at_enqueuing: take it without waiting.
    """

    capabilities: Capabilities
    capability_reasons: dict[str, str]

    def __init__(self, admitted: AdmittedDevice, found: Enumeration) -> None:
        """Begin to start drivers and to make a context; use `open_device`.

        The probes come first: a driver that dies making a context dies in their process.
        """
        self.facts = admitted.facts
        self._twin = found.twin(admitted.facts)
        self._drivers = found.drivers
        probed, self.capability_reasons = probed_capabilities(self.facts, self._twin, self._drivers)
        if not probed.c_standard:
            why = self.capability_reasons.get("open", "nothing was computed in time")
            raise DeviceLostError(
                f"{self.name}: kernels cannot be compiled and run: {why}. To mend it, "
                f"{mend(self.facts.platform_name)}, or leave the device out with "
                f"POLYDEVICE_GPU_DEVICES=not:{self.name}"
            )
        self._opening = _Opening(self.facts, found)
        self._making_memory = Lock()
        self.capabilities = capabilities(probed, self.facts)
        self.enqueuing = RLock()
        self.attempts_at_enqueuing = attempts(self.enqueuing)

    @functools.cached_property
    def context(self) -> ocl.Context:
        """Return pyopencl's context; ours has this device only, a user's may have others too.

        Raises:
            DeviceLostError: when the driver makes none.
            DeviceNotFoundError: this process's OpenCL does not offer the device (any more).
        """
        return self._opening.opened().context

    @functools.cached_property
    def handle(self) -> ocl.Device:
        """Return pyopencl's device; raises as `context` does."""
        return ocl.Device.from_int_ptr(self._opening.opened().device)

    @property
    def platform_pointer(self) -> int:
        """OpenCL's handle of the platform."""
        return self._opening.opened().platform

    @functools.cached_property
    def memory(self) -> Allocator:
        """Return what allocates buffers in the context; the same one to threads that ask at once.

        From Python 3.12 on a cached property may be made by several of them.
        """
        context = self.context
        with self._making_memory:
            made: Allocator | None = vars(self).get("memory")
            if made is None:
                made = vars(self)["memory"] = self._memory_of(context)
        return made

    def run_in_child(
        self,
        module: str,
        argument: Mapping[str, Any],
        timeout_s: float,
        goes_on: Callable[[], bool],
    ) -> child_process.Outcome:
        """Run a module of this package on this device in a child process; see `on_device.run`."""
        return on_device.run(
            *(module, self.facts, self._twin, self._drivers, argument),
            timeout_s=timeout_s,
            goes_on=goes_on,
        )

    def within(self, context: ocl.Context) -> Device:
        """Return the same device with memory, queues and programs in another OpenCL context."""
        other = copy.copy(self)
        other.context = context
        other.memory = self._memory_of(context)
        return other

    def _memory_of(self, context: ocl.Context) -> Allocator:
        alignment = max(1, self.handle.mem_base_addr_align // 8)
        return Allocator(context, self.handle, self.facts, alignment)

    @property
    def name(self) -> str:
        """The driver's name of the device."""
        return self.facts.name

    @property
    def is_usable(self) -> bool:
        """Whether the context still works; a kernel's wild access ends it on some drivers."""
        try:
            return self.memory.is_usable
        except (PolydeviceError, OSError):
            return False  # it was never made

    @property
    def region_alignment_bytes(self) -> int:
        """Offsets of regions in a buffer are multiples of it."""
        return self.memory.region_alignment_bytes

    def queue(
        self,
        *,
        profiling: bool = False,
        out_of_order: bool = False,
        priority: int = 0,
        throttle: int = 0,
        lane: str = "",
    ) -> Queue:
        """Make a queue.

        Args:
            profiling: record times of launches.
            out_of_order: let commands overtake each other.
            priority: 0 for none, 1 low, 2 medium, 3 high.
            throttle: 0 for none, 1 low, 2 medium, 3 high.
            lane: what followers are told that the queue is, if it records for them.

        Raises:
            OptionValueError: if the device has no such queues, naming the extension.
        """
        wanted = ((priority, "priority", "PRIORITY"), (throttle, "throttle", "THROTTLE"))
        for value, word, key in wanted:
            extension = f"cl_khr_{word}_hints"
            if value and extension not in self.facts.extension_names:
                raise OptionValueError(
                    f"GPU_PLUGIN_{key}={value}: {self.name} has no {extension}; leave it at 0"
                )
        if out_of_order and not self.facts.out_of_order:
            raise OptionValueError(f"{self.name} has no out-of-order queues")
        profiling = profiling or bool(lane)
        bits = (_OUT_OF_ORDER if out_of_order else 0) | (_PROFILING if profiling else 0)
        properties: Any = bits  # pyopencl's types know neither combinations nor lists
        if priority or throttle:
            properties = [_QUEUE_PROPERTIES, bits]
            properties += [_QUEUE_PRIORITY, _HINT[priority]] if priority else []
            properties += [_QUEUE_THROTTLE, _HINT[throttle], 0] if throttle else [0]
        with translated(f"making a queue on {self.name}"):
            handle = ocl.CommandQueue(self.context, self.handle, properties)
        if lane:
            unified = bool(self.facts.unified_memory)
            return RecordingQueue(
                *(handle, self.name), unified_memory=unified, profiling=True, lane=lane
            )
        return self.wrap_queue(handle, profiling=profiling)

    def wrap_queue(self, handle: ocl.CommandQueue, *, profiling: bool = False) -> Queue:
        """Return pyopencl's in-order queue of this device and context as a queue.

        Args:
            handle: the queue.
            profiling: record times of launches; the queue must be made for that.
        """
        unified = bool(self.facts.unified_memory)
        return Queue(handle, self.name, unified_memory=unified, profiling=profiling)

    def __repr__(self) -> str:
        return f"Device({self.name!r})"
