"""Networks between halves, as ONNX Runtime saves those in f16: with conversions around products."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cpu.loading import load
from tests.cpu.models import answer

RNG = np.random.default_rng(16)


def converted(given, sizes):
    """Products in f32 of halves, or of numbers that are rounded to halves."""
    half, full = TensorProto.FLOAT16, TensorProto.FLOAT
    make = helper.make_node
    nodes = [
        make("Cast", ["x"], ["a"], to=half),
        make("Transpose", ["a"], ["b"], perm=[0, 2, 1]),
        make("Cast", ["b"], ["c"], to=full),
        make("Cast", ["w"], ["wide"], to=full),
        make("MatMul", ["c", "wide"], ["d"]),
        make("Cast", ["d"], ["e"], to=half),
        make("Reshape", ["e", "shape"], ["f"]),
        make("Cast", ["f"], ["g"], to=full),
        make("Relu", ["g"], ["h"]),
        make("Cast", ["h"], ["y"], to=given),
    ]
    weights = RNG.normal(size=(6, 5)).astype(np.float16)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", given, sizes)],
        [helper.make_tensor_value_info("y", given, None)],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.array([-1, 5]), "shape"),
        ],
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.mark.parametrize("sizes", [[3, 6, 4], ["n", 6, "m"]])
def test_products_between_halves_are_in_f32_as_all_else(core, sizes):
    model = converted(TensorProto.FLOAT16, sizes)
    executable = load(core, model)
    for _ in range(3):
        x = RNG.normal(size=(3, 6, 4)).astype(np.float16)
        made, (want,) = executable.infer({"x": x})["y"], answer(model, {"x": x})
        assert made.dtype == np.float16
        np.testing.assert_allclose(made.astype("f4"), want.astype("f4"), rtol=4e-3, atol=4e-3)
    converts = [step for step in executable.latest_plan().steps if step.type == "Convert"]
    assert len(converts) <= 2, "what enters and what leaves"


def test_numbers_that_are_rounded_to_halves_stay_so(core):
    model = converted(TensorProto.FLOAT, [3, 6, 4])
    x = RNG.normal(size=(3, 6, 4)).astype(np.float32)
    made, (want,) = load(core, model).infer({"x": x})["y"], answer(model, {"x": x})
    assert (made.astype(np.float16) == made).all()
    assert (made == want).mean() > 0.9, "but for sums that lie between two halves"
