"""``openvino.tools``: the model converter, and the tools of an OpenVINO that is installed."""

from __future__ import annotations

import importlib.metadata
import io
import os
from pathlib import Path
from typing import Any

from polydevice.compat.openvino.devices.core import Core
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.types.element_type import element_of
from polydevice.compat.openvino.types.shapes import Dimension, PartialShape, Shape

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
        input_model: path, bytes, stream of bytes, or an ONNX ModelProto.
        input: a shape, or (name, shape, type) in any number and order, or a list of such, or
            name → shape; types are taken where they are those of the inputs.
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
    if not isinstance(input_model, (str, bytes, os.PathLike, io.BytesIO)):
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
    """Return input → shape."""
    if isinstance(given, dict):
        return given
    if not isinstance(given, (list, tuple)) or _is_shape(given):
        return {model.input(): PartialShape(given)}
    if isinstance(given, tuple) and not all(isinstance(each, (list, tuple)) for each in given):
        given = [given]
    found: dict[Any, Any] = {}
    for index, each in enumerate(given):
        parts = each if isinstance(each, (list, tuple)) and not _is_shape(each) else [each]
        key: Any = next((part for part in parts if isinstance(part, str)), index)
        _check_type(model, key, parts)
        shapes = [part for part in parts if _is_shape(part)]
        if shapes:
            found[key] = shapes[0]
    return found


def _is_shape(value: Any) -> bool:
    if isinstance(value, (PartialShape, Shape)):
        return True
    sizes = isinstance(value, (list, tuple))
    return sizes and all(isinstance(s, (int, Dimension)) and not isinstance(s, bool) for s in value)


def _check_type(model: Model, key: Any, parts: Any) -> None:
    for part in parts:
        if not isinstance(part, (str, list, tuple, PartialShape, Shape)):
            wanted, own = element_of(part), element_of(model.input(key).get_element_type())
            if wanted is not own:
                raise RuntimeError(
                    f"input {key!r} is {own}; convert it to {wanted} with PrePostProcessor"
                )


def _installed() -> list[str]:
    """Return the folder of the tools of an installed OpenVINO, which are Python alone."""
    try:
        folder = importlib.metadata.distribution("openvino").locate_file("openvino/tools")
    except importlib.metadata.PackageNotFoundError:
        return []
    return [str(folder)] if Path(str(folder)).is_dir() else []


__path__ += _installed()
