"""Iterations of loops by one call of machine code: ONNX Runtime judges what they compute."""

from __future__ import annotations

import threading
import time
import tracemalloc

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import InferenceError, InferTimeoutError
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.binding.loops.iterations import (
    CALLS,
    MOST_ITERATIONS,
    TAKEN_BYTES,
    Iterations,
)
from polydevice_cpu.plan.filling.by_machine import positions
from tests.cpu.loading import load, wait_for_settling
from tests.cpu.machine_code import with_avx512
from tests.cpu.models import build

pytestmark = with_avx512

F, WHOLE, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind, inputs, outputs, **attributes):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def expected(made, feed):
    session = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


@pytest.fixture
def called(monkeypatch):
    """The number of iterations that were run by machine code, one entry for each loop."""
    found = []
    go_on = Iterations.go_on

    def noted(self, iteration, end, changing, taken):
        made = go_on(self, iteration, end, changing, taken)
        found.append(made[0] - iteration)
        return made

    monkeypatch.setattr(Iterations, "go_on", noted)
    return found


def scan(axis, backwards=False, shape=("n", "m", "k")):
    """Carries h = h * decay + x of a step; gives h * 2 and the sum of h of each."""
    body = helper.make_graph(
        [
            node("Mul", "h decay", "faded"), node("Add", "faded x", "next"),
            node("Mul", "next two", "double"), node("ReduceSum", "next", "sum", keepdims=0),
        ],
        "body",
        [info("h", F, None), info("x", F, None)],
        [info("next", F, None), info("double", F, None), info("sum", F, None)],
        [numpy_helper.from_array(np.float32(v), k) for k, v in (("decay", 0.5), ("two", 2))],
    )  # fmt: skip
    loop = helper.make_node(
        "Scan", ["h", "x"], ["last", "doubles", "sums"], body=body, num_scan_inputs=1,
        scan_input_axes=[axis], scan_output_axes=[axis if axis < 2 else 0, 0],
        scan_input_directions=[int(backwards)], scan_output_directions=[int(backwards), 0],
    )  # fmt: skip
    carried = [size for place, size in enumerate(shape) if place != axis]
    graph = helper.make_graph(
        [loop], "g", [info("h", F, carried), info("x", F, list(shape))],
        [info(name, F, None) for name in ("last", "doubles", "sums")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_parts_along_any_axis_in_either_direction(core, called, axis, backwards):
    made, rng = scan(axis, backwards), np.random.default_rng(axis)
    for count in (1, 2, 5, CALLS, MOST_ITERATIONS + 3, 2 * MOST_ITERATIONS + 1):
        request = load(core, made).create_infer_request()
        shape = [int(n) for n in rng.integers(1, 5, 3)]
        carried = [size for place, size in enumerate(shape) if place != axis]
        shape[axis] = count
        feed = {
            "h": rng.standard_normal(carried).astype(np.float32),
            "x": rng.standard_normal(shape).astype(np.float32),
        }
        for found, right in zip(request.infer(feed).values(), expected(made, feed), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)
    assert called == [4, CALLS - 1, MOST_ITERATIONS + 2, 2 * MOST_ITERATIONS]


def repeated(body, width):
    """Runs a body that makes "next" of "h", of any number of rows, n times."""
    body = helper.make_graph(
        [*body[0], node("Identity", "given", "goes")], "body",
        [info("number", WHOLE, []), info("given", B, []), info("h", F, None)],
        [info("goes", B, []), info("next", F, None)],
        [numpy_helper.from_array(array, name) for name, array in body[1].items()],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n", "", "h"], ["last"], body=body)
    graph = helper.make_graph(
        [loop], "g", [info("n", WHOLE, []), info("h", F, ["rows", width])], [info("last", F, None)]
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def test_what_depends_on_sizes_alone_is_run_once_before(core, called):
    """Rows turned around by an index that NumPy counts."""
    nodes = [
        node("Shape", "h", "shape", end=1), node("Squeeze", "shape", "rows"),
        node("Sub", "rows one", "end"), node("Range", "end minus minus", "back"),
        node("Gather", "h back", "next", axis=0),
    ]  # fmt: skip
    constants = {"one": np.array(1), "minus": np.array(-1)}
    request, rng = load(core, repeated((nodes, constants), 5)).create_infer_request(), np.random
    for rows in (4, 6, 7, 8, 9):  # the third is filled in
        for count in (23, 24):
            h = rng.default_rng(rows).standard_normal((rows, 5)).astype(np.float32)
            found = request.infer({"n": np.array(count), "h": h})["last"]
            np.testing.assert_array_equal(found, h[::-1] if count % 2 else h)
    assert called == [22, 23] * 5


@pytest.mark.parametrize("by_machine", [False, True])
def test_bodies_of_open_sizes_are_settled(core, called, monkeypatch, by_machine):
    """A product in strips is not part of one call; machine code and one for its own sizes are."""
    if not by_machine:
        monkeypatch.setattr(positions, "MOST_CHANNELS", {})
    rng = np.random.default_rng(5)
    w = rng.standard_normal((96, 96)).astype(np.float32) / 8
    nodes = [node("MatMul", "h w", "product"), node("Relu", "product", "next")]
    made = repeated((nodes, {"w": w}), 96)
    request = load(core, made).create_infer_request()
    for rows in (40, 75, 130):  # the third is filled in
        called.clear()
        for _ in range(settling.RUNS + 2):
            h = rng.standard_normal((rows, 96)).astype(np.float32)
            feed = {"n": np.array(12), "h": h}
            found = request.infer(feed)["last"]
            np.testing.assert_allclose(found, expected(made, feed)[0], rtol=1e-4, atol=1e-4)
            wait_for_settling()  # after as many iterations as there are inferences otherwise
    assert called == [11] * (settling.RUNS + 2 if by_machine else settling.RUNS + 1)


def counting(limit="limit"):
    """Takes a row by the iteration's number until the sum of rows is above a limit."""
    body = helper.make_graph(
        [
            node("Gather", "rows number", "row", axis=0), node("Add", "s row", "t"),
            node("ReduceSum", "t", "most", keepdims=0), node("Less", f"most {limit}", "goes"),
            node("Add", "t t", "double"),
        ],
        "body",
        [info("number", WHOLE, []), info("given", B, []), info("s", F, [3])],
        [info("goes", B, []), info("t", F, [3]), info("double", F, [3])],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n", "go", "s"], ["last", "all"], body=body)
    graph = helper.make_graph(
        [loop], "g",
        [info("n", WHOLE, []), info("s", F, [3]), info("rows", F, ["r", 3]), info("limit", F, [])],
        [info("last", F, None), info("all", F, None)],
        [numpy_helper.from_array(np.array(True), "go")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


@pytest.mark.parametrize("ends_at", [1, 2, 3, 17, 18, 200, 300, 10_000])
def test_it_ends_where_the_condition_says(core, called, ends_at):
    made, rng = counting(), np.random.default_rng(ends_at)
    request = load(core, made).create_infer_request()
    for count in (400, 401):
        rows = np.zeros((count, 3), np.float32)
        rows[np.arange(count), rng.integers(0, 3, count)] = 1
        feed = {
            "n": np.array(count), "s": np.zeros(3, np.float32), "rows": rows,
            "limit": np.array(ends_at - 0.5, np.float32),
        }  # fmt: skip
        found, right = list(request.infer(feed).values()), expected(made, feed)
        assert len(found[1]) == min(ends_at, count)
        for each, other in zip(found, right, strict=True):
            np.testing.assert_allclose(each, other, rtol=1e-4)
    assert bool(called) is (ends_at > 1)


def refusing():
    """Takes elements by carried places, which move on by one, up to where there are none."""
    body = helper.make_graph(
        [
            node("Add", "place one", "on"), node("GatherElements", "rows on", "row", axis=1),
            node("Identity", "given", "goes"),
        ],
        "body",
        [info("number", WHOLE, []), info("given", B, []), info("place", WHOLE, [2, 1])],
        [info("goes", B, []), info("on", WHOLE, [2, 1]), info("row", F, [2, 1])],
        [numpy_helper.from_array(np.array(1), "one")],
    )  # fmt: skip
    loop = helper.make_node("Loop", ["n", "go", "place"], ["last", "all"], body=body)
    graph = helper.make_graph(
        [loop], "g", [info("n", WHOLE, []), info("place", WHOLE, [2, 1]), info("rows", F, [2, 60])],
        [info("last", WHOLE, None), info("all", F, None)],
        [numpy_helper.from_array(np.array(True), "go")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def test_what_an_iteration_reads_may_be_wrong(core, called):
    made = refusing()
    request = load(core, made).create_infer_request()
    rows = np.arange(120, dtype=np.float32).reshape(2, 60)
    for count, start in ((40, 0), (70, 0), (59, 0), (30, 31), (20, 5)):
        feed = {"n": np.array(count), "place": np.array([[start], [0]]), "rows": rows}
        if start + count > 59:
            with pytest.raises(InferenceError, match=r"index 60 is outside \[-60, 60\)"):
                request.infer(feed)
            continue
        for found, right in zip(request.infer(feed).values(), expected(made, feed), strict=True):
            np.testing.assert_array_equal(found, right)
    assert called


def smallest():
    """The smallest few of what is carried, where NaN makes machine code refuse an iteration."""
    body = helper.make_graph(
        [
            node("Add", "s x", "t"), node("TopK", "t four", "v i", axis=1, largest=0),
        ],
        "body", [info("s", F, [2, 5]), info("x", F, [2, 5])],
        [info("t", F, [2, 5]), info("v", F, [2, 4]), info("i", WHOLE, [2, 4])],
        [numpy_helper.from_array(np.array([4]), "four")],
    )  # fmt: skip
    loop = helper.make_node("Scan", ["s", "x"], ["last", "v", "i"], body=body, num_scan_inputs=1)
    graph = helper.make_graph(
        [loop], "g", [info("s", F, [2, 5]), info("x", F, ["n", 2, 5])],
        [info("last", F, None), info("v", F, None), info("i", WHOLE, None)],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def test_an_iteration_that_machine_code_refuses_is_computed_all_the_same(core, called):
    request, rng = load(core, smallest()).create_infer_request(), np.random.default_rng(3)
    for bad in ((), (7,), (7, 8, 31)):
        x = rng.standard_normal((40, 2, 5)).astype(np.float32)
        s = rng.standard_normal((2, 5)).astype(np.float32)
        for number in bad:
            x[number, 1, :2] = np.nan
        last, v, i = request.infer({"s": s, "x": x}).values()
        sums = s + np.zeros_like(x)
        for number in range(40):
            sums[number] = (sums[number - 1] if number else s) + x[number]
        order = np.argsort(sums, -1, kind="stable")[..., :4]  # NaN is last
        np.testing.assert_array_equal(last, sums[-1])
        np.testing.assert_array_equal(i, order)
        np.testing.assert_array_equal(v, np.take_along_axis(sums, order, -1))
    assert called == [39, 39, 39]


def test_two_requests_at_once(core, called):
    made, rng = scan(0), np.random.default_rng(1)
    network, wrong = load(core, made), []
    feeds = [
        {"h": rng.standard_normal((4, 5)).astype(np.float32),
         "x": rng.standard_normal((count, 4, 5)).astype(np.float32)}
        for count in (300, 41)
    ]  # fmt: skip
    rights = [expected(made, feed) for feed in feeds]

    def infer(which):
        request = network.create_infer_request()
        for _ in range(40):
            for found, right in zip(
                request.infer(feeds[which]).values(), rights[which], strict=True
            ):
                if not np.allclose(found, right, rtol=1e-4, atol=1e-5):
                    wrong.append(which)

    threads = [threading.Thread(target=infer, args=(number,)) for number in (0, 1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(called) == 120


def test_a_long_loop_ends_in_time(core, called, monkeypatch):
    """Whether it may go on is asked between calls of some iterations.

    Of a clock that goes on by a tenth of a second whenever it is asked, so that fast machines and
    slow ones end alike.
    """
    request = load(core, scan(0), INFER_TIMEOUT_MS=60_000).create_infer_request()
    few, many = (np.ones((count, 1, 2), np.float32) for count in (10, 1 << 19))
    h = np.zeros((1, 2), np.float32)
    clock = time.perf_counter
    for _ in range(2):
        asked = []

        def later(asked=asked):
            asked.append(None)
            return clock() + len(asked) / 10

        with monkeypatch.context() as patched:
            patched.setattr(time, "perf_counter", later)
            with pytest.raises(InferTimeoutError):
                request.infer({"h": h, "x": many})
        assert len(asked) > 500
        found = request.infer({"h": h, "x": few})["last"]
        np.testing.assert_allclose(found, np.full((1, 2), 2 - 2.0**-9), rtol=1e-6)
    assert called == [9, 9]


def test_a_loop_in_a_loop_and_other_steps(core, called):
    """Where NumPy computes a step of the body, iterations are called one by one."""
    made = build(
        [("CumSum", ["x", "axis"], ["a"], {}), ("Det", ["a"], ["y"], {})],
        {"x": [2, 3, 3]}, ["y"], {"axis": np.array(0)},
    )  # fmt: skip
    x = np.random.default_rng(2).standard_normal((2, 3, 3)).astype(np.float32)
    (found,) = load(core, made).infer({"x": x}).values()
    np.testing.assert_allclose(found, np.linalg.det(np.cumsum(x, 0)), rtol=1e-4)
    assert not called


def test_copies_of_parts_take_little_memory(core, called):
    """Parts along the last axis, 51 kB each, are copied a few at once."""
    body = helper.make_graph(
        [node("ReduceMax", "x", "most", axes=[1], keepdims=0), node("Add", "h most", "next")],
        "body",
        [info("h", F, None), info("x", F, None)],
        [info("next", F, None)],
    )
    loop = helper.make_node(
        "Scan", ["h", "x"], ["last"], body=body, num_scan_inputs=1, scan_input_axes=[2]
    )
    given = [info("h", F, [64]), info("x", F, [64, 200, 300])]
    graph = helper.make_graph([loop], "g", given, [info("last", F, None)])
    imports = [helper.make_opsetid("", 17)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    rng = np.random.default_rng(8)
    feed = {
        "h": rng.standard_normal(64).astype(np.float32),
        "x": rng.standard_normal((64, 200, 300)).astype(np.float32),
    }
    request = load(core, made).create_infer_request()
    request.infer(feed)
    tracemalloc.start()
    (found,) = request.infer(feed).values()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(found, expected(made, feed)[0], rtol=1e-5)
    assert called
    assert most < 2 * TAKEN_BYTES
