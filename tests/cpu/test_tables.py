"""Plans as tables of numbers: the numbers that filling in step by step gives, and right answers."""

from __future__ import annotations

import logging
import random
import threading
import time
from functools import partial

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine import matrices
from polydevice_cpu.onednn import openmp
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling.template import PlanTemplate
from polydevice_cpu.plan.step import ArrayStep, ByMachine, CodeStep, PrimitiveStep
from polydevice_cpu.plan.tables import making
from polydevice_cpu.plan.tables.form import NOTHING, ArrayForm, Run, StripForm, Way
from polydevice_cpu.plan.tables.plan import TablePlan
from tests.cpu import models
from tests.cpu.loading import image, load, wait_for_settling
from tests.cpu.machine_code import are_sigmoids_apart, with_vectors

pytestmark = with_vectors

THREADS = [1, 2]

CLOSE = 3e-4
"""Of answers to ONNX Runtime's: some twelve layers, each of sums of up to 1,000 products in f32."""


def least(wanted):
    """The absolute difference that is allowed near 0."""
    return CLOSE / 10 * np.abs(wanted).max()


def eyes(seed):
    """A network of pictures: windows, means, joined and repeated parts, residual sums, SoftMax."""
    random = np.random.default_rng(seed)
    channels = int(random.choice([16, 24, 40]))
    window, step = int(random.choice([3, 5])), int(random.choice([1, 2]))
    weights = {
        "w1": image(1, channels, 3, 3, 3) / 5, "b1": image(2, channels),
        "w2": image(3, channels, 1, window, window) / 5,
        "w3": image(4, channels, channels, 1, 1) / 6, "w4": image(5, 8, channels, 1, 1) / 6,
        "w5": image(6, channels, 8, 1, 1) / 3, "w6": image(7, 7, 2 * channels, 1, 1) / 9,
        "twice": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    border = [window // 2] * 4
    nodes = [
        ("Conv", ["x", "w1", "b1"], ["a"], {"strides": [step, step], "pads": [1] * 4}),
        ("HardSwish", ["a"], ["c"], {}),
        ("Conv", ["c", "w2"], ["d"], {"group": channels, "pads": border}),
        ("Relu", ["d"], ["e"], {}),
        ("GlobalAveragePool", ["e"], ["f"], {}),
        ("Conv", ["f", "w4"], ["g"], {}),
        ("Relu", ["g"], ["h"], {}),
        ("Conv", ["h", "w5"], ["i"], {}),
        ("Sigmoid", ["i"], ["j"], {}),
        ("Mul", ["e", "j"], ["k"], {}),
        ("Conv", ["k", "w3"], ["l"], {}),
        ("Add", ["l", "c"], ["m"], {}),
        ("MaxPool", ["m"], ["n"], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
        ("Resize", ["n", "", "twice"], ["o"], {"mode": "nearest", "nearest_mode": "floor",
         "coordinate_transformation_mode": "asymmetric"}),
        ("Shape", ["m"], ["size"], {"start": 2}),
        ("Slice", ["o", "none", "size", "axes"], ["p"], {}),
        ("Concat", ["p", "m"], ["q"], {"axis": 1}),
        ("Conv", ["q", "w6"], ["r"], {}),
        ("Softmax", ["r"], ["y"], {"axis": 1}),
    ]  # fmt: skip
    weights |= {"none": np.zeros(2, np.int64), "axes": np.array([2, 3], np.int64)}
    model = models.build(nodes, {"x": ["n", 3, "h", "w"]}, ["y"], weights, opset=18)
    return model, lambda number: image(number, 1, 3, *sizes(seed, number))


def sizes(seed, number):
    drawn = np.random.default_rng((seed, number)).integers(3, 27, 2)
    return [2 * int(size) for size in drawn]


def words(seed, function="Gelu"):
    """A layer of a transformer: normalisation, attention of heads, a product of rows and GELU."""
    heads, wide = 4, 64
    weights = {
        "scale": image(1, wide) + 1, "bias": image(2, wide), "q": image(3, wide, wide) / 8,
        "k": image(4, wide, wide) / 8, "v": image(5, wide, wide) / 8, "up": image(6, wide, 96) / 8,
        "down": image(7, 96, wide) / 9, "parts": np.array([0, 0, heads, wide // heads], np.int64),
        "whole": np.array([0, 0, wide], np.int64), "root": np.float32(0.25).reshape(1),
    }  # fmt: skip
    nodes = [("LayerNormalization", ["x", "scale", "bias"], ["n"], {})]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            ("MatMul", ["n", name], [f"{name}1"], {}),
            ("Reshape", [f"{name}1", "parts"], [f"{name}2"], {}),
            ("Transpose", [f"{name}2"], [f"{name}3"], {"perm": order}),
        ]
    nodes += [
        ("MatMul", ["q3", "k3"], ["s"], {}), ("Mul", ["s", "root"], ["t"], {}),
        ("Softmax", ["t"], ["u"], {"axis": -1}), ("MatMul", ["u", "v3"], ["o"], {}),
        ("Transpose", ["o"], ["o1"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["o1", "whole"], ["o2"], {}), ("Add", ["o2", "x"], ["r"], {}),
        ("MatMul", ["r", "up"], ["g"], {}), (function, ["g"], ["h"], {}),
        ("MatMul", ["h", "down"], ["i"], {}), ("Add", ["i", "r"], ["y"], {}),
    ]  # fmt: skip
    model = models.build(nodes, {"x": ["n", "t", wide]}, ["y"], weights, opset=20)
    return model, lambda number: image(number, 2, sizes(seed, number)[0], wide)


def means(seed):
    """Means over axes of any size, by machine code that no formula tells, and running sums."""
    layers = range(6)
    weights = {f"w{layer}": image(seed + layer, 64, 64) / 4 for layer in layers}
    weights["axis"] = np.int64(1)
    nodes = [
        ("ReduceMean", ["x"], ["m"], {"axes": [-1]}),
        ("Transpose", ["m"], ["m1"], {"perm": [0, 2, 1]}),
        ("Transpose", ["x"], ["t"], {"perm": [0, 2, 1]}),
    ]
    for layer in layers:
        read, written = f"r{layer - 1}" if layer else "t", f"r{layer}" if layer < 5 else "a"
        nodes += [
            ("MatMul", [read, f"w{layer}"], [f"p{layer}"], {}),
            ("Softmax", [f"p{layer}"], [written], {"axis": -1}),
        ]
    nodes += [
        ("ReduceMean", ["a"], ["b"], {"axes": [1, 2]}),
        ("Transpose", ["a"], ["c"], {"perm": [0, 2, 1]}),
        ("ReduceMean", ["c"], ["d"], {"axes": [-1]}),
        ("CumSum", ["a", "axis"], ["e"], {}),
        ("Sub", ["e", "b"], ["f"], {}),
        ("Transpose", ["d"], ["g"], {"perm": [0, 2, 1]}),
        ("Sub", ["f", "g"], ["h"], {}),
        ("Sub", ["h", "m1"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", 64, "t"]}, ["y"], weights, opset=17)
    return model, lambda number: image(number, 2, 64, sizes(seed, number)[0])


NETWORKS = {"eyes": eyes, "words": words, "mish": partial(words, function="Mish"), "means": means}


def told(code):
    """Of each call the function, and what it is told."""
    ends = [*code.starts[1:], len(code.numbers)]
    for number, (start, end) in enumerate(zip(code.starts, ends, strict=True)):
        yield code.numbers[5 * number], list(code.numbers[start:end])


def of_table(plan, number):
    """The same of a step of a table, without calls of what is idle; what is an address is None."""
    first, end = plan.form.calls[number]
    idle = function_of(matrices.IDLE).address
    starts = sorted({int(word) // 8 for word in plan.words[1 : 5 * _calls(plan) : 5]})
    for call in range(first, end):
        start = int(plan.words[5 * call + 1]) // 8
        behind = next((other for other in starts if other > start), len(plan.words))
        bases = plan.form.bases[start:behind]
        numbers = [
            None if base != NOTHING else int(word)
            for word, base in zip(plan.words[start:behind], bases, strict=True)
        ]
        if plan.words[5 * call] != idle:
            yield int(plan.words[5 * call]), numbers


def _calls(plan):
    return max(end for _, end in plan.form.calls.values())


def assert_same_numbers(plan):
    """That machine code is told what the plan step by step tells it; return of how many calls."""
    seen = 0
    for run in plan.order:
        for number in range(*run.steps) if isinstance(run, Run) else ():
            step = plan.steps[number]
            code = step.code if isinstance(step, CodeStep) else None
            if isinstance(step, ArrayStep):
                compute = step.start(None)
                code = compute.code(step.values) if isinstance(compute, ByMachine) else None
            if code is None or code.threads > 1:  # NumPy takes the mean of few, say
                continue
            has_windows = step.type.startswith(("Conv", "GroupConv", "MaxPool", "AvgPool"))
            if not has_windows and step.outputs[0].shape[0] == 1:  # an axis more is walked through
                continue
            roots = [(value.storage.root, value.offset_bytes) for value in step.values]
            constants = [root.address + at for root, at in roots if root.array is not None]
            for made, wanted in zip(of_table(plan, number), told(code), strict=True):
                assert made[0] == wanted[0]
                if len(made[1]) > len(wanted[1]):  # windows at ends are kinds of their own
                    assert has_windows
                    continue
                assert len(made[1]) == len(wanted[1])
                for mine, theirs in zip(made[1], wanted[1], strict=True):
                    assert mine in (None, theirs, *(theirs + address for address in constants))
                seen += 1
    return seen


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("seed", range(2))
def test_answers_and_numbers_for_many_sizes(core, name, threads, seed, monkeypatch):
    """As ONNX Runtime, and to the bit as once the plan has settled."""
    monkeypatch.setattr(settling, "RUNS", 3)
    model, feed = NETWORKS[name](seed)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    request = executable.create_infer_request()
    tables, kinds, calls = 0, set(), 0
    for number in range(24):
        x = feed(number)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"].copy()
        np.testing.assert_allclose(got, wanted, rtol=CLOSE, atol=least(wanted))
        plan = executable.latest_plan()
        if not isinstance(plan, TablePlan):
            continue
        tables += 1
        kinds |= {type(each) for each in plan.order}
        calls += assert_same_numbers(plan)
        for _ in range(3):
            np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
        wait_for_settling()
        np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
    assert tables > 6
    gelu = {Run} if are_sigmoids_apart() else {Run, StripForm}  # what is fused is oneDNN's
    wanted = {"eyes": {Run, ArrayForm}, "words": gelu, "mish": {Run, StripForm}, "means": {Run}}
    assert wanted[name] <= kinds
    assert not (name == "words" and are_sigmoids_apart() and StripForm in kinds)
    assert name == "means" or calls > 3 * tables // threads


def is_table(executable, request, x):
    """Whether the plan for an input is one."""
    request.infer({"x": x})
    return isinstance(executable.latest_plan(), TablePlan)


@pytest.mark.parametrize("axes", [[3], [1, 2, 3]], ids=str)
def test_what_is_no_formula_has_its_own_code_as_in_settled_plans(core, axes, monkeypatch):
    """A mean over a size that is open divides by it, of which code is told a float."""
    monkeypatch.setattr(settling, "RUNS", 3)
    nodes = [
        ("ReduceMean", ["x", "axes"], ["m"], {}),
        ("Sub", ["x", "m"], ["s"], {}),
        ("Conv", ["s", "w"], ["y"], {"kernel_shape": [1, 1]}),
    ]
    weights = {"w": image(3, 8, 3, 1, 1), "axes": np.array(axes)}
    model = models.build(nodes, {"x": ["n", 3, "h", "w_"]}, ["y"], weights, opset=20)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    drawn, tables = np.random.default_rng(0), 0
    for number in range(30):
        x = image(number, int(drawn.integers(1, 4)), 3, *map(int, drawn.integers(1, 20, 2)))
        got = request.infer({"x": x})["y"].copy()
        tables += isinstance(executable.latest_plan(), TablePlan)
        for _ in range(3):
            np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
        wait_for_settling()
        np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
    assert tables > 6


def test_quotients_of_integers_may_refuse(core):
    """A divisor that is 0 is NumPy's, whichever plan an inference has."""
    nodes, read = [("Div", ["a", "b"], ["d"], {}), ("Mod", ["a", "b"], ["r"], {})], "x"
    for layer in range(6):
        nodes += [("MatMul", [read, "w"], [f"p{layer}"], {})]
        nodes += [("Softmax", [f"p{layer}"], [f"q{layer}"], {"axis": -1})]
        read = f"q{layer}"
    made = [helper.make_node(kind, ins, outs, **more) for kind, ins, outs, more in nodes]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])]
    given += [helper.make_tensor_value_info(name, TensorProto.INT64, [3]) for name in "ab"]
    results = [helper.make_empty_tensor_value_info(name) for name in ("d", "r", read)]
    stored = [numpy_helper.from_array(image(1, 64, 64), "w")]
    graph = helper.make_graph(made, "g", given, results, stored)
    imports = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()
    executable, tables = load(core, model, CPU_THREADS_NUM=1), 0
    request = executable.create_infer_request()
    for rows in range(20, 40):
        feed = {"x": image(rows, rows, 64), "a": np.array([7, 1, 4]), "b": np.array([0, 3, 2])}
        got = request.infer(feed)
        np.testing.assert_array_equal(got["d"], [0, 0, 2])
        np.testing.assert_array_equal(got["r"], [0, 1, 0])
        tables += isinstance(executable.latest_plan(), TablePlan)
    assert tables > 6


def test_who_fills_in_keeps_its_number_of_threads(core, monkeypatch):
    seen = []
    learn = PlanTemplate._learn

    def noting(template, sizes):
        before = openmp.thread_count()
        learn(template, sizes)
        seen.append((before, openmp.thread_count()))

    monkeypatch.setattr(PlanTemplate, "_learn", noting)
    model, feed = means(0)
    executable = load(core, model, CPU_THREADS_NUM=1)
    with openmp.threads(3):
        for number in range(8):
            executable.infer({"x": feed(number)})
    assert seen
    assert all(before == behind for before, behind in seen)


@pytest.mark.parametrize("name", NETWORKS)
def test_inputs_and_outputs_of_the_user(core, name):
    """Blobs of the user's own are read and written, whichever arrays they are."""
    model, feed = NETWORKS[name](3)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    last = next(number for number in range(40) if is_table(executable, request, feed(number)))
    for seed in range(3):
        x = image(seed, *feed(last).shape)
        (wanted,) = models.answer(model, {"x": x})
        y = np.zeros(wanted.shape, np.float32)
        request.set_blob("x", x)
        request.set_blob("y", y)
        request.infer()
        np.testing.assert_allclose(y, wanted, rtol=CLOSE, atol=least(wanted))


def test_two_requests_with_sizes_of_their_own(core):
    model, feed = eyes(1)
    executable = load(core, model, CPU_THREADS_NUM=1)
    requests = [executable.create_infer_request() for _ in range(2)]
    for number in range(20):
        x = [feed(number), feed(number + 1)]
        for request, each in zip(requests, x, strict=True):
            request.set_blob("x", each)
            request.start_async()
        for request, each in zip(requests, x, strict=True):
            assert request.wait() == 0
            (wanted,) = models.answer(model, {"x": each})
            got = request.get_blob("y")
            np.testing.assert_allclose(
                got, wanted, rtol=CLOSE, atol=CLOSE / 10 * np.abs(wanted).max()
            )


def test_reports_know_all_steps_of_a_table(core):
    model, feed = eyes(2)
    executable = load(core, model, CPU_THREADS_NUM=1, PERF_COUNT="YES")
    request = executable.create_infer_request()
    for number in range(24):
        x = feed(number)
        got = request.infer({"x": x})["y"]
        (wanted,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(got, wanted, rtol=CLOSE, atol=least(wanted))
    plan = executable.latest_plan()
    assert isinstance(plan, TablePlan)
    assert len(plan.steps) == plan.step_count
    assert not any(isinstance(step, PrimitiveStep) and not step.name for step in plan.late.values())
    counts = request.get_perf_counts()
    times = [count["real_time"] for count in counts.values()]
    assert sum(time > 0 for time in times) > 5


def test_to_make_the_steps_of_a_table_is_no_layer_s_time(core, monkeypatch):
    """The first step of a table waits for nothing that is made for the report."""
    waited = []
    make = TablePlan.steps.fget

    def steps(plan):
        time.sleep(0.05)
        waited.append(plan)
        return make(plan)

    monkeypatch.setattr(TablePlan, "steps", property(steps))
    model, feed = eyes(2)
    executable = load(core, model, CPU_THREADS_NUM=1, PERF_COUNT="YES")
    request = executable.create_infer_request()
    for number in range(12):
        request.infer({"x": feed(number)})
        times = [count["real_time"] for count in request.get_perf_counts().values()]
        if waited:
            break
    assert waited
    assert max(times) < 45_000  # us


def test_what_cannot_be_a_table_is_told_and_filled_in_step_by_step(core, monkeypatch, caplog):
    def fail(*_):
        raise TypeError("for this test")

    monkeypatch.setattr(making.Making, "make", fail)
    model, feed = eyes(0)
    executable = load(core, model, CPU_THREADS_NUM=1)
    with caplog.at_level(logging.WARNING):
        for number in range(12):
            x = feed(number)
            (wanted,) = models.answer(model, {"x": x})
            got = executable.infer({"x": x})["y"]
            np.testing.assert_allclose(
                got, wanted, rtol=CLOSE, atol=CLOSE / 10 * np.abs(wanted).max()
            )
    assert not isinstance(executable.latest_plan(), TablePlan)
    assert "for this test" in caplog.text
    assert "report it" in caplog.text


def test_templates_make_a_bounded_number_of_tables(core, monkeypatch):
    tried = []
    monkeypatch.setattr("polydevice_cpu.plan.filling.template.MOST_TABLES", 1)
    learn = making.table_template
    monkeypatch.setattr(
        "polydevice_cpu.plan.filling.template.table_template",
        lambda *given: (tried.append(given[-1]), learn(*given))[1],
    )
    templates = set()
    fit = PlanTemplate.fit
    monkeypatch.setattr(PlanTemplate, "fit", lambda own, n: (templates.add(own), fit(own, n))[1])
    model, feed = eyes(4)
    executable = load(core, model, CPU_THREADS_NUM=1)
    for number in range(40):
        executable.infer({"x": feed(number)})
    assert 1 <= len(tried) <= len(templates)


@pytest.mark.parametrize("seed", range(5))
def test_steps_without_some_ways_have_the_next_one(core, seed):
    """Whichever ways are no choice, each step is computed once, in order, in the first way left."""
    model, feed = words(seed)
    executable = load(core, model, CPU_THREADS_NUM=1)
    for number in range(6):
        executable.infer({"x": feed(number)})
    plan = executable.latest_plan()
    assert isinstance(plan, TablePlan)
    form, rng = plan.form, random.Random(seed)
    ways = {Way.CODE: form.calls, Way.NUMPY: form.arrays, Way.STRIPS: form.strips}
    all_ways = [(number, way) for way, found in ways.items() for number in found]
    kinds = {Way.CODE: Run, Way.NUMPY: ArrayForm, Way.STRIPS: StripForm, None: int}
    for count in range(len(all_ways) + 1):
        broken, seen = frozenset(rng.sample(all_ways, count)), []
        for each in form.order(broken):
            number = each if isinstance(each, int) else getattr(each, "step", 0)
            steps = number, number + 1
            if isinstance(each, Run):
                steps = each.steps
                assert each.calls == (form.calls[steps[0]][0], form.calls[steps[1] - 1][1])
            seen += [(number, type(each)) for number in range(*steps)]
        left = [
            [way for way in Way if number in ways[way] and (number, way) not in broken]
            for number in range(form.step_count)
        ]
        assert seen == [(n, kinds[next(iter(own), None)]) for n, own in enumerate(left)]


def test_sizes_that_come_while_a_table_is_made_get_theirs_afterwards(core, monkeypatch):
    where = "polydevice_cpu.plan.filling.template"
    monkeypatch.setattr(f"{where}.OF_STEPS", 1000)
    monkeypatch.setattr(f"{where}.MOST_LATE", -1)  # as if every table left some steps out
    tried, go_on, learn = [], threading.Event(), making.table_template

    def made(*given):
        tried.append(list(given[3]))
        assert len(tried) < 2 or go_on.wait(60)
        return learn(*given)

    monkeypatch.setattr(f"{where}.table_template", made)
    model, _ = words(0)
    executable = load(core, model, CPU_THREADS_NUM=1)
    for number, length in enumerate((20, 30, 40, 50, 60)):
        executable.infer({"x": image(number, 2, length, 64)})
    go_on.set()
    wait_for_settling()
    assert tried == [[2, 30], [2, 40], [2, 60]]


def test_samples_of_planes_of_open_sizes_are_no_part_of_a_table(core, caplog):
    """Their code is told floats of the sizes."""
    nodes = [
        ("Relu", ["x"], ["r"], {}), ("Sigmoid", ["r"], ["s"], {}), ("Tanh", ["s"], ["t"], {}),
        ("Conv", ["t", "w"], ["c"], {"kernel_shape": [1, 1]}),
        ("GridSample", ["c", "grid"], ["y"], {"mode": "linear"}),
    ]  # fmt: skip
    sizes = {"x": ["n", 3, "h", "w_"], "grid": ["n", 5, 4, 2]}
    model = models.build(nodes, sizes, ["y"], {"w": image(3, 8, 3, 1, 1)}, opset=20)
    executable = load(core, model, CPU_THREADS_NUM=1)
    request, tables, drawn = executable.create_infer_request(), 0, np.random.default_rng(2)
    for number in range(20):
        high, wide = map(int, drawn.integers(5, 30, 2))
        feed = {"x": image(number, 1, 3, high, wide), "grid": np.tanh(image(number, 1, 5, 4, 2))}
        (wanted,) = models.answer(model, feed)
        np.testing.assert_allclose(request.infer(feed)["y"], wanted, rtol=CLOSE, atol=CLOSE)
        tables += isinstance(executable.latest_plan(), TablePlan)
    assert tables > 6
    assert "no table" not in caplog.text
