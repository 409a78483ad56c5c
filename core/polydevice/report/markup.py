"""Elements of HTML and SVG as trees, so that no text can become markup.

Names in reports come from model files, which are not trusted. They only ever are the text or an
attribute's value of an `xml.etree` element, which escapes them when the page is written; there is
no place where markup is put together from strings.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from xml.etree.ElementTree import Element, tostring

Child = Element | str | int | float | None
Children = Child | Iterable[Child]
Attribute = str | int | float | None

LONGEST_TEXT = 2000
"""Characters of a text from outside; names in models may have millions."""


def shown(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return a text with what cannot be seen as escapes, and what is too long cut.

    Characters that turn the direction of writing, or end lines, could show another text than the
    one that is there.
    """
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in cut)


def element(tag: str, *children: Children, **attributes: Attribute) -> Element:
    """Make an element.

    Args:
        tag: its name.
        *children: elements and texts, or several of them; None is left out.
        **attributes: `class_` for "class" and, in general, without the last underscore; other
            underscores become hyphens. None is left out.
    """
    made = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            made.set(name.rstrip("_").replace("_", "-"), shown(text))
    for child in children:
        if child is None or isinstance(child, (Element, str, int, float)):
            _append(made, child)
        else:
            for each in child:
                _append(made, each)
    return made


def _append(parent: Element, child: Child) -> None:
    if child is None:
        return
    if isinstance(child, Element):
        parent.append(child)
        return
    text = shown(str(child))
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def table(
    caption: str,
    headings: Iterable[str],
    rows: Iterable[Iterable[Children]],
    numbers: Container[int] = (),
) -> Element:
    """Make a table that can be scrolled sideways where it is wider than the page.

    Args:
        caption: what it shows; also what screen readers call it.
        headings: of the columns.
        rows: cells; the first of a row is its heading.
        numbers: columns that hold numbers, from 0.
    """

    def style(column: int) -> str | None:
        return "number" if column in numbers else None

    head = element(
        "tr", [element("th", t, scope="col", class_=style(n)) for n, t in enumerate(headings)]
    )
    body = []
    for row in rows:
        cells = [
            element("td", cell, class_=style(n)) if n else element("th", cell, scope="row")
            for n, cell in enumerate(row)
        ]
        body.append(element("tr", cells))
    made = element(
        "table", element("caption", caption), element("thead", head), element("tbody", body)
    )
    return element("div", made, class_="wide", tabindex=0, role="group", aria_label=caption)


def write(root: Element) -> str:
    """Return a whole page; a line feed after blocks keeps its lines short."""
    for each in root.iter():
        if each.tag in {"section", "div", "tr", "svg", "p", "head", "body", "details", "article"}:
            each.tail = (each.tail or "") + "\n"
    text = tostring(root, encoding="unicode", method="html")
    return "<!DOCTYPE html>\n" + text.encode("utf-8", "replace").decode("utf-8")
