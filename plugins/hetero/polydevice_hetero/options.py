"""The configuration keys of HETERO; keys of its members are kept and forwarded."""

from __future__ import annotations

from polydevice.composite import CompositeOptions
from polydevice.options import Flag, option


class HeteroOptions(CompositeOptions):
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
