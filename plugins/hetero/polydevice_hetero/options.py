"""The configuration keys of HETERO; keys of its members are kept and forwarded."""

from __future__ import annotations

from typing import Literal

from typing_extensions import Self

from polydevice.options import Flag, option
from polydevice.options.composite import CompositeOptions

_IN_F32 = {
    "INFERENCE_PRECISION_HINT": "f32",
    **dict.fromkeys(("ENFORCE_BF16", "ENFORCE_F16", "LP_TRANSFORMS_MODE"), "NO"),
}


class HeteroOptions(CompositeOptions):
    """Keys of HETERO itself, and what is meant for its members."""

    guards_whole = True

    target_fallback: str = option(
        "TARGET_FALLBACK",
        "",
        help="Devices in order of preference, joined by commas; set by the name 'HETERO:GPU,CPU'.",
    )
    affinity: Literal["FIRST", "COST"] = option(
        "HETERO_AFFINITY",
        "FIRST",
        help="How operations are placed that have no affinity of their own. FIRST: on the first "
        "device that can run them. COST: parts and the whole network are measured on the devices "
        "when it is loaded, and what is quickest stays; never slower than FIRST, but loading "
        "takes several times as long.",
    )
    memory: str = option(
        "HETERO_MEMORY",
        "",
        help="Bytes of weights that devices hold, such as GPU.0:8000000000,GPU.1:8000000000; what "
        "is more goes to the next one. Empty: three quarters of what a device says that it has.",
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
