"""What became of every layer: explanations, counters and the graph that runs."""

from __future__ import annotations

import collections
import threading
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import DeviceError
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.math import Exp
from polydevice.ops.pooling import MaxPool
from polydevice.ops.reshape import Reshape
from polydevice.ops.softmax import SoftMax
from polydevice_cpu.implement import evaluate
from polydevice_gpu import cl
from tests.gpu.graphs import Sketch, random_inputs
from tests.models.models import MODELS
from tests.tiers import firsts

PERF = {"PERF_COUNT": "YES"}


def small():
    """A convolution with a bias and an activation, a view, a softmax, and shape arithmetic."""
    s = Sketch()
    x = s.input("x", 1, 3, 6, 6)
    sum_ = s.add("bias", Add(), s.conv("conv", x, 4), s.weights("b", 1, 4, 1, 1))
    active = s.add("relu", Relu(), sum_)
    half = s.const("four", np.array([4, 36], np.float16))
    flat = s.add("flat", Reshape(), active, s.add("sizes", Convert(ElementType.i64), half))
    network = s.network(y=s.add("soft", SoftMax(axis=1), flat))
    network.evaluate = evaluate
    network.infer()
    return network


ROWS = {
    "x": ("OPTIMIZED_OUT", "Parameter", "an input of the network"),
    "conv": ("EXECUTED", "Convolution", "runs by "),
    "bias": ("OPTIMIZED_OUT", "Add", "fused into conv"),
    "relu": ("OPTIMIZED_OUT", "ReLU", "fused into conv"),
    "flat": ("OPTIMIZED_OUT", "Reshape", "a view of "),
    "sizes": ("OPTIMIZED_OUT", "Convert", "computed at load"),
    "soft": ("EXECUTED", "SoftMax", "runs by softmax_"),
    "y": ("OPTIMIZED_OUT", "Result", "an output of the network"),
}


@pytest.fixture
def executable(core):
    return core.load_network(small(), "GPU", PERF)


def lines_of(text: str, names) -> dict[str, list[str]]:
    """Group an explanation's lines by the layer that they begin with."""
    found = collections.defaultdict(list)
    for line in text.splitlines():
        for name in names:
            if line.startswith(f"{name} "):
                found[name].append(line)
    return found


def test_each_layer_is_explained_once(executable) -> None:
    lines = lines_of(executable.explain(), ROWS)
    for name, (_, kind, reason) in ROWS.items():
        (line,) = lines[name]
        assert line.split(maxsplit=2)[1] == kind
        assert reason in line


def test_an_explanation_says_why_this_kernel(executable) -> None:
    (line,) = lines_of(executable.explain(), ["conv"])["conv"]
    node = next(n for n in executable.latest_plan().graph.nodes if n.name == "conv")
    assert "by the cost model, of" in line
    for name, value in node.choice.kernel.modes[node.choice.mode].items():
        assert f"{name}={value}" in line


@pytest.mark.usefixtures("few_candidates")
def test_an_explanation_says_what_tuning_chose(core, tmp_path) -> None:
    config = {"TUNING_MODE": "TUNING_CREATE", "TUNING_FILE": str(tmp_path / "tuned.json")}
    executable = core.load_network(small(), "GPU", config)
    (line,) = lines_of(executable.explain(), ["conv"])["conv"]
    assert "by tuning" in line


def test_counters_before_and_after_the_first_inference(executable) -> None:
    request = executable.create_infer_request()
    for ran in (False, True):
        counts = request.get_perf_counts()
        assert [row["execution_index"] for row in counts.values()] == list(range(len(counts)))
        for name, (status, kind, _) in ROWS.items():
            row = counts[name]
            if status == "EXECUTED" and not ran:
                status = "NOT_RUN"
            assert (row["status"], row["layer_type"]) == (status, kind)
            assert (row["exec_type"] != "undef") == (status == "EXECUTED")
            assert (row["real_time"] > 0) <= (status == "EXECUTED")
        request.infer(random_inputs(small()))
    (node,) = (n for n in executable.latest_plan().graph.nodes if n.name == "conv")
    assert counts["conv"]["exec_type"] == node.choice.kernel.name


