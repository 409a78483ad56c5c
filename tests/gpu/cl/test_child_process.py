"""Driver code runs in a child process; what it says before it dies is kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polydevice_gpu.cl import child_process, library
from polydevice_gpu.cl.discovery.icd import list_icds, loader_environment


def ask(**environment: str | None) -> child_process.Outcome:
    argument = {"opencl": library.find_library()[0], "driver": ""}
    return child_process.run(
        "discovery.child",
        argument,
        environment={"PYOPENCL_HOME": "/nowhere", **environment},
        timeout_s=30,
    )


def test_answer_of_the_system(opencl) -> None:
    # In the environment that made the device usable: drivers without an .icd file are named there.
    with loader_environment(list_icds()[0]) as environment:
        outcome = ask(**environment)
    assert outcome.status == "ok"
    names = [d["name"] for m in outcome.messages for p in m["platforms"] for d in p["devices"]]
    assert opencl.name in names


def test_variables_can_be_set_and_removed(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    assert ask().messages == ({"platforms": []},)
    elsewhere = ask(OCL_ICD_VENDORS=None)
    assert elsewhere.status == "ok"


def test_exception_in_the_child_is_told_as_our_defect(caplog) -> None:
    outcome = child_process.run("discovery.child", {}, timeout_s=30)
    assert (outcome.status, outcome.messages) == ("raised", ())
    assert outcome.detail == "KeyError: 'driver'"
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "defect of polydevice" in record.message
    assert "child.py" in record.message  # with the traceback


def test_program_without_an_interpreter(monkeypatch) -> None:
    monkeypatch.setattr(child_process.sys, "executable", "")
    assert child_process.run("discovery.child", {}, timeout_s=1).status == "failed"
    monkeypatch.setattr(child_process.sys, "executable", "/no/such/python")
    assert "cannot start" in child_process.run("discovery.child", {}, timeout_s=1).detail


HOG = "import time; end = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux's schedstat")
def test_waiting_for_a_free_core_is_known() -> None:
    core = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, sys.executable, "-c", HOG]
    hogs = [subprocess.Popen(command) for _ in range(4)]
    try:
        time.sleep(3)
        waited = [child_process.starved_s(hog.pid) for hog in hogs]
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert min(waited) > 1  # each has a quarter of the core, so it waits 2.25 s
    assert child_process.starved_s(hogs[0].pid) == 0  # it is gone


def test_a_child_without_a_free_core_is_not_hung(monkeypatch) -> None:
    """A child that sleeps stands for one that waits; Linux says which of the two it is."""
    for waited, status in [(0.0, "hung"), (5.0, "ok")]:
        monkeypatch.setattr(child_process, "starved_s", lambda _, waited=waited: waited)
        process = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(1); print('[1]')"],
            stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        output, hung = child_process._collect(process, 0.4)
        assert ("hung" if hung else "ok") == status
        assert output == (b"" if hung else b"[1]\n")
