"""fuse_pad: a border of zeros becomes padding of the convolutions that read it; see `borders`.

One of no width is left out.
"""

from __future__ import annotations

from polydevice.network import Network
from polydevice.ops.convolution import Convolution
from polydevice.ops.pad import Pad
from polydevice.rewrites.borders import border_of, with_border
from polydevice.rewrites.pattern import Replacements


def fuse_pad(network: Network) -> None:
    """Let convolutions pad what Pad nodes do, and go around those that pad nothing."""
    replacements = Replacements()
    for node in network.nodes():
        node.inputs = [replacements.now(port) for port in node.inputs]
        if isinstance(node.op, Convolution):
            found = with_border(node.op, node.inputs[0], node.inputs[1].shape)
            if found is not None:
                padded, data = found
                replacements.put_node(node, padded, [data, *node.inputs[1:]])
        elif isinstance(node.op, Pad) and border_of(node) == ((0, 0),) * (
            node.output.desc.rank or 0
        ):
            replacements.put(node.output, node.inputs[0])
    replacements.apply(network)
