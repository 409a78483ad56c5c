"""OVDict: the results of an inference, by output, number or name."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from polydevice.compat.openvino.graph.ports import ConstOutput
from polydevice.dtype import Array


class OVDict(Mapping[Any, Array]):
    """Results of an inference; keys are outputs, and numbers and names find them too."""

    __slots__ = ("__weakref__", "_dict")

    def __init__(self, _dict: dict[ConstOutput, Array]) -> None:
        """Show a dictionary of output → array."""
        self._dict = _dict

    def __getitem__(self, key: Any) -> Array:
        found = self._dict.get(key) if isinstance(key, ConstOutput) else None
        if found is not None:
            return found
        if isinstance(key, ConstOutput):
            raise KeyError(key)
        if isinstance(key, str):
            for port, array in self._dict.items():
                if key in port.get_names():
                    return array
            raise KeyError(key)
        if not isinstance(key, int):
            raise TypeError(f"Unknown key type: {type(key)}")
        try:
            return list(self._dict.values())[key]
        except IndexError:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[ConstOutput]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def __repr__(self) -> str:
        return repr(self._dict)

    def keys(self) -> KeysView[ConstOutput]:
        """Return the outputs."""
        return self._dict.keys()

    def values(self) -> ValuesView[Array]:
        """Return the arrays."""
        return self._dict.values()

    def items(self) -> ItemsView[ConstOutput, Array]:
        """Return the outputs with their arrays."""
        return self._dict.items()

    def names(self) -> tuple[set[str], ...]:
        """Return the names of every output."""
        return tuple(port.get_names() for port in self._dict)

    def to_dict(self) -> dict[ConstOutput, Array]:
        """Return a dictionary whose keys are outputs alone."""
        return self._dict

    def to_tuple(self) -> tuple[Array, ...]:
        """Return the arrays."""
        return tuple(self._dict.values())
