"""DeviceName: the one parser of device strings.

Grammar::

    name    = single | family ":" member { "," member }      "HETERO:GPU.1,CPU"
    member  = single [ "(" number ")" ]                      "GPU(4)", which MULTI takes
    single  = family [ "." id ]                              "GPU", "GPU.1"
    family  = letter { letter | digit | "_" }
    id      = { letter | digit | "_" | "-" | "." }           everything after the first dot
"""

from __future__ import annotations

import re

from polydevice.dataclass import dataclass
from polydevice.errors import DeviceNameError

_FAMILY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_ID = re.compile(r"[A-Za-z0-9_.-]+")
_NUMBERED = re.compile(r"(?P<single>[^()]*)\((?P<number>[1-9][0-9]{0,3})\)")


@dataclass(frozen=True)
class DeviceName:
    """A parsed device string.

    Attributes:
        family: the plugin's device name ("GPU", "HETERO").
        device_id: what follows the first dot, "" when absent.
        members: the devices listed behind a colon, in order.
        requests: the number in brackets behind a member: how many requests it runs at a time; 0
            when absent.
    """

    family: str
    device_id: str = ""
    members: tuple[DeviceName, ...] = ()
    requests: int = 0

    @classmethod
    def parse(cls, text: str) -> DeviceName:
        """Parse a device string.

        Raises:
            DeviceNameError: saying where the string leaves the grammar.
        """
        if not isinstance(text, str):
            raise DeviceNameError(f"a device name is a string such as 'GPU.1', not {text!r}")
        if not text:
            raise DeviceNameError("the device name is empty; use for example 'CPU' or 'GPU'")
        family, colon, rest = text.partition(":")
        if not colon:
            return _single(text, text)
        if not _FAMILY.fullmatch(family):
            raise DeviceNameError(f"device name {text!r}: {family!r} before ':' is not a device")
        if not rest:
            raise DeviceNameError(
                f"device name {text!r} lists no devices behind ':'; "
                f"use for example '{family}:GPU,CPU'"
            )
        members = tuple(_member(item, text) for item in rest.split(","))
        names = [member.name for member in members]
        repeated = {name for name in names if names.count(name) > 1}
        if repeated:
            raise DeviceNameError(f"device name {text!r} lists {min(repeated)} twice")
        return cls(family, "", members)

    @property
    def name(self) -> str:
        """The device without members and numbers: "GPU.1"."""
        return f"{self.family}.{self.device_id}" if self.device_id else self.family

    def __str__(self) -> str:
        number = f"({self.requests})" if self.requests else ""
        members = ":" + ",".join(map(str, self.members)) if self.members else ""
        return self.name + number + members


def _member(item: str, whole: str) -> DeviceName:
    numbered = _NUMBERED.fullmatch(item)
    if numbered is None:
        return _single(item, whole)
    single = _single(numbered["single"], whole)
    return DeviceName(single.family, single.device_id, (), int(numbered["number"]))


def _single(item: str, whole: str) -> DeviceName:
    family, dot, device_id = item.partition(".")
    if not family:
        raise DeviceNameError(
            f"device name {whole!r} has an empty item; write for example 'GPU,CPU'"
        )
    if not _FAMILY.fullmatch(family):
        hint = " (names have no blanks)" if item.strip() != item else ""
        raise DeviceNameError(f"device name {whole!r}: {item!r} is not a device{hint}")
    if dot and not _ID.fullmatch(device_id):
        raise DeviceNameError(
            f"device name {whole!r}: {device_id!r} behind '.' is not a device id; "
            f"use for example '{family}.0'"
        )
    return DeviceName(family, device_id)
