"""f16 networks: values are stored in 11 bits, but sums, exponentials and squares are not.

Every answer is worked by hand. With f16 sums of ones would stop at 2,048, and squares of 300 or
sums of large values be infinite.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

N = 5000
HALF = TensorProto.FLOAT16


def run(core, nodes, x, weights=(), opset=18):
    """Return the answer of a model that is f16 from end to end."""
    graph = helper.make_graph(
        nodes,
        "half",
        [helper.make_tensor_value_info("x", HALF, x.shape)],
        [helper.make_tensor_value_info("y", HALF, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(weights).items()],
    )
    imports = [helper.make_opsetid("", opset)]
    content = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    executable = core.load_network(core.read_network(content), "GPU")
    storages = {v.storage.value for n in executable.latest_plan().graph.nodes for v in n.outputs}
    assert storages - {"boolean"} == {"f16"}
    results = [executable.infer({"x": x})["y"].copy() for _ in range(2)]
    np.testing.assert_array_equal(*results)
    return results[0].astype(np.float64)


def full(shape, value):
    return np.full(shape, value, np.float16)


@pytest.mark.parametrize("rows", [1, 3, 70])
@pytest.mark.parametrize("constant", [True, False])
def test_a_product_of_many_ones(core, rows, constant) -> None:
    x = full((rows, N), 1)
    if constant:
        node, weights = helper.make_node("MatMul", ["x", "w"], ["y"]), {"w": full((N, 24), 1)}
        nodes = [node]
    else:
        nodes = [
            helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
            helper.make_node("MatMul", ["x", "t"], ["y"]),
        ]
        weights = {}
    assert np.all(run(core, nodes, x, weights) == N)


@pytest.mark.parametrize(
    ("x", "w", "group", "window"),
    [
        ((1, 1000, 4, 4), (8, 1000, 3, 3), 1, 9000),
        ((1, 1000, 4, 4), (16, 1000, 1, 1), 1, 1000),
        ((1, 3, 70, 70), (5, 3, 65, 65), 1, 12675),
        ((1, 8, 70, 70), (8, 1, 65, 65), 8, 4225),
    ],
)
def test_a_convolution_of_many_ones(core, x, w, group, window) -> None:
    """Numbers above 2,048 are stored in steps of 2, 4 and 8: the nearest one is the answer."""
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=group)
    y = run(core, [node], full(x, 1), {"w": full(w, 1)})
    assert np.all(y == float(np.float16(window)))


def test_a_transposed_convolution_of_many_ones(core) -> None:
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2])
    y = run(core, [node], full((1, N, 3, 3), 1), {"w": full((N, 4, 2, 2), 1)})
    assert np.all(y == N)


REDUCTIONS = {
    "ReduceSum": (1, N), "ReduceMean": (60_000, 60_000), "ReduceL1": (-1, N),
    "ReduceL2": (300, float(np.float16(300 * N**0.5))), "ReduceSumSquare": (0.5, N / 4),
    "ReduceLogSum": (1, np.log(N)), "ReduceLogSumExp": (1000, float(np.float16(1000 + np.log(N)))),
}  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", REDUCTIONS)
def test_reductions(core, kind, axis) -> None:
    value, right = REDUCTIONS[kind]
    shape = (N, 3) if axis == 0 else (3, N)
    node = helper.make_node(kind, ["x", "axes"], ["y"], keepdims=0)
    y = run(core, [node], full(shape, value), {"axes": np.array([axis], np.int64)})
    np.testing.assert_allclose(y, right, rtol=2**-11)


def test_cumulative_sums(core) -> None:
    y = run(
        core,
        [helper.make_node("CumSum", ["x", "axis"], ["y"])],
        full((2, N), 1),
        {"axis": np.int64(1)},
    )
    right = np.arange(1, N + 1, dtype=np.float64).astype(np.float16).astype(np.float64)
    np.testing.assert_array_equal(y, np.broadcast_to(right, y.shape))


@pytest.mark.parametrize("kind", ["AveragePool", "GlobalAveragePool"])
def test_averages(core, kind) -> None:
    settings = {} if kind == "GlobalAveragePool" else {"kernel_shape": [70, 70]}
    y = run(core, [helper.make_node(kind, ["x"], ["y"], **settings)], full((1, 8, 70, 70), 30_000))
    assert np.all(y == 30_000)


@pytest.mark.parametrize("level", [0, 1000, 60_000])
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
def test_softmax_of_large_values(core, kind, level) -> None:
    """exp(12) is above what f16 holds; and sums of thousands of terms."""
    y = run(core, [helper.make_node(kind, ["x"], ["y"], axis=1)], full((2, N), level))
    right = 1 / N if kind == "Softmax" else -np.log(N)
    np.testing.assert_allclose(y, right, rtol=2**-10)


def alternating(shape, middle, away):
    """Values that are `middle` plus and minus `away` by turns: mean and deviation are known."""
    return (middle + away * (-1.0) ** np.arange(np.prod(shape))).reshape(shape).astype(np.float16)


def test_layer_normalisation_far_from_zero(core) -> None:
    x = alternating((2, N), 1000, 1)
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"], epsilon=0.0)
    y = run(core, [node], x, {"s": full((N,), 1)})
    np.testing.assert_allclose(y, alternating((2, N), 0, 1), atol=1e-3)


def test_layer_normalisation_of_large_values(core) -> None:
    x = alternating((2, N), 0, 20_000)
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y"], epsilon=0.0)
    y = run(core, [node], x, {"s": full((N,), 1)})
    np.testing.assert_allclose(y, alternating((2, N), 0, 1), atol=1e-3)


def test_instance_normalisation(core) -> None:
    x = alternating((1, 4, 70, 70), 1000, 2)
    node = helper.make_node("InstanceNormalization", ["x", "s", "b"], ["y"], epsilon=1e-5)
    y = run(core, [node], x, {"s": full((4,), 1), "b": full((4,), 0)})
    np.testing.assert_allclose(y, alternating(x.shape, 0, 1), atol=1e-3)


def test_squares_that_f16_cannot_hold(core) -> None:
    """LpNormalization and LRN square 300, which is 90,000."""
    x = full((1, 100, 2, 2), 300)
    y = run(core, [helper.make_node("LpNormalization", ["x"], ["y"], axis=1, p=2)], x)
    np.testing.assert_allclose(y, 0.1, rtol=2**-10)
    lrn = helper.make_node("LRN", ["x"], ["y"], size=3, alpha=3.0, beta=0.5, bias=0.0)
    inner = run(core, [lrn], x)[0, 1:-1]
    np.testing.assert_allclose(inner, 300 / (3 * 90_000) ** 0.5, rtol=2**-10)


@pytest.mark.parametrize(
    ("given", "right"),
    [
        (65_504, 65_504), (65_519, 65_504), (65_520, np.inf), (2**-24, 2**-24), (2**-26, 0),
        (1 + 2**-11, 1), (1 + 3 * 2**-11, 1 + 2**-9), (-70_000, -np.inf), (np.nan, np.nan),
    ],
)  # fmt: skip
def test_rounding_to_f16_is_to_nearest_even(core, given, right) -> None:
    """Cast from f32: halves go to even; 65,520 is the first number that is infinite."""
    node = helper.make_node("Cast", ["x"], ["y"], to=HALF)
    graph = helper.make_graph(
        [node],
        "cast",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [9])],
        [helper.make_tensor_value_info("y", HALF, [9])],
    )
    imports = [helper.make_opsetid("", 18)]
    content = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    executable = core.load_network(core.read_network(content), "GPU")
    y = executable.infer({"x": np.full(9, given, np.float32)})["y"]
    np.testing.assert_array_equal(y, np.full(9, right, np.float16))
