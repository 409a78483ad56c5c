"""What devices that consist of others share: keys of theirs, and keys for their members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from typing_extensions import Self

from polydevice.errors import UnknownOptionError, nearest
from polydevice.options import Options

if TYPE_CHECKING:
    from polydevice.plugin import Services


class CompositeOptions(Options):
    """Keys of a device that has members; what it does not know waits for them."""

    guards_whole: ClassVar[bool] = False
    """Whether ACCURACY_GUARD is for what the members compute together; else each guards its own."""

    member_config: dict[str, Any] = Field({}, json_schema_extra={"key": "", "internal": True})

    def updated(self, config: Mapping[str, Any]) -> Self:
        """Return a copy with some keys changed; keys unknown here wait for the members.

        Whether a member knows them is checked when a network is loaded (`check_member_keys`), since
        only then the members are known.
        """
        own: dict[str, Any] = {}
        forwarded = dict(self.member_config)
        for key, value in config.items():
            try:
                self.field_of(key)
            except UnknownOptionError:
                forwarded[key.removeprefix("KEY_")] = value
            else:
                own[key] = value
        made = super().updated(own)
        if forwarded == self.member_config:
            return made
        return made.model_copy(update={"member_config": forwarded})


def config_for(member: str, options: CompositeOptions, services: Services) -> dict[str, Any]:
    """Return the keys that a member is loaded with: those of the configuration that it knows."""
    known = set(services.option_keys(member))
    hints: dict[str, Any] = {
        "PERFORMANCE_HINT": options.performance_hint,
        "PERFORMANCE_HINT_NUM_REQUESTS": options.hint_num_requests,
    }
    if options.accuracy_guard and not options.guards_whole:
        hints["ACCURACY_GUARD"] = options.accuracy_guard
        hints["ACCURACY_GUARD_INPUTS"] = options.accuracy_guard_inputs
        hints["ACCURACY_GUARD_SECONDS"] = options.accuracy_guard_seconds
    given = {**{key: hint for key, hint in hints.items() if hint}, **options.member_config}
    return {key: value for key, value in given.items() if key in known}


def check_member_keys(
    device: str, members: Sequence[str], options: CompositeOptions, services: Services
) -> None:
    """Refuse keys that neither the device nor one of its members knows.

    Raises:
        UnknownOptionError: naming the nearest legal keys.
    """
    known = {key for member in members for key in services.option_keys(member)}
    for key in options.member_config:
        if key not in known:
            everything = sorted(known | set(type(options).keys()))
            raise UnknownOptionError(
                f"neither {device} nor {', '.join(members)} knows the configuration key {key!r}."
                f"{nearest(key, everything)} Legal: {', '.join(everything)}"
            )
