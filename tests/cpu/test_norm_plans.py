"""Rows that are normalised by machine code, for as many as there are."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling.by_machine import norms
from polydevice_cpu.plan.step import MACHINE_CODE
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load, wait_for_settling
from tests.cpu.machine_code import with_vectors

pytestmark = with_vectors

SHAPES = [(2, 9), (3, 4), (1, 17), (5, 7), (1, 1), (2, 31), (7, 1)]


def normalised(length, affine):
    """Two normalisations of rows, between functions that are no part of them."""
    weights = {"one": np.float32(1), "s": image(1, length) + np.float32(1), "b": image(2, length)}
    if not affine:
        weights |= {"s": np.ones(length, np.float32)}
    inputs = ["s", "b"] if affine else ["s"]
    nodes = [
        ("Sin", ["x"], ["a"], {}),
        ("LayerNormalization", ["a", *inputs], ["c"], {"axis": -1, "epsilon": 1e-3}),
        ("Cos", ["c"], ["d"], {}),
        ("LayerNormalization", ["d", *inputs], ["e"], {"axis": -1}),
        ("Add", ["e", "one"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", "k", length]}, ["y"], weights, opset=17)


def norms_of(executable):
    """What computes the normalisations of the latest plan."""
    steps = executable.latest_plan().steps
    return [step.implementation for step in steps if "Norm" in step.type or "MVN" in step.type]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("length", "affine"), [(5, True), (48, True), (67, False), (129, True)])
def test_rows_of_new_shapes(core, monkeypatch, length, affine, threads):
    """Answers are those of ONNX Runtime, and stay when a plan is settled."""
    monkeypatch.setattr(settling, "RUNS", 2)
    monkeypatch.setattr(norms, "FEW_NUMBERS", 100)
    model, seen = normalised(length, affine), 0
    executable = load(core, model, CPU_THREADS_NUM=threads)
    for number, shape in enumerate(SHAPES):
        x = image(number, *shape, length)
        x[0, 0, 0] = np.nan if number == 5 else x[0, 0, 0]
        (got,) = (each.copy() for each in executable.infer({"x": x}).values())
        (wanted,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4)
        seen += norms_of(executable) == [MACHINE_CODE] * 2
        for _ in range(settling.RUNS):
            executable.infer({"x": x})
        wait_for_settling()
        (after,) = executable.infer({"x": x}).values()
        np.testing.assert_array_equal(after, got)
    assert seen >= 4


def test_onednn_is_asked_for_no_normalisation(core, monkeypatch):
    executable = load(core, normalised(48, True), CPU_THREADS_NUM=1)
    for number, shape in enumerate(SHAPES[:3]):
        executable.infer({"x": image(number, *shape, 48)})
    asked = asked_from_now(monkeypatch)
    executable.infer({"x": image(9, 4, 13, 48)})
    assert not [name for name in asked if "normalization" in name]
