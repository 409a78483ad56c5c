"""The quick tier is what `scripts/test` runs, in the processes of pytest-xdist too."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = """
import pytest
from tests import tiers

@pytest.mark.parametrize("a", [1, 2, 3])
@pytest.mark.parametrize("b", [1, 2, 3])
def test_each_choice(a, b): pass

@pytest.mark.parametrize("a", [1, 2])
@pytest.mark.parametrize("b", [1, 2])
@pytest.mark.parametrize("c", [1, 2])
def test_pairs(a, b, c): pass

@pytest.mark.parametrize("item", [1, 2])
@pytest.mark.parametrize("device", ["CPU", "GPU"])
def test_devices(item, device): pass

@pytest.mark.parametrize("seed", tiers.firsts(2, range(4)))
def test_seeds(seed): pass

@pytest.mark.full
def test_full(): pass

ONE_OF_TWO = [pytest.param(1, marks=pytest.mark.full(but_on="CPU")), 2]

@pytest.mark.parametrize("item", ONE_OF_TWO)
@pytest.mark.parametrize("device", ["CPU"])
def test_stays(item, device): pass

@pytest.mark.parametrize("item", ONE_OF_TWO)
@pytest.mark.parametrize("device", ["GPU"])
def test_goes(item, device): pass
"""


@pytest.mark.parametrize("workers", ["0", "1"])
@pytest.mark.parametrize(("option", "count"), [((), 12), (("--quick",), 12), (("--all",), 27)])
def test_which_tests_run(tmp_path: Path, workers: str, option: tuple[str, ...], count: int) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers = full\n")
    (tmp_path / "tests" / "test_some.py").write_text(SUITE)
    (tmp_path / "tests" / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "import pytest\nfrom tests import tiers\n"
        "def pytest_addoption(parser): tiers.add_options(parser)\n"
        "def pytest_configure(config): tiers.choose(config)\n"
        "def pytest_configure_node(node): tiers.tell(node)\n"
        "def pytest_collection_modifyitems(config, items): tiers.leave_out(config, items)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *option]
    if workers != "0":
        command += ["-n", workers]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert int(found[1]) == count


LONG = """
import pytest

def test_short(): pass

@pytest.mark.timeout(20)
def test_strict(): pass

@pytest.mark.timeout(900)
def test_long(): pass

@pytest.mark.timeout(1800)
def test_longest(): pass
"""


def test_the_longest_tests_start_first(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 300\n")
    (tmp_path / "test_some.py").write_text(LONG)
    (tmp_path / "conftest.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom tests import tiers\n"
        "def pytest_collection_modifyitems(items): tiers.start_longest_first(items)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    found = re.findall(r"::test_(\w+)", done.stdout)
    assert found == ["longest", "long", "short", "strict"], done.stdout + done.stderr
