"""written_batch: let Reshape follow a new batch where a model has the old one written out.

Exporters write the batch into the pattern of a Reshape: [1, 1280] in front of a classifier. With
another batch that pattern does not fit, or it joins the items of the batch and what comes behind it
does not fit. OpenVINO's SmartReshape lets those in front of a product follow; here all do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from polydevice.bounds import computing_ahead
from polydevice.node import Node, Port, constant
from polydevice.ops.reshape import Reshape
from polydevice.shape import Shape

if TYPE_CHECKING:
    from polydevice.network.graph import Graph


def follow(network: Graph, before: Mapping[Port, Shape | None]) -> dict[Node, list[Port]]:
    """Infer shapes; have every Reshape with the old batch written out take the new one.

    Args:
        network: with new shapes of its inputs.
        before: every port's shape with the old ones.

    Returns:
        The inputs of each Reshape that was changed, as they were.

    Raises:
        NetworkError: a node does not accept the new shapes all the same; the changes are undone.
    """
    changed: dict[Node, list[Port]] = {}
    names = {node.name for node in network.nodes()}
    try:
        with computing_ahead():
            for node in network.nodes():
                pattern = _following(node, before)
                if pattern is not None:
                    name = f"{node.name}/pattern"
                    while name in names:
                        name += "_"
                    names.add(name)
                    changed[node] = list(node.inputs)
                    node.inputs[1] = constant(name, np.asarray(pattern, np.int64)).output
                node.infer(network.evaluate)
    except Exception:
        restore(changed)
        raise
    return changed


def restore(changed: Mapping[Node, list[Port]]) -> None:
    """Give nodes the inputs back that `follow` replaced."""
    for node, inputs in changed.items():
        node.inputs[:] = inputs


def _following(node: Node, before: Mapping[Port, Shape | None]) -> list[int] | None:
    """Return the pattern that follows the batch of a Reshape's input; None to leave it."""
    op = node.op
    if not isinstance(op, Reshape):
        return None
    old, new = before.get(node.inputs[0]), node.inputs[0].shape
    written = node.inputs[1].desc.constant
    if old is None or new is None or written is None or not old or len(old) != len(new):
        return None
    batch, pattern = old[0], [int(size) for size in written.reshape(-1)]
    if not isinstance(batch, int) or batch < 1 or new[0] == batch:
        return None
    index = next((i for i, size in enumerate(pattern) if size != 1), len(pattern) - 1)
    if batch == 1:
        index = 0
    if not pattern or pattern[index] <= 0 or pattern[index] % batch:
        return None
    times = pattern[index] // batch
    if index == 0 and times == 1 and op.special_zero:
        pattern[0] = 0  # the input's own
    elif -1 not in pattern:
        pattern[index] = -1  # what the others leave
    elif isinstance(new[0], int):
        pattern[index] = times * new[0]
    else:
        return None
    return pattern
