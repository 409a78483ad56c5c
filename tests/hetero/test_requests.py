"""HETERO at work: many requests, members that fail, loops, export."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Blob, Copies, ElementType
from polydevice.dtype import Array
from polydevice.errors import DeviceError, InferenceError
from tests.cpu.models import answer, build
from tests.hetero.networks import WEIGHTS, by_type, check, normal, place, there_and_back

pytestmark = pytest.mark.usefixtures("compiled_sparingly")

F32 = ElementType.f32
FLOAT = TensorProto.FLOAT


@pytest.mark.parametrize("shape", [(2, 3), ("n", 3)])
def test_many_requests_at_once(core, shape) -> None:
    model = there_and_back(*shape, outputs=("y", "c"))
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    queue = executable.infer_queue(4)
    given = [normal(2 if shape[0] == 2 else 1 + i % 4, 3) for i in range(40)]
    found: dict[int, Array] = {}
    queue.set_callback(
        lambda request, number: found.update({number: request.get_blob("y").array.copy()})
    )
    for number, x in enumerate(given):
        queue.start_async({"x": x}, number)
    queue.wait_all()
    assert len(found) == 40
    for number, x in enumerate(given):
        np.testing.assert_allclose(found[number], answer(model, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_requests_follow_each_other_through_the_devices(core, monkeypatch) -> None:
    """While one request is on CPU, the next is on GPU: neither waits for the other to end."""
    network = place(core.read_network(there_and_back(2, 3)), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU")
    first, second = executable.create_infer_request(), executable.create_infer_request()
    arrived, on_gpu = threading.Event(), threading.Event()
    on_cpu, next_on_gpu = first.runner.parts[1].runner.run, second.runner.parts[0].runner.run

    def run_on_cpu(stream: int) -> None:
        arrived.set()
        assert on_gpu.wait(20), "the second request never came to GPU"
        on_cpu(stream)

    def run_on_gpu(stream: int) -> None:
        assert arrived.wait(20)
        next_on_gpu(stream)
        on_gpu.set()

    monkeypatch.setattr(first.runner.parts[1].runner, "run", run_on_cpu)
    monkeypatch.setattr(second.runner.parts[0].runner, "run", run_on_gpu)
    x = normal(2, 3)
    first.start_async({"x": x})
    second.start_async({"x": x + 1})
    first.wait()
    second.wait()
    for request, value in ((first, x), (second, x + 1)):
        right = answer(there_and_back(2, 3), {"x": value})[0]
        np.testing.assert_allclose(request.get_blob("y").array, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("broken", range(3))
def test_a_member_that_fails_leaves_the_rest_usable(core, monkeypatch, broken) -> None:
    model = there_and_back(2, 3)
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    executable = core.load_network(network, "HETERO:GPU,CPU", num_requests=2)
    request, other = executable.requests
    check(request, model, normal(2, 3))

    def fail(stream: int) -> None:
        raise OSError("device lost")

    with monkeypatch.context() as patch:
        patch.setattr(request.runner.parts[broken].runner, "run", fail)
        with pytest.raises(InferenceError, match=rf"subgraph {broken} on [CG]PU: .*device lost"):
            request.infer({"x": normal(2, 3)})
        check(other, model, normal(2, 3))
    check(request, model, normal(2, 3))
    assert request.copies == Copies(uploads=2, downloads=2)


def test_memory_that_was_another_outputs_before(core) -> None:
    """What a part still writes into is moved aside before the user's output is written there."""
    model = build(
        [("Tanh", ["x"], ["y"], {}), ("Mul", ["y", "three"], ["z"], {})],
        {"x": (2, 3)},
        ["z", "y"],
        WEIGHTS,
    )
    request = core.load_network(
        place(core.read_network(model), by_type(Tanh="CPU")), "HETERO:GPU,CPU"
    ).create_infer_request()
    check(request, model, normal(2, 3))
    before = request.get_blob("y").array
    request.set_blob("y", Blob(np.zeros((2, 3), "f4")))
    request.set_blob("z", Blob(before))
    for _ in range(2):
        check(request, model, normal(2, 3))
        assert request.get_blob("z").array is before


