"""SHAPE_BUCKETS: inputs are padded where that provably changes nothing, and refused elsewhere.

Right answers are ONNX Runtime's on inputs that are not padded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core, opset
from polydevice.errors import BlobError, DeviceError, OptionValueError, UnsupportedNetworkError
from polydevice.infer_request import InferRequest
from polydevice.shape import Dim

Array = npt.NDArray[np.generic]

WIDTH = 8


class Graph:
    """Writes an ONNX model with one input x of [n, l, 8], and others that are asked for."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "l", WIDTH])]

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        name = f"{kind}{len(self.nodes)}"
        names = [f"{name}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=name, **attributes))
        return names[0]

    def value(self, array: object) -> str:
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def random(self, *shape: int) -> str:
        return self.value(self.rng.standard_normal(shape).astype(np.float32) / 2)

    def size(self, axis: int) -> str:
        return self.op("Slice", self.op("Shape", "x"), self.value([axis]), self.value([axis + 1]))

    def model(self, *outputs: str) -> bytes:
        ports = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, "g", self.inputs, ports, self.constants)
        versions = [helper.make_opsetid("", 18)]
        return helper.make_model(graph, opset_imports=versions, ir_version=9).SerializeToString()


def same(model: bytes, request: InferRequest, inputs: dict[str, Array]) -> None:
    """Assert that a request gives ONNX Runtime's answers, twice."""
    wanted = onnxruntime.InferenceSession(model).run(None, inputs)
    for _ in range(2):
        for got, want in zip(request.infer(inputs).values(), wanted, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5)


