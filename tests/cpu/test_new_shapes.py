"""A network that is given one shape after the other, of which the first decides for the rest."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest
from onnx import helper

from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Algorithm
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.library import library
from polydevice_cpu.onednn.primitives import eltwise
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.compiled import CompiledNetwork
from polydevice_cpu.plan.step import PrimitiveStep
from polydevice_cpu.proof import proof
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load, wait_for_settling
from tests.cpu.proved import unproved

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

SHAPES = [(2, 3, 14, 14), (1, 3, 15, 31), (3, 3, 5, 3), (2, 3, 14, 14), (1, 3, 3, 40)]


def steps(executable):
    return [step.type for step in executable.latest_plan().steps]


def check(got, want):
    for ours, theirs in zip(got.values(), want, strict=True):
        assert ours.shape == theirs.shape
        scale = np.abs(theirs).max(initial=0)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("channels", [12, 16])
def test_answers_are_right_for_every_shape(core, channels):
    model = models.residual(channels, "n", "s")
    model = _with_free_sizes(model)
    request = load(core, model).create_infer_request()
    for turn in range(2):
        for number, shape in enumerate(SHAPES):
            x = image(10 * turn + number, *shape)
            check(request.infer({"x": x}), models.answer(model, {"x": x}))


def _with_free_sizes(model: bytes) -> bytes:
    read = onnx.load_from_string(model)
    for axis, name in ((2, "height"), (3, "width")):
        read.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    return read.SerializeToString()


def test_plans_that_ran_often_are_of_a_template_for_sizes_like_theirs(core):
    """Rows of many matrices are multiplied together where there are fewer than 16 of each."""
    nodes = [("MatMul", ["x", "w"], ["a"], {}), ("Relu", ["a"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", "k", 64]}, ["y"], {"w": image(0, 64, 300)})
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for n, k, together in ((2, 40, False), (3, 50, False), (8, 3, True), (5, 9, True)):
        x = image(n, n, k, 64)
        for _ in range(settling.RUNS + 1):
            check(request.infer({"x": x}), models.answer(model, {"x": x}))
            wait_for_settling()
        (step,) = executable.latest_plan().steps
        shapes = {value.shape for value in step.values}
        rows = (n * k, 64) if has_avx512() else (1, 64, 1, n * k)
        assert (rows in shapes) == (together or not has_avx512())
    assert len(executable.compiled._templates_of_classes) == has_avx512()
    executable.close()
    assert not executable.compiled._templates_of_classes


@pytest.fixture
def planned_anew(monkeypatch):
    """Two shapes are planned one by one, before there is a template."""
    monkeypatch.setattr("polydevice_cpu.plan.compiled.PATIENCE", 2)


@pytest.mark.usefixtures("planned_anew")
def test_a_second_shape_asks_onednn_once_per_step_and_runs_as_fused(core, monkeypatch):
    model = _with_free_sizes(models.residual(16, "n", "s"))
    executable = load(core, model)
    request = executable.create_infer_request()
    request.infer({"x": image(0, 1, 3, 24, 24)})
    first = steps(executable)
    asked = asked_from_now(monkeypatch)
    x = image(1, 1, 3, 40, 24)
    check(request.infer({"x": x}), models.answer(model, {"x": x}))
    made = [step for step in executable.latest_plan().steps if isinstance(step, PrimitiveStep)]
    assert steps(executable) == first
    # One more: what adds to the memory of its operand is asked for when lives are known.
    assert len(asked) <= len(made) + 1
    assert not list(unproved(executable.latest_plan()))


def _normalised() -> bytes:
    """Rows that are multiplied, added to rows of a cache and normalised, and what is left of it."""
    nodes = [
        ("MatMul", ["x", "w"], ["a"], {}),
        ("Add", ["a", "bias"], ["b"], {}),
        ("Concat", ["cache", "b"], ["c"], {"axis": 1}),
        ("Reshape", ["c", "heads"], ["d"], {}),
        ("Transpose", ["d"], ["e"], {"perm": [0, 2, 1, 3]}),
        ("Transpose", ["d"], ["f"], {"perm": [0, 2, 3, 1]}),
        ("MatMul", ["e", "f"], ["g"], {}),
        ("Softmax", ["g"], ["h"], {"axis": -1}),
        ("MatMul", ["h", "e"], ["i"], {}),
        ("Add", ["i", "e"], ["j"], {}),
        ("ReduceMean", ["j"], ["y"], {"axes": [2]}),
        ("Transpose", ["j"], ["k"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["k", "whole"], ["z"], {}),
    ]
    weights = {"w": image(0, 8, 8) - np.float32(0.5), "bias": image(1, 8)}
    weights |= {"heads": np.array([0, -1, 2, 4]), "whole": np.array([0, 0, 8])}
    inputs = {"x": ["n", "k", 8], "cache": ["n", "past", 8]}
    return models.build(nodes, inputs, ["y", "z", "c"], weights)


def test_one_template_serves_one_item_and_many_rows_and_few(core, monkeypatch):
    made = []
    make = CompiledNetwork._make_template
    monkeypatch.setattr(
        CompiledNetwork, "_make_template", lambda *given: made.append(given) or make(*given)
    )
    model = _normalised()
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    sizes = [(2, 20, 3), (4, 5, 30), (1, 17, 4), (3, 1, 1), (1, 1, 7), (5, 2, 2), (1, 40, 1)]
    for turn in range(6):
        for number, (n, k, past) in enumerate(sizes):
            seed = 10 * turn + number
            given = {"x": image(seed, n, k, 8), "cache": image(seed + 1, n, past, 8)}
            check(request.infer(given), models.answer(model, given))
        if not turn:  # later, those that ran often are made for sizes like theirs
            assert len(made) == 1 or not has_avx512()


@pytest.mark.usefixtures("planned_anew")
def test_what_is_wrong_for_another_shape_is_not_used_there(core, monkeypatch):
    """The first shape is fused; the second one's code is refused; the third is asked again."""
    wrong = []

    def refusal(claim):
        if wrong and len(claim.links) and claim.base is not None:
            return "wrong, for this test"
        return proof.refusal(claim)

    for module in ("building.pending", "filling.filled", "filling.parts"):
        monkeypatch.setattr(f"polydevice_cpu.plan.{module}.refusal", refusal)
    # Of two groups, with gaps: there are no blocks and no machine code, which other shapes share.
    attributes = {"group": 2, "dilations": [1, 2]}
    nodes = [("Conv", ["x", "w"], ["c"], attributes), ("Relu", ["c"], ["y"], {})]
    weights = {"w": image(5, 32, 16, 3, 3)}
    model = models.build(nodes, {"x": [1, 32, "h", "w_"]}, ["y"], weights)
    executable = load(core, model)
    request = executable.create_infer_request()
    seen = []
    for number, (refused, width) in enumerate([(False, 20), (True, 21), (False, 22), (True, 23)]):
        wrong[:] = [True] * refused
        x = image(number, 1, 32, 7, width)
        check(request.infer({"x": x}), models.answer(model, {"x": x}))
        seen.append(any(step.endswith("Convolution+ReLU") for step in steps(executable)))
    assert seen == [True, False, True, False]


