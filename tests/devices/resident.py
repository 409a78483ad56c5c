"""What a process takes in memory, measured alone, for tests that nothing grows."""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from polydevice import memory_budget

_STATM = Path("/proc/self/statm")
needs_proc = pytest.mark.skipif(not _STATM.exists(), reason="measures memory through /proc")


def resident_bytes() -> int:
    """Return the memory of this process, less what allocators keep for later."""
    gc.collect()
    memory_budget.give_back(memory_budget.WORTH_BYTES)
    return int(_STATM.read_text().split()[1]) * resource.getpagesize()


def apart(function: Callable[[str], tuple[int, ...]], device: str) -> list[int]:
    """Return the numbers that a module's function gives in a process of its own.

    What other tests left behind moves about in this one.
    """
    name = function.__name__
    code = f"from {function.__module__} import {name}; print(*{name}({device!r}))"
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    command = [sys.executable, "-c", code]
    measured = subprocess.check_output(command, env=environment, text=True, timeout=300)
    return [*map(int, measured.split())]
