"""What machine code computes in f32 beside layers that compute in bfloat16 or f16."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.errors import OptionValueError
from tests.cpu import models
from tests.cpu.loading import image, load

PRECISIONS = pytest.mark.parametrize("precision", ["ENFORCE_BF16", "ENFORCE_F16"])


def check(core, model, x, precision):
    """Within the rounding of some layers, whose operands keep 8 or 11 bits; twice."""
    (wanted,) = models.answer(model, {"x": x})
    try:
        executable = load(core, model, CPU_THREADS_NUM=1, **{precision: "YES"})
    except OptionValueError as error:
        pytest.skip(str(error))
    request = executable.create_infer_request()
    for _ in range(2):
        (got,) = request.infer({"x": x}).values()
        np.testing.assert_allclose(got, wanted, rtol=0.05, atol=0.03 * np.abs(wanted).max())


@PRECISIONS
def test_rows_that_are_normalised(core, precision):
    stored = {name: image(number, 32, 32, 3, 3) / 17 for number, name in enumerate("wv")}
    stored |= {"s": image(3, 32), "b": image(4, 32)}
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"pads": [1] * 4}),
        ("InstanceNormalization", ["c", "s", "b"], ["n"], {}),
        ("Conv", ["n", "v"], ["d"], {"pads": [1] * 4}),
        ("MeanVarianceNormalization", ["d"], ["y"], {"axes": [1, 2, 3]}),
    ]
    model = models.build(nodes, {"x": [1, 32, 20, 22]}, ["y"], stored, opset=17)
    check(core, model, image(5, 1, 32, 20, 22), precision)


@PRECISIONS
def test_borders_that_repeat(core, precision):
    stored = {name: image(number, 16, 16, 3, 3) / 12 for number, name in enumerate("wv")}
    stored["sides"] = np.array([0, 0, 2, 1, 0, 0, 1, 3])
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Pad", ["c", "sides"], ["p"], {"mode": "reflect"}),
        ("Conv", ["p", "v"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [2, 16, 15, 21]}, ["y"], stored, opset=18)
    check(core, model, image(6, 2, 16, 15, 21), precision)


@PRECISIONS
@pytest.mark.parametrize("rows", [3, 40])
def test_matrices_of_4_bits(core, precision, rows):
    terms, columns, random = 128, 192, np.random.default_rng(rows)
    stored = {
        "w": image(1, 64, terms) / 8, "v": image(2, columns, 40) / 8,
        "q": random.integers(0, 256, (columns, terms // 32, 16)).astype(np.uint8),
        "s": random.uniform(0.01, 0.03, columns * terms // 32).astype(np.float32),
    }  # fmt: skip
    about = {"K": terms, "N": columns, "bits": 4, "block_size": 32}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMulNBits", ["a", "q", "s"], ["m"], domain="com.microsoft", **about),
        helper.make_node("MatMul", ["m", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 40])],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    check(core, model, image(3, rows, 64), precision)


@PRECISIONS
def test_attention_of_many_positions(core, precision):
    stored = {name: image(number, 48, 48) / 7 for number, name in enumerate("qkv")}
    nodes = [("MatMul", ["x", name], [f"{name}1"], {}) for name in "qkv"]
    nodes += [
        ("Transpose", ["k1"], ["k2"], {"perm": [0, 2, 1]}),
        ("MatMul", ["q1", "k2"], ["scores"], {}),
        ("Softmax", ["scores"], ["shares"], {"axis": -1}),
        ("MatMul", ["shares", "v1"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [1, 1000, 48]}, ["y"], stored, opset=17)
    check(core, model, image(8, 1, 1000, 48) / 4, precision)
