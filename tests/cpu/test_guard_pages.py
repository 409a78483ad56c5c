"""The guard pages themselves: code that reads or writes one element too far ends the process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from polydevice_cpu.onednn.library import library

pytestmark = [
    pytest.mark.skipif(library() is None, reason="needs oneDNN"),
    pytest.mark.skipif(sys.platform != "linux", reason="needs mprotect"),
]

_PROGRAM = """
import sys
import numpy as np, pytest
from polydevice import Core
from tests import guard_pages
from tests.cpu.models import answer, build

side, step = sys.argv[1], int(sys.argv[2])
guard_pages.install(pytest.MonkeyPatch(), side)
nodes = [("MatMul", ["x", "w"], ["y"], {})]
model = build(nodes, {"x": [70, 90]}, ["y"], {"w": np.ones((90, 400), np.float32)})
x = np.ones((70, 90), np.float32)
with Core() as core:
    executable = core.load_network(core.read_network(model), "CPU")
    print(int(executable.infer({"x": x})["y"].sum()), flush=True)
    plan = executable.requests[0].runner.bound
    handle = next(iter(plan._binder._handles.values()))
    place = next(place for _, place in plan._given.values())
    plan._binder._memories.point(handle, place.ctypes.data + 4 * step)
    plan.run()
"""


@pytest.mark.parametrize(("side", "step"), [("after", 1), ("before", -1)])
def test_a_step_too_far_is_a_crash(side, step):
    command = [sys.executable, "-c", _PROGRAM, side, str(step)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout == "2520000\n", ran.stderr
    assert ran.returncode == -signal.SIGSEGV


@pytest.mark.full
@pytest.mark.timeout(600)  # the slice takes half a minute on an idle machine
@pytest.mark.parametrize("side", ["after", "before"])
def test_networks_keep_to_their_buffers(side):
    """The plan's own tests, and what oneDNN computes of each operation, in a process of their own.

    The whole suite passes so; it takes 13 minutes a side.
    """
    tests = ["tests/cpu/test_rare_shapes.py", "tests/conformance/test_conformance.py"]
    heavy = "rare_shapes or Conv or Pool or MatMul or MVN or Norm or LSTM or GRU or RNN or SoftMax"
    options = ["-q", "-x", "--device", "CPU", f"--guard-pages={side}", "-k", heavy]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout[-4000:]
