"""Which operations of a model nothing here defines, all of them in one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from polydevice.errors import UnsupportedOperationError
from polydevice.ops.op import find_operation
from polydevice.ops.unknown import UnknownOperation
from polydevice.readers.ir.layers import GraphRecord, LayerRecord
from polydevice.readers.ir.operations import operation_of
from polydevice.readers.ir.order import needed


def check_supported(graph: GraphRecord, define: Callable[[], bool] | None = None) -> None:
    """Check that every needed layer, also inside bodies, has an operation.

    Types that nothing defines are let through outside of bodies: a device may know them, and says
    so when the network is loaded.

    Args:
        graph: of the whole model.
        define: lets plugins define operations, and says whether there may be more of them now;
            called when a type is not known.

    Raises:
        UnsupportedOperationError: listing type, opset, number of layers and the first layer.
    """
    groups: dict[tuple[str, str], list[tuple[LayerRecord, str]]] = {}
    unknown = []
    for layer, inside in _needed(graph, inside=False):
        try:
            kind, _ = operation_of(layer)
            if kind is UnknownOperation:
                unknown.append(layer)
                if inside:
                    find_operation(layer.type, layer.version)
        except UnsupportedOperationError as error:
            key = (layer.type.lower(), layer.version)
            groups.setdefault(key, []).append((layer, str(error)))
    if (groups or unknown) and define is not None and define():
        for layer in unknown:
            layer.operation = None
        check_supported(graph)
        return
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


def _needed(graph: GraphRecord, *, inside: bool) -> Iterator[tuple[LayerRecord, bool]]:
    """Yield the layers that are needed, and whether each is inside a body."""
    wanted = needed(graph)
    for number, layer in graph.layers.items():
        if number in wanted:
            yield layer, inside
            for body in layer.bodies.values():
                yield from _needed(body, inside=True)
