"""What a network whose sizes are not known needs for the second shape and later ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from polydevice.ops.softmax import SoftMax
from polydevice_gpu.cl.programs.program import ProgramBuilder
from polydevice_gpu.compiler.new_shapes.filling import FilledContents
from polydevice_gpu.compiler.new_shapes.specialiser import Specialiser
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.launch import Local
from polydevice_gpu.runtime.plan import HostStep
from tests.cpu import models
from tests.cpu.loading import image
from tests.gpu.graphs import Sketch, compiled
from tests.gpu.open_networks import (
    CASES,
    attention,
    residual,
)


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
