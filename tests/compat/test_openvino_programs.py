"""Programs for OpenVINO print the same with OpenVINO and with polydevice in its place."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.kept import kept
from tests.models.fetch import ROOT
from tests.sparing import command_line

PROGRAMS = Path(__file__).parent / "programs"
SAMPLES = ROOT / "samples"
FORKING = """
import multiprocessing, runpy, sys
multiprocessing.set_start_method("fork")
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""OpenVINO may start a process, which runs the program once more where Python 3.14 starts it."""

pytestmark = pytest.mark.timeout(1200)  # PoCL 6 compiles for minutes on a busy machine


def with_openvino(program: str) -> str:
    text = (PROGRAMS / program).read_text()
    files = sorted((str(path), path.stat().st_size) for path in SAMPLES.glob("[im]*/**/*"))
    pytest.importorskip("openvino", reason="what programs print with it is compared with")
    return kept("programs", [text, version("openvino"), files], lambda: _printed(program))


def _printed(program: str) -> str:
    done = subprocess.run(
        # What is buffered where OpenVINO forks is printed twice.
        [sys.executable, "-u", "-c", FORKING, PROGRAMS / program, SAMPLES, "--b"],
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("openvino_bodies.py", marks=pytest.mark.full),
        pytest.param("openvino_everyday.py", marks=pytest.mark.full(but_on="CPU")),
        pytest.param("openvino_operations.py", marks=pytest.mark.full),
        pytest.param("openvino_passes.py", marks=pytest.mark.full),
        pytest.param("openvino_samples.py", marks=pytest.mark.full(but_on="CPU")),
    ],
)
def test_the_same_is_printed(program: str, device: str) -> None:
    command = [*command_line(device), "run", "--as", "openvino", "-d", device]
    done = subprocess.run(
        [*command, PROGRAMS / program, SAMPLES, "--b"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == with_openvino(program).splitlines()
