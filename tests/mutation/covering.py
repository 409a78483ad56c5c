"""Which tests run a line: what coverage noted of a run of the quick tier."""

from __future__ import annotations

import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

from tests.mutation.faults import Fault


def source_folders(root: Path) -> list[Path]:
    """Return the folders that hold the packages."""
    return [root / "core", *sorted(path for path in (root / "plugins").iterdir() if path.is_dir())]


def record(root: Path, data: Path) -> None:
    """Run the quick tier, noting for each line the tests that run it, and print the coverage.

    Raises:
        RuntimeError: a test fails.
    """
    data.parent.mkdir(parents=True, exist_ok=True)
    packages = [path for folder in source_folders(root) for path in folder.glob("polydevice*")]
    settings = data.with_suffix(".cfg")
    settings.write_text(
        "[run]\nbranch = true\nrelative_files = true\n"
        f"data_file = {data}\nsource_pkgs =\n" + "".join(f"    {path.name}\n" for path in packages)
    )
    command = [
        *(sys.executable, "-m", "pytest", "-q", "--quick", "-n", "auto", "--maxprocesses", "8"),
        *("--dist", "worksteal", "--timeout", "1200"),  # being watched, everything takes longer
        *("--cov", "--cov-branch", f"--cov-config={settings}", "--cov-context=test"),
        "--cov-report=term:skip-covered",
    ]
    if subprocess.run(command, cwd=root, check=False).returncode:
        data.unlink(missing_ok=True)
        raise RuntimeError("the quick tier must be green before faults are put in")


class Covering:
    """The tests that run each line of a file."""

    def __init__(self, data: Path) -> None:
        import coverage

        self._data = coverage.CoverageData(str(data))
        self._data.read()
        self._names = {name: name for name in self._data.measured_files()}

    def tests_of(self, fault: Fault) -> list[str]:
        """Return the ids of the tests that run a fault's lines, those of different functions first.

        Lines that run when a module is imported belong to every test that runs anything in it.
        """
        name = next((n for n in self._names if n.endswith(str(fault.path))), None)
        if name is None:
            return []
        lines = self._data.contexts_by_lineno(name)
        inside = [lines.get(n, []) for n in range(fault.first, fault.last + 1)]
        ids = {context.rpartition("|")[0] for contexts in inside for context in contexts}
        if not ids - {""} and any(inside):
            ids = {c.rpartition("|")[0] for contexts in lines.values() for c in contexts}
        return _spread(sorted(ids - {""}))


def _spread(ids: list[str]) -> list[str]:
    """Order ids so that one of each test function comes first, then a second one of each, …."""
    functions: dict[str, list[str]] = {}
    for test in ids:
        functions.setdefault(test.partition("[")[0], []).append(test)
    return [test for row in zip_longest(*functions.values()) for test in row if test is not None]
