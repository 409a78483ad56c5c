"""fuse_pad: a border of zeros becomes padding of the convolutions that read it.

TensorFlow's "same" padding is a Pad of its own in what PyTorch exports, even where it is of no
width, which is left out.
"""

from __future__ import annotations

import numpy as np

from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.convolution import Convolution
from polydevice.ops.pad import Pad, PadMode
from polydevice.ops.window import PadType
from polydevice.rewrites.pattern import Replacements


def fuse_pad(network: Network) -> None:
    """Let convolutions pad what Pad nodes do, and go around those that pad nothing."""
    replacements = Replacements()
    for node in network.nodes():
        node.inputs = [replacements.now(port) for port in node.inputs]
        if isinstance(node.op, Convolution):
            _pad_more(replacements, node, node.op)
        elif isinstance(node.op, Pad) and _border(node) == ((0, 0),) * (node.output.desc.rank or 0):
            replacements.put(node.output, node.inputs[0])
    replacements.apply(network)


def _border(node: Node) -> tuple[tuple[int, int], ...] | None:
    """Elements before and behind, for each axis; None where they are not known."""
    begin, end = (port.node.constant for port in node.inputs[1:3])
    if begin is None or end is None or begin.size != end.size:
        return None
    return tuple(zip(begin.reshape(-1).tolist(), end.reshape(-1).tolist(), strict=True))


def _pad_more(replacements: Replacements, node: Node, op: Convolution) -> None:
    pad, weights = node.inputs[0].node, node.inputs[1].shape
    border = _border(pad) if _is_of_zeros(pad) else None
    shape = node.inputs[0].shape
    if border is None or weights is None or shape is None or any(border[0] + border[1]):
        return
    if op.auto_pad.is_same and not (shape.is_static and weights.is_static):
        return
    before, after = op.window(weights).pads(shape.static[2:] if op.auto_pad.is_same else ())
    padded = op.replace(
        pads_begin=tuple(a + b for a, (b, _) in zip(before, border[2:], strict=True)),
        pads_end=tuple(a + b for a, (_, b) in zip(after, border[2:], strict=True)),
        auto_pad=PadType.EXPLICIT,
    )
    inputs: list[Port] = [pad.inputs[0], *node.inputs[1:]]
    replacements.put_node(node, padded, inputs)


def _is_of_zeros(node: Node) -> bool:
    """Whether a node puts zeros around its input, and cuts nothing."""
    if not isinstance(node.op, Pad) or node.op.pad_mode is not PadMode.CONSTANT:
        return False
    border = _border(node)
    if not border or min(min(sides) for sides in border) < 0:
        return False
    value = node.inputs[3].node.constant if len(node.inputs) > 3 else np.zeros(())
    return value is not None and not value.any()
