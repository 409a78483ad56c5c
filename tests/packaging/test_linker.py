"""tests/linker/ld: kernels are linked without libraries, all else as it was asked for."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

LINKER = Path(__file__).parents[1] / "linker" / "ld"
LIBRARIES = ["-lm", "-lgcc", "--as-needed", "-lgcc_s", "--no-as-needed", "-lc"]


@pytest.mark.skipif(os.name != "posix", reason="a script of the shell")
@pytest.mark.parametrize(
    ("given", "left"),
    [
        (["-shared", "-o", "k/tempfile_a b.so", "k/tempfile_c.so.o"], ["-lgcc"]),  # PoCL's
        (["-shared", "-o", "driver.so", "driver.o"], LIBRARIES),
        (["-o", "k/program", "k/tempfile_c.so.o"], LIBRARIES),
    ],
)
def test_what_is_linked(tmp_path: Path, given: list[str], left: list[str]) -> None:
    (tmp_path / "ld").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "ld").chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        [LINKER, *given, *LIBRARIES], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [*given, *left]
