"""CACHE_DIR: a second process loads a network without compiling, and answers the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[1] / "models" / "data" / "wechat_qr_sr.xml"

PROGRAM = """
import sys
import numpy as np
from polydevice import Core
image = np.random.default_rng(5).random((1, 1, 224, 224), np.float32)
with Core() as core:
    network = core.load_network(sys.argv[1], "GPU", {"CACHE_DIR": sys.argv[2]})
    (answer,) = network.infer({"data": image}).values()
answer.tofile(sys.argv[3])
"""


def test_second_process_compiles_nothing_and_answers_the_same(opencl, tmp_path) -> None:
    answers = []
    for forbid in ("0", "1"):
        answer = tmp_path / f"answer{forbid}"
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, MODEL, tmp_path / "kernels", answer],
            env={**os.environ, "POLYDEVICE_NO_COMPILE": forbid},
            check=False,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        answers.append(answer.read_bytes())
    assert len(answers[0]) == 4 * 447 * 447
    assert answers[0] == answers[1]


def test_what_is_not_in_the_cache_is_named(opencl, tmp_path, monkeypatch) -> None:
    from polydevice import Core
    from polydevice.errors import KernelBuildError

    monkeypatch.setenv("POLYDEVICE_NO_COMPILE", "1")
    with Core() as core, pytest.raises(KernelBuildError, match=r"is not in the cache, and POLYDEV"):
        core.load_network(MODEL, "GPU", {"CACHE_DIR": str(tmp_path / "kernels")})
