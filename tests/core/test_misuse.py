"""Whatever is handed to a public method, what it raises is an exception of ours.

Every argument of every method in turn is replaced by values of wrong types, sizes and names; the
other arguments stay right. A value that the method takes is no mistake.
"""

from __future__ import annotations

import asyncio
import hashlib
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from polydevice import Blob, Core, Dim, ElementType, Shape, TensorDesc, opset, validate
from polydevice.devices.plugin_names import FIRST_PARTY
from polydevice.errors import InferenceError, InternalError, PolydeviceError, RequestError
from polydevice.foreign_errors import OURS
from polydevice.ops.math import Cosh, Sinh
from polydevice_cpu import implement
from tests.cpu.models import build

WRONG: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1.5,
    float("nan"),
    "",
    "nothing",
    "a\0b",
    "x" * 10_000,
    "\ud800",
    b"",
    b"\xff\x00nothing",
    [],
    [None],
    ["nothing"],
    (1, 2),
    {},
    {"nothing": None},
    {None: None},
    {"x": "text"},
    {"x": None},
    {"x": [[1], [1, 2]]},
    {1: 2},
    {"PERF_COUNT": object()},
    {"PERF_COUNT": "nothing"},
    {"NO_SUCH_KEY": "YES"},
    set(),
    object(),
    object,
    print,
    Path("/nowhere"),
    Path("/"),
    np.zeros((0,), np.float32),
    np.zeros((2, 3), np.complex64),
    np.array(["text"]),
    np.array([object()]),
    np.float32(3),
]


def network() -> bytes:
    return build([("Relu", ["x"], ["y"], {})], {"x": (2, 3)}, ["y"], {})


X = np.ones((2, 3), np.float32)


def awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that waits for a coroutine's end."""

    def call(**arguments: Any) -> Any:
        return asyncio.run(method(**arguments))

    call.__qualname__ = method.__qualname__
    return call


def calls(core: Core) -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """Yield a title, a method and right arguments."""
    read = core.read_network(network())
    loaded = core.load_network(read, "CPU", num_requests=2)
    request = loaded.create_infer_request()
    queue = loaded.infer_queue(2)
    content = loaded.export()
    where = {"device_name": "CPU"}
    for method, arguments in {
        core.read_network: {"model": network(), "weights": None, "limits": None},
        validate: {"model": network(), "weights": None, "limits": None, "devices": ["CPU"]},
        core.load_network: {"network": read, **where, "config": {}, "num_requests": 1},
        core.import_network: {"data": content, **where, "config": {}},
        core.query_network: {"network": read, **where, "config": {}},
        core.unsupported_nodes: {"network": read, **where, "config": {}},
        core.set_config: {"config": {"PERF_COUNT": "NO"}, **where},
        core.get_config: {**where, "key": "PERF_COUNT"},
        core.get_metric: {**where, "name": "FULL_DEVICE_NAME"},
        core.option_keys: where,
        core.get_versions: where,
        core.register_plugin: {"plugin_name": "no_such_module", "device_name": "NEW"},
        core.unregister_plugin: {"device_name": "NEW"},
        core.create_context: {**where, "params": {}},
        core.get_default_context: where,
        loaded.infer: {"inputs": {"x": X}},
        loaded.start_async: {"request_id": 0, "inputs": {"x": X}},
        loaded.wait: {"num_requests": 0, "timeout_ms": 0},
        loaded.infer_queue: {"jobs": 1, "ordered": True},
        loaded.get_config: {"key": "PERF_COUNT"},
        loaded.get_metric: {"name": "NETWORK_NAME"},
        loaded.port_by_tensor_name: {"name": "x"},
        request.infer: {"inputs": {"x": X}},
        request.start_async: {"inputs": {"x": X}},
        request.wait: {"timeout_ms": 1000},
        request.set_blob: {"name": "x", "blob": Blob(X.copy())},
        request.get_blob: {"name": "x"},
        request.keep_on_device: {"name": "y", "memory": None},
        request.set_batch: {"size": 1},
        request.set_completion_callback: {"callback": None, "data": None},
        queue.start_async: {"inputs": {"x": X}, "userdata": None},
        Blob: {"array": X, "element_type": None},
        Blob(np.zeros((1, 3, 8, 8), np.float32)).roi: {
            "x": 0, "y": 0, "width": 2, "height": 2, "layout": "NCHW",
        },
        core.read_network(network()).reshape: {"shapes": {"x": (4, 3)}},
        core.read_network(network()).node: {"name": "y"},
        core.read_network(network()).add_outputs: {"outputs": "y"},
        core.read_network(network()).fix_dimensions: {"sizes": {}, "kind": "dimensions"},
        core.read_network(network()).dimension_names: {"name": "x", "kind": "dimensions"},
        core.read_network(network()).make_input: {"name": "x"},
        core.read_network(network()).name_of_tensor: {"tensor_name": "x"},
        core.read_network(network()).serialize: {"xml_path": "/nowhere/m.xml", "bin_path": None},
        core.read_network(network()).inputs["x"].preprocess.init: {"number_of_channels": 3},
        core.read_network(network()).inputs["x"].preprocess.set_mean: {
            "mean": [1, 2, 3], "scale": [1, 1, 1],
        },
        core.read_network(network()).inputs["x"].preprocess.set_mean_image: {
            "image": np.zeros((3, 4, 4), np.float32),
        },
        queue.set_callback: {"callback": None},
        queue.get_idle_request_id: {"timeout_ms": 0},
        queue.wait_all: {"timeout_ms": 0},
        awaited(core.load_network(read, "CPU").infer_queue(1).infer): {"inputs": {"x": X}},
        Blob.empty: {"desc": TensorDesc(ElementType.f32, Shape((2, 3)))},
        Shape: {"sizes": (1, 2)},
        Dim: {"min": 1, "max": 2},
        TensorDesc: {"element_type": ElementType.f32, "shape": Shape((2, 3))},
    }.items():  # fmt: skip
        yield method.__qualname__, method, arguments


