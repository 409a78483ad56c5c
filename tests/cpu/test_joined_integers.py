"""Parts of types that oneDNN does not know, each copied to its place; NumPy judges."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.cpu.loading import load

KINDS = {
    np.int64: TensorProto.INT64,
    np.bool_: TensorProto.BOOL,
    np.float64: TensorProto.DOUBLE,
    np.uint16: TensorProto.UINT16,
}


def joined(kind, shape, axis, constant, *, is_open):
    """y: x0, x1 without its first ones, a constant, x0 again, along an axis; z: twice y."""
    nodes = [
        helper.make_node("Slice", ["x1", "begin", "end", "axis"], ["part"]),
        helper.make_node("Concat", ["x0", "part", "c", "x0"], ["y"], axis=axis),
        helper.make_node("Concat", ["y", "y"], ["z"], axis=axis - len(shape)),
    ]
    ends = {"begin": np.int64([1]), "end": np.int64([1 << 40]), "axis": np.int64([axis])}
    stored = {**ends, "c": constant}
    info = helper.make_tensor_value_info
    given = [
        info(name, KINDS[kind], [name if d == axis and is_open else n for d, n in enumerate(shape)])
        for name in ("x0", "x1")
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        given,
        [info(name, KINDS[kind], None) for name in "yz"],
        [numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_parts_of_any_size(core, kind, seed, is_open):
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 6, int(rng.integers(1, 5))).tolist()
    axis = int(rng.integers(0, len(shape)))

    def values(size):
        return (rng.random([*shape[:axis], size, *shape[axis + 1 :]]) * 9).astype(kind)

    constant = values(int(rng.integers(0, 3)))
    model = joined(kind, shape, axis, constant, is_open=is_open)
    request = load(core, model).create_infer_request()
    for _ in range(12):
        x0, x1 = (values(int(rng.integers(1, 60)) if is_open else shape[axis]) for _ in range(2))
        cut = np.take(x1, range(1, x1.shape[axis]), axis)
        want = np.concatenate([x0, cut, constant, x0], axis)
        got = request.infer({"x0": x0, "x1": x1})
        for name, right in (("y", want), ("z", np.concatenate([want, want], axis))):
            assert got[name].dtype == right.dtype
            np.testing.assert_array_equal(got[name], right)