def test_what_has_no_elements_is_known_at_load(core) -> None:
    s = Sketch()
    x = s.input("x", 0, 4)
    network = s.network(y=s.add("exp", Exp(), x), z=s.add("relu", Relu(), s.input("u", 2, 4)))
    executable = core.load_network(network, "GPU", PERF)
    request = executable.create_infer_request()
    request.infer(random_inputs(network))
    counts = request.get_perf_counts()
    assert [counts[name]["status"] for name in ("exp", "relu")] == ["OPTIMIZED_OUT", "EXECUTED"]
    assert "computed at load" in lines_of(executable.explain(), ["exp"])["exp"][0]


def test_times_are_averages_over_all_inferences_of_all_requests(core, monkeypatch) -> None:
    """A launch takes the host 2, 4, 6 µs and the device 10, 30, 80 µs, in three inferences."""
    executable = core.load_network(small(), "GPU", PERF)
    real = cl.LaunchList.profile
    given = iter([(2, 10), (4, 30), (6, 80)])

    def profile(self):
        host, device = next(given)
        begin, end = 5_000, 5_000 + device * 1000
        return [cl.LaunchTime(t.name, 1, begin, end, host * 1000) for t in real(self)]

    monkeypatch.setattr(cl.LaunchList, "profile", profile)
    first, second = executable.create_infer_request(), executable.create_infer_request()
    for request in (first, second, first):
        request.infer(random_inputs(small()))
    for request in (first, second):
        row = request.get_perf_counts()["conv"]
        assert (row["real_time"], row["cpu_time"]) == (40, 4)
    graph = executable.get_exec_graph_info()
    assert graph.node("conv").rt_info["execTimeMcs"] == "40"
    assert graph.node("flat").rt_info["execTimeMcs"] == "not_executed"


def test_a_layer_that_is_several_launches_has_the_time_of_all(core) -> None:
    """LogSoftmax and a group normalisation, say, are computed in steps."""
    nodes = [
        helper.make_node("GroupNormalization", ["x", "s", "b"], ["g"], num_groups=2, name="group"),
        helper.make_node("LogSoftmax", ["g"], ["y"], axis=1, name="log"),
    ]
    weights = {"s": np.ones(4, np.float32), "b": np.zeros(4, np.float32)}
    graph = helper.make_graph(
        nodes,
        "steps",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 9, 9])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    opset = [helper.make_opsetid("", 21)]
    content = helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString()
    executable = core.load_network(core.read_network(content), "GPU", PERF)
    request = executable.create_infer_request()
    request.infer({"x": np.random.default_rng(1).normal(size=(1, 4, 9, 9)).astype("f4")})
    spent = sum(time.duration_ns for time in request.runner.last.times()) / 1e3
    assert sum(count.real_time_us for count in request.runner.counts()) == pytest.approx(spent)


def suppression():
    """Boxes that the host sorts out, between two layers of the device."""
    nodes = [
        helper.make_node("Abs", ["boxes"], ["b"], name="abs"),
        helper.make_node("NonMaxSuppression", ["b", "scores", "most"], ["n"], name="nms"),
    ]
    graph = helper.make_graph(
        nodes,
        "boxes",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 400, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1, 400]),
        ],
        [helper.make_tensor_value_info("n", TensorProto.INT64, [None, 3])],
        [numpy_helper.from_array(np.array([50], np.int64), "most")],
    )
    opset = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


