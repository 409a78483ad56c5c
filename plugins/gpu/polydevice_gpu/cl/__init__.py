"""The OpenCL runtime of the GPU plugin, and the only package that imports pyopencl.

The whole use::

    from polydevice_gpu import cl

    report = cl.discover()                                  # drivers are tried in child processes
    device = cl.open_device(report.devices[0])              # one per device: facts, capabilities
    builder = cl.ProgramBuilder(device, cache_folder=None)  # a folder: binaries kept on disk
    program = builder.build("scale", source, ("-DN=1024",)) # or build_all([...]), in parallel
    arena = device.memory.allocate(1 << 20, "arena")        # Buffer; regions are Buffers too
    x, y = arena.region(0, 4096), arena.region(4096, 4096)  # offsets: device.region_alignment_bytes
    launches = cl.LaunchList(device)                        # belongs to one request
    args = [x, y, np.float32(2), cl.LocalMemory(256)]
    launches.add(program.kernel("scale"), (1024,), (64,), args)
    with device.queue() as queue:                           # in order; profiling=True to time
        queue.upload(x, array)
        launches.enqueue(queue)                             # replay: no allocation, no event
        queue.download(y, result)                           # into an existing array; waits
        # launches.set_argument(launch, position, buffer) exchanges an input or output

Questions about a device are attributes of ``device.capabilities`` (``fp16_arithmetic``,
``sub_group_sizes``, ``integer_dot_product``, ...); nothing else asks who made it. Everything raised
is an exception of `polydevice.errors`. pyopencl is first imported when a device is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polydevice_gpu.cl.discovery import Report, Selection, discover

if TYPE_CHECKING:
    from polydevice_gpu.cl.capabilities import Capabilities
    from polydevice_gpu.cl.device import Device, handles_of, open_device
    from polydevice_gpu.cl.memory.allocator import Buffer
    from polydevice_gpu.cl.memory.image import Image
    from polydevice_gpu.cl.programs.apart import compiling_aside
    from polydevice_gpu.cl.programs.program import (
        CompiledKernel,
        Program,
        ProgramBuilder,
        ProgramSource,
        define,
    )
    from polydevice_gpu.cl.queues.event import Event
    from polydevice_gpu.cl.queues.filled_launches import (
        FilledLaunches,
        LaunchTable,
        TableArgument,
        TableLaunch,
    )
    from polydevice_gpu.cl.queues.launch import Draft, LaunchList, LocalMemory
    from polydevice_gpu.cl.queues.profile import LaunchTime
    from polydevice_gpu.cl.queues.queue import Queue
    from polydevice_gpu.cl.queues.recording_queue import RecordingQueue

__all__ = [
    "Buffer",
    "Capabilities",
    "CompiledKernel",
    "Device",
    "Draft",
    "Event",
    "FilledLaunches",
    "Image",
    "LaunchList",
    "LaunchTable",
    "LaunchTime",
    "LocalMemory",
    "Program",
    "ProgramBuilder",
    "ProgramSource",
    "Queue",
    "RecordingQueue",
    "Report",
    "Selection",
    "TableArgument",
    "TableLaunch",
    "compiling_aside",
    "define",
    "discover",
    "handles_of",
    "open_device",
]

# Loaded on first use, because they import pyopencl (0.3 s).
_HOMES = {
    "Buffer": "memory.allocator",
    "Capabilities": "capabilities",
    "Device": "device",
    "Draft": "queues.launch",
    "Event": "queues.event",
    "FilledLaunches": "queues.filled_launches",
    "Image": "memory.image",
    "CompiledKernel": "programs.program",
    "LaunchList": "queues.launch",
    "LaunchTable": "queues.filled_launches",
    "LaunchTime": "queues.profile",
    "LocalMemory": "queues.launch",
    "Program": "programs.program",
    "ProgramBuilder": "programs.program",
    "ProgramSource": "programs.program",
    "Queue": "queues.queue",
    "RecordingQueue": "queues.recording_queue",
    "TableArgument": "queues.filled_launches",
    "TableLaunch": "queues.filled_launches",
    "compiling_aside": "programs.apart",
    "define": "programs.program",
    "handles_of": "device",
    "open_device": "device",
}


def __getattr__(name: str) -> Any:
    """Import the module behind a name that needs pyopencl."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    found = globals()[name] = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    return found