def encoder(g: Graph) -> bytes:
    """Two heads of attention with a mask over a batch of texts, as BERT writes it, and a mean."""
    g.inputs.append(helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", "l"]))
    g.inputs.append(helper.make_tensor_value_info("mask", TensorProto.INT64, ["n", "l"]))
    place = g.op("Range", g.value(0), g.op("Squeeze", g.size(1)), g.value(1))
    words, places = (g.op("Gather", g.random(40, WIDTH), each) for each in ("ids", place))
    x = g.op("Add", g.op("Add", words, places), "x")
    shape = g.op("Concat", g.size(0), g.size(1), g.value([2]), g.value([WIDTH // 2]), axis=0)

    def head(order: list[int]) -> str:
        flat = g.op("Reshape", x, g.value([-1, WIDTH]))
        product = g.op("Gemm", flat, g.random(WIDTH, WIDTH), g.random(WIDTH))
        return g.op("Transpose", g.op("Reshape", product, shape), perm=order)

    scores = g.op("MatMul", head([0, 2, 1, 3]), head([0, 2, 3, 1]))
    hidden = g.op("Cast", g.op("Unsqueeze", "mask", g.value([1, 2])), to=TensorProto.FLOAT)
    hidden = g.op("Mul", g.op("Sub", g.value(np.float32(1)), hidden), g.value(np.float32(-1e4)))
    weights = g.op("Softmax", g.op("Add", scores, hidden), axis=-1)
    y = g.op("Transpose", g.op("MatMul", weights, head([0, 2, 1, 3])), perm=[0, 2, 1, 3])
    y = g.op("Reshape", y, g.op("Concat", g.size(0), g.size(1), g.value([WIDTH]), axis=0))
    y = g.op("LayerNormalization", y, g.random(WIDTH), g.random(WIDTH))
    mean = g.op("ReduceMean", y, g.value([1]), keepdims=0)
    rows = g.op("Reshape", y, g.value([-1, WIDTH]))
    return g.model(y, mean, rows, g.op("ReduceMax", y, g.value([1, 2]), keepdims=1))


@pytest.mark.full
def test_encoder(device: str, rng: np.random.Generator) -> None:
    model = encoder(Graph(rng))
    with Core() as core:
        loaded = core.load_network(core.read_network(model), device, {"SHAPE_BUCKETS": "4,16"})
        request = loaded.create_infer_request()
        for n, length in ((1, 5), (3, 9), (4, 16), (2, 1), (1, 17), (3, 9)):
            inputs: dict[str, Array] = {
                "x": rng.standard_normal((n, length, WIDTH)).astype(np.float32),
                "ids": rng.integers(0, 40, (n, length)),
                "mask": (np.arange(length) < rng.integers(1, length + 1, (n, 1))).astype(np.int64),
            }
            same(model, request, inputs)
        text = loaded.explain()
        assert "does nothing" not in text  # what hides padding from a layer
        assert "SHAPE_BUCKETS: axis 0 of the inputs, called 'n': padded to 4,16" in text
        assert "guarded: Softmax" in text
        with pytest.raises(DeviceError, match="without the key"):
            loaded.export()


def pointwise(g: Graph, x: str) -> str:
    return g.op("Mul", g.op("Tanh", x), g.op("Add", x, g.random(WIDTH)))


def product(g: Graph, x: str) -> str:
    flat = g.op("Reshape", x, g.value([-1, WIDTH]))
    return g.op("Reshape", g.op("MatMul", flat, g.random(WIDTH, WIDTH)), g.op("Shape", x))


def convolved(g: Graph, x: str) -> str:
    y = g.op("Transpose", x, perm=[0, 2, 1])
    y = g.op("Conv", y, g.random(WIDTH, WIDTH, 1), g.random(WIDTH))
    return g.op("Transpose", g.op("Relu", y), perm=[0, 2, 1])


def attended(g: Graph, x: str) -> str:
    scores = g.op("MatMul", x, g.op("Transpose", x, perm=[0, 2, 1]))
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), x)


def compared(g: Graph, x: str) -> str:
    most = g.op("ReduceMax", x, g.value([1]), keepdims=1)
    return g.op("Sub", x, g.op("Add", most, g.op("ReduceSum", x, g.value([1, 2]), keepdims=1)))


def summed(g: Graph, x: str) -> str:
    return g.op("CumSum", x, g.value(1))


def expanded(g: Graph, x: str) -> str:
    first = g.op("Slice", x, g.value([0]), g.value([1]), g.value([1]))
    return g.op("Add", g.op("Expand", g.random(1, 1, WIDTH), g.op("Shape", x)), first)


def split(g: Graph, x: str) -> str:
    g.nodes.append(helper.make_node("Split", [x], [f"{x}a", f"{x}b"], axis=2, num_outputs=2))
    return g.op("Concat", f"{x}b", f"{x}a", axis=2)


PARTS = (pointwise, product, convolved, attended, compared, summed, expanded, split)


@pytest.mark.parametrize("buckets", ["powers", "0:2,6;1:4,8"])
@pytest.mark.parametrize("seed", range(6))
def test_random(buckets: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = Graph(rng)
    y = "x"
    for part in rng.permutation(len(PARTS))[:4]:
        y = g.op("LpNormalization", PARTS[part](g, y), axis=2)
    model = g.model(y, g.op("ReduceMean", y, g.value([1]), keepdims=0))
    with Core() as core:
        loaded = core.load_network(core.read_network(model), "CPU", {"SHAPE_BUCKETS": buckets})
        for n, length in ((3, 5), (1, 1), (5, 7)):
            x = rng.standard_normal((n, length, WIDTH)).astype(np.float32)
            same(model, loaded.requests[0], {"x": x})


def along(kind: str, axis: int) -> Callable[[Graph], str]:
    return lambda g: g.op("Sub", "x", g.op(kind, "x", g.value([axis]), keepdims=1))


REFUSED: dict[str, tuple[Callable[[Graph], str], str]] = {
    "a sum over the batch": (along("ReduceSum", 0), "joins elements along its axis 0"),
    "a softmax over the batch": (
        lambda g: g.op("Softmax", "x", axis=0),
        "compares and adds up elements along its axis 0",
    ),
    "the statistics of a batch": (
        lambda g: g.op(
            "BatchNormalization",
            g.op("Transpose", "x", perm=[0, 2, 1]),
            *(g.random(WIDTH) for _ in range(4)),
            outputs=3,
            training_mode=1,
        ),
        "axis 0",
    ),
    "items of the batch": (
        lambda g: g.op("Gather", "x", g.value([-1]), axis=0),
        "takes elements along its axis 0",
    ),
    "the last element": (
        lambda g: g.op("Slice", "x", g.value([-1]), g.value([2**62]), g.value([1])),
        "takes a part along its axis 1",
    ),
    "neighbours": (
        lambda g: g.op("Conv", g.op("Transpose", "x", perm=[0, 2, 1]), g.random(4, WIDTH, 3)),
        "joins neighbouring elements along its axis 2",
    ),
    "the length as a number": (
        lambda g: g.op("Div", "x", g.op("Cast", g.size(1), to=TensorProto.FLOAT)),
        "is a size of the inputs",
    ),
    "axes that are joined": (
        lambda g: g.op("Softmax", g.op("Reshape", "x", g.value([0, -1])), axis=1),
        "along its axis 1",
    ),
    "no elements": (
        lambda g: g.op("Reshape", g.op("MatMul", "x", g.random(WIDTH, 0)), g.value([-1, 0, 2])),
        "joins or divides axes",
    ),
    "a shape": (lambda g: g.op("Shape", "x"), "is a size of the inputs"),
    "sums from the end": (
        lambda g: g.op("CumSum", "x", g.value(1), reverse=1),
        "adds up elements along its axis 1",
    ),
    "as many as there are": (lambda g: g.op("NonZero", "x"), "nothing is known"),
    "random numbers": (lambda g: g.op("RandomNormalLike", "x"), "more than its inputs"),
    "twice the length": (
        lambda g: g.op("Concat", "x", "x", axis=1),
        "joins values along its axis 1",
    ),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_refused(rng: np.random.Generator, case: str) -> None:
    make, reason = REFUSED[case]
    g = Graph(rng)
    with Core() as core:
        network = core.read_network(g.model(make(g)))
        with pytest.raises(UnsupportedNetworkError, match=f"SHAPE_BUCKETS=powers .*{reason}"):
            core.load_network(network, "CPU", {"SHAPE_BUCKETS": "powers"})
        core.load_network(network, "CPU")


def test_what_is_padded_is_hidden_however_bad_it_is(rng: np.random.Generator) -> None:
    """The length of the longest text ends at infinity, which 0 times does not make 0."""
    g = Graph(rng)
    y = g.op("MatMul", g.op("Transpose", "x", perm=[0, 2, 1]), g.op("Log", "x"))
    model = g.model(y)
    with Core() as core:
        loaded = core.load_network(core.read_network(model), "CPU", {"SHAPE_BUCKETS": "1:powers"})
        x = rng.random((2, 5, WIDTH)).astype(np.float32) + 1
        same(model, loaded.requests[0], {"x": x})
        x[1, 4, 3] = 0  # what is padded repeats it
        want = onnxruntime.InferenceSession(model).run(None, {"x": x})[0]
        np.testing.assert_array_equal(np.isinf(loaded.infer({"x": x})["MatMul2_0"]), np.isinf(want))


def test_requests(device: str, rng: np.random.Generator) -> None:
    """Memory of the user's, requests at once, sizes that differ, and none at all."""
    g = Graph(rng)
    g.inputs.append(helper.make_tensor_value_info("more", TensorProto.FLOAT, [None, "l", WIDTH]))
    model = g.model(g.op("Tanh", g.op("Add", "x", "more")))
    session = onnxruntime.InferenceSession(model)
    with Core() as core:
        network = core.read_network(model)
        loaded = core.load_network(network, device, {"SHAPE_BUCKETS": "8"}, num_requests=3)
        (name,) = loaded.outputs
        given = [
            {
                key: rng.standard_normal((n, 3 + i, WIDTH)).astype(np.float32)
                for key in ("x", "more")
            }
            for i, n in enumerate((2, 5, 3))
        ]
        given[2]["more"] = given[2]["more"][:1]  # is broadcast
        outputs = [np.empty_like(each["x"]) for each in given]
        for request, each, output in zip(loaded.requests, given, outputs, strict=True):
            request.set_blob(name, output)
            request.start_async(each)
        for request, each, output in zip(loaded.requests, given, outputs, strict=True):
            request.wait()
            np.testing.assert_allclose(output, session.run(None, each)[0], rtol=1e-4, atol=1e-5)
        with pytest.raises(BlobError, match="shape"):
            loaded.requests[0].infer(given[1])
        empty = np.empty((0, 3, WIDTH), np.float32)
        request = loaded.create_infer_request()
        assert request.infer({"x": empty, "more": empty})[name].shape == empty.shape


def test_keys(rng: np.random.Generator) -> None:
    """Axes that are known, networks that are, and what does not go together with it."""
    g = Graph(rng)
    model = g.model(g.op("Tanh", "x"))
    with Core() as core:
        network = core.read_network(model)
        with pytest.raises(OptionValueError, match="along axis 2; legal here: 0, 1"):
            core.load_network(network, "CPU", {"SHAPE_BUCKETS": "2:8"})
        both = {"SHAPE_BUCKETS": "8", "ACCURACY_GUARD": "1e-2"}
        with pytest.raises(OptionValueError, match="do not go together"):
            core.load_network(network, "CPU", both)
        exported = core.load_network(network, "CPU").export()
        with pytest.raises(OptionValueError, match="imported"):
            core.import_network(exported, "CPU", {"SHAPE_BUCKETS": "8"})
        loaded = core.load_network(network, "HETERO:CPU", {"SHAPE_BUCKETS": "0:4"})
        assert loaded.get_config("SHAPE_BUCKETS") == "0:4"
        x = rng.standard_normal((3, 2, WIDTH)).astype(np.float32)
        same(model, loaded.requests[0], {"x": x})
        network.reshape({"x": [3, 2, WIDTH]})
        same(model, core.load_network(network, "CPU", {"SHAPE_BUCKETS": "8"}).requests[0], {"x": x})


def vector(g: Graph, *numbers: int) -> str:
    return g.value(np.array(numbers))


def rows(g: Graph, start: str, stop: str, count: int) -> str:
    """The sum of a part of a table, added to x."""
    part = g.op("Slice", g.random(count, WIDTH), start, stop, vector(g, 0))
    return g.op("Add", "x", g.op("ReduceSum", part, vector(g, 0), keepdims=1))


def chunks(g: Graph) -> str:
    """How often 64 goes into the length, which it does 0 times with short ones."""
    count = g.op("Div", g.size(1), vector(g, 64))
    return g.op("Add", "x", g.op("Cast", count, to=TensorProto.FLOAT))


def alone(g: Graph) -> str:
    """Whether there is one element, which is no padded length."""
    is_one = g.op("Equal", g.op("Sub", g.size(1), vector(g, 1)), vector(g, 0))
    return g.op("Add", "x", g.op("Cast", is_one, to=TensorProto.FLOAT))


def odd(g: Graph) -> str:
    """As many as the largest odd length."""
    half = g.op("Div", g.op("Sub", g.size(1), vector(g, 1)), vector(g, 2))
    stop = g.op("Add", g.op("Mul", half, vector(g, 2)), vector(g, 1))
    return g.op("Slice", "x", vector(g, 0), stop, vector(g, 1))


def narrowed(g: Graph) -> str:
    small = g.op("Cast", g.op("Cast", g.size(1), to=TensorProto.INT8), to=TensorProto.INT64)
    return g.op("Slice", "x", vector(g, 0), small, vector(g, 1))


def squeezed(g: Graph) -> str:
    z = own(g, "z", [1, "l", WIDTH])
    return g.op("ReduceMax", g.op("Squeeze", z), vector(g, 0), keepdims=0)


def own(g: Graph, name: str, shape: list[int | str | None]) -> str:
    g.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    return name


def summed_alike(g: Graph) -> str:
    other = own(g, "other", [None, None, WIDTH])
    g.inputs[0] = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None, WIDTH])
    sums = [g.op("ReduceSum", each, vector(g, 1), keepdims=0) for each in ("x", other)]
    return g.op("Mul", *sums)


def expanded_by_data(g: Graph) -> str:
    g.inputs.append(helper.make_tensor_value_info("count", TensorProto.INT64, [1]))
    part = g.op("Slice", "x", vector(g, 0), vector(g, 1), vector(g, 2))
    return g.op("Expand", part, g.op("Concat", vector(g, 1, 1), "count", axis=0))


Shapes = dict[str, tuple[int, ...]]

SOUND: dict[str, tuple[Callable[[Graph], str], str, list[Shapes]]] = {
    "axes of size 1": (squeezed, "1:powers", []),
    "chunks": (chunks, "1:powers", []),
    "one element": (alone, "1:powers", []),
    "odd length": (odd, "1:powers", []),
    "narrow integers": (narrowed, "1:powers", []),
    "table ends": (lambda g: rows(g, vector(g, 0), g.size(1), 16), "1:powers", []),
    "table from its end": (
        lambda g: rows(g, g.op("Neg", g.size(1)), vector(g, 2**62), 16),
        "1:powers",
        [],
    ),
    "table from the middle": (lambda g: rows(g, vector(g, 64), g.size(1), 512), "1:powers", []),
    "size of the data": (expanded_by_data, "powers", []),
    "broadcast by an open axis": (
        lambda g: g.op("Add", own(g, "y", ["n", WIDTH]), own(g, "z", [1, "k", WIDTH])),
        "0:8",
        [],
    ),
    "table is too short for the padding": (
        lambda g: rows(g, vector(g, 0), g.size(1), 80),
        "1:128",
        [{"x": (2, 5, WIDTH)}, {"x": (2, 75, WIDTH)}, {"x": (1, 99, WIDTH)}],
    ),
    "two lengths": (
        summed_alike,
        "8",
        [
            {"x": (2, 1, WIDTH), "other": (2, 5, WIDTH)},
            {"x": (2, 3, WIDTH), "other": (2, 5, WIDTH)},
            {"x": (2, 3, WIDTH), "other": (2, 3, WIDTH)},
        ],
    ),
    "rows of an open axis": (
        lambda g: g.op("Reshape", own(g, "z", ["n", "k"]), vector(g, -1, 8)),
        "0:4",
        [{"z": (2, 12)}, {"z": (2, 8)}, {"z": (3, 16)}],
    ),
    "an open axis of one size": (
        lambda g: g.op(
            "Conv", own(g, "z", ["n", 1, "h", "w"]), g.random(2, 1, 1, 1), strides=[64, 64]
        ),
        "0:4",
        [{"z": (3, 1, 64, 64)}, {"z": (3, 1, 128, 128)}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(SOUND))
def test_sound(rng: np.random.Generator, case: str) -> None:
    """What follows sizes in a way of its own is refused, or computed without padding."""
    make, buckets, shapes = SOUND[case]
    g = Graph(rng)
    made = make(g)
    used = {name for node in g.nodes for name in node.input}
    g.inputs = [each for each in g.inputs if each.name in used]
    model = g.model(made)
    with Core() as core:
        network = core.read_network(model)
        if not shapes:
            with pytest.raises(UnsupportedNetworkError, match="SHAPE_BUCKETS"):
                core.load_network(network, "CPU", {"SHAPE_BUCKETS": buckets})
            return
        loaded = core.load_network(network, "CPU", {"SHAPE_BUCKETS": buckets})
        for each in shapes:
            inputs = {
                name: rng.standard_normal(shape).astype(np.float32) for name, shape in each.items()
            }
            same(model, loaded.requests[0], inputs)


def test_bounded_sizes_are_told_apart(rng: np.random.Generator) -> None:
    g = Graph(rng)
    g.inputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", "m"])]
    turned = g.op("Gather", g.op("Shape", "z"), vector(g, 1, 0))
    model = g.model(g.op("Reshape", "z", turned))
    with Core() as core:
        network = core.read_network(model)
        for most in (30, 4):  # the latter has no room for three sizes of either
            network.reshape({"z": [Dim(1, most), Dim(1, most)]})
            with pytest.raises(UnsupportedNetworkError, match=r"joins or divides|too few sizes"):
                core.load_network(network, "CPU", {"SHAPE_BUCKETS": "8"})


@pytest.mark.parametrize("strides", [(), (1, 2)])
def test_strided_slices_of_other_axes(rng: np.random.Generator, strides: tuple[int, ...]) -> None:
    """OpenVINO's StridedSlice, which ONNX lacks, with and without its input of strides."""
    x = opset.parameter([-1, 8], "f32", name="x")
    limits = [np.array(each) for each in ([0, 1], [0, 7], strides) if len(each)]
    y = opset.strided_slice(x, *limits, begin_mask=[1, 0], end_mask=[1, 0])
    with Core() as core:
        loaded = core.load_network(opset.network("part", [y]), "CPU", {"SHAPE_BUCKETS": "0:4"})
        value = rng.standard_normal((3, 8)).astype(np.float32)
        step = strides[1] if strides else 1
        np.testing.assert_array_equal(
            next(iter(loaded.infer({"x": value}).values())), value[:, 1:7:step]
        )


def test_images_of_any_number_of_channels_are_resized(rng: np.random.Generator) -> None:
    x = opset.parameter([1, -1, 2, 2], "f32", name="x")
    twice = np.array([2, 2], np.float32)
    y = opset.interpolate(x, twice, [2, 3], mode="nearest", shape_calculation_mode="scales")
    with Core() as core:
        loaded = core.load_network(opset.network("n", [y]), "CPU", {"SHAPE_BUCKETS": "1:4"})
        value = rng.standard_normal((1, 3, 2, 2)).astype(np.float32)
        (found,) = loaded.infer({"x": value}).values()
        np.testing.assert_array_equal(found, value.repeat(2, 2).repeat(2, 3))


def test_one_item_of_a_padded_axis_is_refused() -> None:
    """The last one would be padding; the first one is always there."""
    x = opset.parameter([-1, 8], "f32", name="x")
    with Core() as core:
        for index, refused in ((0, False), (-1, True), (1, True)):
            limits = np.array([index, 0]), np.array([index + 1, 8]), np.array([1, 1])
            y = opset.strided_slice(
                x, *limits, begin_mask=[0, 0], end_mask=[0, 0], shrink_axis_mask=[1, 0]
            )
            network = opset.network("part", [y])
            if refused:
                with pytest.raises(UnsupportedNetworkError, match="axis 0"):
                    core.load_network(network, "CPU", {"SHAPE_BUCKETS": "0:4"})
            else:
                core.load_network(network, "CPU", {"SHAPE_BUCKETS": "0:4"})