def cases() -> list[tuple[str, int, str]]:
    """List the methods by number, since they need a core, and their arguments."""
    with Core() as core:
        return [
            (title, number, argument)
            for number, (title, _, arguments) in enumerate(calls(core))
            for argument in arguments
        ]


@pytest.fixture
def core() -> Iterator[Core]:
    with Core() as made:
        yield made


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("title", "number", "argument"), cases())
def test_wrong_arguments(core, title, number, argument, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)  # some names are names of files to write
    foreign = []
    subjects = list(calls(core))
    for wrong in WRONG:
        _, method, arguments = subjects[number]
        try:
            method(**{**arguments, argument: wrong})
        except InternalError as error:
            foreign.append((wrong, repr(error)[:150]))
        except PolydeviceError:
            pass
        except Exception as error:  # noqa: BLE001 - that is the question
            foreign.append((str(wrong)[:40], f"{type(error).__name__}: {error}"[:150]))
    assert not foreign, "\n".join(f"{title}({argument}={w!r}): {e}" for w, e in foreign)


def test_closed_objects() -> None:
    with Core() as core:
        subjects = list(calls(core))
    for title, method, arguments in subjects:
        raised = None
        try:
            method(**arguments)
        except PolydeviceError as error:
            raised = error
        assert not isinstance(raised, InternalError), (title, raised)


def test_a_defect_in_reading_names_the_file(core, monkeypatch, tmp_path) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("an assumption")

    monkeypatch.setattr("polydevice.readers.onnx.read_onnx", broken)
    file = tmp_path / "model.onnx"
    file.write_bytes(network())
    digest = hashlib.sha256(network()).hexdigest()
    for model in (file, network()):
        with pytest.raises(InternalError, match=digest):
            core.read_network(model)


def test_a_defect_names_the_node_and_how_to_report_it(core, monkeypatch) -> None:
    def lower(node) -> None:
        raise KeyError("an assumption")

    def broken(self, network, *_context) -> None:
        for node in network.nodes():
            if node.type == "ReLU":
                lower(node)

    read = core.read_network(network())
    core.load_network(read, "CPU")
    monkeypatch.setattr("polydevice_cpu.plugin.CpuPlugin.load_network", broken)
    with pytest.raises(InternalError) as caught:
        core.load_network(read, "CPU")
    message = str(caught.value)
    for part in ("KeyError('an assumption')", "node 'y' (ReLU", "sha256:", "please report"):
        assert part in message
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(InternalError) as again:
        core.load_network(core.read_network(network()), "CPU")
    assert str(again.value) == message  # the hash is the network's


LAYERS = ["Relu", "Cosh", "NonZero", "Cast", "Sinh"]


