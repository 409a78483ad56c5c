"""Outputs that are constants, of every kind of element type, alone and beside others."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.onnx.models import model, run, tensor, value

CONSTANTS = {
    "texts": np.array([["a", ""], ["äö", "b c"]], object),
    "text": np.array("x", object),
    "floats": np.float32([[1.5, -2]]),
    "doubles": np.float64([1e300]),
    "flags": np.array([True, False]),
    "bytes": np.uint8(7),
    "nothing": np.zeros((0, 2), np.float32),
}


def _kind(array: np.ndarray) -> int:
    if array.dtype == object:
        return TensorProto.STRING
    return helper.np_dtype_to_tensor_dtype(array.dtype)


@pytest.mark.parametrize("names", [[name] for name in CONSTANTS] + [list(CONSTANTS)])
@pytest.mark.parametrize("beside", [False, True])
def test_constants_come_out_as_they_are(names, beside, device, rng):
    outputs = [value(n, CONSTANTS[n].shape, _kind(CONSTANTS[n])) for n in names]
    nodes = [helper.make_node("Relu", ["x"], ["y"])] if beside else []
    proto = model(
        nodes,
        [value("x")] if beside else [],
        outputs + ([value("y")] if beside else []),
        initializers=[tensor(n, CONSTANTS[n]) for n in names],
    )
    for _ in range(2):
        x = rng.standard_normal((2, 3)).astype(np.float32)
        results = run(proto, *([x] if beside else []), device=device)
        for name, result in zip(names, results):
            assert result.dtype == CONSTANTS[name].dtype
            np.testing.assert_array_equal(result, CONSTANTS[name])
            if result.flags.writeable:
                result[...] = result.dtype.type() if result.dtype != object else "changed"
        if beside:
            np.testing.assert_array_equal(results[-1], np.maximum(x, 0))
