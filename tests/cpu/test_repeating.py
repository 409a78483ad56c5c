"""Light parts of a network whose sizes only the data tells, planned for sizes that come back."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.errors import InferenceError, ShapeError
from polydevice_cpu.plan.compiled import RequestPlans
from polydevice_cpu.plan.tails import repeating, segments
from polydevice_cpu.plan.tails.repeating import OFTEN
from tests.cpu.loading import at_once, image, load
from tests.cpu.models import answer, build

F = np.float32
NODES = [
    ("Compress", ["x", "mask"], ["a"], {"axis": 0}), ("Mul", ["a", "w"], ["b"], {}),
    ("Sub", ["b", "a"], ["c"], {}), ("Greater", ["c", "w"], ["d"], {}),
    ("Where", ["d", "c", "a"], ["e"], {}), ("Abs", ["e"], ["f"], {}),
    ("ReduceSum", ["f"], ["g"], {"keepdims": 0}), ("Add", ["f", "g"], ["y"], {}),
]  # fmt: skip


def model(nodes=NODES, outputs=("y", "g")):
    import onnx
    from onnx import TensorProto, helper

    w = np.random.default_rng(0).standard_normal((1, 5)).astype(F)
    made = onnx.load_from_string(build(nodes, {"x": ["n", 5]}, outputs, {"w": w}))
    made.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, ["n"]))
    return made.SerializeToString()


def given(seed, rows, chosen):
    rng = np.random.default_rng(seed)
    mask = np.zeros(rows, bool)
    mask[rng.permutation(rows)[:chosen]] = True
    return {"x": rng.standard_normal((rows, 5)).astype(F), "mask": mask}


def assert_right(made, request, feed):
    found = request.infer(feed)
    for array, right in zip(found.values(), answer(made, feed), strict=True):
        assert array.shape == right.shape
        np.testing.assert_allclose(array, right, rtol=1e-5, atol=1e-5)


@pytest.fixture
def planned(monkeypatch):
    """The sizes that plans have computed, one entry for each time."""
    found, infer = [], RequestPlans.infer

    def noted(self, inputs, *more):
        found.append([array.shape for array in inputs])
        return infer(self, inputs, *more)

    monkeypatch.setattr(RequestPlans, "infer", noted)
    return found


def test_sizes_that_come_back_have_a_plan(core, planned):
    made = model()
    request = load(core, made).create_infer_request()
    for seed in range(2 * OFTEN):
        assert_right(made, request, given(seed, 9, 4))
        assert len(planned) == max(seed + 1 - OFTEN, 0)
    for chosen in (1, 0, 9, 3):  # others have none yet
        assert_right(made, request, given(chosen, 9, chosen))
    assert len(planned) == OFTEN
    assert_right(made, request, given(5, 9, 4))
    assert len(planned) == OFTEN + 1
    assert_right(made, request, given(5, 12, 4))  # as many of more rows are others
    assert len(planned) == OFTEN + 1


def test_sizes_are_forgotten(core, planned, monkeypatch):
    monkeypatch.setattr(repeating, "KEPT", 3)
    made = model()
    request = load(core, made).create_infer_request()
    for seed in range(40):
        assert_right(made, request, given(seed, 9, seed % 5))
    assert not planned
    for seed in range(OFTEN + 2):
        assert_right(made, request, given(seed, 9, 6))
    assert planned


def test_sizes_that_tell_nothing_are_walked(core, planned, monkeypatch):
    monkeypatch.setattr(segments, "TELLING", ())  # as of operations that nobody thought of
    nodes = [*NODES[:-1], ("NonZero", ["d"], ["z"], {}), ("Add", ["f", "g"], ["y"], {})]
    made = model(nodes, ("y", "g", "z"))
    request = load(core, made).create_infer_request()
    for seed in range(3 * OFTEN):
        assert_right(made, request, given(seed, 9, 4))
    assert not planned


def test_parts_around_sizes_that_numbers_tell_are_planned(core, planned):
    """A length that is summed up, that of a part, and one that follows from sizes."""
    nodes = [
        *NODES[:-1], ("Sub", ["g", "g"], ["zero"], {}), ("Div", ["g", "g"], ["one"], {}),
        ("Floor", ["g"], ["whole"], {}), ("Range", ["zero", "whole", "one"], ["z"], {}),
        *((op, [f"z_{n}" if n else "z", "z"], [f"z_{n + 1}"], {})
          for n, op in enumerate(["Add", "Mul", "Sub", "Mul", "Add"])),
        ("Shape", ["f"], ["sizes"], {}), ("Expand", ["one", "sizes"], ["ones"], {}),
        ("Add", ["f", "ones"], ["y"], {}),
    ]  # fmt: skip
    made = model(nodes, ("y", "z", "z_5"))
    request = load(core, made).create_infer_request()
    feeds = [given(seed, 9, chosen) for seed, chosen in ((0, 4), (1, 4), (2, 1), (3, 9))]
    for _ in range(3 * OFTEN):
        for feed in feeds:
            assert_right(made, request, feed)
    wholes = {size for sizes in planned for size in sizes}
    assert wholes >= {(1, 4), (1, 1), (1, 9)}, "before"
    assert any(len(sizes[0]) == 1 for sizes in planned), "behind"


def test_parts_before_and_behind_what_tells_sizes_are_planned(core, planned):
    """Whether it finds places, or is one of two bodies; and other sizes come in between."""
    from onnx import TensorProto, helper

    bodies = {
        name: helper.make_graph(
            [helper.make_node(op, ["f"], [f"{name}_y"])], name, [],
            [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)],
        )
        for name, op in (("then", "Neg"), ("else", "Transpose"))
    }  # fmt: skip
    nodes = [
        *NODES[:-1], ("NonZero", ["d"], ["z"], {}), ("Greater", ["g", "g0"], ["is"], {}),
        ("If", ["is"], ["p"], {f"{k}_branch": body for k, body in bodies.items()}),
        *((op, [f"{each}_{n}" if n else each, each], [f"{each}_{n + 1}"], {}) for each in ("z", "p")
          for n, op in enumerate(["Add", "Mul", "Sub", "Mul", "Add"])),
        ("Add", ["f", "g"], ["y"], {}),
    ]  # fmt: skip
    nodes.insert(0, ("ReduceMean", ["w"], ["g0"], {"keepdims": 0}))
    made = model(nodes, ("y", "g", "z_5", "p_5", "p"))
    request = load(core, made).create_infer_request()
    feeds = [given(seed, 9, chosen) for seed, chosen in ((0, 4), (1, 4), (2, 1), (3, 9), (4, 0))]
    for _ in range(3 * OFTEN):
        for feed in feeds:
            assert_right(made, request, feed)
    wholes = {(4, 5), (1, 5), (9, 5), (0, 5)}
    assert {sizes[0] for sizes in planned} >= wholes, "before"
    assert any(sizes[0][0] == 2 for sizes in planned), "behind places"
    assert sum(len(sizes) == 1 and sizes[0] in wholes for sizes in planned), "behind a body"


def test_what_is_wrong_is_said_alike(core):
    nodes = [*NODES[:-1], ("Reshape", ["f", "shape"], ["r"], {}), ("Add", ["r", "g"], ["y"], {})]
    import onnx
    from onnx import numpy_helper

    made = onnx.load_from_string(model(nodes))
    made.graph.initializer.append(numpy_helper.from_array(np.array([-1, 10]), "shape"))
    made = made.SerializeToString()
    request = load(core, made).create_infer_request()
    for seed in range(2 * OFTEN):
        assert_right(made, request, given(seed, 9, 4))
        with pytest.raises((ShapeError, InferenceError), match="r"):
            request.infer(given(seed, 9, 3))


def test_requests_at_once(core):
    made = model()
    executable = load(core, made)

    def work(thread):
        request = executable.create_infer_request()
        for seed in range(30):
            assert_right(made, request, given(seed, 9 + thread, 2 + seed % 2))

    at_once(work, 3)


def test_counts_are_of_one_request(core, planned):
    made = model()
    executable = load(core, made)
    requests = [executable.create_infer_request() for _ in range(2)]
    for seed in range(OFTEN):
        for request in requests:
            assert_right(made, request, given(seed, 9, 4))
    assert not planned


def test_what_lies_where_it_has_lain_is_read_there(core):
    """What a branch reads is of the plan around it, of a loop, or the user's, by turns."""
    from onnx import TensorProto, helper, numpy_helper

    info, node = helper.make_tensor_value_info, helper.make_node
    branches = {}
    for name, kind in (("then_branch", "Add"), ("else_branch", "Sub")):
        inner = [node(kind, ["a", "x"], ["s"]), node("Softmax", ["s"], [name], axis=0)]
        branches[name] = helper.make_graph(inner, name, [], [info(name, TensorProto.FLOAT, None)])
    nodes = [
        node("Mul", ["x", "two"], ["a"]),
        node("If", ["flag"], ["b"], **branches),
        node("Compress", ["b", "mask"], ["y"], axis=0),
    ]
    inputs = [info("x", TensorProto.FLOAT, ["n", 7]), info("flag", TensorProto.BOOL, [])]
    inputs.append(info("mask", TensorProto.BOOL, ["n"]))
    two = numpy_helper.from_array(F(2), "two")
    outputs = [info(name, TensorProto.FLOAT, None) for name in ("b", "y")]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [two])
    imports = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    request, rng = load(core, made).create_infer_request(), np.random.default_rng(1)
    for turn in range(24):
        rows = (4, 4, 4, 9, 4, 30, 30, 30)[turn % 8]
        feed = {
            "x": rng.standard_normal((rows, 7)).astype(F),
            "flag": np.array(turn % 5 < 3),
            "mask": rng.random(rows) < 0.5,
        }
        assert_right(made, request, feed)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_read_by_a_plan_lives_until_it_has_run(core, threads):
    """Rows that only data tells, spread over windows without a copy, as where a detector pools.

    The part's plan reads copies of 80 to 160 KB, which nobody else holds.
    """
    spread = [4, 7, 7]
    stored = {
        "zero": np.float32(0), "first": np.array([0]), "ones": np.array([1, 1, *spread[1:]]),
        "column": np.array([-1, 1, 1, 1]), "tail": np.array(spread), "last": np.array([2, 3]),
        "w": image(1, int(np.prod(spread)), 16), "b": image(2, 16), "at": np.int64(0),
    }  # fmt: skip
    nodes = [
        ("Greater", ["s", "zero"], ["chosen"], {}),
        ("NonZero", ["chosen"], ["places"], {}),
        ("Squeeze", ["places", "first"], ["flat"], {}),
        ("Gather", ["x", "flat"], ["rows"], {"axis": 0}),
        ("Gather", ["rows", "at"], ["level"], {"axis": 1}),
        ("Greater", ["level", "zero"], ["own"], {}),
        ("NonZero", ["own"], ["own_places"], {}),
        ("Squeeze", ["own_places", "first"], ["index"], {}),
        ("Gather", ["rows", "index"], ["taken"], {"axis": 0}),
        ("Unsqueeze", ["taken", "last"], ["wide"], {}),
        ("Expand", ["wide", "ones"], ["updates"], {}),
        ("Shape", ["level"], ["count"], {}),
        ("Concat", ["count", "tail"], ["whole"], {"axis": 0}),
        ("ConstantOfShape", ["whole"], ["empty"], {}),
        ("Reshape", ["index", "column"], ["index_column"], {}),
        ("Shape", ["index"], ["own_count"], {}),
        ("Concat", ["own_count", "tail"], ["own_whole"], {"axis": 0}),
        ("Expand", ["index_column", "own_whole"], ["indices"], {}),
        ("ScatterElements", ["empty", "indices", "updates"], ["pooled"], {"axis": 0}),
        ("Flatten", ["pooled"], ["line"], {}),
        ("Gemm", ["line", "w", "b"], ["y"], {}),
    ]
    made = build(nodes, {"x": ["n", 4], "s": ["n"]}, ["y"], stored, opset=16)
    request = load(core, made, CPU_THREADS_NUM=threads).create_infer_request()
    for seed, size in enumerate([400, 400, 300, 400, 700, 300]):
        given = {"x": image(seed, size, 4), "s": image(seed % 2, size)}
        (wanted,) = answer(made, given)
        for _ in range(2):
            np.testing.assert_allclose(request.infer(given)["y"], wanted, rtol=1e-4, atol=1e-4)