def test_what_is_read_ahead_of_sizes_follows_them(core):
    """A Reshape by computed sizes, an If on a size, and a constant that none of it changes."""
    branch = [
        helper.make_graph(
            [helper.make_node(kind, ["x"], [kind])],
            kind,
            [],
            [helper.make_tensor_value_info(kind, 1, None)],
        )
        for kind in ("Neg", "Abs")
    ]
    nodes = [
        ("Shape", ["x"], ["s"], {}),
        ("Gather", ["s", "zero"], ["n"], {}),
        ("Greater", ["n", "three"], ["big"], {}),
        ("If", ["big"], ["z"], {"then_branch": branch[0], "else_branch": branch[1]}),
        ("Reshape", ["z", "flat"], ["r"], {}),
        ("MatMul", ["r", "w"], ["m"], {}),
        ("Reshape", ["m", "s"], ["y"], {}),
    ]
    weights = {
        "zero": np.array(0, np.int64),
        "three": np.array(3, np.int64),
        "flat": np.array([-1, 6], np.int64),
        "w": image(3, 6, 6),
    }
    model = models.build(nodes, {"x": ["n", "k", 6]}, ["y"], weights)
    request = load(core, model).create_infer_request()
    for number, (n, k) in enumerate([(2, 5), (4, 5), (1, 3), (7, 1), (2, 5), (5, 2)]):
        x = image(number, n, k, 6) - np.float32(0.5)
        check(request.infer({"x": x}), models.answer(model, {"x": x}))


