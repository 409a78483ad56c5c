"""``openvino.preprocess``: steps on inputs and outputs that become part of the model."""

from __future__ import annotations

from polydevice.compat.openvino.preprocess.enums import ColorFormat, PaddingMode, ResizeAlgorithm
from polydevice.compat.openvino.preprocess.infos import (
    InputInfo,
    InputModelInfo,
    InputTensorInfo,
    OutputInfo,
    OutputModelInfo,
    OutputTensorInfo,
    PostProcessSteps,
    PreProcessSteps,
)
from polydevice.compat.openvino.preprocess.processor import PrePostProcessor
from polydevice.compat.openvino.surface import missing

__all__ = [
    "ColorFormat",
    "InputInfo",
    "InputModelInfo",
    "InputTensorInfo",
    "OutputInfo",
    "OutputModelInfo",
    "OutputTensorInfo",
    "PaddingMode",
    "PostProcessSteps",
    "PrePostProcessor",
    "PreProcessSteps",
    "ResizeAlgorithm",
]


def __getattr__(name: str) -> object:
    raise missing(name, "preprocess")
