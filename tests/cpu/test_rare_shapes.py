"""Valid models of rare sizes and values: what a lowering took for granted about them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from polydevice.errors import ShapeError
from polydevice.ops.arithmetic import Divide, FloorMod, Mod
from polydevice_cpu.implement import run
from polydevice_cpu.onednn.library import library
from tests.cpu.loading import image, load
from tests.cpu.models import answer, build


def infer_twice(core, model, inputs):
    executable = load(core, model)
    first, second = (executable.infer(inputs) for _ in range(2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])
    return first


class TestDequantisedValues:
    """What a pair of QuantizeLinear and DequantizeLinear gives is a multiple of its scale."""

    @pytest.mark.parametrize("follower", ["Sign", "Floor", "Sqrt", "Reciprocal", ""])
    @pytest.mark.parametrize("zero", [np.int8(3), np.int8(-128), np.uint8(0), np.uint8(131)])
    @pytest.mark.parametrize("fused", [True, False])
    def test_of_one_scale(self, core, follower, zero, fused):
        scale = np.float32(0.0579804)
        head = [("Conv", ["x", "w"], ["a"], {})] if fused else []
        pair = [
            ("QuantizeLinear", ["a" if fused else "x", "s", "z"], ["q"], {}),
            ("DequantizeLinear", ["q", "s", "z"], ["d"], {}),
        ]
        tail = [(follower, ["d"], ["y"], {})] if follower else [("Identity", ["d"], ["y"], {})]
        weights = {"s": scale, "z": np.array(zero), "w": np.ones((1, 1, 1, 1), np.float32)}
        model = build([*head, *pair, *tail], {"x": [1, 1, 2, 300]}, ["y"], weights, 19)
        halves = np.arange(-300, 300, dtype=np.float32) * np.float32(0.5)
        inputs = {"x": (halves * scale).reshape(1, 1, 2, 300).astype(np.float32)}
        (want,) = answer(model, inputs)
        got = infer_twice(core, model, inputs)["y"]
        np.testing.assert_array_equal(got, want)

    @pytest.mark.parametrize("zeros", [[0, 0, 0], [3, -5, 0]])
    def test_of_scales_per_channel(self, core, zeros):
        weights = {
            "s": np.array([0.0579804, 0.1, 0.033], np.float32),
            "z": np.array(zeros, np.int8),
        }
        nodes = [
            ("QuantizeLinear", ["x", "s", "z"], ["q"], {"axis": 1}),
            ("DequantizeLinear", ["q", "s", "z"], ["d"], {"axis": 1}),
            ("Sign", ["d"], ["y"], {}),
        ]
        model = build(nodes, {"x": [2, 3, 50]}, ["y", "d"], weights, 13)
        steps = np.arange(-25, 25, dtype=np.float32) * np.float32(0.5)
        inputs = {"x": (steps * weights["s"][:, None] * np.ones((2, 1, 1))).astype(np.float32)}
        want = answer(model, inputs)
        got = infer_twice(core, model, inputs)
        for name, array in zip(("y", "d"), want, strict=True):
            np.testing.assert_array_equal(got[name], array)
        assert not np.signbit(got["d"][got["d"] == 0]).any()

    def test_of_more_scales_than_channels(self, core):
        pair = [
            ("QuantizeLinear", ["x", "s", "z"], ["q"], {"axis": 1}),
            ("DequantizeLinear", ["q", "s", "z"], ["y"], {"axis": 1}),
        ]
        weights = {"s": np.ones(3, np.float32), "z": np.zeros(3, np.uint8)}
        model = build(pair, {"x": ["n", "c"]}, ["y"], weights, 19)
        executable = load(core, model)
        with pytest.raises(ShapeError, match=r"\[1,3\] cannot be broadcast to \[2,2\]"):
            executable.infer({"x": np.ones((2, 2), np.float32)})
        x = np.float32([[1, 2, 300]])
        np.testing.assert_array_equal(executable.infer({"x": x})["y"], [[1, 2, 255]])


def loop(trips, body_nodes, outputs, extra=(), weights=None):
    """A Loop with one carried value [4, 3, 3] and one scan output, among other nodes."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["co"]), *body_nodes],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("c", TensorProto.BOOL, []),
            value("s", TensorProto.FLOAT, (4, 3, 3)),
        ],
        [
            value("co", TensorProto.BOOL, []),
            value("o", TensorProto.FLOAT, (4, 3, 3)),
            value("sc", TensorProto.FLOAT, (4, 3, 3)),
        ],
        [numpy_helper.from_array(np.full((4, 3, 3), 2, np.float32), "k")],
    )
    constants = {"t": np.array(trips), "go": np.array(True), **(weights or {})}
    return build(
        [
            ("LeakyRelu", ["x"], ["p"], {}),
            *extra,
            ("Loop", ["t", "go", "p"], ["y", "sy"], {"body": body}),
        ],
        {"x": (4, 3, 3), "z": (4, 3, 3)},
        outputs,
        constants,
        21,
    )


