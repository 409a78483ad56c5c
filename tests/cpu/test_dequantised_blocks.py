"""DequantizeLinear with a scale for each block."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

KINDS = {
    "u4": (ml_dtypes.uint4, 0, 16),
    "i4": (ml_dtypes.int4, -8, 8),
    "u8": (np.uint8, 0, 256),
    "i8": (np.int8, -128, 128),
}


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("shape", "axis", "block"),
    [((6, 35), 1, 7), ((12, 5), 0, 4), ((3, 8, 5), -2, 2), ((2, 9), -1, 9), ((3, 10), 1, 4)],
)
def test_blocks(core, shape, axis, block, kind, has_zeros) -> None:
    """Against onnx.reference; the last one has a shorter block."""
    rng = np.random.default_rng(block)
    dtype, low, high = KINDS[kind]
    sizes = list(shape)
    sizes[axis] = -(-sizes[axis] // block)
    stored = {
        "w": rng.integers(low, high, shape).astype(dtype),
        "s": rng.uniform(-1, 1, sizes).astype(np.float32),
        "z": rng.integers(low, high, sizes).astype(dtype),
    }
    names = ["w", "s", "z"][: 2 + has_zeros]
    nodes = [
        helper.make_node("DequantizeLinear", names, ["d"], axis=axis, block_size=block),
        helper.make_node("Add", ["x", "d"], ["y"]),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "blocks",
        [info("x", TensorProto.FLOAT, shape)],
        [info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(stored[name], name) for name in names],
    )
    imports = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    x = rng.standard_normal(shape).astype(np.float32)
    q, s, z = (stored[name].astype(np.float32) for name in ("w", "s", "z"))
    if shape[axis] % block:  # which the reference does not take
        at = np.arange(shape[axis]) // block
        s, z = (np.take(array, at, axis) for array in (s, z))
        wanted = x + (q - z * has_zeros) * s
    else:
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    (got,) = (
        core.load_network(core.read_network(model.SerializeToString()), "CPU")
        .infer({"x": x})
        .values()
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
