"""StringTensorUnpack and StringTensorPack."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import ElementTypeError, InferenceError
from polydevice.ops.string_tensor import StringTensorPack, StringTensorUnpack
from polydevice.shape import Shape
from polydevice.tensor import TensorDesc
from polydevice.testing.op_case import OpCase
from polydevice_cpu.implement import run
from tests.ops.check import check

TEXTS = np.array([["Intel", "", "äß"], ["OpenVINO", " ", "日本"]], object)
BYTES = np.frombuffer("InteläßOpenVINO 日本".encode(), np.uint8)
BEGINS = np.int32([[0, 5, 5], [9, 17, 18]])
ENDS = np.int32([[5, 5, 9], [17, 18, 24]])


def test_unpack(device):
    check(OpCase(StringTensorUnpack(), [TEXTS], [BEGINS, ENDS, BYTES]), device)


def test_pack(device):
    check(OpCase(StringTensorPack(), [BEGINS, ENDS, BYTES], [TEXTS]), device)


def test_of_nothing():
    begins, ends, symbols = run(StringTensorUnpack(), [np.empty((0, 2), object)])
    assert begins.shape == ends.shape == (0, 2)
    assert symbols.shape == (0,)


def test_refuses():
    with pytest.raises(ElementTypeError, match="strings"):
        StringTensorUnpack().infer([TensorDesc(ElementType.u8, Shape([2]))])
    for begins, ends in ((0, 99), (-1, 3), (4, 2)):
        with pytest.raises(InferenceError, match="lies outside"):
            run(StringTensorPack(), [np.array([begins]), np.array([ends]), BYTES])
