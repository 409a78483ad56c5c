"""The roofline: how near each layer comes to what the device can do at most.

A layer that takes I operations for each byte it moves can reach min(peak, I * bandwidth) operations
per second (Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from polydevice.report.charts import Scale, chart, horizontal, short, vertical
from polydevice.report.markup import element
from polydevice.report.run import PEAK_TYPES, Layer, Peaks

LABELLED = 6
"""Points with a number, which is the row in the table of layers."""


class Shares(NamedTuple):
    """What a layer reached, as parts of the device's peaks; None where one is not known."""

    operations_per_s: float | None
    bytes_per_s: float | None
    of_operations: float | None
    of_bytes: float | None

    @property
    def of_peak(self) -> float | None:
        """The larger share: of what limits the layer, if anything does."""
        known = [share for share in (self.of_operations, self.of_bytes) if share is not None]
        return max(known, default=None)


def shares(layer: Layer, peaks: Peaks | None) -> Shares:
    """Return how fast a layer was, and which part of the device's peaks that is."""
    seconds = layer.time_us / 1e6
    if not seconds:
        return Shares(None, None, None, None)
    operations = layer.operations / seconds if layer.operations else None
    moved = layer.bytes / seconds if layer.bytes else None
    peak = _peak(layer, peaks)
    bandwidth = peaks.bytes if peaks else 0
    return Shares(
        operations,
        moved,
        operations / peak if operations and peak else None,
        moved / bandwidth if moved and bandwidth else None,
    )


def _peak(layer: Layer, peaks: Peaks | None) -> float:
    if peaks is None:
        return 0.0
    return peaks.operations.get(PEAK_TYPES.get(layer.element_type, ""), 0.0)


def without_peak(layers: Sequence[Layer], peaks: Peaks | None) -> list[str]:
    """Return the element types of layers that compute, but whose peaks were not measured."""
    types = {layer.element_type for layer in layers if layer.operations and layer.element_type}
    if peaks is None:
        return []
    return sorted(each for each in types if PEAK_TYPES.get(each, "") not in peaks.operations)


def roofline(
    layers: Sequence[Layer], numbers: dict[int, int], peaks: Peaks | None
) -> Element | None:
    """Draw layers as points, as large as their time; None when none of them computes anything.

    Args:
        layers: all of a run.
        numbers: position of a layer → its number in the table.
        peaks: of the device, drawn as roofs.
    """
    points = []
    total = sum(layer.time_us for layer in layers) or 1.0
    for index, layer in enumerate(layers):
        rate = shares(layer, peaks).operations_per_s
        if rate and layer.operations and layer.bytes:
            points.append((layer.operations / layer.bytes, rate, layer.time_us / total, index))
    if not points:
        return None
    roofs = {name: rate for name, rate in peaks.operations.items() if rate} if peaks else {}
    used = {PEAK_TYPES.get(layer.element_type) for layer in layers}
    roofs = {name: rate for name, rate in roofs.items() if name in used} or roofs
    bandwidth = peaks.bytes if peaks else 0.0
    knees = [rate / bandwidth for rate in roofs.values()] if bandwidth else []
    x = horizontal(*_decades([p[0] for p in points] + knees), logarithmic=True)
    y = vertical(*_decades([p[1] for p in points] + list(roofs.values())), logarithmic=True)
    drawn = list(_roofs(roofs, bandwidth, x, y))
    for intensity, rate, share, index in sorted(points, key=lambda point: -point[2]):
        radius = 2 + 10 * math.sqrt(share)
        drawn.append(
            element("circle", cx=x.at(intensity), cy=y.at(rate), r=round(radius, 2), class_="point")
        )
        if numbers.get(index, LABELLED + 1) <= LABELLED:
            at = x.at(intensity) + radius + 1
            drawn.append(element("text", numbers[index], x=at, y=y.at(rate) + 4, class_="label"))
    roof_text = "; ".join(f"{name} {short(rate)}op/s" for name, rate in roofs.items())
    told = f"{len(points)} layers that compute; the larger a point, the more of the time."
    if roofs and peaks:
        told += f" Roofs: {roof_text}; {short(bandwidth)}B/s ({peaks.how})."
    labels = ("operations per byte", "operations per second")
    return chart("Roofline", told, x, y, labels, *drawn)


def _roofs(roofs: dict[str, float], bandwidth: float, x: Scale, y: Scale) -> Iterator[Element]:
    for name, rate in roofs.items():
        begin, at = rate / bandwidth if bandwidth else x.low, y.at(rate)
        yield element("line", x1=x.at(begin), x2=x.end, y1=at, y2=at, class_="roof")
        yield element("text", name, x=x.end, y=at - 3, text_anchor="end", class_="label")
    if not bandwidth or not roofs:
        return
    first = max(x.low, y.low / bandwidth)
    last = min(x.high, max(roofs.values()) / bandwidth)
    if last > first:
        ends = {"y1": y.at(first * bandwidth), "y2": y.at(last * bandwidth)}
        yield element("line", x1=x.at(first), x2=x.at(last), class_="roof", **ends)


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Return whole powers of ten around the values, two at least."""
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)))
    return 10.0**low, 10.0 ** max(high, low + 1)
