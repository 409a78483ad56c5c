"""`polydevice tune` as the process that watches: what it says and leaves when a child ends badly.

A module that every child imports first stands for drivers that crash, hang, or take their time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polydevice.cli import main
from polydevice.tuning import supervisor as tuning_supervisor
from polydevice.tuning.journal import VARIABLE

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals")

CHILD = f"""
import json, os, signal, sys, time
from pathlib import Path

journal = os.environ.get({VARIABLE!r})
if journal:
    notes = Path(__file__).with_name("notes")
    with notes.open("a") as file:
        file.write(json.dumps([os.getpid(), sys.orig_argv]) + "\\n")
    child = len(notes.read_text().splitlines())

    def lose(name):
        with open(journal, "a") as file:
            file.write(json.dumps({{"begin": name}}) + "\\n")
        os.kill(os.getpid(), signal.SIGSEGV)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what sets what children do, in Python."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv(VARIABLE, raising=False)

    def does(text: str) -> None:
        lines = "".join(f"    {line}\n" for line in text.splitlines())
        (tmp_path / "sitecustomize.py").write_text(CHILD + lines)

    return does


def notes(folder: Path) -> list[tuple[int, list[str]]]:
    """Return the process and the command line of each child."""
    path = folder / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tune(folder: Path, *more: str) -> int:
    return main(["tune", f"--file={folder / 'tuning.json'}", *more, "--", "-model.onnx"])


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV, outside of any candidate"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL, as systems do when memory is short"),
        ("os._exit(77)", "ended with status 77"),
        ("time.sleep(600)", "having given no sign for 2 s"),
    ],
)
def test_what_became_of_a_child_that_loads_is_said(
    does: str, said: str, child, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(tuning_supervisor, "LOADING_S", 2.0 if "sleep" in does else 120.0)
    child(does)
    assert tune(tmp_path) != 0
    assert said in capsys.readouterr().err
    assert len(notes(tmp_path)) == 1


@pytest.mark.full
def test_children_share_the_budget(child, tmp_path: Path, capsys) -> None:
    child("time.sleep(1.1)\nif child < 3: lose(f'k;t|c{child}')\nos._exit(0)")
    assert tune(tmp_path, "--budget", "1000") == 0
    budgets = [int(a.partition("=")[2]) for _, w in notes(tmp_path) for a in w if "--budget" in a]
    assert budgets[0] == 1000 > budgets[1] > budgets[2] and len(budgets) == 3
    (tmp_path / "notes").unlink()
    assert tune(tmp_path, "--budget", "1") == 0
    assert len(notes(tmp_path)) == 1
    assert "the 1 s are over" in capsys.readouterr().err


def test_a_journal_of_old_time_is_no_hang(child, tmp_path: Path, monkeypatch) -> None:
    """As when the clock was set while a child is at work."""
    monkeypatch.setattr(tuning_supervisor, "LOADING_S", 60.0)
    child("os.utime(journal, (1, 1))\ntime.sleep(1)\nos._exit(0)")
    assert tune(tmp_path) == 0


def test_a_signal_leaves_neither_child_nor_journal(child, tmp_path: Path) -> None:
    child("time.sleep(600)")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "polydevice", "tune", "model.onnx", "--file", "tuning.json"]
    process = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "TMPDIR": str(temporary)})
    try:
        until = time.monotonic() + 120
        while not notes(tmp_path) and time.monotonic() < until:
            time.sleep(0.1)
        assert len(list(temporary.iterdir())) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert not list(temporary.iterdir())
    ((number, _),) = notes(tmp_path)
    until = time.monotonic() + 30  # whoever inherits it may take a while to bury it
    while _runs(number) and time.monotonic() < until:
        time.sleep(0.1)
    assert not _runs(number)


def _runs(process: int) -> bool:
    """Whether a process is there, and not only what its parent may still ask of it."""
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def test_a_child_reads_names_that_begin_as_options_do(child, tmp_path: Path, capfd) -> None:
    """It gets to loading: the device that is named takes no such option."""
    child("pass")
    assert tune(tmp_path, "--device", "CPU", "--weights=-w.bin", "-c", "A=-b=c") == 1
    assert "-model.onnx" in capfd.readouterr().err
