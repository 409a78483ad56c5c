"""Sizes that only data tells: answers as ONNX Runtime's, whatever came before, and their memory."""

from __future__ import annotations

import threading
import tracemalloc

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import BlobError, DeviceMemoryError
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.compiled import CompiledNetwork
from tests.cpu.loading import at_once, load

F, WHOLE, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, kind, shape=None):
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def model(nodes, inputs, outputs, **constants) -> bytes:
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, stored)
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def chosen_rows(width=8):
    """Rows of x that a mask chooses, times a matrix, with what is taken of them again."""
    rng = np.random.default_rng(4)
    nodes = [
        node("NonZero", "mask", "found"),
        node("Squeeze", "found first", "places"),
        node("Gather", "x places", "rows", axis=0),
        node("MatMul", "rows w", "product"),
        node("Relu", "product", "y"),
        node("ReduceSum", "places first", "sum", keepdims=0),
    ]
    constants = {"w": rng.normal(size=(width, 5)).astype(np.float32), "first": np.int64([0])}
    inputs = [info("x", F, ["n", width]), info("mask", B, ["n"])]
    outputs = [info("rows", F), info("y", F), info("sum", WHOLE)]
    return model(nodes, inputs, outputs, **constants)


def given(rng, n, width=8, kept=0.5):
    return {
        "x": rng.normal(size=(n, width)).astype(np.float32),
        "mask": rng.random(n) < kept,
    }


@pytest.mark.parametrize("width", [8, 700])  # small values have places of their own, others not
def test_numbers_of_rows_by_turns(core, width):
    content, rng = chosen_rows(width), np.random.default_rng(0)
    session = onnxruntime.InferenceSession(content)
    request = load(core, content).create_infer_request()
    for turn in range(30):
        feed = given(rng, int(rng.integers(1, 20)), width, rng.random() if turn % 5 else 1)
        if not feed["mask"].any():
            continue
        got = request.infer(feed)
        for name, want in zip(("rows", "y", "sum"), session.run(None, feed), strict=True):
            assert got[name].dtype == want.dtype
            np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-4)


def test_outputs_that_are_kept_stay_as_they_are(core):
    content, rng = chosen_rows(), np.random.default_rng(1)
    session = onnxruntime.InferenceSession(content)
    request = load(core, content).create_infer_request()
    feeds = [given(rng, 12) for _ in range(6)]
    got = [dict(request.infer(feed)) for feed in feeds]
    for feed, outputs in zip(feeds, got, strict=True):
        for name, want in zip(("rows", "y", "sum"), session.run(None, feed), strict=True):
            np.testing.assert_allclose(outputs[name], want, rtol=1e-5, atol=1e-5)


def test_what_came_out_goes_in_again(core):
    content, rng = chosen_rows(), np.random.default_rng(2)
    request = load(core, content).create_infer_request()
    feed = given(rng, 9, kept=1)
    for _ in range(3):
        rows = request.infer(feed)["rows"]
        np.testing.assert_array_equal(rows, feed["x"][feed["mask"]])
        feed = {"x": rows, "mask": rng.random(len(rows)) < 0.7}
        feed["mask"][0] = True


def test_memory_that_the_user_gave(core):
    content, rng = chosen_rows(), np.random.default_rng(3)
    request = load(core, content).create_infer_request()
    feed = given(rng, 10)
    count = int(feed["mask"].sum())
    mine = np.full((count, 8), np.nan, np.float32)
    request.infer(feed)
    request.set_blob("rows", mine)
    assert request.infer(feed)["rows"] is mine
    np.testing.assert_array_equal(mine, feed["x"][feed["mask"]])
    with pytest.raises(BlobError, match=rf"\[{count + 1},8\]"):
        request.infer({"mask": feed["mask"] | (np.cumsum(~feed["mask"]) == 1) & ~feed["mask"]})


def test_requests_at_once(core):
    content = chosen_rows()
    executable = load(core, content)
    failures = []

    def infer(seed):
        rng, request = np.random.default_rng(seed), executable.create_infer_request()
        for _ in range(100):
            feed = given(rng, int(rng.integers(1, 9)), kept=0.8)
            if not np.array_equal(request.infer(feed)["rows"], feed["x"][feed["mask"]]):
                failures.append(feed)

    at_once(infer, 4)
    assert not failures