@pytest.mark.parametrize("trips", [0, 1, 3])
@pytest.mark.parametrize("kind", ["Mul", "Identity"])
def test_what_a_loop_passes_on_outlives_it(core, trips, kind):
    """Its final state lay in the arena, where a convolution's reorder wrote after it."""
    state = ("Mul", ["s", "k"], ["o"]) if kind == "Mul" else ("Identity", ["s"], ["o"])
    nodes = [helper.make_node(*state), helper.make_node("Neg", ["o"], ["sc"])]
    convolution = [("Conv", ["z", "w"], ["q"], {})]
    model = loop(trips, nodes, ["y", "q", "sy"], convolution, {"w": image(3, 2, 3, 1)})
    inputs = {"x": image(1, 4, 3, 3), "z": image(2, 4, 3, 3)}
    want = answer(model, inputs)
    got = infer_twice(core, model, inputs)
    for name, array in zip(("y", "q", "sy"), want, strict=True):
        assert got[name].shape == array.shape
        np.testing.assert_allclose(got[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("step", [2, 3])
@pytest.mark.parametrize("follower", ["Conv", "ConvTranspose", "MatMul", "MaxPool", "Softmax"])
def test_slices_that_onednn_takes_for_overlapping(core, step, follower):
    """Every second row of three: oneDNN counts the stride as reaching beyond the next."""
    weights = {
        "begin": np.array([0]),
        "end": np.array([step + 1]),
        "axis": np.array([1]),
        "step": np.array([step]),
        "w": image(4, *{"Conv": (6, 2, 2), "ConvTranspose": (2, 6, 2)}.get(follower, (3, 5))),
    }
    attributes = {"MaxPool": {"kernel_shape": [2]}}.get(follower, {})
    second = ["w"] if follower in ("Conv", "ConvTranspose", "MatMul") else []
    nodes = [
        ("Slice", ["x", "begin", "end", "axis", "step"], ["s"], {}),
        (follower, ["s", *second], ["y"], attributes),
        (follower, ["s", *second], ["again"], attributes),
    ]
    model = build(nodes, {"x": (2, step + 1, 3)}, ["y", "again"], weights, 17)
    inputs = {"x": image(5, 2, step + 1, 3)}
    want = answer(model, inputs)
    for got, array in zip(infer_twice(core, model, inputs).values(), want, strict=True):
        np.testing.assert_allclose(got, array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize(
    ("time", "batch", "size", "hidden"),
    [(1, 3, 1, 5), (1, 1, 1, 1), (2, 1, 1, 4), (1, 1, 7, 1), (3, 2, 1, 1)],
)
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_recurrent_layers_with_sizes_of_one(core, kind, time, batch, size, hidden, direction):
    gates, count = {"GRU": 3, "LSTM": 4, "RNN": 1}[kind], 2 if direction[0] == "b" else 1
    weights = {
        "w": image(1, count, gates * hidden, size),
        "r": image(2, count, gates * hidden, hidden),
    }
    attributes = {"hidden_size": hidden, "direction": direction}
    nodes = [(kind, ["x", "w", "r"], ["y", "h"], attributes)]
    model = build(nodes, {"x": (time, batch, size)}, ["y", "h"], weights, 14)
    inputs = {"x": image(3, time, batch, size)}
    want = answer(model, inputs)
    for got, array in zip(infer_twice(core, model, inputs).values(), want, strict=True):
        np.testing.assert_allclose(got, array, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [2.0, -3.0])
def test_dynamic_quantisation_of_one_number(core, number):
    nodes = [("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], {})]
    model = build(nodes, {"x": ()}, ["q", "s", "z"], {}, 13)
    model = _typed(model, {"q": TensorProto.UINT8, "z": TensorProto.UINT8})
    inputs = {"x": np.array(number, np.float32)}
    want = answer(model, inputs)
    for got, array in zip(infer_twice(core, model, inputs).values(), want, strict=True):
        np.testing.assert_array_equal(got, array)


def _typed(model, kinds):
    import onnx

    proto = onnx.load_from_string(model)
    for output in proto.graph.output:
        if output.name in kinds:
            output.type.tensor_type.elem_type = kinds[output.name]
    return proto.SerializeToString()


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64])
def test_the_least_integer_divided_by_minus_one(kind):
    """The quotient does not fit: it wraps, as in OpenVINO; nothing is trapped."""
    least = np.iinfo(kind).min
    a = np.array([least, least, 7, -7, -7, least], kind)
    b = np.array([-1, 1, 2, 2, -2, 2], kind)
    want = {
        Divide(pythondiv=False): [least, least, 3, -3, 3, least // 2],
        Mod(): [0, 0, 1, -1, -1, 0],
        FloorMod(): [0, 0, 1, 1, -1, 0],
    }
    for op, numbers in want.items():
        (got,) = run(op, [a, b])
        assert got.dtype == kind
        np.testing.assert_array_equal(got, np.array(numbers, kind))


class TestResizedAxes:
    """oneDNN resizes the last axes alone; others are seen as such, what lies behind as channels."""

    @pytest.mark.parametrize("mode", ["linear", "nearest"])
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ((1, 5, 7, 3), (1, 11, 14, 3)),
            ((2, 6, 4, 1), (2, 12, 8, 1)),
            ((3, 1, 5, 17), (3, 4, 10, 17)),
            ((4, 6), (8, 6)),
            ((5, 7, 3), (10, 14, 3)),
            ((2, 3, 4, 5, 2), (2, 6, 8, 10, 2)),
            ((1, 3, 4, 5), (1, 6, 4, 5)),
            ((2, 3, 5, 16), (2, 6, 5, 32)),
        ],
    )
    def test_as_the_reference(self, core, mode, before, after):
        nodes = [("Resize", ["x", "", "", "sizes"], ["y"], {"mode": mode})]
        model = build(nodes, {"x": before}, ["y"], {"sizes": np.array(after)})
        x = image(3, *before)
        (expected,) = ReferenceEvaluator(onnx.load_from_string(model)).run(None, {"x": x})
        np.testing.assert_allclose(infer_twice(core, model, {"x": x})["y"], expected, 1e-4, 1e-5)
        (step,) = load(core, model).latest_plan().steps
        assert step.implementation != "numpy" or library() is None


class TestRepeatedBorders:
    """Borders that repeat the inside are copied axis by axis, corners of what is whole by then."""

    @pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
    @pytest.mark.parametrize(
        ("shape", "pads"),
        [
            ((2, 5, 7), ((0, 0), (3, 4), (6, 1))),
            ((1, 4), ((0, 0), (0, 3))),
            ((3, 2, 3, 4), ((1, 1), (1, 0), (2, 2), (3, 3))),
        ],
    )
    def test_as_numpy(self, core, mode, shape, pads):
        given = np.array(pads).T.reshape(-1)
        nodes = [("Pad", ["x", "p"], ["y"], {"mode": mode})]
        model = build(nodes, {"x": shape}, ["y"], {"p": given}, 19)
        x = image(5, *shape)
        found = infer_twice(core, model, {"x": x})["y"]
        np.testing.assert_array_equal(found, np.pad(x, pads, mode))

    def test_wraps_more_than_once(self, core):
        nodes = [("Pad", ["x", "p"], ["y"], {"mode": "wrap"})]
        model = build(nodes, {"x": (3,)}, ["y"], {"p": np.array([7, 8])}, 19)
        x = image(6, 3)
        found = infer_twice(core, model, {"x": x})["y"]
        np.testing.assert_array_equal(found, np.pad(x, (7, 8), "wrap"))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose", "DeformConv"])
@pytest.mark.parametrize("known", [True, False])
def test_a_convolution_of_no_channels_is_its_bias(core, operator, kind, known):
    bias = np.array([1.5, -2.0], kind)
    weights = {"k": np.zeros((0, 2, 3, 2) if operator == "ConvTranspose" else (2, 0, 3, 2), kind)}
    inputs = ["x", "k", "b"]
    if operator == "DeformConv":
        weights["o"] = np.zeros((1, 12, 3, 5), kind)
        inputs.insert(2, "o")
    node = (operator, inputs, ["y"], {})
    shape = [1, 0, 5, 6] if known else ["n", "c", "h", "w"]
    model = build([node], {"x": shape}, ["y"], {**weights, "b": bias}, 19, kind)
    found = infer_twice(core, model, {"x": np.zeros((1, 0, 5, 6), kind)})["y"]
    sizes = (7, 7) if operator == "ConvTranspose" else (3, 5)
    right = np.broadcast_to(bias[:, np.newaxis, np.newaxis], (1, 2, *sizes))
    np.testing.assert_array_equal(found, right)


@pytest.mark.parametrize("follower", ["Relu", "Tanh", "Gelu"])
@pytest.mark.parametrize("gaps", [(1, 2), (2, 1), (3, 2), (1, 2, 2), (1, 1, 2)])
@pytest.mark.parametrize(
    ("groups", "channels", "results"), [(1, 1, 4), (1, 3, 40), (1, 20, 24), (4, 8, 64), (6, 6, 6)]
)
def test_windows_with_gaps_of_new_shapes(core, groups, channels, results, gaps, follower):
    axes = len(gaps)
    window = (1, 3, 3)[-axes:]
    weights = {"w": image(7, results, channels // groups, *window), "b": image(8, results)}
    attributes = {"group": groups, "dilations": gaps, "strides": [2] + [1] * (axes - 1)}
    nodes = [("Conv", ["x", "w", "b"], ["a"], attributes), (follower, ["a"], ["y"], {})]
    sizes = ["n", channels, *("deep", "high", "wide")[-axes:]]
    model = build(nodes, {"x": sizes}, ["y"], weights, 20)
    executable = load(core, model)
    for number, wide in enumerate((8, 11, 17, 8)):
        x = {"x": image(number, 2, channels, *(2, 9, wide)[-axes:])}
        (right,) = answer(model, x)
        for _ in range(2):
            # Of up to 180 products, added in another order: 1e-7 of the largest each.
            np.testing.assert_allclose(executable.infer(x)["y"], right, 1e-5, 2e-5)


@pytest.mark.parametrize("function", ["Softplus", "Softsign", "Erf", "Tanh", "Sigmoid"])
def test_a_function_of_one_number_without_axes_that_others_read(core, function):
    nodes = [
        (function, ["x"], ["a"], {}),
        ("Tanh", ["a"], ["b"], {}),
        ("Mul", ["x", "b"], ["y"], {}),
    ]
    model = build(nodes, {"x": []}, ["a", "b", "y"], {})
    x = {"x": np.array(0.7, np.float32)}
    for found, right in zip(infer_twice(core, model, x).values(), answer(model, x), strict=True):
        assert found.shape == ()
        np.testing.assert_allclose(found, right, 1e-6)


@pytest.mark.parametrize("equation", ["ii->i", "ijj->j", "ij->j"])
@pytest.mark.parametrize("sides", [("a", "w"), ("w", "a"), ("a", "a")])
def test_products_of_vectors_with_gaps(core, equation, sides):
    size = 9
    nodes = [("Einsum", ["x"], ["a"], {"equation": equation}), ("MatMul", [*sides], ["y"], {})]
    x = image(9, *[size] * len(equation.split("-")[0]))
    model = build(nodes, {"x": x.shape}, ["y"], {"w": image(10, size)})
    vector = np.einsum(equation, x)
    values = {"a": vector, "w": image(10, size)}
    found = infer_twice(core, model, {"x": x})["y"]
    np.testing.assert_allclose(found, values[sides[0]] @ values[sides[1]], 1e-5, 1e-5)
