"""``openvino.properties.streams``: names of properties, which make pairs when they are called."""

from __future__ import annotations

from polydevice.compat.openvino.properties.property import Property

__all__ = [
    "Num",
    "num",
]


class Num:
    """A number of streams, or one of the names AUTO and NUMA."""

    AUTO: Num
    NUMA: Num

    def __init__(self, value: int) -> None:
        """Keep the number."""
        self._value = int(value)

    def to_integer(self) -> int:
        """Return the number; -1 for AUTO, -2 for NUMA."""
        return self._value

    def __eq__(self, other: object) -> bool:
        return self._value == (other._value if isinstance(other, Num) else other)

    def __hash__(self) -> int:
        return hash(self._value)


Num.AUTO, Num.NUMA = Num(-1), Num(-2)


num = Property("NUM_STREAMS")
