"""LaunchList: launches prepared once and replayed at the lowest cost per launch.

What one launch costs the host, beyond the driver's own work: 7.6 µs through pyopencl's wrapper and
2.35 µs through a plain ctypes call, driver included (H100); 0.63 µs for a ctypes call with declared
argument types and 0.28 µs as here: undeclared, every argument a prepared ctypes object, bound with
functools.partial (Python 3.11; measured on a call that the loader answers itself). One call
enqueues all where `launch_loop` has a loop for the system.
On CPU devices none of that shows, because worker threads run meanwhile: 2.2 to 2.9 µs a launch with
PoCL 3.1 and Intel's CPU runtime in every way of launching.
Where the device replays command buffers correctly, the whole list is one call: 2.4 instead of
2.9 µs a launch on Intel's CPU runtime (which keeps memory of every replay, so that the probe
refuses it), no difference on PoCL.
"""

from __future__ import annotations

import ctypes
import functools
import math
import operator
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.errors import DeviceError
from polydevice_gpu.cl import library
from polydevice_gpu.cl.device import Device
from polydevice_gpu.cl.memory.allocator import Buffer
from polydevice_gpu.cl.programs.kernel_objects import KernelObjects
from polydevice_gpu.cl.programs.program import CompiledKernel
from polydevice_gpu.cl.queues import command_buffer
from polydevice_gpu.cl.queues.launch_loop import LAUNCH, LaunchLoop, launch_loop
from polydevice_gpu.cl.queues.profile import LaunchEvents, LaunchTime
from polydevice_gpu.cl.queues.queue import Queue
from polydevice_gpu.cl.status import check, exception_for


@dataclass(frozen=True)
class LocalMemory:
    """A ``__local`` pointer argument: so many bytes for every work-group."""

    size_bytes: int


_POINTER = ctypes.c_size_t(ctypes.sizeof(ctypes.c_void_p))

MOST_QUEUES = 32
"""For which a list keeps its calls: a network's streams, and as many while it is traced."""

Argument = Buffer | LocalMemory | np.generic | bytes
"""A buffer, local memory, a NumPy scalar (its type is the parameter's), or a struct's bytes."""


@functools.cache
def _set_kernel_argument() -> Any:
    return library.undeclared("clSetKernelArg")


