"""``openvino.utils``."""

from __future__ import annotations

from polydevice.compat.openvino.graph.node import Node
from polydevice.compat.openvino.graph.ports import Output
from polydevice.compat.openvino.surface import missing
from polydevice.compat.openvino.utils import decorators, types

__all__ = ["decorators", "replace_node", "replace_output_update_name", "types"]


def replace_node(target: Node, replacement: Node, outputs_order: list[int] | None = None) -> None:
    """Let everything that reads a node read another one."""
    order = range(target.get_output_size()) if outputs_order is None else outputs_order
    for index, place in enumerate(order):
        target.output(index).replace(replacement.output(place))


def replace_output_update_name(output: Output, target_output: Output) -> bool:
    """Let everything that reads an output read another one, whose node takes the name."""
    name = output.get_node().get_friendly_name()
    output.replace(target_output)
    target_output.get_node().set_friendly_name(name)
    return True


def __getattr__(name: str) -> object:
    raise missing(name, "utils")
