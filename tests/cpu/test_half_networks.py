"""Networks between halves, as ONNX Runtime saves those in f16: with conversions around products."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice_cpu.onednn.library import library
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
    if library() is not None:  # without it halves stay, and NumPy widens what it computes
        assert len(converts) <= 2, "what enters and what leaves"


def test_numbers_that_are_rounded_to_halves_stay_so(core):
    model = converted(TensorProto.FLOAT, [3, 6, 4])
    x = RNG.normal(size=(3, 6, 4)).astype(np.float32)
    made, (want,) = load(core, model).infer({"x": x})["y"], answer(model, {"x": x})
    assert (made.astype(np.float16) == made).all()
    assert (made == want).mean() > 0.9, "but for sums that lie between two halves"


def test_what_is_rounded_to_a_half_stays_so_where_one_input_is_a_half(core):
    """A network of f32 whose mask is a half: what is lost by rounding is its answer."""
    half, full = TensorProto.FLOAT16, TensorProto.FLOAT
    make = helper.make_node
    nodes = [
        make("Gather", ["table", "ids"], ["a"]),
        make("MatMul", ["a", "w"], ["b"]),
        make("Cast", ["b"], ["c"], to=half),
        make("Cast", ["c"], ["d"], to=full),
        make("Sub", ["b", "d"], ["e"]),
        make("Cast", ["mask"], ["m"], to=full),
        make("Mul", ["e", "m"], ["y"]),
    ]
    given = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, [3]),
        helper.make_tensor_value_info("mask", half, [3, 1]),
    ]
    weights = {"table": RNG.normal(size=(7, 6)) * 30, "w": RNG.normal(size=(6, 5)) * 30}
    stored = [numpy_helper.from_array(v.astype(np.float32), name) for name, v in weights.items()]
    result = helper.make_tensor_value_info("y", full, None)
    graph = helper.make_graph(nodes, "g", given, [result], stored)
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    feed = {"ids": np.array([1, 4, 6]), "mask": np.ones((3, 1), np.float16)}
    (want,) = answer(model, feed)
    assert np.abs(want).max() > 0.01
    np.testing.assert_allclose(load(core, model).infer(feed)["y"], want, atol=2e-3)


def test_lists_of_halves_that_a_loop_carries_stay(core):
    """Each part is a product in f32 of halves."""
    half, full = TensorProto.FLOAT16, TensorProto.FLOAT
    info, make = helper.make_tensor_value_info, helper.make_node
    body = helper.make_graph(
        [
            make("Cast", ["a"], ["wide"], to=full), make("Cast", ["w"], ["u"], to=full),
            make("MatMul", ["wide", "u"], ["p"]), make("Cast", ["p"], ["b"], to=half),
            make("SequenceInsert", ["list", "b"], ["longer"]), make("Identity", ["go"], ["goes"]),
        ],
        "body",
        [info("number", TensorProto.INT64, []), info("go", TensorProto.BOOL, []),
         info("a", half, [3, 4]), helper.make_tensor_sequence_value_info("list", half, [3, 4])],
        [info("goes", TensorProto.BOOL, []), info("b", half, [3, 4]),
         helper.make_tensor_sequence_value_info("longer", half, [3, 4])],
    )  # fmt: skip
    nodes = [
        make("SequenceConstruct", ["x"], ["one"]),
        make("Loop", ["n", "", "x", "one"], ["last", "list"], body=body),
        make("SequenceAt", ["list", "place"], ["part"]), make("SequenceLength", ["list"], ["many"]),
    ]  # fmt: skip
    w = (RNG.normal(size=(4, 4)) / 2).astype(np.float16)
    graph = helper.make_graph(
        nodes, "g", [info("n", TensorProto.INT64, []), info("x", half, [3, 4])],
        [info("part", half, None), info("last", half, None), info("many", TensorProto.INT64, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array(1), "place")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    executable = load(core, model)
    for trips in (1, 4, 2):
        feed = {"n": np.array(trips), "x": RNG.normal(size=(3, 4)).astype(np.float16)}
        for made, want in zip(executable.infer(feed).values(), answer(model, feed), strict=True):
            assert made.dtype == want.dtype
            np.testing.assert_allclose(made.astype("f4"), want.astype("f4"), rtol=4e-3, atol=4e-3)
