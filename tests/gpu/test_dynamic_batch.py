"""DYN_BATCH_ENABLED: a request computes the first items of its batch, and leaves the others."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.errors import RequestBusyError, RequestError, UnsupportedNetworkError
from polydevice_gpu.runtime.bound_plan import BoundPlan
from tests.cpu.models import answer, build, residual

BATCH = 5
MODEL = residual(batch=BATCH)
NAMES = ("y", "logits", "p1")
X = np.random.default_rng(1).random((BATCH, 3, 14, 14), np.float32)
rng = np.random.default_rng(17)


def load(core, model=MODEL, **config):
    return core.load_network(
        core.read_network(model), "GPU", {"DYN_BATCH_ENABLED": "YES", **config}
    )


def test_every_batch_up_to_the_networks_own(core, monkeypatch) -> None:
    request = load(core).create_infer_request()
    computed = []
    real = BoundPlan.enqueue

    def enqueue(self, queue, inputs, outputs, *others):
        computed.append({array.shape[0] for array in (*inputs.values(), *outputs.values())})
        return real(self, queue, inputs, outputs, *others)

    monkeypatch.setattr(BoundPlan, "enqueue", enqueue)
    for size in (BATCH, 2, 1, 4, 3, BATCH):
        request.set_batch(size)
        for name in NAMES:
            request.get_blob(name).array[...] = -7
        results = request.infer({"x": X})
        right = answer(residual(batch=size), {"x": X[:size]})
        for name, expected in zip(NAMES, right, strict=True):
            assert results[name].shape[0] == BATCH
            np.testing.assert_allclose(results[name][:size], expected, rtol=1e-4, atol=1e-5)
            assert np.all(results[name][size:] == -7)
        assert computed[-1] == {size}  # no more than that


def test_requests_have_batches_of_their_own(core) -> None:
    executable = load(core, GPU_THROUGHPUT_STREAMS="2")
    requests = [executable.create_infer_request() for _ in range(4)]
    for size, request in enumerate(requests, 1):
        request.set_batch(size)
    for request in requests:
        request.start_async({"x": X})
    right = answer(MODEL, {"x": X})[0]
    for size, request in enumerate(requests, 1):
        request.wait()
        found = request.get_blob("y").array
        np.testing.assert_allclose(found[:size], right[:size], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [0, -1, BATCH + 1])
def test_batches_that_do_not_exist(core, size) -> None:
    with pytest.raises(RequestError, match="legal: 1 to 5"):
        load(core).create_infer_request().set_batch(size)


def test_without_the_key_and_on_cpu(core) -> None:
    for device in ("GPU", "CPU"):
        request = core.load_network(core.read_network(MODEL), device).create_infer_request()
        with pytest.raises(RequestError, match="DYN_BATCH_ENABLED=YES"):
            request.set_batch(1)


def test_busy_request(core) -> None:
    request = load(core).create_infer_request()
    with request._busy, pytest.raises(RequestBusyError):
        request.set_batch(1)


SHAPES = {"s": np.array([5, 12], np.int64), "t": np.array([-1], np.int64)}
MIXING = {
    "moves": [("Transpose", ["x"], ["y"], {"perm": [1, 0, 2]})],
    "joins": [("Reshape", ["x", "t"], ["y"], {})],
    "fixed": [("Reshape", ["x", "s"], ["y"], {})],
    "sums": [("ReduceSum", ["x"], ["y"], {"keepdims": 0})],
}


@pytest.mark.parametrize("nodes", MIXING.values(), ids=MIXING)
def test_networks_that_mix_items_are_refused(core, nodes) -> None:
    model = build(nodes, {"x": [5, 3, 4]}, ["y"], SHAPES)
    with pytest.raises(UnsupportedNetworkError, match="DYN_BATCH_ENABLED=YES is not possible"):
        load(core, model)


def test_a_batch_that_is_written_out_is_refused(core) -> None:
    """A new batch would be followed once, when it is set; here it changes with every request."""
    nodes = [("Reshape", ["x", "p"], ["a"], {}), ("Relu", ["a"], ["y"], {})]
    model = build(nodes, {"x": (BATCH, 4, 6)}, ("y",), {"p": np.array([BATCH, 24])})
    with pytest.raises(UnsupportedNetworkError, match="has the batch written out"):
        load(core, model)


def test_inputs_of_different_batches_and_dynamic_networks(core) -> None:
    add = build([("Add", ["a", "b"], ["y"], {})], {"a": [5, 3], "b": [1, 3]}, ["y"], {})
    with pytest.raises(UnsupportedNetworkError, match="same first size"):
        load(core, add)
    with pytest.raises(UnsupportedNetworkError, match="dynamic already"):
        load(core, residual(batch="n"))


def test_weights_that_loading_computes_are_not_on_the_device_for_each_size(core, opencl) -> None:
    """Half weights, widened when the network is loaded; beside a shape that follows the batch.

    Kernels for few rows may want them in another order than those for the whole batch.
    """
    weights = {
        "half": rng.standard_normal((400, 300)).astype("f2"),
        "zero": np.array(0),
        "rest": np.array([-1]),
        "axis": np.array([0]),
    }
    nodes = [
        ("Shape", ["x"], ["sizes"], {}),
        ("Gather", ["sizes", "zero"], ["batch"], {}),
        ("Unsqueeze", ["batch", "axis"], ["first"], {}),
        ("Concat", ["first", "rest"], ["flat"], {"axis": 0}),
        ("Reshape", ["x", "flat"], ["rows"], {}),
        ("Cast", ["half"], ["wide"], {"to": 1}),
        ("MatMul", ["rows", "wide"], ["y"], {}),
    ]
    executable = load(core, build(nodes, {"x": (BATCH, 20, 20)}, ["y"], weights))
    request = executable.create_infer_request()
    x = rng.standard_normal((BATCH, 20, 20)).astype("f4")
    right = x.reshape(BATCH, 400) @ weights["half"].astype("f4")
    before = opencl.memory.bytes_allocated
    for size in (BATCH, 3, 2, 1):
        request.set_batch(size)
        found = request.infer({"x": x})["y"]
        np.testing.assert_allclose(found[:size], right[:size], rtol=1e-3, atol=1e-4)
    wide = 2 * weights["half"].nbytes
    assert opencl.memory.bytes_allocated < before + 1.5 * wide
