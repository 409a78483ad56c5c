"""Quantised copies of ONNX models, made by ONNX Runtime's tools, for measuring.

Convolutional networks are quantised statically with their test input as the one sample (accuracy
is not what is measured), networks without convolutions dynamically.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import version_converter
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

OPSET = 13
"""The first one whose QuantizeLinear has a scale per channel."""


class Samples(CalibrationDataReader):
    """One sample."""

    def __init__(self, inputs: Mapping[str, np.ndarray[Any, Any]]) -> None:
        """Give these inputs once."""
        self._left = [dict(inputs)]

    def get_next(self) -> dict[str, Any] | None:
        """Return the sample, then None."""
        return self._left.pop() if self._left else None


def quantised(path: Path, inputs: Mapping[str, np.ndarray[Any, Any]], folder: Path) -> Path | None:
    """Write a quantised copy of an ONNX file into a folder; None for what is no ONNX file."""
    if path.suffix != ".onnx":
        return None
    model = onnx.load(path)
    if next(o.version for o in model.opset_import if not o.domain) < OPSET:
        model = version_converter.convert_version(model, OPSET)
    _store_constants(model.graph)
    _name_anew(model.graph)
    given, made = folder / path.name, folder / f"{path.stem}_int8.onnx"
    onnx.save(model, given)
    with _errors_only():  # it recommends preparations that change nothing
        if not any(node.op_type == "Conv" for node in model.graph.node):
            quantize_dynamic(given, made, weight_type=QuantType.QInt8, per_channel=True)
            return made
        quantize_static(
            given,
            made,
            Samples(inputs),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
    return made


@contextmanager
def _errors_only() -> Iterator[None]:
    """Log errors alone, whoever does not say otherwise for its own logger."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)


def _store_constants(graph: onnx.GraphProto) -> None:
    """Make initializers of Constant nodes, which the tools take for activations."""
    for node in [node for node in graph.node if node.op_type == "Constant"]:
        values = [attribute.t for attribute in node.attribute if attribute.name == "value"]
        if values:
            values[0].name = node.output[0]
            graph.initializer.append(values[0])
            graph.node.remove(node)


def _name_anew(graph: onnx.GraphProto) -> None:
    """Number all tensors but inputs and outputs.

    The tools make names by appending to those there are, which may have been taken: of a network
    with `conv` and `conv2`, they left a bias in place of a result.
    """
    kept = {value.name for value in (*graph.input, *graph.output)} | {""}
    names: dict[str, str] = {}
    for name in [t.name for t in graph.initializer] + [o for n in graph.node for o in n.output]:
        if name not in kept:
            names[name] = f"tensor{len(names)}_"
    for tensor in (*graph.initializer, *graph.value_info):
        tensor.name = names.get(tensor.name, tensor.name)
    _rename(graph, names)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Let nodes, those of bodies too, read and make tensors by their new names."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                _rename(body, names)
