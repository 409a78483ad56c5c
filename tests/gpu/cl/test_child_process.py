"""Driver code runs in a child process; what it says before it dies is kept."""

from __future__ import annotations

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


def test_exception_in_the_child_is_told() -> None:
    outcome = child_process.run("discovery.child", {}, timeout_s=30)
    assert outcome.status == "crashed"
    assert "KeyError" in outcome.stderr


def test_program_without_an_interpreter(monkeypatch) -> None:
    monkeypatch.setattr(child_process.sys, "executable", "")
    assert child_process.run("discovery.child", {}, timeout_s=1).status == "failed"
    monkeypatch.setattr(child_process.sys, "executable", "/no/such/python")
    assert "cannot start" in child_process.run("discovery.child", {}, timeout_s=1).detail
