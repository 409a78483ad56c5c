"""Layers behind sizes that only an inference tells: the device runs them once it knows."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest

from polydevice_gpu.executable import GpuExecutable
from polydevice_gpu.runtime.host import HostRun
from polydevice_gpu.runtime.plan import HostStep
from tests.cpu import models
from tests.cpu.loading import image

WIDTH = 96


def chosen(rows, *, twice=False):
    """Rows whose first element is above 0, times matrices; `twice`: and of the results again."""
    scale = np.float32(0.2)
    weights = {name: image(k, WIDTH, 4 * WIDTH) * scale for k, name in enumerate(("w1", "w3"))}
    weights |= {name: image(k, 4 * WIDTH, WIDTH) * scale for k, name in enumerate(("w2", "w4"))}
    weights |= {
        "zero": np.zeros(1, np.int64), "one": np.ones(1, np.int64), "limit": np.zeros(1, np.float32)
    }  # fmt: skip
    nodes = [("Tanh", ["x"], ["rows0"], {})]
    for k in range(2 if twice else 1):
        nodes += [
            ("Slice", [f"rows{k}", "zero", "one", "one"], [f"first{k}"], {}),
            ("Greater", [f"first{k}", "limit"], [f"above{k}"], {}),
            ("NonZero", [f"above{k}"], [f"places{k}"], {}),
            ("Gather", [f"places{k}", "zero"], [f"which{k}"], {"axis": 0}),
            ("Squeeze", [f"which{k}", "zero"], [f"flat{k}"], {}),
            ("Gather", [f"rows{k}", f"flat{k}"], [f"taken{k}"], {"axis": 0}),
            ("MatMul", [f"taken{k}", f"w{2 * k + 1}"], [f"wide{k}"], {}),
            ("Relu", [f"wide{k}"], [f"positive{k}"], {}),
            ("MatMul", [f"positive{k}", f"w{2 * k + 2}"], [f"rows{k + 1}"], {}),
        ]
    return models.build(nodes, {"x": [rows, WIDTH]}, [nodes[-1][2][0]], weights)


def right(request, model, x):
    """Infer, and compare with ONNX Runtime; return how many rows there are."""
    (got,) = request.infer({"x": x}).values()
    (expected,) = models.answer(model, {"x": x})
    np.testing.assert_allclose(
        got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max(initial=1)
    )
    return len(got)


def parts_of(plan):
    """What runs the parts of a plan on the device."""
    hosts = [step for step in plan.steps if isinstance(step, HostStep)]
    return [step.executable for step in hosts if isinstance(step.executable, GpuExecutable)]


@pytest.mark.parametrize("rows", [20, "many"])
@pytest.mark.parametrize("twice", [False, True])
def test_what_waits_for_sizes_runs_on_the_device(rows, twice, core, opencl):
    model = chosen(rows, twice=twice)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    counts = set()
    for number in range(5):
        counts.add(right(request, model, image(number, 20, WIDTH)))
    assert len(counts) > 2
    (part,) = parts_of(executable.latest_plan())
    kernels = {node.choice.kernel.name for node in part.latest_plan().running if node.choice}
    assert any("gemm" in name or "matmul" in name or "convolution" in name for name in kernels)
    if twice:
        (inner,) = parts_of(part.latest_plan())
        assert inner.latest_plan().running
    assert "runs by a plan of its own" in executable.explain()
    places = {place.node: place.device for place in executable.placement()}
    assert "CPU" in places.values()
    right(request, model, np.full((20, WIDTH), -1, np.float32))  # no row at all
    executable.close()
    assert part.plans.plans() == []


def most(*, computed):
    """The k largest of each row and what they are multiplied with; k is an input, or counted."""
    weights = {"w": image(3, 1, 1 << 16), "limit": np.zeros(1, np.float32),
               "axes": np.array([0, 1], np.int64), "one": np.ones(1, np.int64)}  # fmt: skip
    nodes = [
        ("Mul", ["x", "w"], ["products"], {}),
        ("TopK", ["products", "k"], ["values", "places"], {}),
        ("Tanh", ["values"], ["y"], {}),
    ]
    if computed:
        nodes[:0] = [
            ("Slice", ["x", "limits", "ends"], ["few"], {}),
            ("Greater", ["few", "limit"], ["above"], {}),
            ("Cast", ["above"], ["ones"], {"to": 7}),
            ("ReduceSum", ["ones", "axes"], ["count"], {"keepdims": 0}),
            ("Reshape", ["count", "one"], ["k"], {}),
        ]
        weights |= {"limits": np.zeros(2, np.int64), "ends": np.array([2, 20], np.int64)}
    read = onnx.load_from_string(models.build(nodes, {"x": [2, 1 << 16]}, ["y"], weights))
    if not computed:
        k = onnx.helper.make_tensor_value_info("k", onnx.TensorProto.INT64, [1])
        read.graph.input.append(k)
    return read.SerializeToString()


@pytest.mark.parametrize("computed", [False, True])
def test_values_that_say_sizes(computed, core, opencl):
    model = most(computed=computed)
    executable = core.load_network(core.read_network(model), "GPU")
    request = executable.create_infer_request()
    sizes = set()
    for number in range(5):
        given = {"x": image(number, 2, 1 << 16)}
        if not computed:
            given["k"] = np.array([3 + 4 * number], np.int64)
        (got,) = request.infer(given).values()
        (expected,) = models.answer(model, given)
        np.testing.assert_allclose(got, expected, rtol=1e-5)
        sizes.add(got.shape)
    assert len(sizes) > 2
    plan = executable.latest_plan()
    if computed:
        (part,) = parts_of(plan)
        plan = part.latest_plan()
    assert not any(isinstance(step, HostStep) for step in plan.steps)
    assert {node.op.type for node in plan.running} >= {"TopK"}


def test_requests_at_once_know_other_sizes(core, opencl):
    model = chosen(20)
    executable = core.load_network(core.read_network(model), "GPU", {"GPU_THROUGHPUT_STREAMS": 2})
    local = threading.local()

    def one(number):
        if not hasattr(local, "request"):
            local.request = executable.create_infer_request()
        return right(local.request, model, image(number, 20, WIDTH))

    with ThreadPoolExecutor(3) as pool:
        assert len(set(pool.map(one, range(12)))) > 2


def test_little_behind_late_sizes_stays_on_the_host(core, opencl):
    nodes = [("NonZero", ["x"], ["places"], {}), ("Cast", ["places"], ["y"], {"to": 1})]
    model = models.build(nodes, {"x": [4, 6]}, ["y"], {})
    executable = core.load_network(core.read_network(model), "GPU")
    x = (image(1, 4, 6) > 0).astype(np.float32)
    (got,) = executable.infer({"x": x}).values()
    np.testing.assert_array_equal(got, models.answer(model, {"x": x})[0])
    assert parts_of(executable.latest_plan()) == []


def test_the_host_computes_what_the_device_refuses(core, opencl, monkeypatch):
    from polydevice.errors import UnsupportedNetworkError

    model = chosen(20)
    executable = core.load_network(core.read_network(model), "GPU")
    (part,) = parts_of(executable.latest_plan())

    def refused(shapes):
        raise UnsupportedNetworkError("no kernel")

    monkeypatch.setattr(part, "plan", refused)
    used = []
    use = HostRun._use
    monkeypatch.setattr(HostRun, "_use", lambda run, given: (used.append(given), use(run, given)))
    request = executable.create_infer_request()
    for number in range(2):
        right(request, model, image(number, 20, WIDTH))
    assert [each.device for each in used][-1] == "CPU"
    assert len(used) == 3  # NonZero's, the part, and the part on the host: found out once
