"""What is calculated of sizes in floats, and read by more than a calculation of sizes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from polydevice import Core
from tests.cpu import models
from tests.cpu.loading import image

READERS = {
    "factors": [("Mul", ["x", "quotient"], ["y"], {})],
    "roots": [("Sqrt", ["quotient"], ["root"], {}), ("Add", ["x", "root"], ["y"], {})],
    "limits": [("Min", ["x", "quotient"], ["y"], {})],
    "powers": [("Exp", ["less"], ["power"], {}), ("Sub", ["x", "power"], ["y"], {})],
    "parts of a row": [
        ("Unsqueeze", ["quotient", "zero"], ["one"], {}),
        ("Concat", ["one", "row"], ["longer"], {"axis": 0}),
        ("Mul", ["x", "longer"], ["y"], {}),
    ],
    "sizes and factors": [
        ("Ceil", ["quotient"], ["up"], {}),
        ("Cast", ["up"], ["number"], {"to": TensorProto.INT64}),
        ("Unsqueeze", ["number", "zero"], ["end"], {}),
        ("Slice", ["x", "zero", "end", "axis"], ["part"], {}),
        ("Mul", ["part", "up"], ["y"], {}),
    ],
}


@pytest.mark.parametrize("case", READERS)
def test_quotients_are_read(device, case):
    """Sizes come in turn, so that most plans are filled in where formulas serve them."""
    weights = {
        "first": np.array(1, np.int64), "three": np.array(3, np.float32),
        "tenth": np.array(-0.1, np.float32), "zero": np.array([0], np.int64),
        "axis": np.array([1], np.int64), "row": image(1, 4),
    }  # fmt: skip
    nodes = [
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "first"], ["length"], {"axis": 0}),
        ("Cast", ["length"], ["float"], {"to": TensorProto.FLOAT}),
        ("Div", ["float", "three"], ["quotient"], {}),
        ("Mul", ["quotient", "tenth"], ["less"], {}),
        *READERS[case],
    ]
    model = models.build(nodes, {"x": ["n", "length", 5]}, ["y"], weights)
    with Core() as core:
        request = core.load_network(core.read_network(model), device).create_infer_request()
        for number, length in enumerate([9, 7, 8, 20, 33, 9, 34, 1, 61]):
            x = image(number, 1 + number % 2, length, 5)
            (wanted,) = models.answer(model, {"x": x})
            for _ in range(2):
                np.testing.assert_allclose(request.infer({"x": x})["y"], wanted, 1e-5, 1e-5)
