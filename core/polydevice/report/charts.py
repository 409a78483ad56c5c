"""Charts as SVG elements: what they show is told by a title, a description and tables beside them.

All are 360 units wide, which is the width of a phone, and grow from there. Colours come from the
page's style sheet by class, so that they follow light, dark and print.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from polydevice.report.markup import element, shown

WIDTH, HEIGHT = 360, 210
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 12, 12, 34


class Scale(NamedTuple):
    """A range of values on a range of the picture.

    Attributes:
        low: value at `start`; `high` is the one at `end`.
        logarithmic: whether equal factors take equal room.
    """

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return where a value lies; those outside lie at the border."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.logarithmic:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self) -> list[float]:
        """Return round values within the range."""
        if self.logarithmic:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            step = max(1, -(-(last - first) // 5))
            return [10.0**power for power in range(first, last + 1, step)]
        span = (self.high - self.low) or 1.0
        unit = 10 ** math.floor(math.log10(span / 4))
        step = next((unit * m for m in (1, 2, 5, 10) if span / (unit * m) <= 5), unit * 10)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def horizontal(low: float, high: float, *, logarithmic: bool = False) -> Scale:
    """Return the scale of the axis at the bottom."""
    return Scale(low, high, _LEFT, WIDTH - _RIGHT, logarithmic)


def vertical(low: float, high: float, *, logarithmic: bool = False) -> Scale:
    """Return the scale of the axis at the left."""
    return Scale(low, high, HEIGHT - _BOTTOM, _TOP, logarithmic)


def short(value: float) -> str:
    """Write a number in few characters: 1500000 is 1.5M, 0.00002 is 2e-05."""
    for factor, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{letter}"
    return f"{value:.3g}"


def chart(
    title: str, text: str, x: Scale, y: Scale, labels: tuple[str, str], *marks: Element
) -> Element:
    """Put marks on two axes.

    Args:
        title: of the chart.
        text: what is to be seen, for those who do not see it.
        x: scale of the axis at the bottom.
        y: scale of the axis at the left.
        labels: of the axes.
        *marks: what is drawn.
    """
    bottom = HEIGHT - _BOTTOM
    axes: list[Element] = []
    for value in x.ticks():
        at = x.at(value)
        axes.append(element("line", x1=at, x2=at, y1=_TOP, y2=bottom, class_="grid"))
        axes.append(element("text", short(value), x=at, y=bottom + 13, text_anchor="middle"))
    for value in y.ticks():
        at = y.at(value)
        axes.append(element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=at, y2=at, class_="grid"))
        axes.append(element("text", short(value), x=_LEFT - 4, y=at + 4, text_anchor="end"))
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    axes.append(element("text", labels[0], x=middle, y=HEIGHT - 5, text_anchor="middle"))
    half = (_TOP + bottom) / 2
    turned = element(
        "text", labels[1], x=11, y=half, text_anchor="middle", transform=f"rotate(-90 11 {half})"
    )
    return picture(title, text, HEIGHT, *axes, turned, *marks)


def picture(title: str, text: str, height: float, *children: Element) -> Element:
    """Make an SVG element that screen readers take as one picture with a description."""
    drawn = element("svg", children, aria_hidden="true", focusable="false")
    drawn.set("viewBox", f"0 0 {WIDTH} {height:g}")
    caption = element("figcaption", element("strong", title), " ", text)
    return element("figure", drawn, caption)


def histogram(
    title: str, times: Sequence[float], low: float, high: float, marks: dict[str, float]
) -> Element:
    """Draw how often latencies occur; those above `high` are in the last bar.

    Args:
        title: of the chart.
        times: in milliseconds; at least one.
        low: where the axis begins.
        high: where it ends.
        marks: label → value, drawn as lines.
    """
    count = 40
    step = (high - low) / count or 1.0
    bars = [0] * count
    for value in times:
        bars[min(max(int((value - low) / step), 0), count - 1)] += 1
    x, y = horizontal(low, high), vertical(0, max(bars))
    drawn = [
        element(
            "rect",
            x=x.at(low + step * n), y=y.at(size), width=max(x.at(low + step) - x.at(low) - 1, 1),
            height=round(y.start - y.at(size), 2), class_="bar",
        )
        for n, size in enumerate(bars)
        if size
    ]  # fmt: skip
    for number, (label, value) in enumerate(marks.items()):
        at = x.at(value)
        drawn.append(element("line", x1=at, x2=at, y1=_TOP, y2=y.start, class_="mark"))
        anchor = "end" if at > WIDTH * 0.8 else "start"
        place = at - 3 if anchor == "end" else at + 3
        label_y = _TOP + 10 + 12 * number
        drawn.append(element("text", label, x=place, y=label_y, text_anchor=anchor, class_="label"))
    above = sum(value > high for value in times)
    told = f"{len(times)} inferences" + (f", {above} of them beyond the right border" * bool(above))
    return chart(title, f"{told}.", x, y, ("latency, ms", "inferences"), *drawn)


def series(
    title: str,
    text: str,
    points: Sequence[tuple[float, float]],
    labels: tuple[str, str],
    marks: Sequence[tuple[float, str]] = (),
    *,
    filled: bool = False,
) -> Element:
    """Draw values over time; filled from the bottom, or as points."""  # fmt: skip
    most = max((value for _, value in points), default=1.0) or 1.0
    last = max((at for at, _ in points), default=1.0) or 1.0
    x, y = horizontal(0, last), vertical(0, most * 1.08)
    if filled:
        line = " ".join(f"{x.at(at)},{y.at(value)}" for at, value in points)
        area = f"{x.at(points[0][0])},{y.start} {line} {x.at(last)},{y.start}"
        drawn = [element("polygon", points=None, class_="area")]
        drawn[0].set("points", area)
    else:
        path = " ".join(f"M{x.at(at)} {y.at(value)}h0" for at, value in points)
        drawn = [element("path", class_="dots")]
        drawn[0].set("d", path)
    for number, (at, label) in enumerate(marks):
        place = x.at(at)
        drawn.append(element("line", x1=place, x2=place, y1=_TOP, y2=y.start, class_="mark"))
        anchor = "end" if place > WIDTH * 0.75 else "start"
        drawn.append(
            element(
                "text", label, x=place + (3 if anchor == "start" else -3),
                y=y.start - 5 - 12 * (number % 4), text_anchor=anchor, class_="label",
            )
        )  # fmt: skip
    return chart(title, text, x, y, labels, *drawn)


class Part(NamedTuple):
    """A part of a bar: its name and length."""

    name: str
    value: float


def stacked(title: str, unit: str, bars: Mapping[str, Sequence[Part]]) -> Element:
    """Draw bars of parts one below the other, with a legend of what the parts are."""
    names = list(dict.fromkeys(part.name for parts in bars.values() for part in parts))
    most = max((sum(part.value for part in parts) for parts in bars.values()), default=1.0) or 1.0
    drawn: list[Element] = []
    top = 4.0
    for label, parts in bars.items():
        total = sum(part.value for part in parts)
        drawn.append(element("text", f"{label}: {short(total)} {unit}", x=2, y=top + 11))
        left = 2.0
        for part in parts:
            width = part.value / most * (WIDTH - 4)
            style = f"c{names.index(part.name) % 6}"
            drawn.append(
                element("rect", x=round(left, 2), y=top + 16, width=round(width, 2), height=14,
                        class_=style)
            )  # fmt: skip
            left += width
        top += 40
    columns = 3 if max(map(len, names), default=0) <= 17 else 1 if len(names) < 4 else 2
    for number, name in enumerate(names):
        x, y = 2 + (number % columns) * (WIDTH - 4) // columns, top + 14 * (number // columns)
        drawn.append(element("rect", x=x, y=y, width=10, height=10, class_=f"c{number % 6}"))
        drawn.append(element("text", shown(name, 90 // columns), x=x + 14, y=y + 9))
    top += 14 * -(-len(names) // columns)
    told = "; ".join(
        f"{label}: " + ", ".join(f"{part.name} {short(part.value)} {unit}" for part in parts)
        for label, parts in bars.items()
    )
    return picture(title, told + ".", top + 4, *drawn)
