"""OpenMP's worker threads: gone where nothing is computed, since idle ones slow the others down."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice_cpu.onednn.library import library
from tests.cpu import models

TASKS = Path("/proc/self/task")


def workers() -> int:
    return len(list(TASKS.iterdir()))


def settled(limit: int) -> int:
    """The number of threads, once it is down to a limit or two seconds have passed."""
    end = time.monotonic() + 2
    while workers() > limit and time.monotonic() < end:
        time.sleep(0.01)
    return workers()


@pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts threads through /proc")
def test_only_the_thread_that_computes_has_workers():
    with Core() as core:
        network = core.read_network(models.residual())
        executable = core.load_network(network, "CPU", {"CPU_THREADS_NUM": "2"})
        given = {n: np.zeros(p.sizes, np.float32) for n, p in executable.inputs.items()}
        request = executable.create_infer_request()
        request.start_async(given)
        request.wait()
        time.sleep(0.3)
        alone = workers()  # with the stream's thread, whose workers have ended
        request.infer(given)
        assert workers() == alone + 1
        request.start_async(given)
        request.wait()
        assert settled(alone) == alone
