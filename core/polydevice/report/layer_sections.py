"""The sections of a report about layers: their times, where they run, what became of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from polydevice.report.charts import Part, stacked
from polydevice.report.markup import Children, element, table
from polydevice.report.roofline import roofline, shares, without_peak
from polydevice.report.run import Layer, Run
from polydevice.report.sections import NOT_MEASURED, Content, missing, name_of

_SLOWEST = 15
"""Layers in the first table."""

_MOST_ROWS = 1000
"""Rows of a table; models may have more layers than a page should have."""


def layers(run: Run) -> Content:
    """Where the time goes, layer by layer, beside what the device can do."""
    found = run.details.layers
    if not found:
        return missing(run, "layers", NOT_MEASURED)
    order = sorted(range(len(found)), key=lambda index: -found[index].time_us)
    numbers = {index: place + 1 for place, index in enumerate(order)}
    total = sum(layer.time_us for layer in found)
    peaks = run.details.peaks
    kinds: dict[str, float] = {}
    for layer in found:
        kind = layer.type.split("+")[0]
        kinds[kind] = kinds.get(kind, 0.0) + layer.time_us
    largest = sorted(kinds.items(), key=lambda item: -item[1])[:5]
    rest = total - sum(value for _, value in largest)
    parts = [Part(kind, value / 1e3) for kind, value in largest]
    parts += [Part("others", rest / 1e3)] if rest > 0 else []
    charts = [
        roofline(found, numbers, peaks),
        stacked("Time by kind of layer", "ms", {"all layers": parts}),
    ]
    texts = [f"{len(found)} steps take {total / 1e3:.3g} ms when each is timed by itself."]
    if peaks is None:
        texts.append(run.details.missing.get("peaks", "The device's peaks are not measured."))
    if unknown := without_peak(found, peaks):
        texts.append(
            f"No peak is known for {', '.join(unknown)}; `polydevice devices --measure` keeps them."
        )
    if "work" in run.details.missing:
        texts.append(f"Operations are not known: {run.details.missing['work']}")
    return [
        element("p", " ".join(texts), class_="soft"),
        element("div", charts, class_="charts"),
        _layer_table("The slowest layers", run, order[:_SLOWEST], numbers, total),
        _more("All layers, in their order", run, numbers, total),
    ]


def _more(title: str, run: Run, numbers: dict[int, int], total: float) -> Element | None:
    found = run.details.layers
    if len(found) <= _SLOWEST:
        return None
    rows = _layer_table(title, run, range(min(len(found), _MOST_ROWS)), numbers, total)
    return element("details", element("summary", title), rows)


def _layer_table(
    title: str, run: Run, indices: Sequence[int], numbers: dict[int, int], total: float
) -> Element:
    headings = ["Layer", "µs", "of all", "Gop/s", "of peak", "GB/s", "of peak", "Kind", "Kernel"]
    rows = [_layer_row(run, run.details.layers[i], numbers[i], total) for i in indices]
    return table(title, headings, rows, numbers=range(1, 7))


def _layer_row(run: Run, layer: Layer, number: int, total: float) -> list[Children]:
    rate = shares(layer, run.details.peaks)
    return [
        [f"{number}. ", name_of(layer.name)],
        f"{layer.time_us:.1f}",
        _percent(layer.time_us / total if total else None),
        _scaled(rate.operations_per_s),
        _percent(rate.of_operations),
        _scaled(rate.bytes_per_s),
        _percent(rate.of_bytes),
        name_of(layer.type),
        name_of(layer.kernel),
    ]


def _scaled(value: float | None) -> str:
    return "—" if value is None else f"{value / 1e9:.3g}"


def _percent(share: float | None) -> str:
    return "—" if share is None else f"{share * 100:.1f} %"


def placement(run: Run) -> Content:
    """Which devices run the layers, and why."""
    places = run.details.places
    if not places:
        return missing(run, "places", NOT_MEASURED)
    counts = Counter[str]()
    for place in places:
        counts[place.device or "at load"] += place.layers
    parts = [Part(device, count) for device, count in counts.most_common()]
    rows: list[list[Children]] = [
        [name_of(p.device or "at load"), p.reason, str(p.layers), str(p.bytes_in)]
        for p in places[:50]
    ]
    return [
        stacked("Layers by device", "layers", {"all": parts}),
        table("Why", ["Device", "Reason", "layers", "bytes that cross"], rows, numbers=(2, 3)),
    ]


def fates(run: Run) -> Content:
    """What ran, what was fused and why the rest was not."""
    found = run.details.fates
    if not found:
        return missing(run, "fates", NOT_MEASURED)
    kinds = {"runs by": "run by themselves", "runs on": "run by themselves", "fused": "fused"}
    counts = Counter(
        next((kind for begin, kind in kinds.items() if fate.reason.startswith(begin)),
             "views, merged, or computed at load")
        for fate in found
    )  # fmt: skip
    parts = [Part(kind, count) for kind, count in counts.most_common()]
    rows: list[list[Children]] = [
        [name_of(fate.name), name_of(fate.type), fate.reason] for fate in found[:_MOST_ROWS]
    ]
    headings = ["Layer", "Type", "What became of it"]
    return [
        stacked("Layers of the model", "layers", {"all": parts}),
        element("p", "; ".join(run.details.notes[-3:]), class_="soft"),
        element(
            "details",
            element("summary", f"All {len(found)} layers, and why"),
            table("What became of each layer", headings, rows),
        ),
    ]
