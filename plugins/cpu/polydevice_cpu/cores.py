"""Which cores the threads of a stream keep to (CPU_BIND_THREAD)."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path

from polydevice.errors import OptionValueError

_NODES = Path("/sys/devices/system/node")


class _Thread(threading.local):
    cores: frozenset[int] | None = None


_thread = _Thread()


def cores_of_streams(mode: str, streams: int) -> list[frozenset[int]]:
    """Return the cores of each stream; nothing where threads are left to the operating system.

    Args:
        mode: YES gives each stream cores of its own, as far as there are enough; NUMA and
            HYBRID_AWARE give it those of one memory node.
        streams: how many there are.

    Raises:
        OptionValueError: the operating system keeps no thread to cores.
    """
    if mode == "NO":
        return []
    if not hasattr(os, "sched_setaffinity"):
        raise OptionValueError(
            f"CPU_BIND_THREAD={mode} is not possible on this operating system; leave it out"
        )
    allowed = sorted(os.sched_getaffinity(0))
    if mode == "YES":
        if streams >= len(allowed):
            return [frozenset({allowed[i % len(allowed)]}) for i in range(streams)]
        bounds = [i * len(allowed) // streams for i in range(streams + 1)]
        return [frozenset(allowed[a:b]) for a, b in itertools.pairwise(bounds)]
    nodes = [found for node in _nodes() if (found := node.intersection(allowed))]
    return [nodes[i % len(nodes)] if nodes else frozenset(allowed) for i in range(streams)]


def keep_to(cores: frozenset[int]) -> None:
    """Keep the calling thread, and those that it starts from now on, to these cores."""
    if _thread.cores != cores:
        os.sched_setaffinity(0, cores)
        _thread.cores = cores


def _nodes() -> list[frozenset[int]]:
    """Return the cores of each memory node."""
    lists = sorted(_NODES.glob("node[0-9]*/cpulist"), key=lambda path: int(path.parent.name[4:]))
    return [parse_list(path.read_text(encoding="ascii")) for path in lists]


def parse_list(text: str) -> frozenset[int]:
    """Read the kernel's form of a set of cores: "0-3,8,10-11"."""
    found: set[int] = set()
    for item in filter(None, text.strip().split(",")):
        first, _, last = item.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
