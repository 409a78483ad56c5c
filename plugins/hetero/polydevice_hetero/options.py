"""The configuration keys of HETERO; keys of its members are kept and forwarded."""

from __future__ import annotations

from typing_extensions import Self

from polydevice.composite import CompositeOptions
from polydevice.options import Flag, option

_IN_F32 = {"INFERENCE_PRECISION_HINT": "f32", "ENFORCE_BF16": "NO", "LP_TRANSFORMS_MODE": "NO"}


class HeteroOptions(CompositeOptions):
    """Keys of HETERO itself, and what is meant for its members."""

    guards_whole = True

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

    def trial(self, *, in_f32: bool) -> Self:
        """Return the configuration in which the members compute in f32 what they were told not to.

        What a member computes in less by itself, as the CPU does with quantised layers, stays so.
        """
        told = self.member_config
        wide = {key: value for key, value in _IN_F32.items() if in_f32 and key in told}
        return self.model_copy(update={"member_config": {**told, **wide}, "dump_graph_dot": False})
