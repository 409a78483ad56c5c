"""What a facade says of a name that it does not have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar


def missing(package: str, absent: Mapping[str, str], name: str, owner: str = "") -> AttributeError:
    """Return the error for a name that is not there, with the reason where one is known.

    Args:
        package: the name of what is stood in for.
        absent: name, or owner.name → why it is not there.
        name: what was asked for.
        owner: the class or module that was asked; "" for the package.
    """
    why = absent.get(f"{owner}.{name}" if owner else name)
    where = f"{package}.{owner}" if owner else package
    return AttributeError(
        f"polydevice's stand-in for {where} has no {name!r}" + (f": {why}" if why else "")
    )


class StandIn:
    """A class of a facade, which says why a name is not there.

    Attributes:
        facade: the package that is stood in for, and its names that are absent.
    """

    __slots__ = ()
    facade: ClassVar[tuple[str, Mapping[str, str]]] = ("", {})

    if not TYPE_CHECKING:  # type checkers see the names that are there

        def __getattr__(self, name: str) -> object:
            package, absent = type(self).facade
            raise missing(package, absent, name, type(self).__name__)
