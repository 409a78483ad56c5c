"""Runs a module as ``python -m`` does, its OpenCL programs compiled sparingly.

    python -m tests.sparing polydevice run --as openvino -d GPU program.py

A program of 70 operations takes 10 instead of 18 s of CPU time so (PoCL 3.1, nothing kept).
"""

from __future__ import annotations

import runpy
import sys

import pytest


def command_line(device: str) -> list[str]:
    """Return how polydevice is run, from the root, for programs on a device."""
    sparing = ["tests.sparing"] if device == "GPU" else []
    return [sys.executable, "-m", *sparing, "polydevice"]


def spare() -> None:
    """Compile OpenCL programs sparingly from now on, in this process."""
    from tests.gpu.graphs import compile_sparingly  # imports the GPU plugin

    compile_sparingly(pytest.MonkeyPatch())


if __name__ == "__main__":
    spare()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
