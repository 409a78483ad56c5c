"""borders: what Pad nodes put around the data of convolutions, which pad for nothing.

TensorFlow's "same" padding is a Pad of its own in what PyTorch exports, even where it is of no
width.
"""

from __future__ import annotations

from polydevice.node import Node, Port
from polydevice.ops.convolution import Convolution
from polydevice.ops.pad import Pad, PadMode
from polydevice.ops.window import PadType
from polydevice.shape import Shape


def border_of(pad: Node) -> tuple[tuple[int, int], ...] | None:
    """Elements that a Pad has before and behind, for each axis; None where they are not known."""
    begin, end = (port.node.constant for port in pad.inputs[1:3])
    if begin is None or end is None or begin.size != end.size:
        return None
    return tuple(zip(begin.reshape(-1).tolist(), end.reshape(-1).tolist(), strict=True))


def with_border(
    op: Convolution, data: Port, weights: Shape | None, fill: int = 0
) -> tuple[Convolution, Port] | None:
    """Return the convolution that pads itself what a Pad node does, and what that node pads.

    Args:
        op: a convolution, of groups or not.
        data: what it reads.
        weights: their shape.
        fill: what padding is to the convolution.

    Returns:
        None where the data is not made by a Pad of spatial axes with that number.
    """
    pad, shape = data.node, data.shape
    border = border_of(pad) if _is_of(pad, fill) else None
    if border is None or weights is None or shape is None or any(border[0] + border[1]):
        return None
    if op.auto_pad.is_same and not (shape.is_static and weights.is_static):
        return None
    before, after = op.window(weights).pads(shape.static[2:] if op.auto_pad.is_same else ())
    padded = op.replace(
        pads_begin=tuple(a + b for a, (b, _) in zip(before, border[2:], strict=True)),
        pads_end=tuple(a + b for a, (_, b) in zip(after, border[2:], strict=True)),
        auto_pad=PadType.EXPLICIT,
    )
    return padded, pad.inputs[0]


def _is_of(node: Node, fill: int) -> bool:
    """Whether a node puts these numbers around its input, and cuts nothing."""
    if not isinstance(node.op, Pad) or node.op.pad_mode is not PadMode.CONSTANT:
        return False
    border = border_of(node)
    if not border or min(min(sides) for sides in border) < 0:
        return False
    if len(node.inputs) < 4:
        return fill == 0
    value = node.inputs[3].node.constant
    return value is not None and bool((value == fill).all())
