"""Plans for new shapes: of few rows, with windows in steps, and of sizes that formulas tell."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from polydevice_cpu.plan import settling
from polydevice_cpu.plan.tables.plan import TablePlan
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load, wait_for_settling
from tests.cpu.machine_code import with_vectors

F = np.float32

pytestmark = with_vectors

WIDE = 48
LENGTHS = [13, 10, 9, 6, 3, 2, 15, 5, 14, 7, 11, 12, 4, 8]


def words():
    """Normalised rows, products with what the model tells the width of, and GELU."""
    weights = {
        "scale": image(1, WIDE) + 1, "bias": image(2, WIDE), "up": image(3, WIDE, 64) / 7,
        "down": image(4, 64, WIDE) / 8, "parts": np.array([0, 0, -1], np.int64),
    }  # fmt: skip
    nodes = [
        ("LayerNormalization", ["x", "scale", "bias"], ["a"], {}),
        ("MatMul", ["a", "up"], ["b"], {}),
        ("Gelu", ["b"], ["c"], {}),
        ("MatMul", ["c", "down"], ["d"], {}),
        ("Reshape", ["d", "parts"], ["e"], {}),
        ("Softmax", ["e"], ["f"], {"axis": -1}),
        ("Add", ["f", "x"], ["y"], {}),
    ]
    return models.build(nodes, {"x": [1, "t", WIDE]}, ["y"], weights, opset=20)


def test_strips_of_few_rows(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 3)
    model = words()
    executable = load(core, model, CPU_THREADS_NUM="1")
    request = executable.create_infer_request()
    for number, length in enumerate(LENGTHS):
        x = image(number, 1, length, WIDE)
        asked = asked_from_now(monkeypatch)
        before = request.infer({"x": x})["y"].copy()
        plan = executable.latest_plan()
        asked = list(asked)
        (wanted,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(before, wanted, rtol=1e-4, atol=1e-5)
        for _ in range(settling.RUNS):
            request.infer({"x": x})
        wait_for_settling()
        np.testing.assert_array_equal(request.infer({"x": x})["y"], before)
        if number > 7:
            assert isinstance(plan, TablePlan)
            assert not plan.late
            assert not asked


def shortcuts():
    """Every other element of pictures, as shortcuts of residual networks take them."""
    weights = {
        "stem": image(1, 32, 3, 3, 3) / 3, "bias": image(2, 32),
        "first": image(3, 48, 32, 1, 1) / 5,
        "second": image(4, 160, 48, 1, 1) / 6, "third": image(5, 16, 160, 1, 1) / 12,
    }  # fmt: skip
    nodes = [
        ("Conv", ["x", "stem", "bias"], ["a"], {"pads": [1] * 4}),
        ("Relu", ["a"], ["b"], {}),
        ("Conv", ["b", "first", "bias2"], ["c"], {"strides": [2, 2]}),
        ("Relu", ["c"], ["d"], {}),
        ("Conv", ["d", "second"], ["e"], {"strides": [2, 1]}),
        ("Conv", ["e", "third"], ["y"], {"strides": [2, 2]}),
    ]
    weights["bias2"] = image(6, 48)
    return models.build(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], weights)


def test_windows_of_one_element_in_steps(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 3)
    model = shortcuts()
    executable = load(core, model, CPU_THREADS_NUM="1")
    request = executable.create_infer_request()
    sizes = [
        (2, 20, 31),
        (4, 33, 18),
        (3, 45, 62),
        (2, 29, 70),
        (4, 52, 27),
        (2, 64, 64),
        (5, 37, 25),
    ]
    for number, (count, high, wide) in enumerate(sizes):
        x = image(number, count, 3, high, wide)
        asked = asked_from_now(monkeypatch)
        before = request.infer({"x": x})["y"].copy()
        asked = list(asked)
        (wanted,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(before, wanted, rtol=1e-4, atol=1e-4)
        for _ in range(settling.RUNS):
            request.infer({"x": x})
        wait_for_settling()
        np.testing.assert_array_equal(request.infer({"x": x})["y"], before)
        if number > 3:
            assert not [name for name in asked if "convolution" in name]


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_pictures_that_keep_their_aspect_ratio(core, policy):
    attributes = {"keep_aspect_ratio_policy": policy, "axes": [2, 3], "mode": "linear"}
    weights = {"size": np.array([16, 21], np.int64)}
    nodes = [
        ("Resize", ["x", "", "", "size"], ["a"], attributes),
        ("Relu", ["a"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], weights, opset=19)
    executable = load(core, model, CPU_THREADS_NUM="1")
    request = executable.create_infer_request()
    sizes = [
        (2, 20, 31),
        (3, 33, 18),
        (2, 45, 62),
        (4, 29, 70),
        (2, 52, 27),
        (3, 64, 64),
        (2, 7, 25),
    ]
    for number, (count, high, wide) in enumerate(sizes):
        x = image(number, count, 3, high, wide)
        (wanted,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(request.infer({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
    assert executable.compiled.templates.filled


def test_transposed_convolutions_along_an_axis(core):
    weights = {"w": image(1, 20, 12, 8) / 9, "b": image(2, 12), "v": image(3, 12, 6, 4) / 5}
    nodes = [
        ("ConvTranspose", ["x", "w", "b"], ["a"], {"strides": [4], "pads": [2, 2]}),
        ("LeakyRelu", ["a"], ["c"], {"alpha": 0.1}),
        ("ConvTranspose", ["c", "v"], ["y"], {"strides": [2], "pads": [1, 1]}),
    ]
    model = models.build(nodes, {"x": ["n", 20, "t"]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM="1")
    request = executable.create_infer_request()
    for number, (count, length) in enumerate([(2, 9), (3, 14), (2, 40), (4, 23), (2, 75), (3, 31)]):
        x = image(number, count, 20, length)
        (wanted,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(request.infer({"x": x})["y"], wanted, rtol=1e-4, atol=1e-4)
    plan = executable.latest_plan()
    assert isinstance(plan, TablePlan)
    assert not [step.type for step in plan.late.values() if "Convolution" in step.type]


def test_regions_of_pictures_of_any_size(core, caplog):
    nodes = [
        ("Cast", ["of"], ["image"], {"to": TensorProto.INT64}),
        ("RoiAlign", ["x", "rois", "image"], ["a"], {"output_height": 3, "output_width": 2}),
        ("Relu", ["a"], ["y"], {}),
    ]
    shapes = {"x": ["n", 4, "h", "w"], "rois": ["r", 4], "of": ["r"]}
    model = models.build(nodes, shapes, ["y"], {}, opset=16)
    request = load(core, model, CPU_THREADS_NUM="1").create_infer_request()
    sizes = [(2, 20, 31, 5), (3, 33, 18, 7), (2, 45, 62, 3), (4, 29, 70, 9), (2, 52, 27, 4)]
    for number, (count, high, wide, regions) in enumerate(sizes):
        corners = np.abs(image(number, regions, 2))
        inputs = {
            "x": image(number, count, 4, high, wide),
            "rois": np.concatenate([corners, 2 * corners + 3], axis=1),
            "of": (np.arange(regions) % count).astype(F),
        }
        (wanted,) = models.answer(model, inputs)
        np.testing.assert_allclose(request.infer(inputs)["y"], wanted, rtol=1e-4, atol=1e-4)
    assert not caplog.records
