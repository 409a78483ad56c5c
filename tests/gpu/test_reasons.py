"""Why a kernel, the device, or neither takes a layer."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import UnsupportedNetworkError
from polydevice.ops.convolution import Convolution
from polydevice.ops.nms import NonMaxSuppression
from polydevice.ops.roi import ROIAlign, RoiMode
from polydevice_gpu import cl
from polydevice_gpu.kernels.kernel import kernels_of
from tests.cpu.models import build
from tests.gpu.graphs import Sketch, loaded


def _suppression(s: Sketch):
    boxes, scores = s.input("boxes", 1, 9, 4), s.input("scores", 1, 1, 9)
    return s.node("nms", NonMaxSuppression(), boxes, scores, s.const("most", np.int64(3)))


def test_a_kernel_that_was_passed_over_says_why(opencl) -> None:
    s = Sketch()
    network = s.network(y=s.conv("conv", s.input("x", 1, 3, 8, 8), 5))
    with loaded(network, opencl, cl.ProgramBuilder(opencl)) as executable:
        (line,) = (x for x in executable.explain().splitlines() if x.startswith("conv"))
        (node,) = (n for n in executable.latest_plan().graph.nodes if n.name == "conv")
    passed = node.choice.passed
    before = [kernel.name for kernel in kernels_of(Convolution)]
    before = before[: before.index(node.choice.kernel.name)]
    assert before and list(passed) == before  # f32 is for no matrix unit
    assert all(passed.values()), passed
    for name, reason in passed.items():
        assert f"not {name}, as {reason}" in line


@pytest.mark.parametrize(("samples", "fits"), [(2, True), (65, False)])
def test_a_refused_layer_is_told_what_its_kernel_lacks(opencl, samples: int, fits: bool) -> None:
    s = Sketch()
    op = ROIAlign(2, 2, samples, 1.0, RoiMode.AVG)
    inputs = s.input("x", 1, 4, 8, 8), s.input("rois", 3, 4)
    network = s.network(y=s.add("roi", op, *inputs, s.const("batches", np.zeros(3, "i8"))))
    with Core() as core:
        if fits:
            assert not core.unsupported_nodes(network, "GPU")
            return
        with pytest.raises(UnsupportedNetworkError, match="takes more than 64 samples"):
            core.load_network(network, "GPU")
        assert "64 samples" in core.unsupported_nodes(network, "GPU")["roi"]


def test_a_layer_on_the_host_says_why(opencl) -> None:
    s = Sketch()
    selected = _suppression(s)
    network = s.network(boxes=selected.outputs[0])
    with Core() as core, core.load_network(network, "GPU") as executable:
        (place,) = (each for each in executable.placement() if each.node == "nms")
        assert (place.device, place.reason[:11]) == ("CPU", "sorting and")
        (line,) = (x for x in executable.explain().splitlines() if x.startswith("nms"))
        assert f"runs on the host: {place.reason}" in line


def test_open_sizes_are_no_reason_for_the_host(opencl, rng) -> None:
    """Inputs tell them, and a plan is made then; what depends on values stays with the host."""
    nodes = [("Relu", ["x"], ["r"], {}), ("NonZero", ["r"], ["n"], {}), ("Abs", ["r"], ["a"], {})]
    model = build(nodes, {"x": ("rows", 4)}, ("n", "a"), {})
    with Core() as core, core.load_network(core.read_network(model), "GPU") as executable:
        for _ in range(2):
            places = {each.type: each.device for each in executable.placement()}
            assert places["NonZero"] == "CPU"
            assert places["ReLU"] == places["Abs"] == executable.device
            x = rng.standard_normal((3, 4)).astype("f4")
            np.testing.assert_array_equal(executable.infer({"x": x})["a"], np.maximum(x, 0))
