"""``openvino.tools``: the model converter, and the tools of an OpenVINO that is installed."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

from polydevice.compat.openvino.core import Core
from polydevice.compat.openvino.model import Model
from polydevice.compat.openvino.shapes import PartialShape

__all__ = ["convert_model"]


def convert_model(
    input_model: Any,
    input: Any = None,  # noqa: A002 - its name
    output: Any = None,
    example_input: Any = None,
    extension: Any = None,
    verbose: bool = False,
    share_weights: bool = True,
    dynamo: bool = False,
) -> Model:
    """Read an ONNX model, or an OpenVINO IR.

    Args:
        input_model: path, bytes, or an ONNX ModelProto.
        input: shapes for inputs: a shape, a list of them, or name → shape.
        output: the name of an output, or several, which are kept alone.
        example_input: of a PyTorch model, which is not read.
        extension: not taken: an extension is a library of OpenVINO's.
        verbose: has no effect.
        share_weights: has no effect.
        dynamo: of a PyTorch model, which is not read.

    Raises:
        RuntimeError: the model cannot be read; models of other frameworks are not.
    """
    if extension is not None:
        Core().add_extension(extension)
    if hasattr(input_model, "SerializeToString"):
        input_model = input_model.SerializeToString()
    if not isinstance(input_model, (str, bytes, Path)):
        raise RuntimeError(
            f"a model of type {type(input_model).__name__} cannot be converted here; save it as "
            "ONNX with its framework's own exporter and give that file"
        )
    model = Core().read_model(input_model)
    if input is not None:
        model.reshape(_shapes(model, input))
    if output is not None:
        names = [output] if isinstance(output, str) else list(output)
        kept = [result.get_node() for result in map(model.output, names)]
        for node in model.results:
            if node not in kept:
                model.remove_result(node)
    return model


def _shapes(model: Model, given: Any) -> dict[Any, Any]:
    if isinstance(given, dict):
        return given
    if isinstance(given, (tuple, list)) and given and not isinstance(given[0], (int, float)):
        if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str):
            return {given[0]: given[1]}
        found: dict[Any, Any] = {}
        for index, each in enumerate(given):
            named = isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str)
            found[each[0] if named else index] = each[1] if named else each
        return found
    return {model.input(): PartialShape(given)}


def _installed() -> list[str]:
    """Return the folder of the tools of an installed OpenVINO, which are Python alone."""
    try:
        folder = importlib.metadata.distribution("openvino").locate_file("openvino/tools")
    except importlib.metadata.PackageNotFoundError:
        return []
    return [str(folder)] if Path(str(folder)).is_dir() else []


__path__ += _installed()