def parts_in_a_loop(width):
    """ids[begin:end] of each of several parts, their rows of a table, and what is carried."""
    body = helper.make_graph(
        [
            node("Gather", "ends number", "begin"),
            node("Add", "number one", "next"),
            node("Gather", "ends next", "end"),
            node("Unsqueeze", "begin first", "from"),
            node("Unsqueeze", "end first", "to"),
            node("Slice", "ids from to first", "part"),
            node("Gather", "table part", "rows"),
            node("ReduceSum", "rows first", "sum", keepdims=0),
            node("Add", "carried sum", "more"),
            node("Identity", "go", "goes"),
        ],
        "body",
        [info("number", WHOLE, []), info("go", B, []), info("carried", F, [width])],
        [info("goes", B), info("more", F), info("sum", F)],
    )
    rng = np.random.default_rng(5)
    constants = {
        "table": rng.normal(size=(30, width)).astype(np.float32),
        "first": np.int64([0]),
        "one": np.int64(1),
        "always": np.True_,
        "zeros": np.zeros(width, np.float32),
    }
    loop = helper.make_node("Loop", ["n", "always", "zeros"], ["all", "sums"], body=body)
    inputs = [info("ids", WHOLE, ["k"]), info("ends", WHOLE, ["m"]), info("n", WHOLE, [])]
    return model([loop], inputs, [info("all", F), info("sums", F)], **constants)


@pytest.mark.parametrize("width", [6, 5000])
def test_parts_of_other_lengths_in_every_iteration(core, width):
    content, rng = parts_in_a_loop(width), np.random.default_rng(6)
    session = onnxruntime.InferenceSession(content)
    request = load(core, content).create_infer_request()
    for _ in range(4):
        lengths = rng.integers(0, 5, int(rng.integers(1, 8)))
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        feed = {
            "ids": rng.integers(0, 30, int(ends[-1])),
            "ends": ends,
            "n": np.array(len(lengths)),
        }
        got = request.infer(feed)
        for name, want in zip(("all", "sums"), session.run(None, feed), strict=True):
            np.testing.assert_allclose(got[name], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [4, 5000])
def test_branches_in_a_loop_whose_results_are_joined(core, size):
    def branch(kind, other):
        return helper.make_graph([node(kind, f"a {other}", "r")], kind, [], [info("r", F)])

    body = helper.make_graph(
        [
            node("Mod", "number two", "odd"),
            node("Cast", "odd", "is_odd", to=B),
            helper.make_node(
                "If",
                ["is_odd"],
                ["b"],
                then_branch=branch("Mul", "x"),
                else_branch=branch("Sub", "x"),
            ),
            node("Identity", "b", "part"),
            node("Identity", "go", "goes"),
        ],
        "body",
        [info("number", WHOLE, []), info("go", B, []), info("a", F, [size])],
        [info("goes", B), info("b", F), info("part", F)],
    )
    loop = helper.make_node("Loop", ["n", "always", "x"], ["last", "parts"], body=body)
    inputs = [info("x", F, [size]), info("n", WHOLE, [])]
    outputs = [info("last", F), info("parts", F)]
    content = model([loop], inputs, outputs, two=np.int64(2), always=np.True_)
    x = np.random.default_rng(7).normal(size=size).astype(np.float32)
    feed = {"x": x, "n": np.array(5)}
    request = load(core, content).create_infer_request()
    for _ in range(2):
        got = request.infer(feed)
        wanted = onnxruntime.InferenceSession(content).run(None, feed)
        for name, want in zip(("last", "parts"), wanted, strict=True):
            np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-6)


def test_small_results_are_remembered_and_large_ones_refused(core):
    nodes = [
        node("ReduceSum", "counts first", "n", keepdims=0),
        node("Range", "zero n one", "y"),
        node("Mul", "y y", "z"),
    ]
    constants = {"first": np.int64([0]), "zero": np.int64(0), "one": np.int64(1)}
    content = model(nodes, [info("counts", WHOLE, ["k"])], [info("z", WHOLE)], **constants)
    request = load(core, content, MEMORY_LIMIT="16M").create_infer_request()
    for count in (5, 7, 5, 7, 0):
        got = request.infer({"counts": np.int64([count, 1])})["z"]
        np.testing.assert_array_equal(got, np.arange(count + 1) ** 2)
    with pytest.raises(DeviceMemoryError, match="MEMORY_LIMIT"):
        request.infer({"counts": np.int64([1 << 40, 1])})
    np.testing.assert_array_equal(request.infer({"counts": np.int64([2, 1])})["z"], [0, 1, 4])


