"""Windows over some of three axes, of new shapes by machine code: they are seen as pictures."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice_cpu.algorithms.by_machine.amx.layer import is_in_tiles
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling import filled
from polydevice_cpu.plan.step import CodeStep
from tests.cpu import models
from tests.cpu.loading import image, load, wait_for_settling
from tests.cpu.machine_code import by_machine_code, compared, with_tiles_of_bytes, with_vectors
from tests.cpu.quantised_graphs import Graph, reference, spread

pytestmark = with_vectors

SIZES = [(5, 9, 12), (8, 11, 7), (3, 20, 14), (6, 8, 8), (11, 7, 19), (4, 16, 9), (9, 13, 6)]

CASES = {  # sizes of windows, steps, and gaps, by axis
    "pictures": ([1, 3, 3], [1, 1, 1], [1, 1, 1]),
    "pictures in steps": ([1, 5, 3], [1, 2, 2], [1, 1, 1]),
    "rows with gaps": ([1, 3, 1], [1, 1, 1], [1, 2, 1]),
    "along time": ([3, 1, 1], [1, 1, 1], [1, 1, 1]),
    "along time in steps, with gaps": ([4, 1, 1], [2, 1, 1], [2, 1, 1]),
}
LEFT_TO_ONEDNN = {
    "all axes": ([3, 3, 3], [1, 1, 1], [1, 1, 1]),
    "two and a step": ([1, 3, 3], [2, 1, 1], [1, 1, 1]),
    "time and rows": ([3, 1, 3], [1, 1, 1], [1, 1, 1]),
}


def form(case, pads=None):
    window, steps, gaps = case
    pads = [gap * (size // 2) for size, gap in zip(window, gaps, strict=True)]
    return {"pads": [*pads, *pads], "strides": steps, "dilations": gaps}


def network(case, channels, results, group=1):
    """A convolution, and a pool with the same windows."""
    window, steps, _ = case
    few = [min(size, 2) for size in window]
    weights = {"w": image(1, results, channels // group, *window) / 3, "bias": image(2, results)}
    nodes = [("Conv", ["x", "w", "bias"], ["a"], {**form(case), "group": group})]
    nodes += [("LeakyRelu", ["a"], ["b"], {"alpha": 0.2})]
    nodes += [("MaxPool", ["b"], ["y"], {"kernel_shape": few, "strides": steps})]
    return models.build(nodes, {"x": ["n", channels, "d", "h", "w1"]}, ["y"], weights)


def feeds(channels):
    return [image(number, 1 + number % 2, channels, *sizes) for number, sizes in enumerate(SIZES)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("channels", "results", "group"), [(6, 20, 1), (40, 24, 1), (24, 24, 24)])
@pytest.mark.parametrize("case", CASES)
def test_windows_over_some_axes(core, monkeypatch, case, channels, results, group, threads):
    """To the bit as oneDNN's, which computes them once a plan has run often."""
    monkeypatch.setattr(settling, "RUNS", 2)
    monkeypatch.setattr(filled, "STAYING_US", 0.0)
    model = network(CASES[case], channels, results, group)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    assert compared(executable, model, feeds(channels)) >= 3
    executable.infer({"x": image(9, 1, channels, 7, 10, 10)})
    assert "MaxPool" in by_machine_code(executable)


@pytest.mark.parametrize("case", LEFT_TO_ONEDNN)
def test_windows_over_others_are_left_to_onednn(core, monkeypatch, case):
    monkeypatch.setattr(settling, "RUNS", 2)
    model = network(LEFT_TO_ONEDNN[case], 20, 24)
    executable = load(core, model, CPU_THREADS_NUM=1)
    compared(executable, model, feeds(20))
    executable.infer({"x": image(9, 1, 20, 7, 10, 10)})
    assert not [kind for kind in by_machine_code(executable) if "Conv" in kind or "Pool" in kind]
    assert executable.compiled.templates.filled


def of_bytes(g: Graph, dtype, channels: int, case, sizes) -> bytes:
    x = g.emit("DequantizeLinear", "x", *g.parameters(dtype, 0.04))
    for _ in range(2):
        w = g.weights((channels, channels, *case[0]), 0)
        bias = g.store(g.rng.normal(size=channels).astype(np.float32))
        y = g.emit("Relu", g.emit("Conv", x, w, bias, kernel_shape=case[0], **form(case)))
        y = g.quantised(y, dtype, 0.2)
        parameters = g.nodes[-1].input[1:]
        x = g.emit("DequantizeLinear", y, *parameters)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        g.nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, [None, channels, *sizes])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)],
        g.stored,
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


@with_tiles_of_bytes
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("case", CASES)
def test_windows_of_bytes_over_some_axes(core, monkeypatch, case, dtype):
    """In tiles, also where all sizes are known."""
    monkeypatch.setattr(settling, "RUNS", 2)
    g = Graph(np.random.default_rng(7))
    made = of_bytes(g, dtype, 36, CASES[case], "dhw")
    executable = load(core, made, CPU_THREADS_NUM=1)
    request, found = executable.create_infer_request(), []
    for number, sizes in enumerate(SIZES):
        x = spread(g.rng, (1 + number % 2, 36, *sizes), dtype)
        (wanted,) = reference(made, {"x": x})
        (got,) = (each.copy() for each in request.infer({"x": x}).values())
        away = np.abs(got - wanted)
        assert (away > 1e-3 * np.abs(wanted).max()).mean() < 0.02
        assert away.max() <= 0.61  # some steps of 0.2
        steps = [step for step in executable.latest_plan().steps if "Integer" in step.type]
        assert len(steps) == 2
        found.append([isinstance(step, CodeStep) and is_in_tiles(step.code) for step in steps])
        for _ in range(settling.RUNS):
            request.infer({"x": x})
        wait_for_settling()
        np.testing.assert_array_equal(next(iter(request.infer({"x": x}).values())), got)
    assert all(map(all, found))
