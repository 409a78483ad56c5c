"""XML text → a tree of elements, for files that nobody has vouched for.

Document type declarations are refused, and with them every entity (billion laughs, external
files); depth, size and counts are bounded while parsing, before the tree can grow. The whole text
reaches the parser in one piece, so the quadratic re-scanning of large tokens in Expat before 2.6
(CVE-2023-52425) does not occur.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import ParseError

from polydevice.errors import ModelFileError, ModelFormatError, ModelLimitError
from polydevice.readers.limits import ReadLimits

_INTEGER = re.compile(r"-?[0-9]{1,18}")


class Element:
    """One XML element: tag, attributes, children in order, and text."""

    __slots__ = ("attributes", "children", "tag", "text")

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.children: list[Element] = []
        self.text = ""

    def child(self, tag: str) -> Element | None:
        """Return the first child of that tag, or None."""
        for child in self.children:
            if child.tag == tag:
                return child
        return None

    def all(self, tag: str) -> Iterator[Element]:
        """Yield the children of that tag."""
        return (child for child in self.children if child.tag == tag)

    def required(self, name: str) -> str:
        """Return an attribute's text; raises ModelFormatError when it is missing."""
        try:
            return self.attributes[name]
        except KeyError:
            raise ModelFormatError(f"{self} has no attribute {name!r}") from None

    def integer(self, name: str, default: int | None = None) -> int:
        """Return an attribute as a whole number; raises ModelFormatError when it is none."""
        if default is not None and name not in self.attributes:
            return default
        text = self.required(name).strip()
        if not _INTEGER.fullmatch(text):
            raise ModelFormatError(f"{self}: {name}={_short(text)} is not a whole number")
        return int(text)

    def __str__(self) -> str:
        shown = " ".join(
            f'{key}="{self.attributes[key]}"'
            for key in ("id", "name", "type", "from-layer", "from-port", "to-layer", "to-port")
            if key in self.attributes
        )
        return f"<{self.tag} {shown}>" if shown else f"<{self.tag}>"


class _TreeBuilder:
    """Receives the parser's events and grows the tree within the limits."""

    def __init__(self, limits: ReadLimits, source: str) -> None:
        self.limits = limits
        self.source = source
        self.root: Element | None = None
        self.open: list[Element] = []
        self.elements = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        limits = self.limits
        self.elements += 1
        if self.elements > limits.xml_elements:
            self._refuse(f"more than {limits.xml_elements} XML elements", "xml_elements")
        if len(self.open) >= limits.xml_depth:
            self._refuse(f"XML nested deeper than {limits.xml_depth} levels", "xml_depth")
        if len(attributes) > limits.element_attributes:
            self._refuse(
                f"<{tag[:60]}> with {len(attributes)} attributes, more than "
                f"{limits.element_attributes}",
                "element_attributes",
            )
        if attributes:
            longest = max(map(len, attributes.values()))
            if longest > limits.text_characters:
                self._refuse(
                    f"<{tag[:60]}> with {longest} characters in one attribute, more "
                    f"than {limits.text_characters}",
                    "text_characters",
                )
        element = Element(tag, attributes)
        if self.open:
            self.open[-1].children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def end(self, tag: str) -> None:
        self.open.pop()

    def data(self, text: str) -> None:
        # Only <dim> has meaningful text; line breaks between other elements are not kept.
        element = self.open[-1]
        if element.tag == "dim":
            if len(element.text) + len(text) > self.limits.text_characters:
                self._refuse("a <dim> with too long a text", "text_characters")
            element.text += text

    def close(self) -> Element | None:
        return self.root

    def _refuse(self, what: str, limit: str) -> None:
        raise ModelLimitError(
            f"{self.source} has {what}; if you trust the file, read it with a larger "
            f"ReadLimits.{limit}"
        )


def parse_document(text: bytes, limits: ReadLimits, source: str) -> Element:
    """Parse XML text and return its root element.

    Args:
        text: the whole file.
        limits: bounds on size, depth and counts.
        source: how messages call the file.

    Raises:
        ModelFileError: the text is empty.
        ModelFormatError: it is not well-formed XML, or declares a document type or entities.
        ModelLimitError: it exceeds a limit.
    """
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import DefusedXMLParser

    if not text.strip():
        raise ModelFileError(f"{source} is empty; an IR topology (.xml) is expected")
    if len(text) > limits.topology_bytes:
        raise ModelLimitError(
            f"{source} has {len(text)} bytes, more than ReadLimits.topology_bytes = "
            f"{limits.topology_bytes}"
        )
    builder = _TreeBuilder(limits, source)
    parser = DefusedXMLParser(target=builder, forbid_dtd=True)
    # Elements go from Expat to the builder directly; the parser's own step between the two only
    # makes a dictionary of each list of attributes (a third of the time on real topologies).
    expat = parser.parser
    expat.ordered_attributes = False
    expat.StartElementHandler, expat.EndElementHandler = builder.start, builder.end
    expat.CharacterDataHandler = builder.data
    try:
        parser.feed(text)
        root = parser.close()
    except DefusedXmlException:
        raise ModelFormatError(
            f"{source} declares a document type (DOCTYPE) or entities, which IR files never do; "
            "it is refused because such declarations can read other files or exhaust memory"
        ) from None
    except ParseError as error:
        raise ModelFormatError(
            f"{source} is not well-formed XML ({error}); is it truncated, or not an IR topology?"
        ) from None
    except (LookupError, ValueError) as error:
        raise ModelFormatError(f"{source} has an encoding that cannot be read: {error}") from None
    if not isinstance(root, Element):
        raise ModelFormatError(f"{source} has no root element")
    return root


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")