@functools.cache
def _size(of: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(of)


@functools.lru_cache(4096)
def _sizes(*sizes: int) -> ctypes.Array[ctypes.c_size_t]:
    """Return sizes as C takes them, which launches share: nobody writes to them."""
    return (ctypes.c_size_t * len(sizes))(*sizes)


class _Bound:
    """A kernel object with arguments, and what these must keep alive."""

    def __init__(
        self, name: str, kernel: CompiledKernel, instance: int, like: _Bound | None = None
    ) -> None:
        self.name = name
        self.kernel = kernel
        self.instance = instance
        self.pointer = ctypes.c_void_p(instance)
        self.arguments: dict[int, Argument] = {} if like is None else like.arguments.copy()
        self.local_bytes: dict[int, int] = {} if like is None else like.local_bytes.copy()

    def set(self, position: int, argument: Argument) -> None:
        """Set one argument of the kernel object."""
        # Undeclared, a call takes 0.3 instead of 0.6 us (AMD EPYC).
        set_argument = _set_kernel_argument()
        if isinstance(argument, Buffer):
            code = set_argument(self.pointer, position, _POINTER, argument.argument)
        elif isinstance(argument, (np.generic, bytes)):
            content = argument.tobytes() if isinstance(argument, np.generic) else argument
            code = set_argument(self.pointer, position, _size(len(content)), content)
        elif isinstance(argument, LocalMemory):
            code = set_argument(self.pointer, position, _size(argument.size_bytes), None)
            self.local_bytes[position] = argument.size_bytes
        else:
            raise DeviceError(
                f"argument {position} of kernel {self.name!r} is {argument!r}; give a Buffer, "
                "LocalMemory, a NumPy scalar such as np.int32(3), or bytes"
            )
        if code:  # the text takes longer than the call
            check(code, f"setting argument {position} of kernel {self.name!r} to {argument!r}")
        self.arguments[position] = argument


class BoundLaunch(_Bound):
    """One launch: its kernel object, and its sizes."""

    def __init__(
        self,
        name: str,
        kernel: CompiledKernel,
        instance: int,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        like: _Bound | None = None,
    ) -> None:
        super().__init__(name, kernel, instance, like)
        self.dimensions = len(global_size)
        self.global_size = _sizes(*global_size)
        self.local_size = None if local_size is None else _sizes(*local_size)


class Draft(_Bound):
    """What launches have in common: a kernel object that is not launched, but copied for them.

    Needs ``capabilities.kernel_copies``; see `filled_launches`.
    """

    def __init__(self, kernel: CompiledKernel, arguments: Mapping[int, Argument]) -> None:
        """Set some of a kernel's arguments, by their positions."""
        self._own = KernelObjects()
        super().__init__(kernel.name, kernel, kernel.instance(self._own))
        for position, argument in arguments.items():
            self.set(position, argument)


class Prepared(NamedTuple):
    """The launches on one queue: as calls, as a loop where there is one, and where events go."""

    calls: list[Callable[[], int]]
    loop: LaunchLoop | None
    slots: ctypes.Array[ctypes.c_void_p]


class LaunchList:
    """Kernel launches with fixed sizes and arguments, in order. Belongs to one request.

    Not for several threads at the same time; several lists may share kernels and programs.
    """

    COUNTED_BY_DRIVER = 1024
    """Bytes that drivers add to a kernel's own local memory (NVIDIA: 1, or its alignment)."""

    def __init__(self, device: Device, *, use_command_buffer: bool | None = None) -> None:
        """Start an empty list.

        Args:
            device: the device of all kernels and buffers.
            use_command_buffer: None to use one where the device replays it correctly.
        """
        self._device = device
        if use_command_buffer is None:
            use_command_buffer = device.capabilities.command_buffers
        self._use_command_buffer = use_command_buffer
        self._added: list[BoundLaunch] = []
        self._kernels = KernelObjects()
        self._prepared: dict[tuple[int, bool], Prepared] = {}
        self._recording: command_buffer.CommandBuffer | None = None
        self._recording_queue = 0
        self._exchanged = True  # the first run records nothing: it may be the only one
        self._events: LaunchEvents | None = None

    def __len__(self) -> int:
        return len(self._added)

    def _launch(self, number: int) -> BoundLaunch:
        return self._added[number]

    def add(
        self,
        kernel: CompiledKernel,
        global_size: Sequence[int],
        local_size: Sequence[int] | None,
        arguments: Sequence[Argument],
        *,
        name: str = "",
    ) -> int:
        """Append a launch and return its number, for `set_argument` and `profile`.

        Args:
            kernel: the kernel.
            global_size: work-items in 1 to 3 dimensions, each 1 or more.
            local_size: work-items of a work-group, dividing `global_size`; None leaves it to the
                driver.
            arguments: one for every parameter of the kernel.
            name: what `profile` calls it; the kernel's name by default.

        Raises:
            DeviceError: naming the kernel and what does not fit.
        """
        check_sizes(self._device, kernel, global_size, local_size)
        if len(arguments) != kernel.argument_count:
            raise DeviceError(
                f"kernel {kernel.name!r} has {kernel.argument_count} parameters, "
                f"not {len(arguments)}"
            )
        instance = kernel.instance(self._kernels)
        launch = BoundLaunch(name or kernel.name, kernel, instance, global_size, local_size)
        for position, argument in enumerate(arguments):
            launch.set(position, argument)
        check_local_memory(self._device, kernel, launch.local_bytes.values())
        self._added.append(launch)
        self._forget_prepared()
        return len(self._added) - 1

    def set_argument(self, launch: int, position: int, argument: Argument) -> None:
        """Exchange an argument of a launch, usually a network's input or output buffer.

        Where command buffers are used, the next `enqueue` makes plain calls, and the one after it
        records again: memory that alternates from run to run would be recorded for nothing.
        """
        changed = self._launch(launch)
        before = changed.arguments[position]
        changed.set(position, argument)
        if isinstance(argument, LocalMemory):
            try:
                check_local_memory(self._device, changed.kernel, changed.local_bytes.values())
            except DeviceError:
                changed.set(position, before)
                raise
        self._forget_recording()
        self._exchanged = True

    def enqueue(self, queue: Queue) -> None:
        """Enqueue all launches in order; returns at once.

        On a profiling queue every launch is timed; see `profile`.

        Raises:
            DeviceError: (or a subclass) naming the kernel that the driver refused.
        """
        if queue.profiling:
            self._enqueue_timed(queue)
            return
        replays = self._use_command_buffer and len(self) > 1 and not self._exchanged
        if replays and self._replay(queue):
            return
        self._exchanged = False
        prepared = self._prepared_for(queue)
        enqueuing = self._device.enqueuing
        for at_once in self._device.attempts_at_enqueuing:
            if not at_once:
                current_bounds().acquire(enqueuing)
            break
        try:
            taken = len(self)
            if prepared.loop is not None:
                taken = prepared.loop()
            else:
                for number, call in enumerate(prepared.calls):
                    if call():
                        taken = number
                        break
        finally:
            enqueuing.release()
        if taken < len(self):
            self._fail(queue, taken)

    def profile(self) -> list[LaunchTime]:
        """Wait for the last `enqueue` on a profiling queue and return the time of each launch.

        Raises:
            DeviceError: if nothing was timed.
        """
        if self._events is None:
            raise DeviceError("nothing was timed: enqueue on a queue made with profiling=True")
        return self._events.times(self._names())

    def _names(self) -> list[str]:
        return [launch.name for launch in self._added]

    def _prepared_for(self, queue: Queue) -> Prepared:
        """Return the calls for a queue, made once: a request may run on all queues in turn."""
        key = queue.pointer, queue.profiling
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) == MOST_QUEUES:
                self._prepared.clear()
            found = self._prepared[key] = self._prepare(queue)
        return found

    def _prepare(self, queue: Queue) -> Prepared:
        enqueue = library.undeclared("clEnqueueNDRangeKernel")
        pointer = ctypes.c_void_p(queue.pointer)
        launches = [self._launch(number) for number in range(len(self))]
        slots = (ctypes.c_void_p * len(launches))()
        size = ctypes.sizeof(ctypes.c_void_p)
        start = ctypes.addressof(slots)
        events = [
            start + number * size if queue.profiling else None for number in range(len(launches))
        ]
        calls: list[Callable[[], int]] = [
            functools.partial(
                enqueue,
                *(pointer, launch.pointer, launch.dimensions, None),
                *(launch.global_size, launch.local_size, 0, None, ctypes.c_void_p(event)),
            )
            for launch, event in zip(launches, events, strict=True)
        ]
        rows = [
            (
                *(launch.instance, launch.dimensions, 0),
                *(_address(launch.global_size), _address(launch.local_size), event or 0),
            )
            for launch, event in zip(launches, events, strict=True)
        ]
        loop = launch_loop(queue.pointer, np.array(rows, LAUNCH))
        return Prepared(calls, loop, slots)

    def _fail(self, queue: Queue, number: int) -> NoReturn:
        """Raise for a launch that was refused; those before it have been enqueued."""
        launch = self._launch(number)
        if code := self._enqueue_one(queue, launch, None):
            raise exception_for(code, self._describe(launch))
        raise DeviceError(f"{self._device.name} refused a launch, and then accepted it again")

    def _enqueue_one(self, queue: Queue, launch: BoundLaunch, event: Any) -> int:
        code: int = library.library().clEnqueueNDRangeKernel(
            *(queue.pointer, launch.pointer, launch.dimensions, None),
            *(launch.global_size, launch.local_size, 0, None, event),
        )
        return code

    def _enqueue_timed(self, queue: Queue) -> None:
        prepared = self._prepared_for(queue)
        self._events = LaunchEvents(len(self))
        clock = time.perf_counter_ns
        marks = [clock()]
        if prepared.loop is not None and not queue.times_calls:
            taken = prepared.loop()
            marks.append(clock())
        else:
            for call in prepared.calls:
                if call():
                    break
                marks.append(clock())
            taken = len(marks) - 1
        self._events.take(prepared.slots, marks)
        if taken < len(self):
            self._fail(queue, taken)
        queue.timed(self._events, self._names())

    def _replay(self, queue: Queue) -> bool:
        """Replay the recording, making it if needed; False if the driver does not take it."""
        try:
            if self._recording is None or self._recording_queue != queue.pointer:
                self._forget_recording()
                self._recording = self._record(queue)
                self._recording_queue = queue.pointer
            self._recording.enqueue()
        except command_buffer.CommandBufferError:
            self._forget_recording()
            self._use_command_buffer = False  # the plain way names what is wrong, if anything is
            return False
        return True

    def _record(self, queue: Queue) -> command_buffer.CommandBuffer:
        functions = _functions(self._device.platform_pointer)
        return command_buffer.CommandBuffer(functions, queue.pointer, self._commands())

    def _commands(self) -> list[command_buffer.NDRangeCommand]:
        """Return what is recorded."""
        return [
            command_buffer.NDRangeCommand(
                launch.instance, launch.dimensions, launch.global_size, launch.local_size
            )
            for launch in self._added
        ]

    def _forget_recording(self) -> None:
        if self._recording is not None:
            self._recording.close()
            self._recording = None

    def _forget_prepared(self) -> None:
        self._forget_recording()
        self._prepared.clear()

    def _describe(self, launch: BoundLaunch) -> str:
        local = None if launch.local_size is None else tuple(launch.local_size)
        return (
            f"launching kernel {launch.name!r} on {self._device.name} with global size "
            f"{tuple(launch.global_size)} and local size {local}"
        )


