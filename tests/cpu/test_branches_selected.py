"""Ifs of a few functions of few numbers, whose branches are both computed; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cpu.loading import load

F, WHOLE, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def branches(then, else_, kind, shape=(), numbers=(3,), **others):
    """Where x > 0, `then` of x, else `else_`; behind it the sum of both results."""

    def body(nodes):
        return helper.make_graph(nodes, "body", [], [info("r", kind, None), info("s", kind, None)])

    chosen = helper.make_node(
        "If", ["c"], ["a", "b"], then_branch=body(then), else_branch=body(else_)
    )
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0), node("Greater", "m zero", "c"), chosen,
        node("Add" if kind != B else "Or", "a b", "y"),
    ]  # fmt: skip
    stored = {"zero": np.float32(0), "half": np.full(shape, 0.5, np.float32), "no": np.array(False)}
    stored["seven"] = np.full(shape, 7, np.int64)
    stored["less"] = np.full(shape, -1, np.int64)
    stored.update(others)
    graph = helper.make_graph(
        nodes, "g", [info("x", F, list(numbers))], [info("y", kind, None), info("c", B, None)],
        [numpy_helper.from_array(v, k) for k, v in stored.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


FEW = {
    "comparison or constant": (
        [node("Less", "m half", "r"), node("Not", "r", "s")],
        [node("Identity", "no", "r"), node("Identity", "c", "s")], B,
    ),
    "arithmetic": (
        [node("Mul", "m half", "r"), node("Max", "m half", "s")],
        [node("Sub", "half m", "r"), node("Where", "c m half", "s")], F,
    ),
    "conversions": (
        [node("Cast", "m", "r", to=WHOLE), node("Add", "r seven", "s")],
        [node("Cast", "c", "s", to=WHOLE), node("Mul", "seven seven", "r")], WHOLE,
    ),
    "quotients by what is known": (
        [node("Cast", "m", "t", to=WHOLE), node("Div", "t seven", "r"),
         node("Mod", "t seven", "s")],
        [node("Cast", "m", "t", to=WHOLE), node("Mod", "t seven", "r", fmod=1),
         node("Identity", "t", "s")], WHOLE,
    ),
    "numbers divided by what is known": (
        [node("Div", "m half", "r"), node("Div", "m zero", "s")],
        [node("Identity", "m", "r"), node("Mod", "m half", "s", fmod=1)], F,
    ),
}  # fmt: skip
OTHERS = {
    "may fail": (
        [node("Cast", "m", "t", to=WHOLE), node("Div", "seven t", "r"),
         node("Mod", "seven t", "s")],
        [node("Identity", "seven", "r"), node("Identity", "seven", "s")], WHOLE,
    ),
    "divided by -1": (
        [node("Cast", "m", "t", to=WHOLE), node("Div", "t less", "r"),
         node("Mod", "t less", "s")],
        [node("Identity", "seven", "r"), node("Identity", "seven", "s")], WHOLE,
    ),
    "other sizes": (
        [node("Identity", "x", "r"), node("Identity", "x", "s")],
        [node("Identity", "m", "r"), node("Identity", "m", "s")], F,
    ),
    "heavy": (
        [node("Exp", "m", "r"), node("Identity", "m", "s")],
        [node("Identity", "m", "r"), node("Identity", "m", "s")], F,
    ),
}  # fmt: skip


def ifs(executable):
    return [each for each in executable.compiled.network if each.type == "If"]


@pytest.mark.parametrize("name", [*FEW, *OTHERS])
def test_results_are_those_of_the_chosen_branch(core, name):
    then, else_, kind = {**FEW, **OTHERS}[name]
    made = branches(then, else_, kind)
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    executable = load(core, made)
    for seed in range(6):
        x = np.random.default_rng(seed).uniform(0.2, 9, 3).astype(np.float32)
        x = -x if seed % 2 else x
        for found, right in zip(
            executable.infer({"x": x}).values(), session.run(None, {"x": x}), strict=True
        ):
            assert found.shape == right.shape
            assert found.dtype == right.dtype
            np.testing.assert_allclose(found, right, rtol=1e-6)
    assert bool(ifs(executable)) is (name in OTHERS)


def test_branches_in_branches(core):
    """Three ways, of which the second one is chosen within the other branch."""
    inner = helper.make_node(
        "If", ["d"], ["r"],
        then_branch=helper.make_graph([node("Mul", "x x", "p")], "b", [], [info("p", F, None)]),
        else_branch=helper.make_graph([node("Add", "x m", "q")], "b", [], [info("q", F, None)]),
    )  # fmt: skip
    whole = [node("Cast", "m", "t", to=WHOLE), node("Mod", "t seven", "u")]
    made = branches(
        [node("Sub", "x m", "r"), node("Identity", "m", "s")],
        [*whole, node("Greater", "u two", "d"), inner, node("Identity", "m", "s")],
        F, two=np.int64(2),
    )  # fmt: skip
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    executable = load(core, made)
    assert not ifs(executable)
    for low in (1, -9, -8.5, -6, -3, 0):
        x = np.array([low - 2, low, low - 1], np.float32)
        for found, right in zip(
            executable.infer({"x": x}).values(), session.run(None, {"x": x}), strict=True
        ):
            np.testing.assert_array_equal(found, right)


def test_large_values_are_not_computed_twice(core):
    many = [node("Mul", "x x", "r"), node("Add", "x x", "s")]
    few = [node("Sub", "x x", "r"), node("Identity", "x", "s")]
    for numbers, is_left in ((16, False), (17, True)):
        made = branches(many, few, F, numbers=(numbers,))
        executable = load(core, made)
        x = np.arange(numbers, dtype=np.float32)
        np.testing.assert_array_equal(executable.infer({"x": x})["y"], x * x + 2 * x)
        np.testing.assert_array_equal(executable.infer({"x": -x})["y"], -x)
        assert bool(ifs(executable)) is is_left


def test_open_sizes_stay(core):
    same = [node("Mul", "x x", "r"), node("Add", "x x", "s")]
    executable = load(core, branches(same, same, F, numbers=("n",)))
    assert ifs(executable)
    for count in (3, 1, 5):
        x = np.arange(count, dtype=np.float32)
        np.testing.assert_array_equal(executable.infer({"x": x})["y"], x * x + 2 * x)