def test_layers_on_the_host_are_cpu_and_have_a_time(core) -> None:
    executable = core.load_network(core.read_network(suppression()), "GPU", PERF)
    request = executable.create_infer_request()
    random = np.random.default_rng(2)
    request.infer({
        "boxes": random.random((1, 400, 4), np.float32),
        "scores": random.random((1, 1, 400), np.float32),
    })  # fmt: skip
    row = request.get_perf_counts()["nms"]
    assert (row["status"], row["exec_type"]) == ("EXECUTED", "CPU")
    assert row["real_time"] > 0
    (line,) = lines_of(executable.explain(), ["nms"])["nms"]
    assert "on the host" in line
    note = executable.get_exec_graph_info().node("nms").rt_info
    assert note["primitiveType"] == "CPU"
    assert int(note["execTimeMcs"]) > 0


def test_a_concatenation_in_place_costs_nothing_and_says_so(core) -> None:
    s = Sketch()
    x = s.input("x", 1, 4, 8, 8)
    window = {"kernel": (2, 2), "strides": (1, 1), "pads_begin": (0, 0), "pads_end": (1, 1)}
    parts = [s.conv("c", x, 4), s.add("p", MaxPool(**window), s.conv("d", x, 4))]
    whole = s.add("joined", Concat(axis=1), *parts)
    network = s.network(y=s.add("soft", SoftMax(axis=1), whole))
    executable = core.load_network(network, "GPU", PERF)
    request = executable.create_infer_request()
    request.infer(random_inputs(network))
    assert request.get_perf_counts()["joined"]["status"] == "OPTIMIZED_OUT"
    (line,) = lines_of(executable.explain(), ["joined"])["joined"]
    assert "right where they belong" in line


KEYS = {
    "originalLayersNames", "primitiveType", "outputPrecisions", "execTimeMcs", "outputLayouts",
    "execOrder", "layerType", "runtimePrecision",
}  # fmt: skip


@pytest.mark.parametrize("where", ["GPU", "CPU", "HETERO:GPU,CPU"])
def test_the_executed_graph_is_the_same_after_writing_and_reading(where, core, tmp_path) -> None:
    """Every node has the Inference Engine's eight notes; in the file they are attributes too."""
    executable = core.load_network(small(), where, PERF)
    executable.create_infer_request().infer(random_inputs(small()))
    graph = executable.get_exec_graph_info()
    nodes = graph.nodes()
    assert all(set(node.rt_info) >= KEYS for node in nodes)
    assert not any(node.type == "Const" for node in nodes)
    layers = [node for node in nodes if node.type not in ("Parameter", "Result")]
    orders = [int(node.rt_info["execOrder"]) for node in nodes]
    assert sorted(orders) == list(range(len(nodes)))
    for node in nodes:
        for port in node.inputs:
            before = int(port.node.rt_info["execOrder"])
            assert before < int(node.rt_info["execOrder"])
    named = [n for node in layers for n in node.rt_info["originalLayersNames"].split(",") if n]
    assert {"conv", "bias", "relu", "soft"} <= set(named)
    assert len(named) == len(set(named))
    assert any(node.rt_info["execTimeMcs"].isdigit() for node in layers)
    graph.serialize(tmp_path / "graph.xml")
    again = core.read_network(tmp_path / "graph.xml")
    assert [node.name for node in again.nodes()] == [node.name for node in nodes]
    for one, other in zip(nodes, again.nodes(), strict=True):
        assert (one.type, one.rt_info) == (other.type, other.rt_info)
        assert [port.name for port in one.inputs] == [port.name for port in other.inputs]


def test_before_an_inference_nothing_has_a_time(core) -> None:
    graph = core.load_network(small(), "GPU", PERF).get_exec_graph_info()
    assert {node.rt_info["execTimeMcs"] for node in graph.nodes()} == {"not_executed"}


