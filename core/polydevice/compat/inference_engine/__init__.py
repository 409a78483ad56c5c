"""The Inference Engine's Python API of 2021: ``import polydevice.compat.inference_engine``.

It was `openvino.inference_engine`, which OpenVINO removed in 2024.
docs/coming-from-inference-engine.md lists every name, what stands behind it, and what is not
there and why.
"""

from __future__ import annotations

from typing import Any

import polydevice
from polydevice.compat.inference_engine.blobs import Blob, TensorDesc
from polydevice.compat.inference_engine.constants import (
    ColorFormat,
    MeanVariant,
    ResizeAlgorithm,
    StatusCode,
    WaitMode,
)
from polydevice.compat.inference_engine.core import IECore
from polydevice.compat.inference_engine.descriptions import (
    CDataPtr,
    DataPtr,
    InputInfoCPtr,
    InputInfoPtr,
    PreProcessChannel,
    PreProcessInfo,
)
from polydevice.compat.inference_engine.executable import ExecutableNetwork
from polydevice.compat.inference_engine.network import IENetwork
from polydevice.compat.inference_engine.request import InferRequest, VariableState
from polydevice.compat.inference_engine.surface import missing

__all__ = [
    "Blob",
    "CDataPtr",
    "ColorFormat",
    "DataPtr",
    "ExecutableNetwork",
    "IECore",
    "IENetwork",
    "InferRequest",
    "InputInfoCPtr",
    "InputInfoPtr",
    "MeanVariant",
    "PreProcessChannel",
    "PreProcessInfo",
    "ResizeAlgorithm",
    "StatusCode",
    "TensorDesc",
    "VariableState",
    "WaitMode",
    "get_version",
    "read_network",
]

__version__ = "2021.4.2"
"""The release of OpenVINO whose interface this is."""


def get_version() -> str:
    """Say what this is."""
    return f"{__version__}-polydevice-{polydevice.__version__}"


def read_network(path_to_xml: Any, path_to_bin: Any) -> IENetwork:
    """Read an OpenVINO IR or an ONNX model; see `IECore.read_network`."""
    return IECore().read_network(path_to_xml, path_to_bin)


def __getattr__(name: str) -> object:
    raise missing(name)
