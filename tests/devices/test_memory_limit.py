"""MEMORY_LIMIT on every device: at load, for requests, and for sizes known at inference alone."""

from __future__ import annotations

import cProfile
import pstats

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice import Core
from polydevice.bounds import Bounds, within
from polydevice.dtype import ElementType
from polydevice.errors import DeviceMemoryError, InferenceError
from polydevice.memory_budget import MemoryBudget
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.blocks import SpaceToBatch
from polydevice.ops.convolution import Convolution
from polydevice.ops.embedding import EmbeddingSegmentsSum
from polydevice.ops.io import Parameter, Result
from polydevice.ops.patches import ExtractImagePatches
from polydevice.ops.pooling import AdaptiveAvgPool, MaxPool
from polydevice.ops.prior_box import PriorBox
from polydevice.ops.random import Multinomial
from polydevice.ops.signal import DFT, IDFT, IRDFT, RDFT
from polydevice.ops.window import PadType
from polydevice.shape import Shape
from polydevice_cpu.plan.array_steps.growth import Growth

FLOAT, INT64, BOOL, STRING = (
    getattr(TensorProto, name) for name in ("FLOAT", "INT64", "BOOL", "STRING")
)


@pytest.fixture
def core():
    with Core() as core:
        yield core


def model(nodes, inputs, outputs, initializers=()) -> bytes:
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(*each) for each in inputs],
        [helper.make_tensor_value_info(*each) for each in outputs],
        initializers,
    )
    opset = [helper.make_opsetid("", 21)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())


def chain(length: int) -> bytes:
    """ReLU and Add by turns."""
    nodes, last = [], "x"
    for number in range(length):
        kind = ("Relu", [last]) if number % 2 else ("Add", [last, "c"])
        nodes.append(helper.make_node(*kind, [f"v{number}"]))
        last = f"v{number}"
    one = helper.make_tensor("c", FLOAT, [4], [1, 2, 3, 4])
    return model(nodes, [("x", FLOAT, [4])], [(last, FLOAT, [4])], [one])


def doubling() -> bytes:
    """y = x, as long as it was, twice as long, … `trips` times."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Concat", ["v", "v"], ["n"], axis=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", BOOL, []),
            helper.make_tensor_value_info("n", FLOAT, None),
        ],
    )
    loop = helper.make_node("Loop", ["trips", "", "x"], ["y"], body=body)
    return model([loop], [("x", FLOAT, [64]), ("trips", INT64, [])], [("y", FLOAT, ["n"])])


def test_a_plan_that_does_not_fit(core, device):
    content = model(
        [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("MatMul", ["s", "s"], ["y"])],
        [("x", FLOAT, [512, 512])],
        [("y", FLOAT, [512, 512])],
    )
    network = core.read_network(content)
    x = np.zeros((512, 512), np.float32)
    with pytest.raises(DeviceMemoryError, match="MEMORY_LIMIT"):
        core.load_network(network, device, {"MEMORY_LIMIT": "1M"}).infer({"x": x})
    executable = core.load_network(network, device, {"MEMORY_LIMIT": "64M"})
    assert executable.get_config("MEMORY_LIMIT") == str(64 << 20)
    for _ in range(2):
        y = executable.infer({"x": x})["y"]
        np.testing.assert_allclose(y, np.full((512, 512), 1 / 512), rtol=1e-3)


def test_requests_count_and_give_back(core, device):
    content = model(
        [helper.make_node("Softmax", ["x"], ["s"]), helper.make_node("MatMul", ["s", "s"], ["y"])],
        [("x", FLOAT, [256, 256])],
        [("y", FLOAT, [256, 256])],
    )
    executable = core.load_network(core.read_network(content), device, {"MEMORY_LIMIT": "3M"})
    x, requests = np.zeros((256, 256), np.float32), []
    with pytest.raises(DeviceMemoryError, match="MEMORY_LIMIT"):
        for _ in range(100):
            requests.append(executable.create_infer_request())
            requests[-1].infer({"x": x})
    assert len(requests) > 1
    requests[0].infer({"x": x})
    requests.clear()
    executable.create_infer_request().infer({"x": x})


def test_a_growing_loop(core, device):
    config = {"MEMORY_LIMIT": "8M"}
    request = core.load_network(core.read_network(doubling()), device, config)
    request = request.create_infer_request()
    x = np.arange(64, dtype=np.float32)
    for _ in range(2):
        with pytest.raises(DeviceMemoryError, match="MEMORY_LIMIT"):
            request.infer({"x": x, "trips": np.array(60)})
        y = request.infer({"x": x, "trips": np.array(3)})["y"]
        np.testing.assert_array_equal(y, np.tile(x, 8))


def test_a_loop_that_collects_needs_twice_what_it_collects(core):
    """The parts, and what they are joined to: 8 MiB each."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["x"], ["part"])],
        "body",
        [
            helper.make_tensor_value_info("i", INT64, []),
            helper.make_tensor_value_info("go", BOOL, []),
        ],
        [
            helper.make_tensor_value_info("on", BOOL, []),
            helper.make_tensor_value_info("part", FLOAT, [1 << 18]),
        ],
    )
    loop = helper.make_node("Loop", ["trips", ""], ["y"], body=body)
    inputs = [("x", FLOAT, [1 << 18]), ("trips", INT64, [])]
    content = model([loop], inputs, [("y", FLOAT, ["n", 1 << 18])])
    feed = {"x": np.arange(1 << 18, dtype=np.float32), "trips": np.array(8)}
    with pytest.raises(DeviceMemoryError, match="after [78] iterations"):
        core.load_network(content, "CPU", {"MEMORY_LIMIT": "15M"}).infer(feed)
    y = core.load_network(content, "CPU", {"MEMORY_LIMIT": "22M"}).infer(feed)["y"]
    np.testing.assert_array_equal(y, np.tile(-feed["x"], (8, 1)))