def test_reports_while_requests_run(core) -> None:
    """Two streams infer; another thread asks for everything; nothing is lost or mixed."""
    executable = core.load_network(small(), "GPU", {**PERF, "GPU_THROUGHPUT_STREAMS": "2"})
    requests = [executable.create_infer_request() for _ in range(4)]
    given = random_inputs(small())
    right = requests[0].infer(given)["y"].copy()
    over, failures = threading.Event(), []

    def ask() -> None:
        try:
            while not over.is_set():
                assert "runs by" in executable.explain()
                graph = executable.get_exec_graph_info()
                assert graph.node("conv").rt_info["execTimeMcs"].isdigit()
        except Exception as error:  # noqa: BLE001 - for the main thread to see
            failures.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    for _ in range(25):
        for request in requests:
            request.start_async(given)
        for request in requests:
            request.wait()
            np.testing.assert_array_equal(request.get_blob("y").array, right)
            assert request.get_perf_counts()["conv"]["status"] == "EXECUTED"
    over.set()
    thread.join()
    assert not failures
    assert executable.latest_plan().times.inferences == 101


def test_shapes_of_a_dynamic_network_have_times_of_their_own(core) -> None:
    network = small_dynamic()
    executable = core.load_network(network, "GPU", PERF)
    request = executable.create_infer_request()
    with pytest.raises(DeviceError, match="infer once"):
        executable.explain()
    for size in (3, 5, 3):
        request.infer({"x": np.ones((size, 4), np.float32)})
        assert request.get_perf_counts()["exp"]["status"] == "EXECUTED"
        node = executable.get_exec_graph_info().node("exp")
        assert node.output.shape.static == (size, 4)
    executable.close()
    with pytest.raises(DeviceError, match="is closed"):
        executable.explain()


def small_dynamic():
    s = Sketch()
    network = s.network(y=s.add("exp", Exp(), s.input("x", 1, 4)))
    network.reshape({"x": [-1, 4]})
    return network


NETRON_TYPES = {"FP16", "FP32", "FP64", "BF16", "BOOL"} | {
    f"{sign}{bits}" for sign in "IU" for bits in (4, 8, 16, 32, 64)
}


def check_opens_in_netron(path) -> None:
    """What the reader of Netron 9.3 relies on, and refuses a file without."""
    net = ET.parse(path).getroot()
    assert (net.tag, net.get("version")) == ("net", "11")
    layers = {layer.get("id"): layer for layer in net.find("layers")}
    assert len(layers) == len(net.find("layers"))
    values: dict[tuple[str, str], list[str]] = {}
    reads: set[tuple[str, str]] = set()
    for number, layer in layers.items():
        assert layer.get("name")
        assert layer.get("type")
        assert len(layer.findall("data")) <= 1
        for port in layer.iterfind("output/port"):
            assert port.get("precision") in NETRON_TYPES
            assert (number, port.get("id")) not in values
            values[number, port.get("id")] = [dim.text for dim in port]
        for port in layer.iterfind("input/port"):
            assert (number, port.get("id")) not in values  # one name space for both sides
            reads.add((number, port.get("id")))
    for edge in net.find("edges"):
        assert (edge.get("from-layer"), edge.get("from-port")) in values
        reads.remove((edge.get("to-layer"), edge.get("to-port")))
    assert not reads, "inputs without an edge"


LOCAL = [m for m in MODELS if type(m.file).__name__ == "Bundled"]


@pytest.mark.parametrize("model", firsts(1, LOCAL), ids=[m.name for m in LOCAL])
def test_every_layer_of_a_real_model_appears_once(model, opencl, tmp_path) -> None:
    """In the explanation, and as a row of the counters."""
    with Core() as core:
        network = core.read_network(model.file.get())
        given = model.inputs()
        network.reshape({name: array.shape for name, array in given.items()})
        layers = [node.name for node in network.nodes() if node.type != "Const"]
        executable = core.load_network(network, "GPU", PERF)
        request = executable.create_infer_request()
        request.infer(given)
        counts = request.get_perf_counts()
        text = executable.explain()
        executable.get_exec_graph_info().serialize(tmp_path / "graph.xml")
    check_opens_in_netron(tmp_path / "graph.xml")
    assert set(layers) <= set(counts)
    names = [line.split("  ")[0] for line in text.splitlines()]
    assert all(names.count(name) == 1 for name in layers)
