"""The page: sections in their order, each with one part for every run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

from polydevice.report import layer_sections, sections
from polydevice.report.markup import element, table, write
from polydevice.report.run import Run
from polydevice.version import __version__

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What a browser may do with the page: nothing but show it."""

Section = Callable[[Run], sections.Content]
"""Makes what a page shows of one run."""


def _sections(runs: Sequence[Run]) -> dict[str, Section]:
    """Return title → section, in the order of the page."""
    return {
        "Figures": sections.figures,
        "Latency": functools.partial(sections.latency, span=sections.span_of(runs)),
        "Where one request's time goes": sections.phases,
        "Layers": layer_sections.layers,
        "Memory": sections.memory,
        "From the start to the first answer": sections.loading,
        "Beside other runtimes": sections.peers,
        "Placement": layer_sections.placement,
        "What became of each layer": layer_sections.fates,
        "Machine and settings": sections.machine,
    }


def page(runs: Sequence[Run], titles: Sequence[str] = ()) -> str:
    """Return a report as one HTML file that needs no network and no script.

    Args:
        runs: one or more; two stand side by side where there is room.
        titles: of the runs; those of the runs themselves when left out.
    """
    names = list(titles) or _distinct([run.title for run in runs])
    content: list[Element] = []
    if len(runs) > 1:
        content.append(_comparison(runs, names))
    for title, make in _sections(runs).items():
        cards = [_card(name, make(run), len(runs)) for name, run in zip(names, runs)]
        count = "one" if len(runs) == 1 else "two"
        content.append(
            element("section", element("h2", title), element("div", cards, class_=f"runs {count}"))
        )
    heading = "Inference of " + (names[0] if len(runs) == 1 else f"{len(runs)} runs")
    dates = ", ".join(dict.fromkeys(run.date for run in runs if run.date))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="generator", content=f"polydevice {__version__}"),
        element("title", heading),
        _style(),
    )
    top = element("header", element("h1", heading), element("p", dates, class_="soft"))
    told = f"Written by polydevice {__version__}. Times are of this machine at that moment."
    body = element("body", top, element("main", content), element("footer", element("p", told)))
    return write(element("html", head, body, lang="en"))


def _style() -> Element:
    made = Element("style")
    made.text = Path(__file__).with_name("style.css").read_text(encoding="utf-8")
    return made


def _card(name: str, content: sections.Content, runs: int) -> Element:
    title = element("h3", element("bdi", name)) if runs > 1 else None
    return element("article", title, content, class_="card")


def _distinct(names: list[str]) -> list[str]:
    """Number names that occur several times."""
    return [
        name if names.count(name) == 1 else f"{name}, run {names[: index + 1].count(name)}"
        for index, name in enumerate(names)
    ]


def _comparison(runs: Sequence[Run], names: Sequence[str]) -> Element:
    """Put the figures of all runs beside one another, with what they are of the first one's."""
    rows: list[list[str]] = []
    figures = [dict(sections.figures_of(run)) for run in runs]
    for label in dict.fromkeys(label for found in figures for label in found):
        row = [label]
        for found in figures:
            text, value = found.get(label, ("—", None))
            first = figures[0].get(label, ("", None))[1]
            if found is not figures[0] and value and first:
                text += f" ({value / first:.2f}×)"
            row.append(text)
        rows.append(row)
    made = table(
        "All runs; × is of the first", ["Figure", *names], rows, numbers=range(1, len(runs) + 1)
    )
    card = element("div", made, class_="card")
    return element("section", element("h2", "Side by side"), card)