def test_a_sum_of_no_rows_is_refused_before_it_takes_memory(core):
    nodes = [
        node("NonZero", "x", "found"),
        node("Cast", "found", "none", to=F),
        node("Compress", "sizes all", "shape", axis=0),
        node("Reshape", "none shape", "rows", allowzero=1),
        node("ReduceSum", "rows first", "sum", keepdims=0),
        node("Slice", "sum first three", "y"),
    ]
    constants = {"first": np.int64([0]), "three": np.int64([3]), "all": np.array([True, True])}
    given = [info("x", F, ["n"]), info("sizes", WHOLE, [2])]
    content = model(nodes, given, [info("y", F)], **constants)
    request = load(core, content, MEMORY_LIMIT="16M").create_infer_request()
    x = np.zeros(4, np.float32)
    for _ in range(2):
        tracemalloc.start()
        with pytest.raises(DeviceMemoryError, match="MEMORY_LIMIT"):
            request.infer({"x": x, "sizes": np.int64([0, 1 << 26])})
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 1 << 24
        few = request.infer({"x": x, "sizes": np.int64([0, 5])})["y"]
        np.testing.assert_array_equal(few, np.zeros(3))


@pytest.mark.parametrize("kind", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("shape", [(7, 5), (3, 4, 6), (2, 3, 1200), (5000, 7), (64, 40, 40)])
def test_where_the_largest_is(core, kind, shape):
    rng = np.random.default_rng(8)
    for axis in range(len(shape)):
        content = model(
            [node(kind, "x", "y", axis=axis)], [info("x", F, shape)], [info("y", WHOLE)]
        )
        x = rng.integers(-3, 4, shape).astype(np.float32)  # of equal ones the first counts
        found = x.argmax if kind == "ArgMax" else x.argmin
        got = load(core, content).infer({"x": x})["y"]
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, found(axis, keepdims=True))


@pytest.mark.parametrize("kind", [WHOLE, TensorProto.INT32, F, TensorProto.UINT8])
def test_booleans_become_numbers_and_back(core, kind):
    nodes = [node("Cast", "x", "a", to=kind), node("Cast", "a", "y", to=B)]
    inputs = [info("x", B, ["n", 3])]
    content = model(nodes, inputs, [info("a", kind), info("y", B)])
    x = np.random.default_rng(9).random((11, 3)) < 0.5
    got = load(core, content).infer({"x": x})
    assert got["a"].dtype == helper.tensor_dtype_to_np_dtype(kind)
    np.testing.assert_array_equal(got["a"], x.astype(got["a"].dtype))
    np.testing.assert_array_equal(got["y"], x)


def test_numbers_that_are_not_zero(core):
    content = model([node("Cast", "x", "y", to=B)], [info("x", F, [6])], [info("y", B)])
    x = np.float32([0, -0.0, np.nan, 1e-40, -2, np.inf])
    got = load(core, content).infer({"x": x})["y"]
    np.testing.assert_array_equal(got, [False, False, True, True, True, True])


def experts(count, layers):
    """Layers in which each expert multiplies the rows that a product with x chooses for it."""
    rng = np.random.default_rng(10)
    constants = {"first": np.int64([0]), "zero": np.float32(0)}
    nodes, x = [], "x"
    for layer in range(layers):
        gate, y = f"gate{layer}", f"zeros{layer}"
        constants[gate] = rng.normal(size=(6, count)).astype(np.float32)
        nodes += [
            node("MatMul", f"{x} {gate}", f"scores{layer}"),
            node("ArgMax", f"scores{layer}", f"choice{layer}", axis=1, keepdims=0),
            node("Mul", f"{x} zero", y),
        ]
        for expert in range(count):
            tag = f"{layer}_{expert}"
            constants[f"w{tag}"] = rng.normal(size=(6, 6)).astype(np.float32)
            constants[f"n{tag}"] = np.int64(expert)
            nodes += [
                node("Equal", f"choice{layer} n{tag}", f"mine{tag}"),
                node("NonZero", f"mine{tag}", f"found{tag}"),
                node("Transpose", f"found{tag}", f"place{tag}"),
                node("GatherND", f"{x} place{tag}", f"rows{tag}"),
                node("MatMul", f"rows{tag} w{tag}", f"product{tag}"),
                node("Relu", f"product{tag}", f"made{tag}"),
                node("ScatterND", f"{y} place{tag} made{tag}", f"y{tag}"),
            ]
            y = f"y{tag}"
        constants[f"after{layer}"] = rng.normal(size=(6, 6)).astype(np.float32)
        nodes.append(node("MatMul", f"{y} after{layer}", f"x{layer}"))
        x = f"x{layer}"
    nodes.append(node("Concat", "made0_0 made0_1", "both", axis=0))
    outputs = [info(x, F), info("both", F), info("found0_0", WHOLE)]
    return model(nodes, [info("x", F, ["n", 6])], outputs, **constants)


