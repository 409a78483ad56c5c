"""XML files of custom layers as elements that know their line; entities are refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from xml.parsers import expat

from polydevice.dataclass import dataclass
from polydevice.errors import OptionValueError
from polydevice.files.safe_open import read_given

_SIZE_LIMIT_BYTES = 1 << 20
_SHOWN_CHARACTERS = 40


def shown(value: str) -> str:
    """Return what a message shows of a value: its beginning, as it may be any file's content."""
    short = len(value) <= _SHOWN_CHARACTERS
    return repr(value if short else value[:_SHOWN_CHARACTERS] + "…")


@dataclass
class Element:
    """An element: tag, attributes, children, and where it is for messages."""

    tag: str
    attributes: Mapping[str, str]
    where: str
    children: list[Element] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        """Return the children of a tag."""
        return [child for child in self.children if child.tag == tag]

    def one(self, tag: str) -> Element:
        """Return the only child of a tag; raises ValueError when there is none, or several."""
        found = self.all(tag)
        if len(found) != 1:
            raise ValueError(f"{self.where}: {self.tag} needs one {tag}, and has {len(found)}")
        return found[0]

    def text(self, name: str) -> str:
        """Return an attribute that must be there and not be empty."""
        value = self.attributes.get(name, "")
        if not value.strip():
            raise ValueError(f"{self.where}: {self.tag} needs the attribute {name}")
        return value

    def number(self, name: str) -> int:
        """Return an attribute that is an integer, 0 or more."""
        value = self.text(name)
        if not value.strip().isdecimal():
            raise ValueError(f"{self.where}: {name}={shown(value)} is not an integer of 0 or more")
        return int(value)


def read_elements(path: Path) -> list[Element]:
    """Return the top elements of a file; several roots side by side are allowed.

    Raises:
        ValueError: with path, line and reason.
    """
    try:
        content = read_given(path, "file", OptionValueError, _SIZE_LIMIT_BYTES)
    except OptionValueError as error:
        raise ValueError(str(error)) from None
    root = Element("", {}, str(path))
    stack = [root]
    parser = expat.ParserCreate()

    def start(tag: str, attributes: dict[str, str]) -> None:
        where = f"{path}, line {parser.CurrentLineNumber}"
        stack.append(Element(tag, attributes, where))
        stack[-2].children.append(stack[-1])

    def refuse(*_: object) -> None:
        raise ValueError(f"{path}, line {parser.CurrentLineNumber}: DTDs are not allowed")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    # A root around it all makes several roots legal; what may only come first stays first.
    begin = content.find(b"?>") + 2 if content.lstrip().startswith(b"<?xml") else 0
    try:
        parser.Parse(content[:begin], False)
        parser.Parse(b"<_>", False)
        parser.Parse(content[begin:], False)
        parser.Parse(b"</_>", True)
    except expat.ExpatError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: no valid XML: {expat.ErrorString(error.code)}"
        ) from None
    return root.children[0].children
