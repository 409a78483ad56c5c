"""Reports as files: everything that was measured is there, and nothing that a model wrote acts."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice.cli import main
from polydevice.errors import OptionValueError
from polydevice.report import peaks as measured
from polydevice.report.charts import Scale
from polydevice.report.gather import MemorySampler, profile, split_explanation
from polydevice.report.markup import shown
from polydevice.report.page import page
from polydevice.report.roofline import roofline, shares, without_peak
from polydevice.report.run import (
    LARGEST,
    SMALLEST,
    Details,
    Layer,
    Peaks,
    Run,
    read_runs,
    runs_of,
    thinned,
)
from tests.cpu.models import build
from tests.report.results import HOSTILE, result


class Parsed(HTMLParser):
    """Elements, attributes and texts as a browser's parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section"),
    *("article", "div", "h1", "h2", "h3", "p", "strong", "bdi", "dl", "dt", "dd", "details"),
    *("summary", "table", "caption", "thead", "tbody", "tr", "th", "td", "figure", "figcaption"),
    *("svg", "line", "text", "rect", "path", "polygon", "circle"),
}
ATTRIBUTES = {
    *("charset", "http-equiv", "content", "name", "lang", "class", "scope", "tabindex", "role"),
    *("aria-label", "aria-hidden", "focusable", "viewbox", "x", "y", "x1", "x2", "y1", "y2"),
    *("width", "height", "cx", "cy", "r", "d", "points", "text-anchor", "transform"),
}


def check_inert(text: str) -> Parsed:
    """No element or attribute that could load or run anything, whatever the names are."""
    parsed = Parsed(text)
    assert {tag for tag, _ in parsed.elements} <= ELEMENTS
    assert {name for _, found in parsed.elements for name in found} <= ATTRIBUTES
    policies = [a["content"] for _, a in parsed.elements if "http-equiv" in a]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]
    return parsed


def test_names_from_models_are_only_ever_text(tmp_path: Path):
    files = []
    for name, factor in (("first", 1.0), ("second", 1.5)):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps({"results": [result("CPU", factor)]}))
    target = tmp_path / "report.html"
    assert main(["report", *map(str, files), "-o", str(target)]) == 0
    parsed = check_inert(target.read_text(encoding="utf-8"))
    together = "\n".join(parsed.texts)
    for name in HOSTILE:
        assert together.count(shown(name)) >= 4, name  # as a layer and as a fate, of two runs
    assert "\u202e" not in together and "\x1b" not in together
    assert "first: " in together and "second: " in together
    assert "(1.50×)" in together  # what the second run's p50 is of the first's
    assert "of peak" in together


def test_a_network_with_hostile_names(device: str, tmp_path: Path):
    names = [name.replace("\ud800", "") for name in HOSTILE]
    nodes = []
    for number, name in enumerate(names):
        kind = ("Conv", "Relu", "MaxPool")[number % 3]
        before = names[number - 1] if number else "x"
        ins = [before, "weights"] if kind == "Conv" else [before]
        extra = {"pads": [1, 1, 1, 1]} if kind == "Conv" else {}
        extra |= {"kernel_shape": [1, 1]} if kind == "MaxPool" else {}
        nodes.append((kind, ins, [name], extra | {"name": name}))
    rng = np.random.default_rng(5)
    weights = rng.standard_normal((4, 4, 3, 3)).astype(np.float32)
    model = build(nodes, {"x": [1, 4, 9, 7]}, [names[-1]], {"weights": weights})
    details = Details()
    with Core() as core:
        network = core.read_network(model)
        with core.load_network(network, device, {"PERF_COUNT": "YES"}) as executable:
            inputs = [{"x": rng.standard_normal((1, 4, 9, 7)).astype(np.float32)}]
            profile(executable, inputs, network, details)
    assert not details.missing
    # Each of the 4 convolutions computes 4 x 9 x 7 sums over 4 x 3 x 3 products, wherever it ran.
    operations = sum(layer.operations or 0 for layer in details.layers)
    assert operations >= 4 * 2 * (4 * 9 * 7) * (4 * 3 * 3)
    assert all(layer.bytes and layer.time_us >= 0 for layer in details.layers)
    assert sum(place.layers for place in details.places) >= len(names)
    found = {fate.name for fate in details.fates}
    one_line = {name for name in names if "\n" not in name and "\u2028" not in name}
    assert one_line <= found | {note.split("  ")[0] for note in details.notes}
    content = json.loads(json.dumps({"device": device, "report": details.model_dump()}))
    check_inert(page(runs_of([content], "here")))


