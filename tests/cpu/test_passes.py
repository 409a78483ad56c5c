"""What the CPU passes make of networks, and that the answers stay ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from polydevice import Core
from polydevice_cpu.onednn.library import library
from tests.cpu import models

F = np.float32


def image(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(F)


SCALARS = {
    "third": F(3),
    "six": F(6),
    "sixth": F(1 / 6),
    "half": F(0.5),
    "one": F(1),
    "root": F(np.sqrt(2)),
    "zero": F(0),
    "two": F(2),
    "three": F(3),
    "cubic": F(0.044715),
    "narrow": F(np.sqrt(2 / np.pi)),
    "eps": F(1e-5),
}

ACTIVATIONS = {
    "HSwish": [
        [
            ("Add", ["x", "third"], ["a"], {}),
            ("Clip", ["a", "zero", "six"], ["b"], {}),
            ("Mul", ["x", "b"], ["c"], {}),
            ("Div", ["c", "six"], ["y"], {}),
        ],
        [
            ("Add", ["third", "x"], ["a"], {}),
            ("Clip", ["a", "zero", "six"], ["b"], {}),
            ("Mul", ["b", "sixth"], ["c"], {}),
            ("Mul", ["c", "x"], ["y"], {}),
        ],
        [
            ("HardSigmoid", ["x"], ["a"], {"alpha": 1 / 6, "beta": 0.5}),
            ("Mul", ["a", "x"], ["y"], {}),
        ],
    ],
    "HSigmoid": [
        [
            ("Add", ["x", "third"], ["a"], {}),
            ("Clip", ["a", "zero", "six"], ["b"], {}),
            ("Div", ["b", "six"], ["y"], {}),
        ]
    ],
    "Swish": [[("Sigmoid", ["x"], ["a"], {}), ("Mul", ["x", "a"], ["y"], {})]],
    "Mish": [
        [
            ("Softplus", ["x"], ["a"], {}),
            ("Tanh", ["a"], ["b"], {}),
            ("Mul", ["x", "b"], ["y"], {}),
        ]
    ],
    "Gelu": [
        [
            ("Div", ["x", "root"], ["a"], {}),
            ("Erf", ["a"], ["b"], {}),
            ("Add", ["b", "one"], ["c"], {}),
            ("Mul", ["x", "c"], ["d"], {}),
            ("Mul", ["d", "half"], ["y"], {}),
        ],
        [
            ("Div", ["x", "root"], ["a"], {}),
            ("Erf", ["a"], ["b"], {}),
            ("Add", ["one", "b"], ["c"], {}),
            ("Mul", ["x", "half"], ["d"], {}),
            ("Mul", ["d", "c"], ["y"], {}),
        ],
        [
            ("Pow", ["x", "three"], ["a"], {}),
            ("Mul", ["cubic", "a"], ["b"], {}),
            ("Add", ["x", "b"], ["c"], {}),
            ("Mul", ["c", "narrow"], ["d"], {}),
            ("Tanh", ["d"], ["e"], {}),
            ("Add", ["one", "e"], ["f"], {}),
            ("Mul", ["x", "half"], ["g"], {}),
            ("Mul", ["g", "f"], ["y"], {}),
        ],
        [
            ("Mul", ["x", "cubic"], ["a"], {}),
            ("Mul", ["a", "x"], ["b"], {}),
            ("Add", ["b", "one"], ["c"], {}),
            ("Mul", ["x", "narrow"], ["d"], {}),
            ("Mul", ["d", "c"], ["e"], {}),
            ("Tanh", ["e"], ["f"], {}),
            ("Add", ["f", "one"], ["g"], {}),
            ("Mul", ["g", "half"], ["h"], {}),
            ("Mul", ["h", "x"], ["y"], {}),
        ],
    ],
}
CASES = [(kind, form) for kind, forms in ACTIVATIONS.items() for form in range(len(forms))]


@pytest.fixture
def core():
    with Core() as made:
        yield made


def run(core, nodes, weights, x, outputs=("y",)):
    """Check the answers and return the operations that are left."""
    used = {name for node in nodes for name in node[1]}
    weights = {name: array for name, array in weights.items() if name in used}
    model = models.build(nodes, {"x": x.shape}, outputs, weights)
    executable = core.load_network(core.read_network(model), "CPU")
    got = executable.infer({"x": x})
    for ours, theirs in zip(got.values(), models.answer(model, {"x": x}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
    kinds = [node.type for node in executable.compiled.network.nodes()]
    return [kind for kind in kinds if kind not in ("Parameter", "Const", "Result")]


def values(*shape):
    return np.random.default_rng(0).uniform(-6, 6, shape).astype(F)


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_activations_are_recognised(core, kind, form):
    nodes = ACTIVATIONS[kind][form]
    assert run(core, nodes, SCALARS, values(2, 5, 7)) == [kind]


def test_an_inner_value_that_is_read_too_is_kept(core):
    nodes = ACTIVATIONS["Swish"][0]
    left = run(core, nodes, SCALARS, values(2, 5, 7), outputs=("y", "a"))
    assert sorted(left) == ["Sigmoid", "Swish"]


def test_what_only_looks_like_an_activation_stays(core):
    nodes = [
        ("Add", ["x", "two"], ["a"], {}),  # 2, where HSwish has 3
        ("Clip", ["a", "zero", "six"], ["b"], {}),
        ("Mul", ["x", "b"], ["c"], {}),
        ("Div", ["c", "six"], ["y"], {}),
    ]
    assert "HSwish" not in run(core, nodes, SCALARS, values(2, 5, 7))


@pytest.mark.parametrize("square", ["Pow", "Mul"])
def test_layer_normalisation_in_steps(core, square):
    weights = {**SCALARS, "g": values(7), "s": values(7)}
    second = ["d", "two"] if square == "Pow" else ["d", "d"]
    nodes = [
        ("ReduceMean", ["x"], ["m"], {"axes": [-1]}),
        ("Sub", ["x", "m"], ["d"], {}),
        (square, second, ["q"], {}),
        ("ReduceMean", ["q"], ["v"], {"axes": [-1]}),
        ("Add", ["v", "eps"], ["e"], {}),
        ("Sqrt", ["e"], ["r"], {}),
        ("Div", ["d", "r"], ["n"], {}),
        ("Mul", ["n", "g"], ["w"], {}),
        ("Add", ["w", "s"], ["y"], {}),
    ]
    assert run(core, nodes, weights, values(2, 5, 7)) == ["LayerNorm"]


HEAVY = {
    "Conv": ((8, 6, 3, 3), {}),
    "grouped Conv": ((8, 3, 3, 3), {"group": 2}),
    "depthwise Conv": ((6, 1, 3, 3), {"group": 6}),
    "ConvTranspose": ((6, 8, 3, 3), {"strides": [2, 2]}),
    "grouped ConvTranspose": ((6, 4, 3, 3), {"group": 2}),
}


@pytest.mark.parametrize("name", HEAVY)
@pytest.mark.parametrize("bias", [False, True])
def test_batch_normalisation_joins_the_weights(core, name, bias):
    shape, attributes = HEAVY[name]
    kind = name.split()[-1]
    groups = attributes.get("group", 1)
    channels = shape[1] * groups if kind == "ConvTranspose" else shape[0]
    weights = {"w": values(*shape), "b": values(channels)}
    for vector in ("gamma", "beta", "mean"):
        weights[vector] = values(channels)
    weights["variance"] = np.abs(values(channels)) + F(0.5)
    nodes = [
        (kind, ["x", "w", "b"] if bias else ["x", "w"], ["c"], attributes),
        ("BatchNormalization", ["c", "gamma", "beta", "mean", "variance"], ["y"], {}),
    ]
    left = run(core, nodes, weights, values(2, 6, 9, 8))
    assert len(left) == 2
    assert left[1] == "Add"


SQUEEZED = {
    "bias": ([("Add", ["s", "b"], ["y"], {})], ["Add"]),
    "subtracted from": ([("Sub", ["b", "s"], ["y"], {})], ["Subtract"]),
    "a number per place": ([("Add", ["s", "row"], ["y"], {})], ["Add"]),
    "several": (
        [
            ("Add", ["b", "s"], ["d"], {}),
            ("Relu", ["d"], ["e"], {}),
            ("Mul", ["e", "two"], ["y"], {}),
        ],
        ["Add", "ReLU", "Multiply"],
    ),
    "slopes": ([("PRelu", ["s", "b"], ["y"], {})], None),
    "stretched": ([("Add", ["s", "long"], ["y"], {})], None),
    "read twice": ([("Sigmoid", ["s"], ["g"], {}), ("Add", ["s", "g"], ["y"], {})], None),
    "two inputs": ([("Add", ["s", "s"], ["y"], {})], None),
}


@pytest.mark.parametrize("name", SQUEEZED)
@pytest.mark.parametrize("axis", [2, 3])
def test_pointwise_operations_come_before_a_squeeze(core, name, axis):
    """As in a one-dimensional convolution that TensorFlow exports, or JAX with a useless Slice."""
    nodes, moved = SQUEEZED[name]
    kernel, size = ((1, 3), (1, 9)) if axis == 2 else ((3, 1), (9, 1))
    weights = {
        "w": values(8, 6, *kernel),
        "b": values(8, 1),
        "row": values(7),
        "long": values(3, 1, 1),
        "two": F(2),
        "axis": np.array([axis]),
        "zero": np.array([0, 0]),
        "sizes": np.array([8, 7]),
        "sliced": np.array([1, 5 - axis]),
    }
    head = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Slice", ["c", "zero", "sizes", "sliced"], ["t"], {}),
        ("Squeeze", ["t", "axis"], ["s"], {}),
    ]
    left = run(core, [*head, *nodes], weights, values(1, 6, *size))
    if moved is None:
        assert left[:2] == ["Convolution", "Squeeze"]
    else:
        assert left == ["Convolution", *moved, "Squeeze"]


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_factor_joins_a_matrix(core, transposed):
    weights = {"w": values(5, 7) if transposed else values(7, 5), "b": values(5), "f": values(5)}
    nodes = [
        ("Gemm", ["x", "w", "b"], ["g"], {"transB": transposed}),
        ("Mul", ["g", "f"], ["y"], {}),
    ]
    left = run(core, nodes, weights, values(4, 7))
    assert left == ["MatMul", "Add"]


@pytest.mark.parametrize("factor", [np.inf, np.nan, 3e38, 1e-40])
def test_a_factor_that_weights_cannot_hold_stays(core, factor):
    """An infinite factor times a weight of 0 is no number, times the product it is infinite."""
    w = values(7, 5)
    w[2] = 0
    weights = {"w": w, "f": np.array([1, factor, 2, 1, 1], F)}
    nodes = [("MatMul", ["x", "w"], ["p"], {}), ("Mul", ["p", "f"], ["y"], {})]
    x = values(4, 7)
    model = models.build(nodes, {"x": x.shape}, ["y"], weights)
    executable = core.load_network(core.read_network(model), "CPU")
    with np.errstate(all="ignore"):
        expected = (x.astype("f8") @ w).astype(F) * weights["f"]
    for _ in range(2):
        found = executable.infer({"x": x})["y"]
        np.testing.assert_allclose(found, expected, 1e-4, 0 if factor == 1e-40 else 1e-4)


def test_weights_that_another_node_reads_keep_their_values(core):
    weights = {"w": values(6, 6, 3, 3), "f": values(6, 1, 1)}
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Mul", ["c", "f"], ["y"], {}),
        ("Conv", ["x", "w"], ["z"], {}),
    ]
    run(core, nodes, weights, values(1, 6, 8, 8), outputs=("y", "z"))


@pytest.mark.parametrize("taken", [True, False])
def test_half_precision_around_an_if(taken):
    """The bodies keep the types that the model gives them; the product around them is widened."""
    half = TensorProto.FLOAT16
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["p"], [f"{name}_{k}"]) for k, op in enumerate(ops)],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_{k}", half, None) for k in range(2)],
        )
        for name, ops in (("then", ("Relu", "Neg")), ("else", ("Sqrt", "Abs")))
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node(
            "If", ["c"], ["a", "b"], then_branch=branches["then"], else_branch=branches["else"]
        ),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]
    weight = numpy_helper.from_array(np.abs(image(2, 4, 3)).astype(np.float16), "w")
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", half, [3, 4]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", half, [3, 3])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    given = {"x": np.abs(image(3, 3, 4)).astype(np.float16), "c": np.array(taken)}
    data = model.SerializeToString()
    with Core() as core:
        (y,) = core.load_network(core.read_network(data), "CPU").infer(given).values()
    (want,) = models.answer(data, given)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.astype(F), want.astype(F), rtol=5e-3)


def _dynamically_quantised(weights, zero, sizes, *, integers):
    """What quantize_dynamic makes of a product or a convolution; the integers come out too."""
    op = "ConvInteger" if weights.ndim == 4 else "MatMulInteger"
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node(op, ["q", "w", "z", "wz"], ["i"], name="product"),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    outputs = [("y", TensorProto.FLOAT), ("i", TensorProto.INT32)][: 2 if integers else 1]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(zero, "wz")],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


@pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
@pytest.mark.parametrize(
    ("shape", "x_shape"), [((24, 7), (5, 24)), ((1500, 9), (3, 1500)), ((6, 4, 3, 3), (2, 4, 9, 8))]
)
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("integers", [True, False])
def test_dynamically_quantised_products(shape, x_shape, kind, integers):
    """They run on kernels of f32 or of bytes, unless f32 might not hold the integers wanted."""
    rng = np.random.default_rng(4)
    limits = np.iinfo(kind)
    weights = rng.integers(limits.min, limits.max + 1, shape).astype(kind)
    zero = np.array(3 if kind is np.int8 else 121, kind)
    sizes = ["n", "k"] if len(shape) == 2 else ["n", shape[1], "h", "w"]
    model = _dynamically_quantised(weights, zero, sizes, integers=integers)
    given = {"x": image(5, *x_shape)}
    with Core() as core:
        executable = core.load_network(core.read_network(model), "CPU", {"PERF_COUNT": "YES"})
        request = executable.create_infer_request()
        got = [np.array(a) for a in request.infer(given).values()]
        counts = request.get_perf_counts().values()
    # Not ONNX Runtime: for Python 3.10 there are only versions without all kinds of ConvInteger.
    want = ReferenceEvaluator(onnx.load_from_string(model)).run(None, given)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=1e-5 * np.abs(want[0]).max())
    if integers:
        assert got[1].dtype == np.int32
        np.testing.assert_array_equal(got[1], want[1])
    products = ("MatMul", "Convolution", "IntegerProduct", "IntegerConvolution")
    kernels = {c["exec_type"] for c in counts if c["layer_type"].startswith(products)}

    assert kernels, counts
    assert ("numpy" in kernels) == (integers and shape[0] == 1500)


@pytest.mark.parametrize("scale", [1e37, 2.7e36, 1e38, 1e-37, 1e-40])
@pytest.mark.parametrize("zero", [np.int8(5), np.uint8(128)])
@pytest.mark.parametrize("heavy", [False, True])
def test_pairs_whose_levels_leave_the_range_of_f32(core, scale, zero, heavy):
    values = [0, -0.0, 1, -1, 1e37, -1e37, 3.2e37, -3.3e37, 1e-39, -1e-38, 3e-37, -4e-37]
    x = np.array([*values, 3.4e38, -3.4e38, 1.27e38, -1.28e38], F).reshape(1, 1, 4, 4)
    constants = {"scale": F(scale), "zero": zero, "w": np.ones((1, 1, 1, 1), F)}
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("QuantizeLinear", ["c" if heavy else "x", "scale", "zero"], ["q"], {}),
        ("DequantizeLinear", ["q", "scale", "zero"], ["y"], {}),
    ]
    graph = helper.make_graph(
        [helper.make_node(k, i, o, **a) for k, i, o, a in nodes[not heavy :]],
        "pair",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opset = [helper.make_opsetid("", 19)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    executable = core.load_network(core.read_network(model), "CPU")
    for _ in range(2):
        np.testing.assert_array_equal(executable.infer({"x": x})["y"], want)


@pytest.mark.parametrize(("first", "second", "x"), [(1e25, 1e25, 1e-30), (1e-25, 1e-25, 1e38)])
def test_factors_whose_product_f32_cannot_hold_stay_two(core, first, second, x):
    weights = {"a": np.array(first, F), "b": np.array(second, F)}
    nodes = [
        ("MatMul", ["x", "w"], ["p"], {}),
        ("Mul", ["p", "a"], ["q"], {}),
        ("Mul", ["q", "b"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": (3, 5), "w": (5, 5)}, ["y"], weights)
    executable = core.load_network(core.read_network(model), "CPU")
    for _ in range(2):
        y = executable.infer({"x": np.full((3, 5), x, F), "w": np.eye(5, dtype=F)})["y"]
        np.testing.assert_allclose(y, F(F(x) * F(first)) * F(second), 1e-4)


@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean"])
def test_rows_that_are_held_in_bf16_add_up(core, kind):
    if "BF16" not in core.get_metric("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip("computes in bf16 on processors that do")
    w = np.abs(image(1, 400, 512))
    nodes = [("MatMul", ["x", "w"], ["p"], {})]
    nodes.append((kind, ["p", "axes"], ["y"], {"keepdims": 0}))
    weights = {"w": w, "axes": np.array([-1])}
    model = models.build(nodes, {"x": (16, 400)}, ["y"], weights, opset=18)
    executable = core.load_network(core.read_network(model), "CPU", {"ENFORCE_BF16": "YES"})
    x = np.abs(image(2, 16, 400))
    right = (x.astype("f8") @ w).sum(-1)
    right = right / 512 if kind == "ReduceMean" else right
    for _ in range(2):
        np.testing.assert_allclose(executable.infer({"x": x})["y"], right, 2e-2)


def test_a_cube_has_the_axes_of_its_exponent():
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Pow", ["a", "three"], ["b"]),
        helper.make_node("Concat", ["b", "more"], ["y"], axis=0),
    ]
    constants = {"three": F([[3]]), "more": image(1, 2, 6)}
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    result = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 6])]
    graph = helper.make_graph(nodes, "cube", given, result, initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data, x = made.SerializeToString(), image(2, 6)
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    with Core() as core:
        (answer,) = core.load_network(core.read_network(data), "CPU").infer({"x": x}).values()
    np.testing.assert_allclose(answer, session.run(None, {"x": x})[0], rtol=1e-6)


@pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")
def test_values_that_have_the_size_to_broadcast_to_are_not_copied(core):
    nodes = [("Shape", ["x"], ["s"], {}), ("Expand", ["x", "s"], ["e"], {})]
    nodes += [("Relu", ["e"], ["y"], {})]
    model = models.build(nodes, {"x": ["a", 5]}, ["y", "e"], {})
    request = core.load_network(core.read_network(model), "CPU").create_infer_request()
    for seed, rows in enumerate((3, 1, 0, 3)):
        x = image(seed, rows, 5)
        answers = request.infer({"x": x})
        np.testing.assert_array_equal(answers["e"], x)
        np.testing.assert_array_equal(answers["y"], np.maximum(x, 0))
        if rows:
            assert not any("Broadcast" in s.type for s in request.runner.bound.plan.steps)