def deep(names: list[str] = LAYERS) -> bytes:
    """A chain of which the last layers have sizes that only data tells."""
    ends = ["x", *[f"v{k}" for k in range(len(names))]]
    nodes = [
        helper.make_node(name, [ends[k]], [ends[k + 1]], **({"to": 1} if name == "Cast" else {}))
        for k, name in enumerate(names)
    ]
    graph = helper.make_graph(
        nodes,
        "deep",
        [helper.make_tensor_value_info("x", 1, ["n", 3])],
        [helper.make_tensor_value_info(ends[-1], 1, None)],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("kind", "layer", "target"),
    [(Cosh, "v1", "itself"), (Sinh, "v4", "itself"), (Sinh, "v4", "HETERO:CPU")],
)
def test_a_defect_at_inference(core, monkeypatch, kind, layer, target, is_async, device) -> None:
    if device != "CPU" and (kind is Cosh or target != "itself"):
        pytest.skip("on other devices the host's layers alone are Python")
    # Called with two arguments it raises TypeError, from no code of this test's.
    assert implement.find_implementation(kind)  # or its module, read later, would bring it back
    monkeypatch.setitem(implement._TABLE, kind, operator.index)
    monkeypatch.delitem(implement._WRITERS, kind, raising=False)
    target = device if target == "itself" else target
    request = core.load_network(core.read_network(deep()), target).create_infer_request()
    messages = []
    for _ in range(2):
        with pytest.raises(InternalError) as caught:
            if is_async:
                request.start_async({"x": np.ones((2, 3), np.float32)})
                request.wait()
            else:
                request.infer({"x": np.ones((2, 3), np.float32)})
        messages.append(str(caught.value))
        assert isinstance(caught.value.__cause__, (TypeError, InternalError))
    for part in ("failed: TypeError", f"at node {layer!r} ({kind.type})", "sha256:", "report"):
        assert part in messages[0], messages[0]
    assert messages[0] == messages[1]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("target", ["itself", "HETERO:CPU"])
def test_values_that_do_not_fit_are_refused_with_the_layer(core, target, is_async, device) -> None:
    """An axis and a size that only the inference tells; the functions know no names."""
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
        helper.make_node("ReduceSum", ["x", "axis"], ["sum"]),
    ]
    given = {"x": np.ones((2, 3), "f"), "size": np.array([1]), "axis": np.array([1])}
    kinds = {"x": 1, "size": 7, "axis": 7}
    inputs = [helper.make_tensor_value_info(k, kinds[k], v.shape) for k, v in given.items()]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in ("zeros", "sum")]
    graph = helper.make_graph(nodes, "late", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    target = device if target == "itself" else target
    request = core.load_network(
        core.read_network(model.SerializeToString()), target
    ).create_infer_request()
    for change, layer in (({"size": -7}, "zeros"), ({"axis": -9}, "sum")):
        with pytest.raises(PolydeviceError, match=f"node {layer!r} ") as caught:
            wrong = given | {name: np.array([value]) for name, value in change.items()}
            if is_async:
                request.start_async(wrong)
                request.wait()
            else:
                request.infer(wrong)
        assert not isinstance(caught.value, InternalError)
        assert str(caught.value).count("node ") == 1
    assert request.infer(given)["sum"].shape == (2, 1)


def test_what_a_users_function_raises_is_no_defect(core, monkeypatch) -> None:
    def wrong(op: object, x: object) -> None:
        raise KeyError("mine")

    assert implement.find_implementation(Sinh)  # or its module, read later, would bring it back
    monkeypatch.setitem(implement._TABLE, Sinh, wrong)
    with pytest.raises(InferenceError, match="KeyError"):
        core.load_network(core.read_network(deep()), "CPU").infer({"x": np.ones((2, 3), "f")})


def test_every_package_of_ours_is_known() -> None:
    assert {"polydevice", *FIRST_PARTY.values()} == OURS


@pytest.mark.parametrize("size", ["2", 1.5, None, True])
def test_a_batch_that_is_no_integer(core: Core, size: object) -> None:
    x = opset.parameter([4, 3], name="x")
    network = opset.network("n", {"y": opset.relu(x)})
    request = core.load_network(network, "CPU", {"DYN_BATCH_ENABLED": "YES"}).requests[0]
    with pytest.raises(RequestError, match="the batch=.* is not possible; give an integer"):
        request.set_batch(size)