@pytest.mark.parametrize("kind", ["Tile", "Expand", "Range", "ConstantOfShape", "Add"])
def test_sizes_that_values_decide(core, device, kind):
    many = np.array([4096, 8192])
    nodes = [helper.make_node(kind, ["x", "n"], ["y"])]
    inputs = [("x", FLOAT, [1, 1]), ("n", INT64, [2])]
    given = {"x": np.ones((1, 1), np.float32), "n": many}
    less = {**given, "n": np.array([2, 3])}
    shape = (2, 3)
    if kind == "ConstantOfShape":
        nodes, inputs = [helper.make_node(kind, ["n"], ["y"])], inputs[1:]
        given, less = {"n": many}, {"n": less["n"]}
    elif kind == "Range":
        nodes = [helper.make_node(kind, ["a", "b", "c"], ["y"])]
        inputs = [(name, FLOAT, []) for name in "abc"]
        given = {name: np.float32(value) for name, value in zip("abc", (0, 3e7, 1))}
        less, shape = {**given, "b": np.float32(5)}, (5,)
    elif kind == "Add":
        inputs = [("x", FLOAT, ["a", 1]), ("n", FLOAT, [1, "b"])]
        given = {"x": np.ones((8192, 1), "f4"), "n": np.ones((1, 8192), "f4")}
        less = {"x": np.ones((2, 1), "f4"), "n": np.ones((1, 3), "f4")}
    content = model(nodes, inputs, [("y", FLOAT, ["p", "q"][: len(shape)])])
    request = core.load_network(core.read_network(content), device, {"MEMORY_LIMIT": "16M"})
    request = request.create_infer_request()
    for _ in range(2):
        with pytest.raises(DeviceMemoryError, match="MEMORY_LIMIT"):
            request.infer(given)
        assert request.infer(less)["y"].shape == shape


