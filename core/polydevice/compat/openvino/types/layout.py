"""Layout: names of a tensor's axes, and `layout_helpers`."""

from __future__ import annotations

from typing import Any

from polydevice.compat.openvino.surface import Surface

_LONG = {"BATCH": "N", "CHANNELS": "C", "DEPTH": "D", "HEIGHT": "H", "WIDTH": "W"}
_SCALAR = "**SCALAR**"


class Layout(Surface):
    """Names of axes, such as "NCHW"; "?" is an axis without a name, "..." any number of them."""

    __slots__ = ("_after", "_before", "_dynamic")

    def __init__(self, layout: str = "...") -> None:
        """Read a layout: "NCHW", "N...C", "N??", or names in brackets, "[batch,c,?]".

        Raises:
            RuntimeError: a name that stands twice, or text that is none.
        """
        text = layout.strip()
        if text == _SCALAR:
            text = ""
        front, self._dynamic, back = _cut(text)
        self._before, self._after = _names(front), _names(back)
        named = [name for name in (*self._before, *self._after) if name != "?"]
        for name in named:
            if named.count(name) > 1:
                raise RuntimeError(f"Dimension ({name}) is defined multiple times in layout")

    @staticmethod
    def scalar() -> Layout:
        """Return the layout of a value without axes."""
        return Layout("")

    @property
    def empty(self) -> bool:
        """Whether it says nothing."""
        return self._dynamic and not self._before and not self._after

    def has_name(self, dimension_name: str) -> bool:
        """Whether an axis has that name."""
        return _short(dimension_name) in (*self._before, *self._after)

    def get_index_by_name(self, dimension_name: str) -> int:
        """Return the number of the axis; from the end, negative, behind "...".

        Raises:
            RuntimeError: no axis has that name.
        """
        name = _short(dimension_name)
        if name in self._before:
            return self._before.index(name)
        if name in self._after:
            return self._after.index(name) - len(self._after)
        raise RuntimeError(f"{name} dimension index is not defined: layout {self} has no such name")

    def _axes(self, rank: int) -> list[str]:
        """Return the name of every axis of a value of that rank.

        Raises:
            RuntimeError: the layout is one of another rank.
        """
        between = rank - len(self._before) - len(self._after)
        if between < 0 or (between and not self._dynamic):
            raise RuntimeError(f"layout {self} does not fit a value of rank {rank}")
        return [*self._before, *["?"] * between, *self._after]

    def to_string(self) -> str:
        """Return the layout as text."""
        return str(self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            other = Layout(other)
        return isinstance(other, Layout) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        names = [*self._before, *["..."] * self._dynamic, *self._after]
        return f"[{','.join(names)}]" if names else _SCALAR

    def __repr__(self) -> str:
        return f"<Layout: {self}>"


def _cut(text: str) -> tuple[str, bool, str]:
    """Split at "..."; brackets are kept where there are any."""
    bracketed = text.startswith("[") and text.endswith("]")
    front, dots, back = (text[1:-1] if bracketed else text).partition("...")
    if bracketed:
        return f"[{front.strip().strip(',')}]", bool(dots), f"[{back.strip().strip(',')}]"
    return front, bool(dots), back


def _names(text: str) -> list[str]:
    if text.startswith("["):
        inner = text[1:-1]
        return [_short(name.strip()) for name in inner.split(",")] if inner else []
    if any(not (letter.isalpha() or letter == "?") for letter in text):
        raise RuntimeError(f"Layout name is invalid ({text}); only letters, ? and ... are legal")
    return [letter.upper() for letter in text]


def _short(name: str) -> str:
    upper = name.upper()
    return _LONG.get(upper, upper)


def layout_of(layout: Any) -> Layout:
    """Return a Layout of a Layout or its text."""
    return layout if isinstance(layout, Layout) else Layout(layout)


NOTE = "model_layout"
"""The key of a node's `rt_info` that keeps the layout of an input or output."""