def test_what_constants_do_follows_the_sizes(core):
    """Functions are fused as for other sizes unless a constant stretches the result or varies."""
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Mul", ["c", "row"], ["m"], {}),
        ("Relu", ["m"], ["r"], {}),
        ("Sub", ["half", "r"], ["y"], {}),
        ("Shape", ["x"], ["s"], {}),
        ("Gather", ["s", "last"], ["g"], {}),
        ("Cast", ["g"], ["f"], {"to": onnx.TensorProto.FLOAT}),
        ("Conv", ["x", "w"], ["d"], {}),
        ("Add", ["d", "channels"], ["a"], {}),
        ("Mul", ["a", "f"], ["z"], {}),
    ]
    weights = {
        "w": image(5, 4, 3, 1, 1) - np.float32(0.5),
        "row": image(6, 1, 1, 1, 5),
        "channels": image(7, 1, 4, 1, 1),
        "half": np.array(0.5, np.float32),
        "last": np.array(3, np.int64),
    }
    model = models.build(nodes, {"x": ["n", 3, 6, "v"]}, ["y", "z"], weights)
    request = load(core, model).create_infer_request()
    for number, (n, width) in enumerate([(1, 5), (1, 1), (2, 5), (1, 1), (3, 5), (1, 5)]):
        x = image(number, n, 3, 6, width) - np.float32(0.5)
        check(request.infer({"x": x}), models.answer(model, {"x": x}))


def test_layers_that_are_alike_but_for_a_number(core):
    """Of two layers with equal operations and sizes, a constant may tell other sizes."""
    nodes = [("Shape", ["x"], ["s"], {})]
    for name, first, second in (("a", "zero", "one"), ("b", "one", "zero"), ("c", "zero", "one")):
        nodes += [
            ("Gather", ["s", first], [f"{name}1"], {"axis": 0}),
            ("Gather", ["s", second], [f"{name}2"], {"axis": 0}),
            ("Concat", [f"{name}1", f"{name}2", "least"], [f"{name}3"], {"axis": 0}),
            ("Reshape", ["x", f"{name}3"], [f"{name}4"], {}),
            ("Relu", [f"{name}4"], [name], {}),
        ]
    weights = {"zero": np.array([0]), "one": np.array([1]), "least": np.array([-1])}
    model = models.build(nodes, {"x": ["n", "k", 6]}, ["a", "b", "c"], weights)
    request = load(core, model).create_infer_request()
    for number, (n, k) in enumerate([(2, 5), (4, 5), (3, 3), (5, 2), (2, 5)]):
        x = image(number, n, k, 6) - np.float32(0.5)
        check(request.infer({"x": x}), models.answer(model, {"x": x}))


def test_memory_of_outputs_when_a_shape_comes_back(core):
    """It is the request's own again, unless what is read lies there or the user gives another."""
    weights = {"w": image(3, 6, 6) - np.float32(0.5)}
    model = models.build([("MatMul", ["x", "w"], ["y"], {})], {"x": ["n", 6]}, ["y"], weights)
    request = load(core, model).create_infer_request()
    few, many = image(1, 4, 6), image(2, 9, 6)
    first = request.infer({"x": few})["y"]
    other = request.infer({"x": many})["y"]
    assert request.infer({"x": few})["y"] is first
    np.testing.assert_allclose(other, many @ weights["w"], rtol=1e-4, atol=1e-5)
    request.infer({"x": many})
    once = first.copy()
    for _ in range(2):
        check(request.infer({"x": first}), [once @ weights["w"]])
        np.testing.assert_array_equal(first, once)
        request.infer({"x": many})
    mine = np.empty_like(first)
    request.set_blob("y", mine, "output")
    assert request.infer({"x": few})["y"] is mine
    np.testing.assert_array_equal(first, once)
    np.testing.assert_allclose(mine, few @ weights["w"], rtol=1e-4, atol=1e-5)


def test_a_shape_that_does_not_fit_leaves_the_network_usable(core):
    nodes = [("Conv", ["x", "w"], ["c"], {}), ("Add", ["c", "x2"], ["y"], {})]
    model = models.build(
        nodes, {"x": [1, 3, "h", 8], "x2": [1, 4, "g", 8]}, ["y"], {"w": image(5, 4, 3, 1, 1)}
    )
    request = load(core, model).create_infer_request()
    for number, height in enumerate((5, 9, 6)):
        with pytest.raises(Exception, match="broadcast"):
            request.infer({"x": image(0, 1, 3, 4, 8), "x2": image(0, 1, 4, 3, 8)})
        given = {"x": image(number, 1, 3, height, 8), "x2": image(7, 1, 4, height, 8)}
        check(request.infer(given), models.answer(model, given))


def test_two_requests_with_different_shapes_at_once(core):
    model = _with_free_sizes(models.residual(12, "n", "s"))
    executable = load(core, model, CPU_THROUGHPUT_STREAMS="2", CPU_THREADS_NUM="2")
    inputs = [image(k, 1 + k % 3, 3, 5 + k, 20 - k) for k in range(12)]
    wanted = [models.answer(model, {"x": x}) for x in inputs]

    def work(first):
        request = executable.create_infer_request()
        for _ in range(3):
            for x, want in list(zip(inputs, wanted, strict=True))[first::2]:
                check(request.infer({"x": x}), want)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(work, range(2)))


