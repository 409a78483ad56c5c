"""Models that sessions load: what they say of themselves, what is written, what is refused."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import polydevice.compat.onnxruntime as ort
from polydevice.compat.onnxruntime.capi.onnxruntime_pybind11_state import (
    Fail,
    InvalidGraph,
)
from polydevice.compat.onnxruntime.capi.onnxruntime_pybind11_state import (
    NotImplemented as OrtNotImplemented,
)
from tests.compat.onnxruntime_models import TWICE, WITH_WEIGHTS, X, model


def test_an_optimised_model_is_written_as_ir_or_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.xml")
    ort.InferenceSession(TWICE, options)
    again = ort.InferenceSession(str(tmp_path / "model.xml"))
    assert again.run(None, {"x": X})[0].tolist() == (X * 2).tolist()
    options.optimized_model_filepath = str(tmp_path / "model.onnx")
    with caplog.at_level(logging.WARNING):
        ort.InferenceSession(TWICE, options)
    assert "model.onnx is the model as it was set up" in caplog.text
    again = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert again.run(None, {"x": X})[0].tolist() == (X * 2).tolist()
    options.optimized_model_filepath = str(tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(Fail, match="No such file"):
        ort.InferenceSession(TWICE, options)


def test_what_is_written_holds_what_was_outside(tmp_path: Path) -> None:
    content = onnx.load_model_from_string(WITH_WEIGHTS)
    onnx.save(
        content,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="data",
        size_threshold=0,
    )
    options = ort.SessionOptions()
    (tmp_path / "elsewhere").mkdir()
    options.optimized_model_filepath = str(tmp_path / "elsewhere" / "model.onnx")
    ort.InferenceSession(tmp_path / "model.onnx", options)
    again = onnxruntime.InferenceSession(options.optimized_model_filepath)
    assert again.run(None, {"x": X})[0].tolist() == (X * [1, 2, 3]).tolist()


def test_an_initialiser_is_given_beside_the_model() -> None:
    options = ort.SessionOptions()
    weights = np.array([5, 6, 7], np.float32)
    options.add_initializer("w", ort.OrtValue.ortvalue_from_numpy(weights))
    session = ort.InferenceSession(WITH_WEIGHTS, options)
    assert session.run(None, {"x": X})[0].tolist() == (X * weights).tolist()


def test_the_version_of_a_model_is_told_also_when_there_is_none() -> None:
    made = onnx.load_model_from_string(TWICE)
    made.ClearField("model_version")
    for version in (None, 0, 3):
        if version is not None:
            made.model_version = version
        here, there = (
            one.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
            for one in (ort, onnxruntime)
        )
        assert here.get_modelmeta().version == there.get_modelmeta().version


def test_a_file_that_says_nonsense_of_itself_is_loaded(tmp_path: Path) -> None:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.xml")
    ort.InferenceSession(TWICE, options)
    path = tmp_path / "model.xml"
    text = path.read_text()
    assert "<onnx>" in text
    path.write_text(text.replace("<onnx>", '<onnx><model_version value="latest"/>'))
    assert ort.InferenceSession(path).get_modelmeta().version == 2**63 - 1


def test_operators_that_are_not_there_are_named() -> None:
    content = model(helper.make_node("Nonsense", ["x"], ["y"], domain="org.example"))
    with pytest.raises(OrtNotImplemented, match=r"org\.example\.Nonsense"):
        ort.InferenceSession(content)
    content = model(helper.make_node("Add", ["x"], ["y"]))
    with pytest.raises(InvalidGraph, match="1 inputs are given; legal: 2"):
        ort.InferenceSession(content)


def test_a_library_of_operators_is_refused_with_the_way_out() -> None:
    with pytest.raises(OrtNotImplemented, match=r"docs/custom-layers\.md"):
        ort.SessionOptions().register_custom_ops_library("operators.so")