@functools.cache
def _functions(platform: int) -> command_buffer.CommandBufferFunctions:
    return command_buffer.CommandBufferFunctions(platform)


def _address(of: Any) -> int:
    """Return where a C array lies; 0 of None."""
    return 0 if of is None else ctypes.addressof(of)


def check_local_memory(
    device: Device, kernel: CompiledKernel, arguments_bytes: Iterable[int]
) -> None:
    """Refuse more local memory than the device has; PoCL 3.1 crashes the process instead.

    Args:
        device: the device.
        kernel: what is launched.
        arguments_bytes: of its arguments in local memory.

    Raises:
        DeviceError: naming the kernel and both sizes.
    """
    asked = sum(arguments_bytes)
    needed = kernel.local_memory_bytes + asked
    can, facts = device.capabilities, device.facts
    most = max(can.local_memory_bytes, facts.local_memory_bytes)
    declared = max(can.declared_local_bytes, most)
    if asked > most or needed > declared + LaunchList.COUNTED_BY_DRIVER:
        raise DeviceError(
            f"kernel {kernel.name!r} needs {needed} bytes of local memory for a work-group; "
            f"{device.name} has {declared}"
        )


def check_sizes(
    device: Device,
    kernel: CompiledKernel,
    global_size: Sequence[int],
    local_size: Sequence[int] | None,
) -> None:
    """Say what is wrong with the sizes, where a driver would give a number only.

    Raises:
        DeviceError: naming the kernel and what does not fit.
    """
    most = device.capabilities.max_work_item_sizes
    if not 1 <= len(global_size) <= 3 or min(global_size) < 1:
        wrong = "1 to 3 dimensions of 1 or more are needed"
    elif local_size is None:
        return
    elif len(local_size) != len(global_size) or min(local_size) < 1:
        wrong = "both need the same number of dimensions, 1 or more each"
    elif any(map(operator.mod, global_size, local_size)):
        wrong = "the local size does not divide the global size"
    elif math.prod(local_size) > kernel.max_work_group_size:
        wrong = (
            f"on {device.name} this kernel allows {kernel.max_work_group_size} "
            "work-items in a work-group"
        )
    elif any(map(operator.gt, local_size, most)):
        wrong = f"{device.name} allows at most {most}"
    else:
        return
    local = "" if local_size is None else f" and local size {tuple(local_size)}"
    raise DeviceError(
        f"kernel {kernel.name!r} with global size {tuple(global_size)}{local}: {wrong}"
    )
