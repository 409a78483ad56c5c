"""Steps of tables that read sizes, look bytes up, sum up, or may refuse what they read."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import InferenceError
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling.template import PlanTemplate
from polydevice_cpu.plan.tables.plan import TablePlan
from tests.cpu import models
from tests.cpu.loading import image, load, wait_for_settling
from tests.cpu.machine_code import with_avx512, with_vectors
from tests.cpu.quantised_graphs import Graph, reference, spread

pytestmark = with_vectors

WIDTH = 12


def layers(read: str, count: int = 5) -> list[tuple]:
    """Products and SoftMaxes, so that few of all steps are others."""
    nodes = []
    for layer in range(count):
        nodes += [("MatMul", [read, "w"], [f"p{layer}"], {})]
        nodes += [("Softmax", [f"p{layer}"], [f"q{layer}"], {"axis": -1})]
        read = f"q{layer}"
    return nodes


def late(executable) -> set[str]:
    """Types of the steps of the latest plan, a table, that are made one by one."""
    plan = executable.latest_plan()
    assert isinstance(plan, TablePlan)
    return {step.type for step in plan.late.values()}


def built(nodes, inputs, outputs) -> bytes:
    """A model of the sizes of its inputs, which are integers but for `x` and `mask`."""
    stored = {"w": image(1, WIDTH, WIDTH), "axis": np.array(1), "flat": np.array([-1])}
    stored |= {"zero": np.array(0), "one": np.array(1), "at": np.array(1)}
    kinds = {True: TensorProto.FLOAT, False: TensorProto.INT64}
    graph = helper.make_graph(
        [helper.make_node(kind, ins, outs, **more) for kind, ins, outs, more in nodes],
        "g",
        [
            helper.make_tensor_value_info(n, kinds[n in ("x", "mask")], sizes)
            for n, sizes in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return made.SerializeToString()


def run(executable, request, model, feed):
    """One inference as ONNX Runtime has it, its time by layers as well."""
    got = request.infer(feed)
    for array, wanted in zip(got.values(), models.answer(model, feed), strict=True):
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-5)
    return executable.latest_plan()


@pytest.mark.parametrize("count_times", ["NO", "YES"])
def test_code_that_refuses_is_computed_by_numpy_or_says_what_is_wrong(core, count_times):
    nodes = [*layers("x"), ("GatherElements", ["q4", "i"], ["y"], {"axis": 1})]
    inputs = {"x": ["n", "k", WIDTH], "i": ["n", "m", WIDTH]}
    model = built(nodes, inputs, ["y"])
    executable = load(core, model, CPU_THREADS_NUM=1, PERF_COUNT=count_times)
    request, drawn = executable.create_infer_request(), np.random.default_rng(3)
    for rows in (3, 9, 5, 14, 7, 11):
        indices = drawn.integers(-rows, rows, (2, rows + 2, WIDTH))
        feed = {"x": image(rows, 2, rows, WIDTH), "i": indices}
        for _ in range(2):
            run(executable, request, model, feed)
    assert "GatherElements" not in late(executable)
    wrong = indices.copy()
    wrong[1, 2, 3] = rows
    for _ in range(2):
        with pytest.raises(InferenceError, match=f"{rows}"):
            request.infer({**feed, "i": wrong})
        run(executable, request, model, feed)


def test_refusals_of_two_requests(core):
    """Each finds what its own table was told."""
    nodes = [*layers("x"), ("Div", ["a", "b"], ["d"], {})]
    inputs = {"x": ["n", "k", WIDTH], "a": ["m"], "b": ["m"]}
    model = built(nodes, inputs, ["q4", "d"])
    executable = load(core, model, CPU_THREADS_NUM=1)
    requests = [executable.create_infer_request() for _ in range(2)]
    for rows in (4, 6, 8, 5, 7, 12):  # the last ones are new when the table is there
        divisors = np.array([2, 0, 3])
        for number, request in enumerate(requests):
            feed = {"x": image(rows, 1, rows + number, WIDTH), "a": np.array([9, 5, 7]) + number}
            for first in (2, 0):
                divisors[0] = first
                got = request.infer({**feed, "b": divisors})["d"]
                wanted = [0 if first == 0 else (9 + number) // 2, 0, (7 + number) // 3]
                np.testing.assert_array_equal(got, wanted)
    assert "Divide" not in late(executable)


def test_steps_that_read_sizes(core):
    """Places of rows, counted from 0, and twice as many as there are; sums up to each."""
    nodes = [
        ("Shape", ["x"], ["all"], {}),
        ("Gather", ["all", "at"], ["rows"], {}),
        ("Range", ["zero", "rows", "one"], ["places"], {}),
        ("Cast", ["places"], ["f"], {"to": 1}),
        ("Unsqueeze", ["f", "flat"], ["column"], {}),
        ("Add", ["x", "column"], ["moved"], {}),
        *layers("moved"),
        ("CumSum", ["q4", "axis"], ["y"], {}),
    ]
    model = built(nodes, {"x": ["n", "k", WIDTH]}, ["y", "places"])
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for rows in (3, 9, 5, 14, 7, 11, 4):
        run(executable, request, model, {"x": image(rows, 2, rows, WIDTH)})
        run(executable, request, model, {"x": image(rows + 1, 2, rows, WIDTH)})
    assert late(executable).isdisjoint({"Range", "CumSum"})


@with_avx512
@pytest.mark.parametrize("threads", [1, 2])
def test_bytes_that_are_looked_up(core, monkeypatch, threads):
    """A function of bytes between quantised layers, before and after its plan has settled."""
    monkeypatch.setattr(settling, "RUNS", 3)
    g = Graph(np.random.default_rng(5))
    x = g.emit("DequantizeLinear", "x", *g.parameters(np.uint8, 0.04))
    for _ in range(3):
        y = g.emit("Conv", x, g.weights((24, 24, 1, 1), 0), kernel_shape=[1, 1])
        y = g.emit("DequantizeLinear", g.quantised(y, np.uint8, 0.2), *g.nodes[-1].input[1:])
        z = g.quantised(g.emit("Sigmoid", y), np.uint8, 0.004)
        y = g.emit("Mul", y, g.emit("DequantizeLinear", z, *g.nodes[-1].input[1:]))
        x = g.emit("DequantizeLinear", g.quantised(y, np.uint8, 0.1), *g.nodes[-1].input[1:])
    model = g.model(["n", 24, "h", "v"], np.uint8, {x: None})
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request = executable.create_infer_request()
    for high, wide in ((9, 12), (20, 17), (13, 31), (8, 40), (5, 9), (80, 90), (11, 12)):
        feed = {"x": spread(g.rng, (1, 24, high, wide), np.uint8)}
        (wanted,) = reference(model, feed)
        (got,) = (each.copy() for each in request.infer(feed).values())
        assert np.abs(got - wanted).max() <= 2 * 0.1 + 1e-6
        found = executable.latest_plan()
        for _ in range(3):
            request.infer(feed)
        wait_for_settling()
        (after,) = request.infer(feed).values()
        np.testing.assert_array_equal(after, got)
    assert isinstance(found, TablePlan)
    assert "ByteFunction" in {step.type for step in found.steps}
    assert "ByteFunction" not in {step.type for step in found.late.values()}


def test_products_of_any_sizes_are_numbers(core, monkeypatch):
    """Rows, columns and terms of attention as many as there are; then the first rows' product."""
    monkeypatch.setattr(settling, "RUNS", 3)
    nodes = [
        ("Transpose", ["x"], ["turned"], {"perm": [0, 2, 1]}),
        ("MatMul", ["x", "turned"], ["scores"], {}),
        ("Add", ["scores", "mask"], ["masked"], {}),
        ("Softmax", ["masked"], ["shares"], {"axis": -1}),
        ("MatMul", ["shares", "x"], ["h"], {}),
        *layers("h"),
        ("Gather", ["q4", "zero"], ["first"], {"axis": 1}),
        ("Gemm", ["first", "w"], ["pooled"], {}),
        ("Tanh", ["pooled"], ["y"], {}),
    ]
    model = built(nodes, {"x": ["n", "t", WIDTH], "mask": ["n", 1, "t"]}, ["y", "h"])
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    random = np.random.default_rng(5)
    seen = []
    for number in range(30):
        count, length = int(random.integers(2, 5)), int(random.integers(2, 150))
        x, mask = image(number, count, length, WIDTH), image(number + 1, count, 1, length)
        plan = run(executable, request, model, {"x": x, "mask": mask})
        if isinstance(plan, TablePlan):
            seen.append(sum("MatMul" in each for each in late(executable)))
        got = {name: array.copy() for name, array in request.infer({"x": x, "mask": mask}).items()}
        for _ in range(3):
            request.infer({"x": x, "mask": mask})
        wait_for_settling()
        for name, array in request.infer({"x": x, "mask": mask}).items():
            np.testing.assert_array_equal(array, got[name])
    assert len(seen) > 20
    assert not any(seen)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_borders_and_statistics_of_any_sizes_are_numbers(core, mode, threads):
    nodes, read, stored = [], "x", {"axes": np.array([2, 3])}
    for layer in range(4):
        stored[f"w{layer}"] = image(layer, 5, 5, 3, 3)
        stored[f"s{layer}"], stored[f"b{layer}"] = image(layer, 5), image(layer + 1, 5)
        stored[f"sides{layer}"] = np.array([0, 0, layer, 2, 0, 0, 1, layer])
        nodes += [
            ("Pad", [read, f"sides{layer}"], [f"p{layer}"], {"mode": mode}),
            ("Conv", [f"p{layer}", f"w{layer}"], [f"c{layer}"], {}),
            ("InstanceNormalization", [f"{n}{layer}" for n in "csb"], [f"n{layer}"], {}),
            ("Relu", [f"n{layer}"], [f"r{layer}"], {}),
        ]
        read = f"r{layer}"
    nodes += [("MeanVarianceNormalization", [read], ["y"], {"axes": [1, 2, 3]})]
    model = models.build(nodes, {"x": ["n", 5, "h", "w_"]}, ["y"], stored, opset=19)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request = executable.create_infer_request()
    random = np.random.default_rng(6)
    seen: set[str] = set()
    for number in range(16):
        sizes = random.integers(5, 90, 2).tolist()
        plan = run(executable, request, model, {"x": image(number, 1 + number % 3, 5, *sizes)})
        if isinstance(plan, TablePlan) and number > 6:
            seen |= late(executable)
    assert "Pad" not in seen
    assert threads > 1 or "MVN" not in seen  # which threads share where there are many numbers


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_before_a_tail_is_a_table(core, monkeypatch, threads):
    """Sizes that the data tells are a step of its own behind; another result is there before."""
    monkeypatch.setattr(settling, "RUNS", 3)
    nodes = [*layers("x"), ("Relu", ["p4"], ["r"], {}), ("NonZero", ["r"], ["places"], {})]
    nodes += [("Transpose", ["places"], ["rows"], {}), ("GatherND", ["q4", "rows"], ["y"], {})]
    model = built(nodes, {"x": ["n", WIDTH]}, ["y", "q4"])
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request, found = executable.create_infer_request(), []
    for rows in (3, 9, 5, 31, 1, 14, 40):
        x = image(rows, rows, WIDTH)
        for _ in range(settling.RUNS):
            plan = run(executable, request, model, {"x": x})
            found.append(isinstance(plan, TablePlan) and late(executable))
        wait_for_settling()
        run(executable, request, model, {"x": x})
    assert {"Tail"} in found
    assert "NonZero" in executable.explain()


