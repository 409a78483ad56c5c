"""Property: the name of a property, which makes a pair of it and a value when it is called."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from typing_extensions import Self

from polydevice.compat.openvino.types.rt_info import OVAny


class Listed(IntEnum):
    """An enumeration that prints itself as OpenVINO's do."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self.value}>"


class Property(str):
    """The name of a property."""

    __slots__ = ("settable",)
    settable: bool

    def __new__(cls, name: str, settable: bool = True) -> Self:
        """Make a property of that name."""
        made = super().__new__(cls, name)
        made.settable = settable
        return made

    def __call__(self, *values: Any) -> Any:
        """Return the name, or with a value the pair of both.

        Raises:
            TypeError: the property cannot be set, or several values for one that takes one.
        """
        if not values:
            return str(self)
        if not self.settable:
            raise TypeError(f"{self} is read-only")
        if self == "MULTI_DEVICE_PRIORITIES":
            names = values[0] if isinstance(values[0], (list, tuple)) else values
            return str(self), OVAny(",".join(names))
        if len(values) > 1:
            raise TypeError(f"{self} takes one value, not {len(values)}")
        return str(self), OVAny(values[0])
