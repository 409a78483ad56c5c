"""What a network whose sizes are not known needs for the second shape and later ones."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest

from polydevice.ops.softmax import SoftMax
from polydevice_gpu.cl.programs.program import ProgramBuilder
from polydevice_gpu.compiler.new_shapes.filling import FilledContents
from polydevice_gpu.compiler.new_shapes.specialiser import Specialiser
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.launch import Local
from polydevice_gpu.runtime.plan import HostStep
from polydevice_gpu.runtime.trials import plan_trial
from tests.cpu import models
from tests.cpu.loading import image
from tests.gpu.graphs import Sketch, compiled


def residual(sizes, batches=None):
    """A residual network, depthwise convolution and all, of any batch, height and width."""
    read = onnx.load_from_string(models.residual(16, "n", "s"))
    for axis, name in ((2, "height"), (3, "width")):
        read.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    batches = batches or [1] * len(sizes)
    inputs = [image(k, n, 3, *size) for k, (n, size) in enumerate(zip(batches, sizes, strict=True))]
    return read.SerializeToString(), inputs


def of_any_batch(batches):
    """The same, one picture or several of a size."""
    return residual([(66, 70)] * len(batches), batches)


def attention(lengths):
    """Rows times matrices, softmax and sums of rows, for sequences of any length."""
    weights = {name: image(k, 24, 24) * np.float32(0.2) for k, name in enumerate("qkvo")}
    nodes = [("MatMul", ["x", name], [f"{name}x"], {}) for name in "qkv"]
    nodes += [
        ("Transpose", ["kx"], ["kt"], {"perm": [0, 2, 1]}),
        ("MatMul", ["qx", "kt"], ["s"], {}),
        ("Softmax", ["s"], ["p"], {"axis": -1}),
        ("MatMul", ["p", "vx"], ["a"], {}),
        ("MatMul", ["a", "o"], ["ao"], {}),
        ("Add", ["ao", "x"], ["r"], {}),
        ("Tanh", ["r"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [1, "length", 24]}, ["y"], weights)
    return model, [image(k, 1, length, 24) for k, length in enumerate(lengths)]


def pieces(lengths):
    """Parts of rows and of constants, of computed sizes: reshaped, repeated and put together."""
    weights = {
        "table": image(9, 512, 6),
        "ids": np.arange(512, dtype=np.int64)[None],
        "zero": np.array([0], np.int64),
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "ends": np.array([-1, 6], np.int64),
        "far": np.array([1 << 40], np.int64),
        "scales": np.array([1, 2, 1], np.float32),
        "minus": np.array(-1, np.int64),
    }
    nodes = [
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "one"], ["length"], {"axis": 0}),
        ("Slice", ["ids", "zero", "length", "one"], ["places"], {}),
        ("Gather", ["table", "places"], ["embedded"], {"axis": 0}),
        ("Concat", ["two", "length", "ends"], ["pattern"], {"axis": 0}),
        ("Add", ["x", "embedded"], ["sum"], {}),
        ("Div", ["length", "two"], ["half"], {}),
        ("Slice", ["sum", "zero", "half", "one"], ["first"], {}),
        ("Slice", ["sum", "half", "far", "one"], ["second"], {}),
        ("Concat", ["second", "first", "sum"], ["turned"], {"axis": 1}),
        ("Resize", ["turned", "", "scales"], ["wide"], {
            "mode": "nearest", "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor"}),
        ("Equal", ["pattern", "minus"], ["free"], {}),
        ("Where", ["free", "one", "pattern"], ["sizes"], {}),
        ("Slice", ["sizes", "zero", "two", "zero"], ["two sizes"], {}),
        ("Concat", ["two sizes", "one"], ["tall"], {"axis": 0}),
        ("ReduceMax", ["x"], ["most"], {"axes": [2], "keepdims": 1}),
        ("Expand", ["most", "tall"], ["spread"], {}),
        ("ReduceMean", ["wide"], ["mean"], {"axes": [1], "keepdims": 1}),
        ("Mul", ["spread", "mean"], ["y"], {}),
    ]  # fmt: skip
    model = models.build(nodes, {"x": [1, "length", 6]}, ["y", "wide"], weights)
    return model, [image(k, 1, length, 6) for k, length in enumerate(lengths)]


def positions(lengths):
    """Ranges, running sums, the last row, and masks of what is padded, as exported texts have."""
    weights = {
        "table": image(9, 512, 6),
        "zero": np.array(0, np.int64),
        "one": np.array(1, np.int64),
        "axis": np.array([1], np.int64),
        "far": np.array(-1e4, np.float32),
        "none": np.array(0, np.float32),
        "last": np.array(-1, np.int64),
        "last two": np.array([-2, -1], np.int64),
    }
    nodes = [
        ("Shape", ["x"], ["shape"], {}),
        ("Gather", ["shape", "one"], ["length"], {"axis": 0}),
        ("Range", ["zero", "length", "one"], ["places"], {}),
        ("Unsqueeze", ["places", "axis"], ["rows"], {}),
        ("LessOrEqual", ["places", "rows"], ["before"], {}),
        ("Where", ["before", "none", "far"], ["mask"], {}),
        ("Gather", ["table", "places"], ["embedded"], {"axis": 0}),
        ("Add", ["x", "embedded"], ["sum"], {}),
        ("Transpose", ["sum"], ["turned"], {"perm": [0, 2, 1]}),
        ("MatMul", ["sum", "turned"], ["scores"], {}),
        ("Add", ["scores", "mask"], ["masked"], {}),
        ("Softmax", ["masked"], ["shares"], {"axis": -1}),
        ("MatMul", ["shares", "sum"], ["mixed"], {}),
        ("CumSum", ["mixed", "axis"], ["running"], {}),
        ("Gather", ["running", "last"], ["y"], {"axis": 1}),
        ("Gather", ["mixed", "last two"], ["z"], {"axis": 1}),
    ]
    model = models.build(nodes, {"x": [1, "length", 6]}, ["y", "z", "running"], weights)
    return model, [image(k, 1, length, 6) for k, length in enumerate(lengths)]


def recurrent(lengths):
    """Steps of known lengths, which are those of the input."""
    weights = {"w": image(1, 2, 32, 6), "r": image(2, 2, 32, 8), "b": image(3, 2, 64)}
    nodes = [("LSTM", ["x", "w", "r", "b"], ["y", "", ""], {
        "hidden_size": 8, "direction": "bidirectional"})]  # fmt: skip
    model = models.build(nodes, {"x": ["length", 1, 6]}, ["y"], weights)
    return model, [image(k, length, 1, 6) for k, length in enumerate(lengths)]


def pyramid(sizes):
    """Linear interpolation by scales, and to the size of another value."""
    weights = {
        "a": image(1, 8, 3, 3, 3) - np.float32(0.5),
        "b": image(2, 8, 8, 3, 3) - np.float32(0.5),
        "double": np.array([1, 1, 2, 2], np.float32),
        "two": np.array([2], np.int64),
        "four": np.array([4], np.int64),
        "channels": np.array([1, 8], np.int64),
    }
    nodes = [
        ("Conv", ["x", "a"], ["wide"], {"pads": [1] * 4}),
        ("Conv", ["wide", "b"], ["small"], {"pads": [1] * 4, "strides": [2, 2]}),
        ("Resize", ["small", "", "double"], ["up"], {"mode": "linear"}),
        ("Shape", ["wide"], ["shape"], {}),
        ("Slice", ["shape", "two", "four"], ["plane"], {}),
        ("Concat", ["channels", "plane"], ["sizes"], {"axis": 0}),
        ("Resize", ["small", "", "", "sizes"], ["same"], {
            "mode": "linear", "coordinate_transformation_mode": "align_corners"}),
        ("Add", ["same", "wide"], ["sum"], {}),
        ("Relu", ["sum"], ["y"], {}),
        ("Relu", ["up"], ["z"], {}),
    ]  # fmt: skip
    model = models.build(nodes, {"x": [1, 3, "height", "width"]}, ["y", "z"], weights)
    return model, [image(k, 1, 3, *size) for k, size in enumerate(sizes)]


CASES = {
    "positions": (positions, [40, 42, 9, 100, 33]),
    "recurrent": (recurrent, [40, 41, 64, 100, 33]),
    "pyramid": (pyramid, [(34, 50), (35, 49), (64, 40), (41, 96), (33, 51)]),
    "residual": (residual, [(66, 70), (67, 93), (81, 64), (96, 130), (129, 65)]),
    "one after several": (of_any_batch, [3, 4, 1, 2]),
    "attention": (attention, [40, 41, 64, 100, 33]),
    "pieces": (pieces, [40, 42, 41, 100, 33]),
}


@pytest.mark.parametrize("case", CASES)
def test_later_shapes_need_no_program_of_their_own(case, core, opencl, monkeypatch):
    make, sizes = CASES[case]
    model, inputs = make(sizes)
    seen = set()
    build_all = ProgramBuilder.build_all

    def noted(self, sources):
        seen.update(sources)
        return build_all(self, sources)

    monkeypatch.setattr(ProgramBuilder, "build_all", noted)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    for number, x in enumerate(inputs):
        before = set(seen)
        got = request.infer({"x": x})
        for ours, theirs in zip(got.values(), models.answer(model, {"x": x}), strict=True):
            scale = np.abs(theirs).max(initial=0)
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)
        # Work-items in lockstep read aligned vectors where they can, and choose among more tiles.
        if number and not opencl.capabilities.local_memory_is_dedicated:
            assert sorted(source.name for source in seen - before) == []
            assert number > 1 or before, "nothing was seen"
            # Drivers for processors compile for every local size, and choose one for every size.
            launches = [x for step in executable.latest_plan().steps for x in step.launches]
            assert [launch.kernel for launch in launches if launch.local_size is None] == []
            assert (
                f"plans for {number + 1} sets of shapes are kept; layers with programs for these "
                "shapes alone: none"
            ) in executable.explain()


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_built_behind_for_sizes_that_change(case, core, opencl, monkeypatch):
    """Which programs would be better for some of them is left open until many want these."""
    if opencl.capabilities.local_memory_is_dedicated:
        pytest.skip("work-items in lockstep gain more by choices")
    make, sizes = CASES[case]
    model, inputs = make(sizes)
    built = []
    compile_ = ProgramBuilder._compile

    def noted(self, name, *rest):
        built.append(name)
        return compile_(self, name, *rest)

    monkeypatch.setattr(ProgramBuilder, "_compile", noted)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    for number, x in enumerate(inputs):
        built.clear()
        for _ in range(3):
            got = request.infer({"x": x})
        executable._specialiser.wait(time.monotonic() + 60)
        assert number < 2 or built == []
        for ours, theirs in zip(got.values(), models.answer(model, {"x": x}), strict=True):
            scale = np.abs(theirs).max(initial=0)
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("others", [0, 1])
def test_what_many_inferences_want_is_built_behind(core, opencl, monkeypatch, others):
    if opencl.capabilities.local_memory_is_dedicated:
        pytest.skip("work-items in lockstep gain more by choices")
    monkeypatch.setattr("polydevice_gpu.executable.RUNS", 6)
    monkeypatch.setattr(plan_trial, "_times", lambda *_: (1e-3, 2e-3))
    model, inputs = attention([40, 9, 10][: 2 + others])
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    request.infer({"x": inputs[0]})
    for number in range(6):
        x = inputs[1 + number % (1 + others)]
        (got,) = request.infer({"x": x}).values()
        (theirs,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(got, theirs, rtol=1e-4, atol=1e-4)
        assert executable.latest_plan().others
        executable._specialiser.wait(time.monotonic() + 60)
    for x in inputs[1:]:
        for _ in range(2):
            request.infer({"x": x})
            executable._specialiser.wait(time.monotonic() + 60)
        (got,) = request.infer({"x": x}).values()
        np.testing.assert_allclose(got, models.answer(model, {"x": x})[0], rtol=1e-4, atol=1e-4)
        assert not executable.latest_plan().others
    assert len(executable._prepared.templates._found) == 2


@pytest.mark.parametrize("case", ["positions", "recurrent", "pyramid"])
def test_later_shapes_are_filled_in(case, core, opencl):
    if opencl.capabilities.local_memory_is_dedicated:
        pytest.skip("work-items in lockstep choose among more tiles, which are classes of sizes")
    make, sizes = CASES[case]
    model, inputs = make(sizes)
    executable = core.load_network(core.read_network(model), "GPU")
    for x in inputs:
        executable.infer({"x": x})
    assert executable._prepared.templates.filled >= len(inputs) - 2, executable.explain()


@pytest.mark.parametrize(
    ("make", "sizes"),
    [(attention, [40, 7, 3, 2]), (residual, [(66, 70), (9, 66), (17, 8), (7, 6)])],
)
def test_small_sizes_run_what_was_built_for_larger_ones(core, opencl, monkeypatch, make, sizes):
    """What would be better for them is built behind, which is left out here."""
    if opencl.capabilities.local_memory_is_dedicated:
        pytest.skip("work-items in lockstep read aligned vectors, and choose among more tiles")
    monkeypatch.setattr(Specialiser, "note", lambda *_: None)
    built: list[str] = []
    build_all = ProgramBuilder.build_all

    def noted(self, sources):
        built.extend(source.name for source in sources)
        return build_all(self, sources)

    monkeypatch.setattr(ProgramBuilder, "build_all", noted)
    model, inputs = make(sizes)
    request = core.load_network(core.read_network(model), "GPU").create_infer_request()
    for number, x in enumerate(inputs):
        built.clear()
        got = request.infer({"x": x})
        assert bool(built) == (not number)
        for ours, theirs in zip(got.values(), models.answer(model, {"x": x}), strict=True):
            scale = np.abs(theirs).max(initial=0)
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("by_arrays", [False, True])
def test_launches_of_filled_plans_by_arrays_and_one_by_one(
    core, opencl, monkeypatch, by_arrays
) -> None:
    """One by one where a driver cannot copy kernel objects; layers have their times either way."""
    if by_arrays and not opencl.capabilities.kernel_copies:
        pytest.skip(f"{opencl.name}: {opencl.capability_reasons.get('kernel_copies')}")
    if not by_arrays:
        monkeypatch.setattr(FilledContents, "stretches", lambda _: None)
    model, inputs = residual([(66, 70), (67, 93), (81, 64)])
    executable = core.load_network(core.read_network(model), "GPU", {"PERF_COUNT": True})
    request = executable.create_infer_request()
    for x in inputs:
        got = request.infer({"x": x})
        for ours, theirs in zip(got.values(), models.answer(model, {"x": x}), strict=True):
            scale = np.abs(theirs).max(initial=0)
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * scale)
        contents = executable.latest_plan().contents
        assert (contents.stretches() is not None) == by_arrays
        rows = request.get_perf_counts().values()
        assert sum(row["real_time"] > 0 for row in rows) > 3


def described(plan):
    """What a plan launches, and the memory that it takes."""
    launches = [
        (
            *(launch.text, launch.global_size, launch.local_size, launch.options),
            *((type(a), a) for a in launch.arguments if isinstance(a, (np.generic, Local))),
            *(a.placed for a in launch.arguments if isinstance(a, Value)),
        )
        for step in plan.steps
        for launch in step.launches
    ]
    return launches, plan.arena.blocks, plan.arena.live_bytes


@pytest.mark.parametrize("case", ["residual", "attention"])
def test_plans_are_filled_in_as_stages_make_them(case, core, opencl):
    make, sizes = CASES[case]
    rng = np.random.default_rng(5)
    sizes += rng.integers(33, 140, (6, 2) if case == "residual" else 9).tolist()
    # Of one picture there is more to say where that is known.
    model, inputs = make(sizes, [2] * len(sizes)) if case == "residual" else make(sizes)
    executable = core.load_network(core.read_network(model), "GPU")
    compiler, prepared = executable._compiler, executable._prepared
    if compiler.builds_ahead:
        pytest.skip("programs that are built stand in for others here")
    work = executable._weights, executable.memory
    for x in inputs:
        shapes = (x.shape,)
        made = compiler._plan_for(prepared, shapes, *work, stand_in=False)
        filled = compiler.plan(prepared, shapes, *work)
        if filled.template is None or filled.others:
            assert compiler.learn(prepared, shapes, *work)
            filled = compiler.plan(prepared, shapes, *work)
        assert filled.is_final
        assert described(filled) == described(made)
    assert prepared.templates.filled >= 3


def boxes(sizes):
    """Boxes that a convolution finds, of which the host suppresses some."""
    weights = {
        "w": image(1, 5, 3, 4, 4) * np.float32(0.05),
        "most": np.array([8], np.int64), "overlap": np.float32([0.3]),
        "least": np.float32([-9]), "flat": np.array([1, 5, -1], np.int64),
        "parts": np.array([4, 1], np.int64),
    }  # fmt: skip
    nodes = [
        ("Conv", ["x", "w"], ["found"], {"strides": [4, 4]}),
        ("Tanh", ["found"], ["limited"], {}),
        ("Reshape", ["limited", "flat"], ["columns"], {}),
        ("Split", ["columns", "parts"], ["sides", "scores"], {"axis": 1}),
        ("Transpose", ["sides"], ["boxes"], {"perm": [0, 2, 1]}),
        ("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["taken"], {}),
        ("Cast", ["taken"], ["y"], {"to": 1}),
    ]
    model = models.build(nodes, {"x": [1, 3, "height", "width"]}, ["y"], weights)
    return model, [image(k, 1, 3, *size) for k, size in enumerate(sizes)]


def test_a_node_that_computes_other_values_is_like_it_otherwise():
    sketch = Sketch()
    graph = compiled(sketch.network(y=sketch.add("y", SoftMax(1), sketch.input("x", 2, 3))))
    node = graph.nodes[-1]
    inputs, outputs = [Value(v.name, v.element_type, v.shape) for v in node.inputs], []
    made = node.with_values(inputs, outputs)
    assert made.inputs is inputs and made.outputs is outputs
    for name in {*GpuNode.__slots__} - {"inputs", "outputs"}:
        assert getattr(made, name) is getattr(node, name), name


def test_plans_with_layers_on_the_host_are_filled_in(core, opencl):
    model, inputs = boxes([(64, 80), (68, 96), (100, 84), (128, 76)])
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    for x in inputs:
        (got,) = request.infer({"x": x}).values()
        np.testing.assert_array_equal(got, models.answer(model, {"x": x})[0])
    assert executable._prepared.templates.filled >= 3
    hosts = {
        step.executable
        for plan in executable.plans.plans()
        for step in plan.steps
        if isinstance(step, HostStep)
    }
    assert len(hosts) == 1


def test_shapes_at_once(core, opencl):
    model, inputs = attention([48, *range(50, 58)])
    executable = core.load_network(core.read_network(model), "GPU")

    def right(x):
        (got,) = executable.create_infer_request().infer({"x": x}).values()
        (expected,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(right, inputs))
    executable.close()


@pytest.mark.parametrize("is_faster", [True, False])
def test_built_programs_stand_in_until_better_ones_are_faster(
    is_faster, core, opencl, lockstep, compiled_here, monkeypatch
):
    monkeypatch.setattr(
        plan_trial, "_times", lambda *_: (1e-3, 2e-3) if is_faster else (2e-3, 1e-3)
    )
    model = models.build(
        [("MatMul", ["x", "w"], ["p"], {}), ("Tanh", ["p"], ["y"], {})],
        {"x": ["length", 24]},
        ["y"],
        {"w": image(1, 24, 40) * np.float32(0.2)},
    )
    compiled = []
    compile_ = ProgramBuilder._compile

    def noted(self, name, *rest):
        compiled.append((name, threading.current_thread() is threading.main_thread()))
        return compile_(self, name, *rest)

    def right(x):
        (got,) = request.infer({"x": x}).values()
        (expected,) = models.answer(model, {"x": x})
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)

    monkeypatch.setattr(ProgramBuilder, "_compile", noted)
    executable = core.load_network(core.read_network(model), "GPU", {"GPU_SINGLE_LAUNCH": "NO"})
    assert compiled, "nothing was built when the network was loaded"
    request = executable.create_infer_request()
    compiled.clear()
    for length in (100, 90, 120):  # of the class of sizes for which it was built
        right(image(length, length, 24))
    assert (compiled, executable.latest_plan().wanted) == ([], {})
    many, others = image(2, 1000, 24), image(3, 3000, 24)
    right(many)
    first = executable.latest_plan()
    assert compiled == []
    assert first.others
    assert "until the program of" in executable.explain()
    with ThreadPoolExecutor(2) as pool:  # other requests ask meanwhile
        list(pool.map(lambda x: executable.create_infer_request().infer({"x": x}), (many, others)))
    executable._specialiser.wait(time.monotonic() + 120)
    right(many)
    latest = executable.latest_plan()
    assert (latest is not first) == is_faster
    assert latest.is_final
    assert "until the program of" not in executable.explain()
    assert {in_main for _, in_main in compiled} == {False}
    right(image(5, 1004, 24))  # of the same class
    assert executable.latest_plan().is_final
    right(many)
    executable.close()


def test_networks_close_while_programs_are_built(
    core, opencl, lockstep, compiled_here, monkeypatch
):
    model = models.build(
        [("MatMul", ["x", "w"], ["y"], {})],
        {"x": ["length", 24]},
        ["y"],
        {"w": image(1, 24, 56)},
    )
    executable = core.load_network(core.read_network(model), "GPU")
    begun, go = threading.Event(), threading.Event()
    compile_ = ProgramBuilder._compile

    def slow(self, *rest):
        begun.set()
        assert go.wait(60)
        return compile_(self, *rest)

    monkeypatch.setattr(ProgramBuilder, "_compile", slow)
    for _ in range(2):
        executable.infer({"x": image(4, 1000, 24)})
    assert begun.wait(60)
    threading.Timer(0.1, go.set).start()
    executable.close()
    assert executable.plans.plans() == []
    assert not any(t.name == "polydevice-specialise" for t in threading.enumerate())
