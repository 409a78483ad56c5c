"""Products with weights of 8 bits read them as they are stored, and are as exact as in f32.

The bound: a number is written in steps of its row's largest one over 2^23 - 2^15 - 2^7 - 1, so that
it is off by half a step, and by as much for the rounding of the quotient and of the step; each sum
of products of digits is exact until it becomes f32, is scaled, and is joined to the others: at most
six roundings by 2^-24 of what the absolute values of all terms add up to.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice import Core
from polydevice_cpu.onednn.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="needs oneDNN")

BOUND = 12 * 2.0**-24


def model(rng, spelling, sizes, outer):
    """A product of x with weights in a spelling; returns it with the weights as f64."""
    rows, columns = sizes
    zero = int(rng.integers(90, 128)) if spelling == "uint8" else 0
    whole = rng.integers(-90, 91, sizes) + zero
    scale = rng.uniform(1e-3, 1e-1, 1 if spelling == "single" else columns).astype(np.float32)
    weights = (whole - zero) * scale.astype(np.float64)
    kind = np.uint8 if spelling == "uint8" else np.int8
    stored = whole.T if spelling == "turned" else whole
    constants = {"w": stored.astype(kind), "s": scale, "z": np.full(scale.shape, zero, kind)}
    if spelling == "single":
        constants = {name: c.reshape(()) if c.size == 1 else c for name, c in constants.items()}
    if spelling == "compressed":
        made = [
            helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["wide", "s"], ["d"]),
        ]
        del constants["z"]
    else:
        axis = {} if spelling == "single" else {"axis": 0 if spelling == "turned" else 1}
        made = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **axis)]
    if spelling == "turned":
        made.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes = [*made, helper.make_node("MatMul", ["x", made[-1].output[0]], ["y"], "product")]
    shape = [*(f"n{i}" for i in range(outer)), rows]
    graph = helper.make_graph(
        nodes,
        "weights",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    imports = [helper.make_opsetid("", 13)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=8)
    return made.SerializeToString(), weights


def kinds(executable):
    return {node.type for node in executable.compiled.network.nodes()}


@pytest.mark.parametrize("spelling", ["per column", "single", "uint8", "turned", "compressed"])
def test_products_with_bytes_are_as_exact_as_in_f32(spelling):
    rng = np.random.default_rng([31, len(spelling)])
    outer = int(rng.integers(1, 4))
    sizes = (int(rng.integers(900, 1400)), int(rng.integers(1200, 1500)))
    data, weights = model(rng, spelling, sizes, outer)
    with Core() as core:
        executable = core.load_network(core.read_network(data), "CPU")
        for rows in ([1] * outer, [2, 3, 1][:outer]):  # and again, with the same plan
            x = rng.normal(size=(*rows, sizes[0])).astype(np.float32)
            x *= np.float32(10) ** rng.integers(-20, 20, (*rows, 1)).astype(np.float32)
            x[..., 5] *= 1000  # a large one among small ones, as transformers have them
            if x.size > sizes[0]:
                x.reshape(-1, sizes[0])[-1] = 0
            for _ in range(2):
                (y,) = executable.infer({"x": x}).values()
                reach = np.abs(x).max(-1, keepdims=True) * np.abs(weights).sum(0)
                assert (np.abs(y - x.astype(np.float64) @ weights) <= BOUND * reach).all()
        assert "IntegerProduct" in kinds(executable)
        assert "floating point" not in str(executable.explain())


def test_small_matrices_and_those_that_are_to_stay_are_f32():
    rng = np.random.default_rng(32)
    with Core() as core:
        for sizes, mode in (((60, 70), "YES"), ((1100, 1200), "NO")):
            data, weights = model(rng, "per column", sizes, 1)
            executable = core.load_network(
                core.read_network(data), "CPU", {"LP_TRANSFORMS_MODE": mode}
            )
            x = rng.normal(size=(2, sizes[0])).astype(np.float32)
            (y,) = executable.infer({"x": x}).values()
            np.testing.assert_allclose(y, x @ weights, rtol=1e-3, atol=1e-3)
            assert "IntegerProduct" not in kinds(executable)
