"""Holding back primitives that see the network's tensors as others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polydevice.dtype import Array
from polydevice_cpu.onednn.constants import Arg, Query
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.plan.building.pending import Flow, Make, Packed, Pending
from polydevice_cpu.plan.building.sight import Sight
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder


def hold_seen(
    builder: PlanBuilder,
    node: Node,
    way: str,
    make: Make,
    source: Value,
    weights: Array,
    result: Descriptor,
    bias_shape: tuple[int, ...],
    sight: Sight,
    *,
    by_rows: bool = False,
) -> bool:
    """Hold back a primitive with constant weights that sees other axes than the network.

    Args:
        builder: of the plan.
        node: what it computes.
        way: tells it from other ways to compute the node.
        make: returns None where oneDNN has no good code.
        source: in the network.
        weights: as the primitive sees them.
        result: as the primitive sees it.
        bias_shape: in the network.
        sight: how it sees the network's tensors.
        by_rows: see `Pending`.

    Returns:
        Whether oneDNN has good code.
    """
    key = (node.name, way)
    primitive = None
    if builder.decisions.assumed(key) is None:
        primitive = make([], False)
        if primitive is None:
            return False
        builder.decisions.note(key, True)
    arguments: dict[int, Flow | Packed] = {
        Arg.SRC: Flow(source, Query.SRC),
        Arg.WEIGHTS: Packed(weights, Query.WEIGHTS),
    }
    pending = Pending(
        *(node, make, arguments, primitive, builder.decisions),
        dst=result,
        assumed=[key] if primitive is None else [],
        bias_shape=bias_shape,
        sight=sight,
        by_rows=by_rows,
    )
    builder.hold(node.outputs[0], pending)
    return True
