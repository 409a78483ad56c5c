"""polydevice.onnx_backend: the interface that ONNX's backend suite drives."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.backend.test import runner

import polydevice.onnx_backend as backend
from polydevice.errors import BlobError, DeviceNotFoundError, UnsupportedOperationError
from tests.onnx.models import model, value
from tests.onnx.node_cases import load_cases

X = np.array([[-1, 2, -3], [4, -5, 6]], np.float32)
ADD = model([helper.make_node("Sub", ["a", "b"], ["y"])], [value("a"), value("b")], [value("y")])


def test_devices() -> None:
    assert backend.supports_device("CPU")
    assert not backend.supports_device("ABACUS")
    assert backend.device_name("CUDA") == "GPU"
    assert backend.device_name("CUDA:1") == "GPU.1"
    assert backend.device_name("HETERO:GPU,CPU") == "HETERO:GPU,CPU"


def test_forms_of_inputs(device: str) -> None:
    prepared = backend.prepare(ADD, device)
    for inputs in ([X, 2 * X], (X, 2 * X), {"b": 2 * X, "a": X}):
        (y,) = prepared.run(inputs)
        np.testing.assert_array_equal(y, -X)
    (y,) = backend.run_model(model([helper.make_node("Relu", ["x"], ["y"])]), X, device)
    np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_outputs_are_copies(device: str) -> None:
    prepared = backend.prepare(ADD, device)
    (first,) = prepared.run([X, X])
    (second,) = prepared.run([X, 2 * X])
    np.testing.assert_array_equal(first, np.zeros_like(X))
    np.testing.assert_array_equal(second, -X)


def test_wrong_inputs(device: str) -> None:
    prepared = backend.prepare(ADD, device)
    with pytest.raises(BlobError, match="1 inputs are given"):
        prepared.run([X])
    with pytest.raises(BlobError, match="no input 'c'"):
        prepared.run({"a": X, "c": X})
    with pytest.raises(BlobError, match="shape"):
        prepared.run([X, X[:1, :2]])


def test_run_node(device: str) -> None:
    node = helper.make_node("Concat", ["p", "q"], ["r"], axis=0)
    (r,) = backend.run_node(node, [X, 2 * X], device)
    np.testing.assert_array_equal(r, np.concatenate([X, 2 * X]))
    old = helper.make_node("Squeeze", ["p"], ["r"], axes=[0])
    (r,) = backend.run_node(old, [X[None]], device, opset_version=11)
    np.testing.assert_array_equal(r, X)


def test_sequences_and_optionals() -> None:
    sequence = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)
    nodes = [
        helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
        helper.make_node("SequenceLength", ["t"], ["n"]),
    ]
    outputs = [
        helper.make_tensor_sequence_value_info("t", TensorProto.FLOAT, None),
        value("n", (), TensorProto.INT64),
    ]
    proto = model(nodes, [sequence, value("x", None)], outputs)
    made, count = backend.run_model(proto, [[X, X[0]], X[1]])
    assert count == 3
    assert isinstance(made, list)
    for result, wanted in zip(made, [X, X[0], X[1]], strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_errors() -> None:
    with pytest.raises(DeviceNotFoundError):
        backend.prepare(ADD, "ABACUS")
    strange = model([helper.make_node("Strange", ["x"], ["y"])])
    with pytest.raises(UnsupportedOperationError, match="Strange"):
        backend.prepare(strange)
    assert backend.is_compatible(ADD)
    assert not backend.is_compatible(strange)


def test_one_prepared_model_in_many_threads() -> None:
    prepared = backend.prepare(ADD, "CPU")
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(30):
            (y,) = prepared.run([X * number, X])
            if not np.array_equal(y, X * (number - 1)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_onnx_runner_accepts_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX's own test runner can be pointed at the class."""
    load = runner.load_model_tests

    def kept(*, kind: str) -> Sequence[Any]:  # making the node cases takes five seconds
        return load_cases() if kind == "node" else load(kind=kind)

    monkeypatch.setattr(runner, "load_model_tests", kept)
    made = runner.Runner(backend.PolydeviceBackend, __name__)
    made.include("^test_abs_cpu$")
    cases = made.test_cases
    case = cases["OnnxBackendNodeModelTest"]("test_abs_cpu")
    result = case.defaultTestResult()
    case.run(result)
    assert result.testsRun == 1
    assert result.wasSuccessful()
    assert not result.skipped
