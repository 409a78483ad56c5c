"""One fault at a time in a copy of the repository, and the tests against it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.covering import source_folders
from tests.mutation.faults import Fault

FEW = 40  # tests that are tried first; most faults are caught by these
MANY = 400  # tests that are tried at most
SECONDS = 900  # for one lot of tests; a fault that makes them hang is caught
MEMORY = 12 << 30  # bytes of address space
NO_TEST = (4, 5)  # pytest's exit codes: ids that it cannot find, nothing collected


@dataclass(frozen=True)
class Outcome:
    """What became of a fault.

    Attributes:
        fault: the fault.
        caught: whether a test failed.
        tests: how many were tried.
        by: what caught it, or why nothing did.
    """

    fault: Fault
    caught: bool
    tests: int
    by: str


class Workspace:
    """A copy of the files that git knows, with caches of its own."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self.folder = root, folder
        listed = subprocess.run(
            ["git", "ls-files", "-z"],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        )
        for name in filter(None, listed.stdout.split("\0")):
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)
        (folder / ".cache").mkdir()
        answers = root / ".cache" / "openvino"
        answers.mkdir(parents=True, exist_ok=True)
        (folder / ".cache" / "openvino").symlink_to(answers)

    def try_fault(self, fault: Fault, tests: Sequence[str]) -> Outcome:
        """Run the tests with the fault in place."""
        if not tests:
            return Outcome(fault, caught=False, tests=0, by="no test runs it")
        path = self.folder / fault.path
        sound = path.read_bytes()
        path.write_bytes(fault.apply(sound))
        try:
            for lot in (tests[:FEW], tests[FEW:MANY]):
                if lot and (by := self._failing(lot)):
                    return Outcome(fault, caught=True, tests=len(lot), by=by)
        finally:
            path.write_bytes(sound)
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
        return Outcome(fault, caught=False, tests=min(len(tests), MANY), by="all tests pass")

    def _failing(self, tests: Sequence[str]) -> str:
        """Return the first test that fails, or how pytest itself did; empty when all pass."""
        names = self.folder / ".cache" / "tests"
        names.write_text("\n".join(tests))
        command = [
            *("prlimit", f"--as={MEMORY}", sys.executable, "-m", "pytest"),
            *("-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--timeout=200"),
            f"@{names}",
        ]
        try:
            run = subprocess.run(
                command,
                cwd=self.folder,
                env=self._environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"more than {SECONDS} s"
        if run.returncode == 0:
            return ""
        told = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if not told and run.returncode in NO_TEST:
            told = [(run.stdout + run.stderr)[-300:]]
        return told[0][:160] if told else f"exit code {run.returncode}"

    def _environment(self) -> dict[str, str]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(map(str, source_folders(self.folder))),
            # Byte code would not notice sources that change within a second and keep their length.
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            # What a faulty program keeps, no later one may find.
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "POCL_CACHE_DIR": str(Path.home() / ".cache" / "pocl"),
        }
