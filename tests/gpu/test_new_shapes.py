"""What a network whose sizes are not known needs for the second shape and later ones."""

from __future__ import annotations

import dataclasses
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest

from polydevice_gpu.cl.programs.program import ProgramBuilder
from polydevice_gpu.compiler import compiler
from polydevice_gpu.compiler.device_target import target_of
from tests.cpu import models
from tests.cpu.loading import image


def residual(sizes):
    """A residual network, depthwise convolution and all, of any height and width."""
    read = onnx.load_from_string(models.residual(16, "n", "s"))
    for axis, name in ((2, "height"), (3, "width")):
        read.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    return read.SerializeToString(), [image(k, 1, 3, *size) for k, size in enumerate(sizes)]


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


CASES = {
    "residual": (residual, [(66, 70), (67, 93), (81, 64), (96, 130), (129, 65)]),
    "attention": (attention, [40, 41, 64, 100, 33]),
}


@pytest.mark.parametrize("case", CASES)
def test_later_shapes_need_no_program_of_their_own(case, core, opencl, monkeypatch):
    make, sizes = CASES[case]
    model, inputs = make(sizes)
    seen = set()
    build = ProgramBuilder.build

    def noted(self, name, source, options=()):
        seen.add((name, source, tuple(options)))
        return build(self, name, source, options)

    monkeypatch.setattr(ProgramBuilder, "build", noted)
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
            assert sorted(name for name, *_ in seen - before) == []
            # Drivers for processors compile for every local size, and choose one for every size.
            launches = [x for step in executable.latest_plan().steps for x in step.launches]
            assert [launch.kernel for launch in launches if launch.local_size is None] == []
            assert (
                f"plans for {number + 1} sets of shapes are kept; layers with programs for these "
                "shapes alone: none"
            ) in executable.explain()


@pytest.fixture
def lockstep(monkeypatch):
    """Let kernels be chosen as for devices whose work-items run in lockstep.

    Without sub-groups: with Intel's one program serves products of every size.
    """

    def target(device):
        return dataclasses.replace(
            target_of(device),
            scalar_lanes=32,
            compute_units=16,
            local_memory_bytes=1 << 15,
            sub_group_sizes=(),
            sub_group_share="",
            sub_group_block_read=False,
            sub_group_block_read_16bit=False,
        )

    monkeypatch.setattr(compiler, "target_of", target)


def test_built_programs_stand_in_until_a_shape_comes_back(core, opencl, lockstep, monkeypatch):
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
    executable = core.load_network(core.read_network(model), "GPU")
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
    assert first.wanted
    assert "until the program of" in executable.explain()
    with ThreadPoolExecutor(2) as pool:  # other requests ask meanwhile
        list(pool.map(lambda x: executable.create_infer_request().infer({"x": x}), (many, others)))
    executable._specialiser.wait(time.monotonic() + 120)
    right(many)
    latest = executable.latest_plan()
    assert latest is not first
    assert latest.wanted == {}
    assert "until the program of" not in executable.explain()
    assert {in_main for _, in_main in compiled} == {False}
    right(many)
    executable.close()


def test_networks_close_while_programs_are_built(core, opencl, lockstep, monkeypatch):
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
