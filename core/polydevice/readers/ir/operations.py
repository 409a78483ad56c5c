"""Which operation class a layer stands for."""

from __future__ import annotations

from polydevice.errors import UnsupportedOperationError
from polydevice.ops.op import find_operation, is_defined, split_version
from polydevice.ops.unknown import UnknownOperation
from polydevice.readers.ir.layers import LayerRecord, Operation

NEWEST_OPSET = 17
"""The newest of OpenVINO's operation sets; OpenVINO 2026.4 writes it."""

OLD_EXTENSIONS = frozenset({"experimental", "extension"})
"""Sets that converters of 2020 named for operations that joined opset6 (Detectron, cells)."""

FORGOTTEN = frozenset({"mvn", "roipooling", "reorgyolo"})
"""Types that the first operation set lacks although IR files name them with it."""


def operation_of(layer: LayerRecord) -> Operation:
    """Return the operation class of a layer, and the number of its operation set.

    A type that nothing defines becomes an `UnknownOperation`.

    Raises:
        UnsupportedOperationError: it names a set that does not exist or lacks the operation.
    """
    if layer.operation is None:
        layer.operation = _find(layer)
    return layer.operation


def _find(layer: LayerRecord) -> Operation:
    domain, number = split_version(layer.version)
    kind = "Const" if layer.type.lower() == "constant" else layer.type
    if domain == "opset" and not 1 <= number <= NEWEST_OPSET:
        raise UnsupportedOperationError(
            f"there is no operation set {layer.version}; known are opset1 to opset{NEWEST_OPSET}"
        )
    if layer.version == "opset1" and kind.lower() in FORGOTTEN:
        return find_operation(kind, "opset2"), 2
    if domain in OLD_EXTENSIONS and not is_defined(kind, domain) and is_defined(kind, "opset"):
        return find_operation(kind, "opset6"), 6
    if layer.version and not is_defined(kind, domain):
        return UnknownOperation, number
    return find_operation(kind, layer.version), number