I64 = ElementType.i64
GROWING = {  # operation → its constant inputs, with None for the one that says sizes; what that is
    "SpaceToBatch": (SpaceToBatch(), [[1, 1], [0, 0], None], [0, 1 << 34], [0, 3], (2, 6)),
    "DFT": (DFT(), [[0], None], [1 << 33], [5], (5, 2)),
    "IDFT": (IDFT(), [[0], None], [1 << 33], [5], (5, 2)),
    "RDFT": (RDFT(), [[0], None], [1 << 33], [8], (5, 3, 2)),
    "IRDFT": (IRDFT(), [[0], None], [1 << 33], [5], (5,)),
    "Multinomial": (
        Multinomial(convert_type=I64, with_replacement=True, log_probs=False),
        [None],
        [1 << 33],
        [7],
        (2, 7),
    ),
    "AdaptiveAvgPool": (AdaptiveAvgPool(), [None], [1 << 33], [4], (1, 2, 4)),
    "EmbeddingSegmentsSum": (EmbeddingSegmentsSum(), [[0, 1], [0, 0], None], 1 << 33, 4, (4, 3)),
    "PriorBox": (PriorBox(min_size=(2.0,)), [None, [9, 9]], [1 << 17, 1 << 17], [2, 3], (2, 24)),
}


@pytest.mark.parametrize("kind", GROWING)
def test_operations_that_grow(core, kind):
    op, others, huge, less, shape = GROWING[kind]
    data = {"IRDFT": (3, 2), "DFT": (3, 2), "IDFT": (3, 2), "AdaptiveAvgPool": (1, 2, 3)}
    parameters = []
    if kind != "PriorBox":
        size = Shape(data.get(kind, (2, 3)))
        parameters.append(Node("x", Parameter(ElementType.f32, size)))
    at = Node("n", Parameter(I64, Shape(np.shape(less))))
    rest = [
        at.output if values is None else constant(f"c{k}", np.array(values)).output
        for k, values in enumerate(others)
    ]
    node = Node("y", op, [*(p.output for p in parameters), *rest])
    network = Network("m", [*parameters, at], [Node("r", Result(), [node.output])], [])
    network.infer()
    given = {p.name: np.ones(p.output.shape.static, np.float32) for p in parameters}
    request = core.load_network(network, "CPU", {"MEMORY_LIMIT": "64M"}).create_infer_request()
    for _ in range(2):
        with pytest.raises(DeviceMemoryError, match=f"{op.type} needs.*MEMORY_LIMIT"):
            request.infer({**given, "n": np.array(huge)})
        (y,) = request.infer({**given, "n": np.array(less)}).values()
        assert y.shape == shape


PADDED = {"pads_begin": (1 << 20, 1 << 20), "pads_end": (1 << 20, 1 << 20)}


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (Convolution(**PADDED), [(1, 1, 2, 2), (1, 1, 1, 1)]),
        (MaxPool(kernel=(1, 1), **PADDED), [(1, 1, 2, 2)]),
        (ExtractImagePatches((1024, 1024), (1, 1), (1, 1), PadType.VALID), [(1, 1, 1100, 1100)]),
    ],
)
def test_attributes_that_grow(op, shapes):
    """What runs when sizes are known asks before it computes, however little it is given."""
    bounds = Bounds(memory=MemoryBudget(1 << 24, "network 'n'"))
    with within(bounds), pytest.raises(DeviceMemoryError, match=f"{op.type} needs"):
        Growth(op).admit([np.ones(shape, np.float32) for shape in shapes], tuple(shapes), [])


@pytest.mark.parametrize("kind", ["StringSplit", "StringConcat"])
def test_texts(core, kind):
    long = np.array(["a" * 40_000] + ["b"] * 3000, object)
    if kind == "StringSplit":
        nodes = [helper.make_node(kind, ["x"], ["y", "n"], delimiter="a")]
        inputs, given, less = [("x", STRING, ["s"])], {"x": long}, {"x": long[1:3]}
        outputs, shape = [("y", STRING, ["s", "w"])], (2, 1)
    else:
        nodes = [helper.make_node(kind, ["x", "z"], ["y"])]
        inputs = [("x", STRING, ["s", 1]), ("z", STRING, [1, "t"])]
        given = {"x": long[:, None], "z": long[None, :]}
        less, shape = {"x": long[:2, None], "z": long[None, 1:4]}, (2, 3)
        outputs = [("y", STRING, ["s", "t"])]
    network = core.read_network(model(nodes, inputs, outputs))
    request = core.load_network(network, "CPU", {"MEMORY_LIMIT": "64M"}).create_infer_request()
    for _ in range(2):
        with pytest.raises(DeviceMemoryError, match=f"{kind} needs.*MEMORY_LIMIT"):
            request.infer(given)
        assert request.infer(less)["y"].shape == shape


