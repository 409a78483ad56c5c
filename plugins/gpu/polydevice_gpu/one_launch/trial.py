"""What is tried on a device before launches run as one: addresses, and groups that meet."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from polydevice_gpu import cl
from polydevice_gpu.cl.queues.launch import Argument
from polydevice_gpu.one_launch.source import FIELDS, MOST_WORDS
from polydevice_gpu.one_launch.turns import turn_of

NOTE = "note_address"
NOTE_SOURCE = """\
// note_address: write where a buffer lies into a table. One work-item.
__kernel void note_address(__global uchar* buffer, __global ulong* addresses, const int at) {
    addresses[at] = (ulong)(size_t)buffer;
}
"""
STATE_BYTES = 16
_TRIAL_NS = 50_000_000
_MEETINGS = 3
_NO_FUNCTION = 0xFFFF


def addresses(note: cl.Kernel, device: cl.Device, buffers: Iterable[cl.Buffer]) -> dict[int, int]:
    """Return where buffers lie in the device's memory, by their handles.

    An address holds as long as the buffer lives: no driver that the probe accepts moves buffers.
    """
    distinct = list({buffer.pointer: buffer for buffer in buffers}.values())
    if not distinct:
        return {}
    table = device.memory.zeros(8 * len(distinct), "addresses")
    launches = cl.LaunchList(device)
    for at, buffer in enumerate(distinct):
        launches.add(note, (1,), (1,), [buffer, table, np.int32(at)])
    found = np.zeros(len(distinct), np.uint64)
    with device.queue() as queue:
        launches.enqueue(queue)
        queue.download(table, found)
    return dict(zip((b.pointer for b in distinct), found.tolist(), strict=True))


def padded(device: cl.Device, words: int, name: str) -> cl.Buffer:
    """Return memory for the words of stages, which is read beyond the last one."""
    return device.memory.zeros(8 * (words + MOST_WORDS), name)


def meet(kernel: cl.Kernel, device: cl.Device, ports: int, local_size: int, groups: int) -> bool:
    """Let all groups of a kernel meet a few times, with nothing to compute; see if they do.

    The kernel's own registers and local memory decide how many run at the same time. Every wait
    has a bound, so that groups too many only cost that time.
    """
    words = np.array(
        [_NO_FUNCTION | FIELDS << 16 | 1 << 32, *[0] * (FIELDS - 1)] * _MEETINGS, np.uint64
    )
    records = padded(device, words.size, "trial of one launch")
    state = device.memory.zeros(STATE_BYTES, "state of a trial")
    launches = cl.LaunchList(device)
    arguments: list[Argument] = [records, np.int32(words.size), state, np.uint64(_TRIAL_NS)]
    arguments += [np.int32(0), state, *[state] * ports]
    launches.add(kernel, (groups * local_size,), (local_size,), arguments)
    seen = np.zeros(STATE_BYTES // 4, np.uint32)
    with device.queue() as queue:
        queue.upload(records, words)
        turn_of(device).enqueue(queue, launches.enqueue)
        queue.download(state, seen)
    return not seen.any()
