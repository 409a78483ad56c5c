"""What loading a network leaves in memory besides the network: pages of oneDNN's code, modules."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import image, load

pytestmark = [
    pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine"),
    pytest.mark.skipif(sys.platform != "linux", reason="the system has no such pages"),
]


def resident_bytes(address):
    """How much of the mapping at an address is in this process's memory."""
    found = False
    with open("/proc/self/smaps", encoding="utf-8") as lines:  # noqa: PTH123
        for line in lines:
            name, *rest = line.split()
            if found and name == "Rss:":
                return int(rest[0]) * 1024
            if not name.endswith(":"):
                first, last = (int(each, 16) for each in name.split("-"))
                found = first <= address < last
    raise AssertionError("no such mapping")


def test_pages_are_given_back_and_come_back(core):
    model, x = models.residual(32), image(1, 2, 3, 14, 14)
    given = core.read_network(model)
    kept = core.load_network(given, "CPU").create_infer_request()
    want = [array.copy() for array in kept.infer({"x": x}).values()]
    before = resident_bytes(library().execute_address)
    assert before > 0
    executable = load(core, model, CPU_THREADS_NUM=2)
    assert resident_bytes(library().execute_address) < 1 << 20
    theirs = models.answer(model, {"x": x})
    for request in (executable.create_infer_request(), kept):
        answers = request.infer({"x": x}).values()
        for ours, again, other in zip(answers, want, theirs, strict=True):
            np.testing.assert_allclose(ours, again, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(ours, other, rtol=1e-3, atol=1e-3)


def test_inferences_go_on_meanwhile(core):
    model, x = models.residual(32), image(2, 2, 3, 14, 14)
    request = load(core, model).create_infer_request()
    want = [array.copy() for array in request.infer({"x": x}).values()]
    stop, wrong = threading.Event(), []

    def infer():
        while not stop.is_set():
            for ours, first in zip(request.infer({"x": x}).values(), want, strict=True):
                if not np.array_equal(ours, first):
                    wrong.append(np.abs(ours - first).max())

    thread = threading.Thread(target=infer)
    thread.start()
    for _ in range(200):
        library().give_back()
    for _ in range(3):
        load(core, model)
    stop.set()
    thread.join()
    assert not wrong


UNUSED = """
import sys
from polydevice import Core
with Core() as core:
    core.load_network(core.read_network(sys.argv[1]), "CPU").create_infer_request().infer()
unused = "onnx", "filelock", "polydevice_cpu.plan.filling", "argparse"
print([name for name in sys.modules if name.startswith(unused)])
"""


def test_a_static_network_imports_nothing_that_it_does_not_need(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(models.residual())
    own = {**os.environ, "POLYDEVICE_CACHE_DIR": str(tmp_path)}  # tests beside this write, too
    command = [sys.executable, "-c", UNUSED, str(path)]
    for _ in range(2):  # the first one writes what trials have shown
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=own)
    assert done.stdout.strip() == "[]"
