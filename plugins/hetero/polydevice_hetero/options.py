"""The configuration keys of HETERO; keys of its members are kept and forwarded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field
from typing_extensions import Self

from polydevice.errors import UnknownOptionError
from polydevice.options import Flag, Options, option


class HeteroOptions(Options):
    """Keys of HETERO itself, and what is meant for its members."""

    target_fallback: str = option(
        "TARGET_FALLBACK",
        "",
        help="Devices in order of preference, joined by commas; set by the name 'HETERO:GPU,CPU'.",
    )
    dump_graph_dot: Flag = option(
        "HETERO_DUMP_GRAPH_DOT",
        False,
        help="Write hetero_affinity_<network>.dot and hetero_subgraphs_<network>.dot into the "
        "working directory when a network is loaded.",
    )
    exclusive_async_requests: Flag = option(
        "EXCLUSIVE_ASYNC_REQUESTS",
        False,
        help="Run one request at a time instead of letting requests follow each other through "
        "the devices.",
    )
    member_config: dict[str, Any] = Field({}, json_schema_extra={"key": "", "internal": True})

    def updated(self, config: Mapping[str, Any]) -> Self:
        """Return a copy with some keys changed; keys unknown to HETERO wait for its members.

        Whether a member knows them is checked when a network is loaded, since only then the
        members are known.
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
