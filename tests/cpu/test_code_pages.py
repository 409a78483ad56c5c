"""What loading a network leaves in memory besides it: pages of code and of weights, modules."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from mmap import PAGESIZE

import numpy as np
import pytest

from polydevice.memory_budget import give_back_pages
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan.building.weights import PAGE_BYTES, _Shelf
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


def present_pages(array):
    """Which of the whole pages of an array's memory are there."""
    first = -(-address_of(array) // PAGESIZE)
    end = (address_of(array) + array.nbytes) // PAGESIZE
    with open("/proc/self/pagemap", "rb") as entries:  # noqa: PTH123
        entries.seek(8 * first)
        found = np.frombuffer(entries.read(8 * (end - first)), np.uint64)
    return found >> np.uint64(63) == 1


def test_the_page_that_weights_end_in_is_given_back():
    """Large pages hold packed weights; what is left of the last one is memory for others."""
    shelf = _Shelf()
    pieces = [shelf.place(size) for size in (1 << 20, 700_000, 900_001, 1_234_567)]
    for number, piece in enumerate(pieces):
        piece[:] = number + 1
    start = address_of(shelf._left)
    left = shelf._left[: -start % PAGE_BYTES]
    left[:] = 9
    behind = shelf._left[left.size : left.size + (1 << 16)]
    behind[:] = 8
    assert present_pages(left).all()
    assert len(present_pages(left)) > 100
    shelf.give_back()
    assert not present_pages(left).any()
    assert present_pages(behind).all()  # of the next large page, whose turn it was not
    assert [set(piece.tolist()) for piece in pieces] == [{1}, {2}, {3}, {4}]
    more = shelf.place(50_000)
    more[:] = 7
    assert address_of(more) == start
    assert (more == 7).all()
    _Shelf().give_back()  # nothing was taken


def test_what_is_given_back_is_whole_pages_alone():
    memory = np.ones(3 * PAGESIZE, np.uint8)
    start = -address_of(memory) % PAGESIZE
    give_back_pages(address_of(memory) + start + 1, 2 * PAGESIZE - 2)  # no whole page
    assert memory.all()
    give_back_pages(address_of(memory) + start, PAGESIZE)
    assert memory[:start].all()
    assert not memory[start : start + PAGESIZE].any()
    assert memory[start + PAGESIZE :].all()