def test_export_and_import(core) -> None:
    model = there_and_back(2, 3)
    network = place(core.read_network(model), by_type(Tanh="CPU"))
    content = core.load_network(network, "HETERO:GPU,CPU").export()
    request = core.import_network(content, "HETERO").create_infer_request()
    check(request, model, normal(2, 3))
    assert request.copies == Copies(uploads=2, downloads=2)


def test_a_configuration_that_changes_the_inputs_of_parts(core) -> None:
    model = build([("Mul", ["x", "three"], ["y"], {})], {"x": (1, 3, 4, 6)}, ["y"], WEIGHTS)
    network = core.read_network(model)
    network.inputs["x"].precision = "U8"
    network.inputs["x"].preprocess.color_format = "NV12"
    with pytest.raises(DeviceError, match="inputs x_Y0, x_UV0 instead of x; leave out"):
        core.load_network(network, "HETERO:GPU,CPU", {"GPU_NV12_TWO_INPUTS": "YES"})


def test_streams_of_the_members_are_used(core, monkeypatch) -> None:
    """Two requests are on the two streams of GPU at the same time."""
    model = build([("Mul", ["x", "three"], ["y"], {})], {"x": (4,)}, ["y"], WEIGHTS)
    config = {"GPU_THROUGHPUT_STREAMS": "2"}
    executable = core.load_network(core.read_network(model), "HETERO:GPU,CPU", config)
    requests = [executable.create_infer_request() for _ in range(2)]
    together = threading.Barrier(2)
    streams = []
    for request in requests:
        part = request.runner.parts[0]

        def run(stream: int, real: Callable[[int], None] = part.runner.run) -> None:
            together.wait(20)
            streams.append(stream)
            real(stream)

        monkeypatch.setattr(part.runner, "run", run)
    for request in requests:
        request.start_async({"x": np.ones(4, "f4")})
    for request in requests:
        request.wait()
        np.testing.assert_array_equal(request.get_blob("y").array, np.full(4, 3))
    assert sorted(streams) == [0, 1]


def loop(trips: str) -> bytes:
    """a = |x|; last, all = a loop of acc / 2 + a, `trips` times; y = sigmoid(last) + a."""
    names = {name: helper.make_tensor_value_info(name, FLOAT, [2, 3]) for name in ("acc", "next")}
    step = [
        helper.make_node("Mul", ["acc", "half"], ["less"]),
        helper.make_node("Add", ["less", "a"], ["next"]),
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("Tanh", ["next"], ["scanned"]),
    ]
    body = helper.make_graph(
        step,
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            names["acc"],
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            names["next"],
            helper.make_tensor_value_info("scanned", FLOAT, [2, 3]),
        ],
        [numpy_helper.from_array(np.array(0.5, "f4"), "half")],
    )
    nodes = [
        helper.make_node("Abs", ["x"], ["a"]),
        helper.make_node("Loop", [trips, "", "a"], ["last", "all"], body=body),
        helper.make_node("Sigmoid", ["last"], ["s"]),
        helper.make_node("Add", ["s", "a"], ["y"]),
        helper.make_node("ReduceSum", ["all", "first"], ["z"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "loop",
        [
            helper.make_tensor_value_info("x", FLOAT, [2, 3]),
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
        ],
        [helper.make_empty_tensor_value_info(name) for name in ("y", "z")],
        [
            numpy_helper.from_array(np.array(5, "i8"), "five"),
            numpy_helper.from_array(np.array([0], "i8"), "first"),
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


@pytest.mark.parametrize("trips", ["five", "n"])
@pytest.mark.parametrize("parts", [1, 3])
def test_loops(core, trips, parts) -> None:
    model = loop(trips)
    network = core.read_network(model)
    host = ("Loop", "TensorIterator", "Sigmoid") if parts == 3 else ()
    place(network, lambda node: "CPU" if node.type in host else "GPU")
    executable = core.load_network(network, "HETERO:GPU,CPU")
    assert len(executable.parts) == parts
    request = executable.create_infer_request()
    for count in (3, 3, 1, 6):
        given = {"x": normal(2, 3), "n": np.array(count, "i8")}
        found = request.infer({name: given[name] for name in executable.inputs})
        for name, right in zip(executable.outputs, answer(model, given), strict=True):
            np.testing.assert_allclose(found[name], right, rtol=1e-5, atol=1e-6, err_msg=name)
