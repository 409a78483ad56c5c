"""serialize and save_model: models as files."""

from __future__ import annotations

from typing import Any

from polydevice.compat.openvino.errors import translated
from polydevice.compat.openvino.models.model import Model


@translated
def serialize(
    model: Model, xml_path: Any, bin_path: Any = "", version: str = "UNSPECIFIED"
) -> None:
    """Write a model as OpenVINO IR v11.

    Raises:
        RuntimeError: an operation that IR cannot express, or a file that cannot be written.
    """
    model._network.serialize(xml_path, bin_path or None)


@translated
def save_model(model: Model, output_model: Any, compress_to_fp16: bool = True) -> None:
    """Write a model as OpenVINO IR v11, by default with f32 and f64 constants as f16.

    Raises:
        RuntimeError: an operation that IR cannot express, or a file that cannot be written.
    """
    network = model._network
    if compress_to_fp16:
        from polydevice.passes.compress_constants import compress_constants

        network = network.clone()
        compress_constants(network)
    network.serialize(output_model)
