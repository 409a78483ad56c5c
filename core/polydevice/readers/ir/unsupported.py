"""Which operations of a model nothing here defines, all of them in one message."""

from __future__ import annotations

from collections.abc import Iterator

from polydevice.errors import UnsupportedOperationError
from polydevice.readers.ir.layers import GraphRecord, LayerRecord
from polydevice.readers.ir.operations import operation_of
from polydevice.readers.ir.order import needed


def check_supported(graph: GraphRecord) -> None:
    """Check that every needed layer, also inside bodies, has an operation.

    Raises:
        UnsupportedOperationError: listing type, opset, number of layers and the first layer.
    """
    groups: dict[tuple[str, str], list[tuple[LayerRecord, str]]] = {}
    for layer in _needed(graph):
        try:
            operation_of(layer)
        except UnsupportedOperationError as error:
            key = (layer.type.lower(), layer.version)
            groups.setdefault(key, []).append((layer, str(error)))
    if not groups:
        return
    lines = [
        f"  {found[0][0].type} ({found[0][0].version or 'no opset'}): {len(found)} "
        f"{'layer' if len(found) == 1 else 'layers'}, first {found[0][0].name!r}: {found[0][1]}"
        for found in groups.values()
    ]
    raise UnsupportedOperationError(
        f"the model uses {len(lines)} {'operation' if len(lines) == 1 else 'operations'} that "
        "polydevice does not have:\n" + "\n".join(lines) + "\n"
        "Define them from a plugin's register_operations hook, or convert the model without them."
    )


def _needed(graph: GraphRecord) -> Iterator[LayerRecord]:
    wanted = needed(graph)
    for number, layer in graph.layers.items():
        if number in wanted:
            yield layer
            for body in layer.bodies.values():
                yield from _needed(body)
