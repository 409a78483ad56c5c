"""What a network whose sizes are not known needs for the second shape and later ones."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from polydevice_gpu.cl.programs.program import ProgramBuilder
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
