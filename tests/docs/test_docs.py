"""The documentation agrees with the code: blocks run, links lead somewhere, tables are fresh."""

from __future__ import annotations

import inspect
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

import polydevice
from polydevice.ops.op import operations

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NOT_RUN = re.compile(r"<!-- not run: \S.*-->\n$")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(page: Path) -> list[str]:
    """The Python blocks of a page that are to be run; others carry a reason in a comment above."""
    text = page.read_text()
    blocks = [m for m in BLOCK.finditer(text) if m[1] == "python"]
    return [m[2] for m in blocks if not NOT_RUN.search(text[: m.start()])]


FIRST_PAGES = ("README.md", "docs/quickstart.md")
"""Each page is a process of its own, of 1 to 10 s where its networks are compiled for the first
time; what the others show of features has tests of its own."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, marks=() if name(p) in FIRST_PAGES else pytest.mark.full)
        for p in PAGES
        if python_blocks(p)
    ],
    ids=name,
)
def test_python_blocks_run(page: Path) -> None:
    """All blocks of a page, in order, in one process of their own.

    Only the first pages let PoCL optimise what it compiles: others took 18 instead of 12 s of CPU.
    """
    program = "\n".join(python_blocks(page))
    if name(page) not in FIRST_PAGES and '"GPU' in program:
        program = f"from tests.sparing import spare\nspare()\n{program}"
    done = subprocess.run(
        # Intel's compiler for CPUs reports success, of which pyopencl warns.
        [sys.executable, "-W", "error", "-W", "ignore:Non-empty compiler output", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_blocks_name_their_language(page: Path) -> None:
    for match in BLOCK.finditer(page.read_text()):
        assert match[1] in ("python", "bash", "toml", "text", "c", "xml", "json"), match[0][:200]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index, page.name


def test_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_operation_says_what_it_gives_and_where_it_comes_from() -> None:
    for cls in operations():
        if not cls.__module__.startswith("polydevice."):
            continue  # a plugin's, in another test
        text = inspect.getdoc(cls) or ""
        assert "Outputs:" in text, cls
        assert "Source:" in text, cls


def test_all_lists_the_public_names() -> None:
    """`__all__` is sorted, and everything public that `polydevice` defines is in it."""
    assert list(polydevice.__all__) == sorted(polydevice.__all__)
    for name_ in polydevice.__all__:
        assert hasattr(polydevice, name_)
    modules = {n for n, value in vars(polydevice).items() if inspect.ismodule(value)}
    public = {n for n in vars(polydevice) if not n.startswith("_")} - modules - {"annotations"}
    assert public <= set(polydevice.__all__)


def test_the_first_page_says_what_was_measured() -> None:
    """Its figures are those of docs/measured, its pictures are there, its commands exist."""
    text = (ROOT / "README.md").read_text()
    cpu, calls = (
        json.loads((ROOT / f"docs/measured/{name}.json").read_text())
        for name in ("cpu", "overhead")
    )
    ratios = [r["ratio"] for r in cpu["rows"] if (r["threads"], r["type"]) == (1, "f32")]
    assert f"| {len(ratios)} real models" in text
    assert f"**{math.prod(ratios) ** (1 / len(ratios)):.2f}**" in text
    assert f"**{calls['us']['polydevice, prepared']:.1f} µs**" in text
    for name in re.findall(r'<img src="([^"]+)"', text):
        assert (ROOT / name).is_file(), name
    for name in re.findall(r"`python (\S+\.py)", text):
        assert (ROOT / name).is_file(), name