def test_what_is_missing_is_said():
    parsed = check_inert(page([Run(device="CPU", error="<b>no such model</b>")]))
    text = "\n".join(parsed.texts)
    assert "<b>no such model</b>" in text
    assert text.count("`polydevice bench --report`") == 4  # latency, layers, placement, fates
    details = Details(missing={"layers": "ODD has no graph"}, latencies_ms=[3.0])
    text = "\n".join(Parsed(page([Run(device="ODD", p50=3.0, report=details)])).texts)
    assert "ODD has no graph" in text


def figure(name: str, value: str) -> str:
    """Return a file with one layer, one of whose figures is the text of a number."""
    layer = {"name": "n", "type": "t", "kernel": "k", "time_us": 1.0, "bytes": 1, name: "HERE"}
    result = {"device": "CPU", "report": {"layers": [layer]}}
    return json.dumps({"results": [result]}).replace('"HERE"', value)


def test_the_largest_and_smallest_figures_are_drawn(tmp_path: Path):
    """Quotients of them are finite."""
    layers = [
        {"name": "n", "type": "t", "kernel": "k", "time_us": time, "element_type": "FP32",
         "operations": operations, "bytes": 2**63 - operations}
        for time in (SMALLEST, LARGEST)
        for operations in (1, 2**63 - 1)
    ]  # fmt: skip
    runs = [
        {"device": "CPU", "throughput (FPS)": LARGEST, "latency p50 (ms)": SMALLEST,
         "report": {"layers": layers, "latencies_ms": [SMALLEST, LARGEST],
                    "memory": [(0, LARGEST), (SMALLEST, 0)],
                    "peaks": {"operations": {"f32": rate}, "bytes": bandwidth}}}
        for rate, bandwidth in ((LARGEST, SMALLEST), (SMALLEST, LARGEST))
    ]  # fmt: skip
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"results": runs}))
    assert main(["report", str(path), "-o", str(tmp_path / "report.html")]) == 0
    text = (tmp_path / "report.html").read_text()
    assert "Roofline" in text
    check_inert(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "no file of `polydevice bench --json`: Expecting"),
        ("[" * 100_000, "no file of"),
        ("[]", "no results"),
        ('{"results": []}', "no results"),
        ('{"results": [3]}', "valid dictionary"),
        ('{"results": [{}]}', "device: Field required"),
        ('{"results": [{"device": "CPU", "latency p50 (ms)": NaN}]}', "latency p50"),
        ('{"results": [{"device": "CPU", "latency p50 (ms)": -1}]}', "latency p50"),
        ('{"results": [{"device": "CPU", "report": {"memory": [[1]]}}]}', "memory"),
        (figure("operations", "1" + "0" * 400), "layers.0.operations"),
        (figure("time_us", "1e-310"), "layers.0.time_us: .*at least 1e-15"),
        (figure("bytes", "9223372036854775808"), "layers.0.bytes"),
        ('{"results": [{"device": "CPU", "report": {"peaks": {"bytes": 5e-324}}}]}', "peaks.bytes"),
        ('{"results": [{"device": "CPU", "throughput (FPS)": 1e308}]}', "throughput"),
    ],
)
def test_files_of_something_else(tmp_path: Path, content: str, message: str, capsys):
    path = tmp_path / "figures.json"
    path.write_text(content)
    with pytest.raises(OptionValueError, match=message):
        read_runs(str(path))
    assert main(["report", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def test_files_that_cannot_be_read_or_written(tmp_path: Path):
    with pytest.raises(OptionValueError, match="No such file"):
        read_runs(str(tmp_path / "missing.json"))
    path = tmp_path / "figures.json"
    path.write_text(json.dumps({"results": [{"device": "CPU"}]}))
    assert main(["report", str(path), "-o", str(tmp_path / "no folder" / "r.html")]) == 1


def test_explanations_are_split_at_known_names():
    layers = {"a": "Relu", "a  b": "Conv", "c": "Add"}
    lines = ["a  b  Conv  runs by x", "a     Relu  fused into a  b", "c  Mul  odd", "3 launches"]
    fates, notes = split_explanation("\n".join(lines), layers)
    assert [(f.name, f.type, f.reason) for f in fates] == [
        ("a  b", "Conv", "runs by x"),
        ("a", "Relu", "fused into a  b"),
    ]
    assert notes == lines[2:]


def test_shares_of_peaks():
    peaks = Peaks(operations={"f32": 1e12}, bytes=1e11, how="")
    layer = Layer(name="", type="", kernel="", time_us=2.0, element_type="FP32",
                  operations=500_000, bytes=40_000)  # fmt: skip
    found = shares(layer, peaks)
    assert found.operations_per_s == pytest.approx(2.5e11)
    assert found.of_operations == pytest.approx(0.25)
    assert found.of_bytes == pytest.approx(0.2)
    assert found.of_peak == found.of_operations
    assert shares(layer, None).of_peak is None
    assert without_peak([layer, layer.model_copy(update={"element_type": "I8"})], peaks) == ["I8"]
    still = layer.model_copy(update={"time_us": 0.0})
    assert shares(still, peaks) == (None, None, None, None)


def test_a_roofline_shows_the_knee_and_no_more() -> None:
    layer = Layer(name="", type="", kernel="", time_us=2.0, element_type="FP32",
                  operations=4_000, bytes=40_000)  # fmt: skip
    drawn = roofline([layer], {0: 1}, Peaks(operations={"f32": 1e12}, bytes=1e11, how=""))
    assert drawn is not None
    (point,) = drawn.iter("circle")
    roof = next(line for line in drawn.iter("line") if line.get("class") == "roof")
    begin, end = float(roof.get("x1", "")), float(roof.get("x2", ""))
    assert begin - float(point.get("cx", "")) > 100  # of 302: two decades, 0.1 to 10, of few
    assert begin <= end


def test_peaks_are_measured(device: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(measured, "_SIZES", (256,))
    monkeypatch.setattr(measured, "_ELEMENTS", 1 << 20)
    with Core() as core:
        found = measured.measure_peaks(core, device, {})
        half = {} if device == "CPU" else measured.measure_peaks(core, device, HALF).operations
    assert set(found.operations) == {"f32"} and set(half) <= {"f32", "f16"}
    # Between a calculator and all computers together: a wrong unit would be outside.
    assert 1e6 < found.operations["f32"] < 1e17 and 1e6 < found.bytes < 1e15
    assert "256 × 256" in found.how


HALF = {"INFERENCE_PRECISION_HINT": "f16"}


def test_scales_and_thinning():
    scale = Scale(0.0, 9.0, 100.0, 0.0)
    assert scale.at(4.5) == 50.0 and scale.at(99) == 0.0 and scale.ticks() == [0, 2, 4, 6, 8]
    decades = Scale(1e2, 1e6, 0.0, 40.0, logarithmic=True)
    assert decades.at(1e4) == 20.0 and decades.ticks() == [1e2, 1e3, 1e4, 1e5, 1e6]
    assert Scale(3.0, 3.0, 0.0, 10.0).at(3.0) == 5.0
    kept = thinned([float(n) for n in range(10_001)])
    assert len(kept) <= 4000 and kept[:2] == [0.0, 3.0]


def test_memory_is_sampled_and_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(MemorySampler, "LIMIT", 3)
    sampler = MemorySampler()
    sampler.mark("read")
    for _ in range(500):
        if sampler._period > 0.05:
            break
        sampler._ended.wait(0.02)
    sampler.close()
    assert sampler._period > 0.05, "it goes on with half as many samples"
    assert len(sampler.samples) <= 4
    assert all(size > 2**20 for _, size in sampler.samples)
    assert [what for _, what in sampler.marks] == ["read"]
