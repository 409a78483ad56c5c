"""get_batch and set_batch: the number of items that a model takes at once."""

from __future__ import annotations

from typing import Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.types.layout import NOTE, Layout
from polydevice.compat.openvino.types.shapes import Dimension
from polydevice.node import Node as CoreNode


def get_batch(model: Model) -> Dimension:
    """Return the size of the batch: of the axis N of the first input that has one.

    Raises:
        RuntimeError: no input has an axis N, and none has more than one axis.
    """
    for node, axis in _batches(model):
        shape = node.outputs[0].shape
        if shape is not None:
            return Dimension._of(shape[axis])
    raise RuntimeError("no input of the model has a batch; set a layout with an axis N")


@translated
def set_batch(model: Model, batch_size: Any = -1) -> None:
    """Give the batch another size; without layouts, the first axis of every input.

    Raises:
        RuntimeError: no input has an axis N, or a node does not accept the size.
    """
    size = batch_size._size if isinstance(batch_size, Dimension) else Dimension(batch_size)._size
    shapes = {}
    for node, axis in _batches(model):
        if node.outputs[0].shape is not None:
            sizes = list(node.outputs[0].shape)
            sizes[axis] = size
            shapes[node.name] = sizes
    if not shapes:
        raise RuntimeError("no input of the model has a batch; set a layout with an axis N")
    model._network.reshape(shapes)


def _batches(model: Model) -> list[tuple[CoreNode, int]]:
    """Return the inputs that have a batch, with its axis."""
    laid_out = []
    for node in model._network.parameters:
        layout = Layout(str(node.rt_info.get(NOTE) or "..."))
        if layout.has_name("N"):
            laid_out.append((node, layout.get_index_by_name("N")))
    if laid_out:
        return laid_out
    shapes = [(node, node.outputs[0].shape) for node in model._network.parameters]
    return [(node, 0) for node, shape in shapes if shape is not None and len(shape) > 1]
