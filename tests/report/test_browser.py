"""Reports in Chromium: what a person sees is there on a phone, in the dark and on paper.

axe-core, from the npm registry, looks at whether everybody can read it. The page allows no script;
the tests look at a copy that does, in which a name that became markup would act.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from polydevice.cli import main
from tests.cpu.models import build
from tests.report.results import result

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
AXE = "axe-core@4.11.0"
POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


def browse(*options: str) -> str:
    """What Chromium prints; a browser of its own, which takes up to a minute on a busy machine."""
    command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += ["--disable-dev-shm-usage", "--virtual-time-budget=60000", *options]
    with tempfile.TemporaryDirectory() as home:  # Chromium wants to write there
        done = subprocess.run(
            command, capture_output=True, timeout=200, check=True, env={**os.environ, "HOME": home}
        )
    return done.stdout.decode("utf-8")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    for name, factor in (("a", 1.0), ("b", 1.5)):
        (folder / f"{name}.json").write_text(json.dumps({"results": [result("CPU", factor)]}))
    target = folder / "report.html"
    files = [str(folder / "a.json"), str(folder / "b.json")]
    assert main(["report", *files, "-o", str(target)]) == 0
    return target


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    folder = tmp_path_factory.mktemp("axe")
    command = [npm, "pack", "--silent", "--pack-destination", str(folder), AXE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm cannot fetch {AXE}: no answer within two minutes")
    if done.returncode:
        pytest.skip(f"npm cannot fetch {AXE}: {done.stderr.strip()[-200:]}")
    shutil.unpack_archive(next(folder.glob("*.tgz")), folder)
    return (folder / "package/axe.min.js").read_text(encoding="utf-8")


def with_script(report: Path, script: str, name: str) -> str:
    """The address of a copy that allows scripts and ends with this one."""
    text, count = POLICY.subn("", report.read_text(encoding="utf-8"))
    assert count == 1
    text = text.replace("<details>", "<details open>")
    copy = report.with_name(f"{name}.html")
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    return copy.as_uri()


@pytest.mark.network
@pytest.mark.parametrize(
    "options",
    [
        ["--window-size=500,900"],
        ["--window-size=1280,900", "--blink-settings=preferredColorScheme=0"],
    ],
    ids=["narrow-light", "wide-dark"],
)
def test_axe_finds_no_violations(report: Path, axe: str, options: list[str]):
    script = (
        axe
        + """;
    axe.run().then(found => {
        const page = document.createElement("pre");
        page.id = "found";
        page.textContent = JSON.stringify({
            violations: found.violations.map(v => [v.id, v.nodes.slice(0, 3).map(n => n.html)]),
            passes: found.passes.map(p => p.id),
            dark: matchMedia("(prefers-color-scheme: dark)").matches,
        });
        document.body.append(page);
    });"""
    )
    dom = browse("--dump-dom", *options, with_script(report, script, "axe"))
    match = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert match is not None
    found = json.loads(html.unescape(match.group(1)))
    assert found["violations"] == []
    assert {"color-contrast", "document-title", "scrollable-region-focusable"} <= set(
        found["passes"]
    )
    assert found["dark"] == ("preferredColorScheme" in options[-1])


def test_no_name_acts_and_nothing_overflows(report: Path):
    script = """
    const page = document.createElement("pre");
    page.id = "found";
    page.textContent = JSON.stringify({
        title: document.title,
        acting: document.querySelectorAll("img, script:not(:last-child), iframe, b, i, [onload]")
            .length,
        width: [document.documentElement.scrollWidth, innerWidth],
        charts: [...document.querySelectorAll("svg")].map(s => s.getBoundingClientRect().height),
    });
    document.body.append(page);"""
    dom = browse("--dump-dom", "--window-size=500,900", with_script(report, script, "acts"))
    match = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert match is not None
    found = json.loads(html.unescape(match.group(1)))
    assert found["title"] == "Inference of 2 runs"
    assert found["acting"] == 0
    assert found["width"][0] <= found["width"][1], "only tables scroll sideways"
    assert len(found["charts"]) >= 16 and min(found["charts"]) > 20


def test_printed_and_without_scripts(report: Path):
    target = report.with_suffix(".pdf")
    browse("--no-pdf-header-footer", f"--print-to-pdf={target}", report.as_uri())
    assert target.read_bytes()[:5] == b"%PDF-"
    assert "<script" not in report.read_text(encoding="utf-8")


def test_the_command_as_a_user_runs_it(device: str, tmp_path: Path, capsys):
    """`bench --report`: measures, and everything it can measure is on the page."""
    model = tmp_path / "model.onnx"
    model.write_bytes(build([("Relu", ["x"], ["y"], {})], {"x": ["n", 3, 8, 8]}, ["y"], {}))
    page, figures = tmp_path / "report.html", tmp_path / "figures.json"
    options = ["-m", str(model), "-d", device, "-niter", "20", "-api", "sync"]
    options += ["-data_shape", "[2,3,8,8][5,3,8,8]"]
    assert main(["bench", *options, "--report", str(page), "-json", str(figures)]) == 0
    (result_,) = json.loads(figures.read_text())["results"]
    details = result_["report"]
    assert len(details["latencies_ms"]) == 20
    assert details["layers"] and details["fates"] and details["places"] and details["memory"]
    assert [what for _, what in details["marks"]] == ["read", "load", "measure"]
    assert result_["first inference, cold process (ms)"]["load"] > 0
    assert details["machine"]["processor"]
    assert sum(layer["operations"] for layer in details["layers"]) == 2 * 3 * 8 * 8
    assert details["peaks"]["operations"]["f32"] > 0 and not details["missing"]
    shown = page.read_text(encoding="utf-8")
    assert f"model.onnx on {device}" in shown
    assert "Not measured" not in shown.replace("The device's peaks are not measured", "")
