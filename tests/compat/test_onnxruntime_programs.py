"""Programs for onnxruntime print the same with onnxruntime and with polydevice in its place."""

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


def with_onnxruntime(program: str) -> str:
    text = (PROGRAMS / program).read_text()
    return kept("programs", [text, version("onnxruntime")], lambda: _printed(program))


def _printed(program: str) -> str:
    done = subprocess.run(
        [sys.executable, PROGRAMS / program, "a", "--b"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "program",
    ["onnxruntime_everyday.py", pytest.param("onnxruntime_tools.py", marks=pytest.mark.full)],
)
def test_the_same_is_printed(program: str, device: str) -> None:
    command = [*command_line(device), "run", "--as", "onnxruntime", "-d", device]
    done = subprocess.run(
        [*command, PROGRAMS / program, "a", "--b"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == with_onnxruntime(program).splitlines()