def test_inputs_of_any_rank(core):
    """The rank of the first inference is expected, and others are right, too."""
    model = built(layers("x"), {"x": None}, ["q4"])
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for rows in (3, 9, 5, 31):
        run(executable, request, model, {"x": image(rows, 2, rows, WIDTH)})
    assert not late(executable)
    for shape in [(7, WIDTH), (1, 2, 5, WIDTH), (2, 11, WIDTH)]:
        run(executable, request, model, {"x": image(1, *shape)})
    assert not late(executable)


@pytest.mark.parametrize("dims", [["n", 1, "w"], ["n", 1, "h", "w"]])
def test_windows_in_steps_over_any_end(core, dims):
    """Whether the last one reaches over the end depends on whether a size is odd."""
    axes = len(dims) - 2
    stored = {"w": image(1, 24, 1, *[3] * axes), "v": image(2, 24, 24, *[3] * axes) / 9}
    stored["u"] = image(3, 1, 24, *[3] * axes) / 9
    form = {"strides": [2] * axes, "pads": [1] * 2 * axes}
    nodes = [("Conv", ["x", "w"], ["a"], form), ("Relu", ["a"], ["b"], {})]
    nodes += [("Conv", ["b", "v"], ["c"], form), ("Relu", ["c"], ["d"], {})]
    nodes += [("Conv", ["d", "u"], ["y"], form)]
    model = models.build(nodes, {"x": dims}, ["y"], stored)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request, found = executable.create_infer_request(), []
    for number, size in enumerate((40, 64, 81, 46, 75, 51, 90, 62, 103, 68)):
        x = image(number, 1 + number % 3, 1, *[size, size + 1 + number % 5][:axes])
        found.append(isinstance(run(executable, request, model, {"x": x}), TablePlan))
    assert all(found[3:])


@pytest.mark.parametrize(
    ("left_out", "asked"), [((2, 0), 0), ((3, 0), 1), ((5, 4, 3), 2), ((4, 9), 0)]
)
def test_a_table_that_leaves_more_out_is_not_used_before_others_are_asked(left_out, asked):
    class Table:
        late = 0

        def __init__(self, left_out):
            self.left_out = left_out

        def formulas(self, _):
            return [], []

        def broken(self, _):
            return frozenset(), self.left_out

    tables = [Table(each) for each in left_out]
    template = PlanTemplate.__new__(PlanTemplate)
    template._tables, template._ones = tables, dict.fromkeys(tables, (False,))
    template._recipe = SimpleNamespace(steps=[None] * 11)
    assert template.fit([7]).plan.args[1] is tables[asked]