def test_more_texts_than_can_be_given_up(core):
    """One array of them is filled at once, for seconds that no time limit can end."""
    nodes = [helper.make_node("StringSplit", ["x"], ["y", "n"], delimiter="a")]
    network = core.read_network(model(nodes, [("x", STRING, ["s"])], [("y", STRING, ["s", "w"])]))
    request = core.load_network(network, "CPU").create_infer_request()
    with pytest.raises(InferenceError, match="601 lists of 300001 texts"):
        request.infer({"x": np.array(["a" * 300_000] + ["b"] * 600, object)})
    assert request.infer({"x": np.array(["bab", "b"], object)})["y"].shape == (2, 2)


def test_grams_and_skips_without_bound():
    content = model(
        [
            helper.make_node(
                "TfIdfVectorizer", ["x"], ["y"], max_gram_length=1 << 31, max_skip_count=1 << 31,
                min_gram_length=1, mode="TF", ngram_counts=[0, 2], ngram_indexes=[0, 1, 2],
                pool_int64s=[1, 2, 1, 3],
            )
        ],
        [("x", TensorProto.INT32, [10])],
        [("y", FLOAT, [3])],
    )  # fmt: skip
    x = np.array([1, 5, 3, 1, 3, 2, 1, 1, 2, 3], np.int32)
    with Core() as core:
        y = core.load_network(core.read_network(content), "CPU").infer({"x": x})["y"]
    # 1 and 2 alone; then (1, 3) at every distance.
    pairs = sum(x[i] == 1 and x[j] == 3 for i in range(10) for j in range(i + 1, 10))
    np.testing.assert_array_equal(y, [(x == 1).sum(), (x == 2).sum(), pairs])


def test_loading_is_linear_in_layers(core, device):
    calls = []
    for length in (10, 600, 1200):  # the first one for what happens once
        network = core.read_network(chain(length))
        profile = cProfile.Profile()
        profile.enable()
        executable = core.load_network(network, device)
        profile.disable()
        calls.append(pstats.Stats(profile).total_calls)
        x = np.array([-9, 0, 1, 0.5], np.float32)
        want = x
        for number in range(length):
            want = np.maximum(want, 0) if number % 2 else want + np.array([1, 2, 3, 4], np.float32)
        (y,) = executable.infer({"x": x}).values()
        np.testing.assert_allclose(y, want, rtol=1e-3)
    assert calls[2] < 2.4 * calls[1]


def test_values_of_late_sizes_add_up(core: Core, device: str) -> None:
    """Each of them fits, all together do not; what failed gives everything back."""
    nodes = [
        helper.make_node("Compress", ["x", "m"], ["k"], axis=0),
        *(helper.make_node(kind, ["k"], [kind]) for kind in ("Sin", "Cos", "Exp", "Abs")),
    ]
    outputs = [(kind, FLOAT, [None]) for kind in ("Sin", "Cos", "Exp", "Abs")]
    content = model(nodes, [("x", FLOAT, [None]), ("m", BOOL, [None])], outputs)
    x = np.random.default_rng(3).standard_normal(1 << 18).astype(np.float32)  # 1 MiB
    with core.load_network(core.read_network(content), device, {"MEMORY_LIMIT": "5M"}) as network:
        request = network.create_infer_request()
        for _ in range(2):
            with pytest.raises(DeviceMemoryError, match="MEMORY_LIMIT"):
                request.infer({"x": x, "m": np.ones(len(x), bool)})
            results = request.infer({"x": x[:4096], "m": np.ones(4096, bool)})
            np.testing.assert_allclose(results["Sin"], np.sin(x[:4096]), 1e-3, 1e-5)
