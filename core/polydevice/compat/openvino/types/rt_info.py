"""OVAny and RTMap: notes on models, nodes and ports."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

from polydevice.compat.openvino.surface import Surface


class OVAny(Surface):
    """A value of whatever type."""

    __slots__ = ("_value",)
    _value: Any

    def __init__(self, value: Any) -> None:
        """Keep a value."""
        self._value = value._value if isinstance(value, OVAny) else value

    @property
    def value(self) -> Any:
        """The value."""
        return self._value

    def get(self) -> Any:
        """Return the value."""
        return self._value

    def set(self, value: Any) -> None:
        """Keep another value."""
        self._value = value

    def astype(self, dtype: Any) -> Any:
        """Return the value as another type; text is read.

        Raises:
            RuntimeError: it cannot be.
        """
        value = self._value
        try:
            if dtype is bool and isinstance(value, str):
                return {"true": True, "yes": True, "false": False, "no": False}[value.lower()]
            return dtype(value)
        except (TypeError, ValueError, KeyError) as error:
            raise RuntimeError(f"{value!r} is no {dtype.__name__}") from error

    def aslist(self, dtype: Any = None) -> list[Any]:
        """Return the value as a list; text is cut at blanks."""
        items = self._value.split() if isinstance(self._value, str) else list(self._value)
        return items if dtype is None else [OVAny(item).astype(dtype) for item in items]

    def __getitem__(self, key: Any) -> Any:
        return self._value[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._value[key] = value

    def __len__(self) -> int:
        return len(self._value)

    def __contains__(self, key: Any) -> bool:
        return key in self._value

    def __eq__(self, other: object) -> bool:
        return bool(self._value == (other._value if isinstance(other, OVAny) else other))

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self._value)

    def __repr__(self) -> str:
        return "<OVAny class>"


class RTMap(MutableMapping[str, Any], Surface):
    """Notes by name; live."""

    __slots__ = ("_notes",)

    def __init__(self, notes: dict[str, Any] | None = None) -> None:
        """Show a dictionary of notes."""
        self._notes = {} if notes is None else notes

    def __getitem__(self, key: str) -> Any:
        return OVAny(self._notes[key])

    def __setitem__(self, key: str, value: Any) -> None:
        self._notes[key] = value._value if isinstance(value, OVAny) else value

    def __delitem__(self, key: str) -> None:
        del self._notes[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._notes)

    def __len__(self) -> int:
        return len(self._notes)

    def __repr__(self) -> str:
        return f"<RTMap: {self._notes}>"


def path_of(path: str | Sequence[str]) -> list[str]:
    """Return the keys that lead to a note, one for each level."""
    return [path] if isinstance(path, str) else list(path)


def found(notes: dict[str, Any], path: str | Sequence[str]) -> Any:
    """Return the note at a path.

    Raises:
        KeyError: there is none.
    """
    value: Any = notes
    for key in path_of(path):
        if not isinstance(value, dict):
            raise KeyError(key)
        value = value[key]
    return value


def note(notes: dict[str, Any], value: Any, path: str | Sequence[str]) -> None:
    """Write a note at a path; whatever is no dictionary becomes text, as files keep it."""
    *above, last = path_of(path)
    for key in above:
        inner = notes.get(key)
        if not isinstance(inner, dict):
            inner = notes[key] = {}
        notes = inner
    notes[last] = _kept(value)


def _kept(value: Any) -> Any:
    if isinstance(value, OVAny):
        value = value._value
    if isinstance(value, dict):
        return {str(key): _kept(item) for key, item in value.items()}
    if isinstance(value, bool):
        return "YES" if value else "NO"
    if isinstance(value, (list, tuple)):
        return " ".join(str(item) for item in value)
    return str(value)
