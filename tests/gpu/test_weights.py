"""Constants on the device: uploaded once, shared by requests, streams, shapes and networks."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add, Divide, Multiply
from polydevice.ops.matmul import MatMul
from polydevice.ops.reduce import ReduceSum
from polydevice_gpu import cl
from polydevice_gpu.graph import Value
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.runtime.weights import WeightStore
from tests.gpu.graphs import Sketch, compiled, random_inputs

BYTES = 4 * (64 * 16 + 64 * 64)
"""Of the two convolutions of `convolutions`, in f32; no kernel pads or splits them."""


def convolutions(batch: int = 1) -> Network:
    s = Sketch()
    rng = np.random.default_rng(5)
    x = s.input("x", batch, 16, 9, 9)
    first = s.conv("first", x, 64, kernel=1)
    second = s.conv("second", s.add("relu", Relu(), first), 64, kernel=1)
    network = s.network(y=second)
    for node in network:
        if node.constant is not None:
            node.op = node.op.replace(value=rng.normal(size=node.constant.shape).astype("f4"))
    return network


@pytest.fixture
def allocated(opencl):
    """A function that returns the bytes allocated since the test began."""
    gc.collect()  # what other tests left behind must not be freed while this one counts
    before = opencl.memory.bytes_allocated
    return lambda: opencl.memory.bytes_allocated - before


def test_loading_uploads_and_requests_add_their_arena_only(core, allocated) -> None:
    executable = core.load_network(convolutions(), "GPU", {"GPU_THROUGHPUT_STREAMS": "2"})
    assert allocated() == BYTES
    arena = executable.latest_plan().arena.size_bytes
    requests = [executable.create_infer_request() for _ in range(3)]
    for request in requests:
        request.start_async(random_inputs(convolutions()))
    for request in requests:
        request.wait()
    assert allocated() == BYTES + 3 * arena
    assert f"weights {BYTES} bytes" in executable.explain()


def test_constants_made_for_every_shape_count_once(core) -> None:
    s = Sketch()
    x = s.add("first", Relu(), s.input("x", 720, 1, 96))
    results = {}
    for name in ("q", "k"):  # become one matrix, anew in every plan
        product = s.add(name, MatMul(), x, s.weights(f"{name}/w", 96, 64))
        results[f"{name}/sum"] = s.add(f"{name}/sum", ReduceSum(), product, s.const(f"{name}/a", 1))
    network = s.network(**results)
    network.reshape({"x": [None, None, 96]})
    executable = core.load_network(network, "GPU")
    request = executable.create_infer_request()
    used, arenas = [], 0
    for rows in (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15, 16, 18, 20, 24, 30, 36, 40, 45, 48, 60, 72):
        request.infer({"x": np.ones((rows, 720 // rows, 96), np.float32)})
        arenas += executable.latest_plan().arena.size_bytes  # kept for when the shape comes back
        used.append(executable.device_memory.used_bytes - arenas)
    # Results differ in size; the matrix would be there 18 times.
    assert used[-1] - used[4] < 2 * 96 * 128 * 4, used


def test_the_same_network_with_other_options_or_sizes_uploads_nothing(core, allocated) -> None:
    network = convolutions()
    first = core.load_network(network, "GPU")
    others = [
        core.load_network(network, "GPU", {"PERF_COUNT": "YES"}),
        core.load_network(convolutions(), "GPU", {"CLDNN_MEM_POOL": "NO"}),
        core.load_network(convolutions(batch=2), "GPU"),
    ]
    assert allocated() == BYTES
    first.close()
    assert allocated() == BYTES
    x = random_inputs(network)
    right = core.load_network(network, "CPU").infer(x)["y"]
    np.testing.assert_allclose(others[0].infer(x)["y"], right, rtol=1e-4, atol=1e-4)
    for other in others:
        other.close()
    del first, others, other
    gc.collect()
    assert allocated() == 0


def test_dynamic_shapes_share_them(core, allocated) -> None:
    network = convolutions()
    network.reshape({"x": [-1, 16, 9, 9]})
    executable = core.load_network(network, "GPU")
    arenas = {}
    for batch in (1, 3, 1, 2):
        executable.infer({"x": np.ones((batch, 16, 9, 9), np.float32)})
        arenas[batch] = executable.latest_plan().arena.size_bytes
    assert len(set(arenas.values())) == 3
    assert allocated() == BYTES + arenas[1] + arenas[3], "two pictures need none of their own"


def scaled(factors: np.ndarray) -> Network:
    s = Sketch()
    x = s.input("x", 1, 1000)
    return s.network(y=s.add("scaled", Multiply(), x, s.const("factors", factors)))


def test_constants_that_differ_in_the_middle_alone_are_not_taken_for_one_another(core) -> None:
    factors = np.ones((1, 1000), np.float32)
    x = {"x": np.ones((1, 1000), np.float32)}
    loaded = []
    for middle in (1, 2, 3, 2):
        factors[0, 500] = middle
        loaded.append((core.load_network(scaled(factors.copy()), "GPU"), factors.copy()))
    for executable, right in loaded:
        np.testing.assert_array_equal(executable.infer(x)["y"], right)


def test_constants_changed_in_place_are_uploaded_again(core) -> None:
    network, x = scaled(np.full((1, 1000), 2.0, "f4")), np.ones((1, 1000), "f4")
    first = core.load_network(network, "GPU")
    constant = next(node.constant for node in network if node.constant is not None)
    constant[0, 500] = 7
    second = core.load_network(network, "GPU")
    assert second.infer({"x": x})["y"][0].tolist() == [2.0] * 500 + [7.0] + [2.0] * 499
    assert first.infer({"x": x})["y"][0].tolist() == [2.0] * 1000


def test_minus_zero_is_not_zero(core) -> None:
    for zero, right in ((0.0, np.inf), (-0.0, -np.inf)):
        s = Sketch()
        x = s.input("x", 3)
        zeros = s.const("zeros", np.full(3, zero, np.float32))
        network = s.network(y=s.add("quotient", Divide(), x, zeros))
        results = core.load_network(network, "GPU").infer({"x": np.ones(3, np.float32)})
        np.testing.assert_array_equal(results["y"], np.full(3, right))


def both_ways() -> Network:
    """One square matrix, multiplied as it is and transposed."""
    s = Sketch()
    x, w = s.input("x", 96, 64), s.weights("w", 64, 64)
    plain = s.add("plain", MatMul(), x, w)
    turned = s.add("turned", MatMul(transpose_b=True), x, w)
    return s.network(y=s.add("sum", Add(), plain, turned))


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"scalar_lanes": 32, "local_memory_bytes": 1 << 16, "compute_units": 100},
        {"scalar_lanes": 32, "local_memory_bytes": 1 << 17, "async_copy": True},
    ],
)
def test_a_matrix_has_a_form_for_each_way_in_which_it_is_read(target) -> None:
    """Equal names of forms mean equal contents; they are what tells uploads apart."""
    graph = compiled(both_ways(), **target)
    contents: dict[tuple[int, str], np.ndarray] = {}
    device, count = Target(**target), 0
    for node in graph.nodes:
        kernel, mode = node.choice.kernel, node.choice.mode
        for launch in kernel.launches(node, kernel.modes[mode], device):
            for argument in launch.arguments:
                if isinstance(argument, Weights):
                    made = argument.make(np.asarray(argument.value.constant))
                    key = (id(argument.value.constant), argument.form)
                    np.testing.assert_array_equal(contents.setdefault(key, made), made)
                    count += 1
    assert count == 2


def test_a_matrix_that_is_read_both_ways(core) -> None:
    network = both_ways()
    x = random_inputs(network)
    w = network.node("w").constant.astype(np.float64)
    y = core.load_network(network, "GPU").infer(x)["y"]
    np.testing.assert_allclose(y, x["x"] @ w + x["x"] @ w.T, rtol=1e-4, atol=1e-4)


def test_threads_that_ask_for_equal_constants_upload_one(opencl, allocated) -> None:
    constants = [np.random.default_rng(3).normal(size=(64, 64)).astype("f4") for _ in range(8)]
    store, forming, together = WeightStore(opencl), [], threading.Barrier(8)

    def ask(constant: np.ndarray) -> cl.Buffer:
        def make(array: np.ndarray) -> np.ndarray:
            forming.append(threading.get_ident())
            time.sleep(0.05)  # for others to come
            return array.T

        value = Value("w", ElementType.f32, constant.shape, constant=constant)
        form = Weights(value, "turned", make, ElementType.f32)
        together.wait(30)
        return store.buffer(constant, ElementType.f32, form)

    with ThreadPoolExecutor(8) as pool:
        buffers = set(pool.map(ask, constants))
    assert len(buffers) == len(forming) == 1
    assert allocated() == store.own_bytes == 64 * 64 * 4
    got = np.empty((64, 64), "f4")
    with opencl.queue() as queue:
        queue.download(buffers.pop(), got)
    np.testing.assert_array_equal(got, constants[0].T)