@pytest.mark.parametrize("layers", [1, 2])
def test_experts_get_other_numbers_of_rows_every_time(core, layers):
    content, rng = experts(3, layers), np.random.default_rng(11)
    session = onnxruntime.InferenceSession(content)
    request = load(core, content).create_infer_request()
    for turn in range(40):
        x = rng.normal(size=(int(rng.integers(1, 9)), 6)).astype(np.float32)
        if turn % 4 == 0:
            x[:] = x[0]  # all rows go to one expert, none to the others
        got = request.infer({"x": x})
        for result, want in zip(got.values(), session.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-4)


def test_experts_are_planned_each_by_itself(core):
    """Numbers of rows that each expert has had need no plan, however they come together."""
    executable = load(core, experts(3, 1))
    request = executable.create_infer_request()
    rng = np.random.default_rng(12)
    rows = [[], [], []]
    while min(map(len, rows)) < 6:
        x = rng.normal(size=(1, 6)).astype(np.float32)
        request.infer({"x": x})
        chosen = [np.shape(request.infer({"x": x})["found0_0"])[1] == 1]
        which = 0 if chosen[0] else 1 + int(request.infer({"x": x})["both"].shape[0] == 0)
        rows[which].append(x[0])
    made = []
    original = CompiledNetwork._make

    def noted(self, shapes):
        made.append(shapes)
        return original(self, shapes)

    def infer(a, b, c):
        request.infer({"x": np.stack([*rows[0][:a], *rows[1][:b], *rows[2][:c]])})

    for counts in ((1, 2, 3), (2, 3, 1), (3, 1, 2)):
        infer(*counts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledNetwork, "_make", noted)
        for counts in ((1, 3, 2), (2, 1, 3), (3, 2, 1), (2, 2, 2)):
            infer(*counts)
    assert not made


@pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
def test_closing_waits_for_a_part_whose_plan_is_being_replaced(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 2)
    begun, may_end = threading.Event(), threading.Event()
    original = CompiledNetwork._replace

    def slow(self, *arguments):
        begun.set()
        may_end.wait(10)
        original(self, *arguments)

    monkeypatch.setattr(CompiledNetwork, "_replace", slow)
    executable = load(core, experts(3, 1), CPU_THREADS_NUM=1)
    request, rng = executable.create_infer_request(), np.random.default_rng(13)
    for _ in range(100):
        request.infer({"x": rng.normal(size=(40, 6)).astype(np.float32)})
        if begun.is_set():
            break
    assert begun.wait(10)
    threading.Timer(0.2, may_end.set).start()
    executable.close()
    assert may_end.is_set()
    assert not [t for t in threading.enumerate() if t.name == "polydevice-cpu-settling"]


@pytest.mark.parametrize("width", [3, 9000])
@pytest.mark.parametrize("limit", [None, 1 << 30])
def test_what_is_handed_out_is_nobody_elses(core, rng, width, limit):
    """Whoever changes it changes no other output, no input, and nothing that comes later."""
    nodes = [
        node("NonZero", "mask", "found"),
        node("Squeeze", "found first", "places"),
        node("Gather", "x places", "rows", axis=0),
        node("Identity", "rows", "same"),
        node("Gather", "x places", "again", axis=0),
        node("Unsqueeze", "again first", "wider"),
        node("Concat", "rows x", "joined", axis=0),
        node("Relu", "joined", "cut"),
        node("Add", "rows zero", "sum"),
        node("Transpose", "sum", "turned"),
    ]
    names = ["rows", "same", "again", "wider", "joined", "cut", "sum", "turned", "places"]
    made = model(
        nodes,
        [info("x", F, ["n", width]), info("mask", B, ["n"])],
        [info(name, WHOLE if name == "places" else F) for name in names],
        first=np.int64([0]), zero=np.zeros(width, np.float32),
    )  # fmt: skip
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    options = {} if limit is None else {"MEMORY_LIMIT": limit}
    request = load(core, made, **options).create_infer_request()
    kept = []
    for _ in range(6):
        inputs = given(rng, 7, width)
        wanted = session.run(None, inputs)
        found = request.infer(inputs)
        for name, right in zip(names, wanted, strict=True):
            np.testing.assert_array_equal(found[name], right)
        copies = {name: array.copy() for name, array in inputs.items()}
        for array, right in kept:
            np.testing.assert_array_equal(array, right)
        for number, name in enumerate(names):
            found[name][...] = number + 100
            for other in names[number + 1 :]:
                assert not np.may_share_memory(found[name], found[other])
        for name, array in inputs.items():
            np.testing.assert_array_equal(array, copies[name])
        kept += [(found[name], found[name].copy()) for name in names]