def test_primitives_are_shared_while_they_are_used_and_not_mixed_up():
    vector = Descriptor.dense((37,))

    def function(alpha, beta=0.0, algorithm=Algorithm.LINEAR):
        return eltwise(algorithm, vector, vector, alpha, beta, Attributes())

    one = function(2.0)
    assert one is function(2.0)
    assert one is not function(3.0)
    # Equal as numbers, different as bits.
    plus, minus = function(0.0, 0.0), function(0.0, -0.0)
    assert plus is not minus


@pytest.mark.usefixtures("planned_anew")
def test_explain_says_which_steps_are_for_a_shape(core):
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("ConvTranspose", ["z", "t"], ["s"], {}),
        ("CumSum", ["s", "axis"], ["y"], {}),
    ]
    weights = {"w": image(5, 4, 3, 1, 1), "t": image(6, 7, 30, 3, 3), "axis": np.array(1)}

    def loaded(height):
        inputs = {"x": [1, 3, height, 9], "z": [1, 7, 20, 20]}
        return load(core, models.build(nodes, inputs, ["c", "y"], weights))

    executable = loaded("h")
    request = executable.create_infer_request()
    for number, height in enumerate((5, 8)):
        request.infer({"x": image(number, 1, 3, height, 9), "z": image(number, 1, 7, 20, 20)})
    text = executable.explain()
    of = {line.split()[1]: line for line in text.splitlines()}
    assert of["Convolution"].endswith("for these shapes")
    assert of["ConvolutionBackpropData"].endswith("for other shapes too")
    assert of["CumSum"].endswith("for all shapes")
    assert "plans for 2 sets of shapes are kept" in text
    assert "shapes" not in loaded(8).explain()


@pytest.mark.full
def test_ten_thousand_shapes_take_no_more_memory_than_four_thousand(tmp_path):
    """Plans, primitives and descriptors are bounded; in a process whose memory is theirs alone.

    Nothing is fused: oneDNN 3.2 itself loses 24 kB for each convolution with a function. Sizes come
    in no order: plans of small pictures have fewer primitives than those of large ones.
    """
    nodes = [("Conv", ["x", "w"], ["c"], {}), ("GlobalAveragePool", ["c"], ["y"], {})]
    model = models.build(nodes, {"x": [1, 3, "h", "v"]}, ["y"], {"w": image(5, 4, 3, 1, 1)})
    (tmp_path / "model.onnx").write_bytes(model)
    code = """
        import gc, sys
        import numpy as np
        from polydevice import Core

        def resident():
            gc.collect()
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * 4096

        request = Core().load_network(sys.argv[1], "CPU", {"CPU_THREADS_NUM": "1"}).requests[0]
        data = np.ones((1, 3, 100, 100), np.float32)
        for number in range(10_000):
            if number == 4000:
                before = resident()
            rows, columns = divmod(number * 7919 % 10_000, 100)
            y = request.infer({"x": data[:, :, : 1 + rows, : 1 + columns]})["y"]
        print(resident() - before, y[0, 0, 0, 0])
    """
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(tmp_path / "model.onnx")],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    grown, last = result.stdout.split()
    assert int(grown) < 24 << 20
    assert float(last) == pytest.approx(float(image(5, 4, 3, 1, 1)[0].sum()), rel=1e-4)


def test_a_part_of_what_turns_out_empty(core):
    """As the keys of a layer among those of all layers, of texts that have no past yet."""
    rng = np.random.default_rng(3)
    weights = {"layer": np.array(1), "w": rng.standard_normal((6, 5)).astype("f4")}
    nodes = [
        ("Gather", ["past", "layer"], ["mine"], {"axis": 0}),
        ("Concat", ["mine", "x"], ["all"], {"axis": 1}),
        ("MatMul", ["all", "w"], ["y"], {}),
    ]
    model = models.build(nodes, {"past": [3, 2, "n", 6], "x": [2, "m", 6]}, ["y"], weights)
    request = core.load_network(core.read_network(model), "CPU").create_infer_request()
    for past, more in ((5, 3), (7, 2), (9, 4), (11, 1), (0, 3), (4, 2), (0, 1)):
        inputs = {
            "past": rng.standard_normal((3, 2, past, 6)).astype("f4"),
            "x": rng.standard_normal((2, more, 6)).astype("f4"),
        }
        (wanted,) = models.answer(model, inputs)
        np.testing.assert_allclose(request.infer(inputs)["y"], wanted, rtol=1e-4, atol=1e-5)
