"""Tensors of every element type, in raw and typed form, against onnx's own decoder."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import SparseTensorProto, TensorProto, numpy_helper

from polydevice.errors import ModelFormatError
from polydevice.readers.limits import ReadLimits
from polydevice.readers.onnx.budget import Budget
from polydevice.readers.onnx.protos.element_types import ELEMENT_TYPES
from polydevice.readers.onnx.protos.external_data import ExternalData
from polydevice.readers.onnx.protos.tensors import TensorReader

NAMES = {code: name for name, code in TensorProto.DataType.items()}


@pytest.fixture
def reader() -> TensorReader:
    return TensorReader(ExternalData(None), Budget(ReadLimits()))


def _array(code: int, shape: tuple[int, ...]) -> np.ndarray:
    dtype = ELEMENT_TYPES[code].dtype
    count = int(np.prod(shape))
    numbers = (np.arange(count) * 5) % 7
    if code == TensorProto.STRING:
        return np.array([f"text {i} é" for i in range(count)], object).reshape(shape)
    if code == TensorProto.BOOL:
        return (numbers % 2 == 1).reshape(shape)
    if code in (TensorProto.UINT2, TensorProto.INT2):
        numbers %= 2
    return numbers.reshape(shape).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 3), (2, 0, 3)])
@pytest.mark.parametrize("code", sorted(ELEMENT_TYPES), ids=NAMES.get)
def test_every_type(reader: TensorReader, code: int, shape: tuple[int, ...]) -> None:
    expected = _array(code, shape)
    proto = numpy_helper.from_array(expected, "t")
    forms = [proto]
    if code != TensorProto.STRING:
        # the typed form: the same elements by way of onnx's helper
        flat = expected.reshape(-1)
        vals = (
            flat.tolist() if code not in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else flat
        )
        forms.append(onnx.helper.make_tensor("t", code, shape, vals))
    for form in forms:
        array, element_type = reader.dense(form)
        assert element_type is ELEMENT_TYPES[code]
        assert array.dtype == element_type.dtype
        assert array.shape == shape
        if code == TensorProto.STRING:
            np.testing.assert_array_equal(array, expected)
        else:  # as bytes, since NaN is not equal to itself
            wanted = numpy_helper.to_array(form).reshape(shape)
            assert array.dtype == wanted.dtype
            assert array.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("code", sorted(set(ELEMENT_TYPES) - {TensorProto.STRING}), ids=NAMES.get)
@pytest.mark.parametrize("change", [-1, 1])
def test_wrong_amount_of_data(reader: TensorReader, code: int, change: int) -> None:
    proto = numpy_helper.from_array(_array(code, (16, 3)), "t")
    proto.raw_data = proto.raw_data[:-1] if change < 0 else proto.raw_data + b"\0"
    with pytest.raises(ModelFormatError, match="'t'"):
        reader.dense(proto)


def test_unknown_type(reader: TensorReader) -> None:
    with pytest.raises(ModelFormatError, match="element type 77"):
        reader.dense(TensorProto(name="t", data_type=77, dims=[1], raw_data=b"1234"))


def test_segments_are_refused(reader: TensorReader) -> None:
    proto = numpy_helper.from_array(np.zeros(3, np.float32), "t")
    proto.segment.begin = 0
    with pytest.raises(ModelFormatError, match="segments"):
        reader.dense(proto)


def _sparse(values: list[float], indices: list[int] | list[list[int]]) -> SparseTensorProto:
    proto = SparseTensorProto(dims=[3, 4])
    proto.values.CopyFrom(numpy_helper.from_array(np.array(values, np.float32), "s"))
    proto.indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64), "i"))
    return proto


def test_sparse_tensors(reader: TensorReader) -> None:
    expected = np.zeros((3, 4), np.float32)
    expected[0, 1], expected[2, 3] = 5, 7
    for indices in ([1, 11], [[0, 1], [2, 3]]):
        array, _ = reader.sparse(_sparse([5, 7], indices))
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("indices", [[1, 12], [-1, 2], [[0, 1], [3, 0]], [[0, -1], [0, 0]], [1]])
def test_sparse_indices_outside(reader: TensorReader, indices: list[int] | list[list[int]]) -> None:
    with pytest.raises(ModelFormatError, match="'s'"):
        reader.sparse(_sparse([5, 7], indices))
