"""read_ir: an OpenVINO IR v10 or v11 → a Network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from polydevice.dtype import ElementType
from polydevice.errors import ModelFormatError, PolydeviceError
from polydevice.network import Network
from polydevice.node import Evaluate
from polydevice.readers.ir.document import Element, parse_document
from polydevice.readers.ir.graph import GraphBuilder
from polydevice.readers.ir.layers import nested_notes, read_graph
from polydevice.readers.ir.preprocess import subtract_mean
from polydevice.readers.ir.unsupported import check_supported
from polydevice.readers.ir.weights import Source, WeightsFile, read_topology
from polydevice.readers.limits import ReadLimits

VERSIONS = (10, 11)
"""The IR versions that are read: all that OpenVINO wrote since 2020.1."""

_OLD_INTEGERS = frozenset({ElementType.i64, ElementType.i32, ElementType.u64, ElementType.u32})
"""Types of outputs that an IR v10 delivers as i32; it delivers all others as f32."""


def read_ir(
    model: Source,
    weights: Source | None = None,
    limits: ReadLimits | None = None,
    *,
    evaluate: Evaluate | None = None,
    define: Callable[[], bool] | None = None,
) -> Network:
    """Read a network from an OpenVINO IR v10 or v11.

    Args:
        model: path of the topology (.xml), or its content.
        weights: path of the constants (.bin), or their content; by default the file beside the
            topology with the same stem.
        limits: bounds on what the file may ask for; None takes the defaults.
        evaluate: computes shape arithmetic while shapes are inferred.
        define: lets plugins define operations, when the model has types that are not known; returns
            whether there may be more of them now.

    Returns:
        The network. Shapes and types are inferred anew; what the file says of them is not
        trusted. `rt_info` holds "ir_version", the model's notes and, as "meta_data", the
        converter's. Constants share memory with the weights and are read-only.

    Raises:
        ModelFileError: the topology is missing, empty, or no regular file.
        ModelFormatError: it is not a consistent IR of a known version.
        UnsupportedOperationError: it has operations that its sets lack; all are listed. A type
            that nothing defines is no error here: a device may know it (`UnknownOperation`).
        WeightsError: weights are missing, too short, or do not fit a constant.
        ModelLimitError: it exceeds a limit.
        NetworkError: (or a subclass) an operation does not accept its inputs.
    """
    limits = limits or ReadLimits()
    if isinstance(model, (bytes, bytearray, memoryview)):
        path, content, source = None, bytes(model), "the model"
    else:
        path = Path(model)
        content, source = read_topology(path, limits), f"model {str(path)!r}"
    root = parse_document(content, limits, source)
    try:
        version = _version(root)
        graph = read_graph(root, limits, version)
        check_supported(graph, define)
        data = WeightsFile.open(None if weights == "" else weights, path, limits)
        builder = GraphBuilder(data, limits, version, evaluate)
        network = builder.build(graph, root.attributes.get("name", "")).network
        for section in root.all("pre-process"):
            subtract_mean(network, section, data)
    except PolydeviceError as error:
        raise type(error)(f"{source}: {error}") from error
    if version < 11:
        _set_old_precisions(network)
    network.rt_info = {**_notes(root), "ir_version": version}
    return network


def _set_old_precisions(network: Network) -> None:
    """Give inputs and outputs the blob types that the Inference Engine gave an IR v10."""
    for node in network.parameters:
        if node.output.element_type is ElementType.f16:
            node.rt_info["precision"] = ElementType.f32.value
    for node in network.results:
        own = node.inputs[0].element_type
        wanted = ElementType.i32 if own in _OLD_INTEGERS else ElementType.f32
        if own not in (wanted, ElementType.string, ElementType.dynamic):
            node.rt_info["precision"] = wanted.value


def _version(root: Element) -> int:
    if root.tag != "net":
        raise ModelFormatError(f"the root element is <{root.tag[:60]}>; an IR topology has <net>")
    version = root.integer("version")
    if version not in VERSIONS:
        raise ModelFormatError(
            f"it is an IR of version {version}; versions 10 and 11 can be read. Convert the "
            "original model again with OpenVINO 2020.1 or newer"
        )
    return version


def _notes(root: Element) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    for section in root.all("rt_info"):
        notes.update(nested_notes(section))
    for section in root.all("meta_data"):
        notes["meta_data"] = nested_notes(section)
    return notes
