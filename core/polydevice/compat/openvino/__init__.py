"""OpenVINO's Python interface, on polydevice: ``import polydevice.compat.openvino as ov``.

docs/coming-from-openvino.md lists every name, what stands behind it, and what is not there and why.
"""

from __future__ import annotations

import numpy as np

from polydevice.compat.openvino import (
    exceptions,
    frontend,
    helpers,
    layout_helpers,
    op,
    passes,
    preprocess,
    properties,
    tools,
    utils,
)
from polydevice.compat.openvino.devices.compiled_model import CompiledModel
from polydevice.compat.openvino.devices.context import RemoteContext
from polydevice.compat.openvino.devices.core import Core, Version, compile_model
from polydevice.compat.openvino.graph.node import DiscreteTypeInfo, Node
from polydevice.compat.openvino.graph.ports import ConstOutput, Input, Output
from polydevice.compat.openvino.graph.remote_tensor import RemoteTensor, TensorVector
from polydevice.compat.openvino.graph.tensor import Tensor
from polydevice.compat.openvino.models import opsets
from polydevice.compat.openvino.models.batch import get_batch, set_batch
from polydevice.compat.openvino.models.model import Model
from polydevice.compat.openvino.models.writing import save_model, serialize
from polydevice.compat.openvino.requests.async_infer_queue import AsyncInferQueue
from polydevice.compat.openvino.requests.infer_request import InferRequest
from polydevice.compat.openvino.requests.profiling_info import ProfilingInfo
from polydevice.compat.openvino.requests.results import OVDict
from polydevice.compat.openvino.requests.variable_state import VariableState
from polydevice.compat.openvino.surface import missing
from polydevice.compat.openvino.tools import convert_model
from polydevice.compat.openvino.types.element_type import Type
from polydevice.compat.openvino.types.layout import Layout
from polydevice.compat.openvino.types.rt_info import OVAny, RTMap
from polydevice.compat.openvino.types.shapes import (
    AxisSet,
    AxisVector,
    Coordinate,
    CoordinateDiff,
    Dimension,
    PartialShape,
    Shape,
    Strides,
    Symbol,
)

__all__ = [
    "AsyncInferQueue",
    "AxisSet",
    "AxisVector",
    "CompiledModel",
    "ConstOutput",
    "Coordinate",
    "CoordinateDiff",
    "Core",
    "Dimension",
    "DiscreteTypeInfo",
    "InferRequest",
    "Input",
    "Layout",
    "Model",
    "Node",
    "OVAny",
    "Output",
    "PartialShape",
    "ProfilingInfo",
    "RTMap",
    "RemoteContext",
    "RemoteTensor",
    "Shape",
    "Strides",
    "Symbol",
    "Tensor",
    "TensorVector",
    "Type",
    "Version",
    "compile_model",
    "convert_model",
    "exceptions",
    "frontend",
    "get_batch",
    "get_version",
    "helpers",
    "layout_helpers",
    "op",
    "passes",
    "preprocess",
    "properties",
    "save_model",
    "serialize",
    "set_batch",
    "shutdown",
    "tensor_from_file",
    "tools",
    "utils",
]
__all__ += opsets.NAMES  # noqa: PLE0605 - it is a list

__version__ = "2026.4.1"
"""The release of OpenVINO whose interface this is."""


def get_version() -> str:
    """Return the release of OpenVINO whose interface this is."""
    return __version__


def shutdown() -> None:
    """Do nothing: devices are closed when the process ends."""


def tensor_from_file(path: str) -> Tensor:
    """Return a file's bytes as a tensor of u8."""
    return Tensor(np.fromfile(path, dtype=np.uint8))


opsets.make_modules(__name__)
for _name in opsets.NAMES:
    globals()[_name] = opsets.MODULES[_name]


def __getattr__(name: str) -> object:
    if name == "runtime":
        import importlib

        return importlib.import_module(f"{__name__}.runtime")
    raise missing(name)


_ = (OVDict, VariableState)
