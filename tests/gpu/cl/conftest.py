"""Drivers that misbehave, compiled for the test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

AddDriver = Callable[..., Path]


@pytest.fixture
def _answers_alone() -> None:
    """Compile as these tests say: what is compiled, and kept, is what they are about."""


@pytest.fixture
def vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of .icd files that loaders look into instead of the system's."""
    folder = tmp_path / "vendors"
    folder.mkdir()
    monkeypatch.setenv("OCL_ICD_VENDORS", str(folder))
    monkeypatch.delenv("OCL_ICD_FILENAMES", raising=False)
    return folder


@pytest.fixture
def real_driver(vendors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """PoCL's .icd file in the folder, and a place for what it compiles: HOME may have none."""
    system = Path("/etc/OpenCL/vendors/pocl.icd")
    if not system.is_file():
        pytest.skip("PoCL is not installed from the system's packages")
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path))
    return Path(shutil.copy(system, vendors))


@pytest.fixture
def fake_driver(vendors: Path, tmp_path: Path) -> AddDriver:
    """Compile a driver that behaves as told by macros, and register it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to make a driver with")

    def add(name: str, **macros: str | int) -> Path:
        library = tmp_path / f"lib{name}.so"
        defines = [f"-D{key}={value}" for key, value in macros.items()]
        source = Path(__file__).with_name("fake_driver.c")
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-w", *defines, "-o", library, source], check=True
        )
        (vendors / f"{name}.icd").write_text(f"{library}\n")
        return library

    return add
