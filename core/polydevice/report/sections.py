"""The sections of a report: each makes what a page shows of one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from polydevice.report.charts import Part, histogram, series, stacked
from polydevice.report.markup import element, shown, table
from polydevice.report.run import Run

Content = list[Element | None]


def name_of(text: str) -> Element:
    """A name out of a model, which may be written from right to left, and long."""
    return element("bdi", shown(text, 160))


def missing(run: Run, part: str, otherwise: str) -> Content:
    """Say why a part is not there."""
    return [element("p", run.details.missing.get(part, otherwise), class_="soft")]


NOT_MEASURED = "Not measured; `polydevice bench --report` does."


def mebibytes(size: float | None) -> str:
    """Write bytes as MiB."""
    return "—" if size is None else f"{size / 2**20:.1f} MiB"


def figures_of(run: Run) -> Iterator[tuple[str, tuple[str, float | None]]]:
    """Yield label → text and number of the figures that the run has."""
    times = {"p50 latency": run.p50, "p90 latency": run.p90, "p99 latency": run.p99}
    for label, value in times.items():
        if value is not None:
            yield label, (f"{value:.3g} ms", value)
    if run.throughput is not None:
        yield "items per second", (f"{run.throughput:.4g}", run.throughput)
    for label, value in (("read", run.read_ms), ("load", run.load_ms), ("first run", run.first_ms)):
        if value is not None:
            yield label, (f"{value:.0f} ms", value)
    if run.cold:
        yield "first answer, cold", (f"{sum(run.cold.values()):.0f} ms", sum(run.cold.values()))
    if run.warm:
        yield "first answer, warm", (f"{sum(run.warm.values()):.0f} ms", sum(run.warm.values()))
    for label, size in (("host memory", run.host_bytes), ("device memory", run.device_bytes)):
        if size is not None:
            yield label, (mebibytes(size), size)


def figures(run: Run) -> Content:
    """The figures that matter most."""
    if run.error:
        return [element("p", run.error, class_="error")]
    tiles = [
        element("div", element("dt", label), element("dd", text))
        for label, (text, _) in figures_of(run)
    ]
    if not tiles:
        return [element("p", "Compiled, not measured.")]
    told = f"{run.iterations} inferences in {(run.duration_ms or 0) / 1e3:.1f} s"
    return [element("dl", tiles, class_="tiles"), element("p", told, class_="soft")]


def latency(run: Run, span: tuple[float, float]) -> Content:
    """How latencies are spread, on an axis that all runs share, and over time."""
    times = run.details.latencies_ms
    if not times or run.p50 is None:
        return missing(run, "latencies", NOT_MEASURED)
    marks = {f"p{n} {v:.3g}": v for n, v in ((50, run.p50), (90, run.p90), (99, run.p99)) if v}
    points = [(float(n), value) for n, value in enumerate(times)]
    over = series(
        "Over the run",
        f"Between {min(times):.3g} and {max(times):.3g} ms.",
        points,
        ("inference", "latency, ms"),
    )
    spread = histogram("Distribution of the latency", times, *span, marks)
    return [element("div", spread, over, class_="charts")]


def span_of(runs: Sequence[Run]) -> tuple[float, float]:
    """Return what the axes of latencies show: to the largest, or 1.5 × p99 where that is less."""
    known = [run for run in runs if run.details.latencies_ms]
    if not known:
        return 0.0, 1.0
    low = min(min(run.details.latencies_ms) for run in known)
    high = max(min(max(run.details.latencies_ms), 1.5 * (run.p99 or 1e300)) for run in known)
    return (low, high) if high > low else (low * 0.9, low * 1.1 + 1e-6)


def phases(run: Run) -> Content:
    """Inputs, inference, outputs."""
    if not run.phases:
        return missing(run, "phases", "Not measured.")
    parts = [Part(name.replace("_", " "), value) for name, value in run.phases.items()]
    return [stacked("One request", "ms", {"all": parts})]


def memory(run: Run) -> Content:
    """What the process holds over time."""
    points = [(at, size / 2**20) for at, size in run.details.memory]
    told = f"Peak: {mebibytes(run.host_bytes)} of the host"
    if run.device_bytes is not None:
        told += f", {mebibytes(run.device_bytes)} of the device"
    text = element("p", f"{told}.")
    if len(points) < 2:
        return [text]
    low, high = min(size for _, size in points), max(size for _, size in points)
    told = f"From {low:.0f} to {high:.0f} MiB resident."
    labels = ("seconds", "MiB")
    marks = run.details.marks
    return [text, series("Memory of the process", told, points, labels, marks, filled=True)]


def loading(run: Run) -> Content:
    """A cold and a warm process up to the first answer."""
    bars = {
        name: [Part(step.replace("_", " "), value) for step, value in steps.items()]
        for name, steps in (("cold process", run.cold), ("warm process", run.warm))
        if steps
    }
    if not bars:
        return missing(run, "loading", "Not measured; `polydevice bench --first_inference` does.")
    return [stacked("New processes, step by step", "ms", bars)]


def peers(run: Run) -> Content:
    """Other runtimes, measured in turn with us."""
    if not run.compare:
        return [
            element("p", "None; `--compare onnxruntime,openvino` measures them.", class_="soft")
        ]
    own = run.compare.get("polydevice")
    bars = {name: [Part("median latency", value)] for name, value in run.compare.items()}
    rows = [
        [name, f"{value:.3f}", f"{value / own:.2f}×" if own else "—"]
        for name, value in run.compare.items()
    ]
    headings = ["Runtime", "median, ms", "of polydevice's"]
    return [
        stacked("Synchronous latency, in turn in one process", "ms", bars),
        table("Latency of each runtime", headings, rows, numbers=(1, 2)),
    ]


def machine(run: Run) -> Content:
    """The machine, and how the network was loaded."""
    rows = [[name, text] for name, text in run.details.machine.items()]
    rows += [[f"input {name}", " × ".join(map(str, sizes))] for name, sizes in run.shapes.items()]
    rows += [[key, value] for key, value in run.config.items()]
    return [
        table("Machine, inputs and settings", ["What", "Value"], rows or [["device", run.device]])
    ]
