"""Memory that a user sets for an output whose sizes only the data tells."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice import Blob, Core
from polydevice.errors import BlobError


def model() -> bytes:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])],
        "places",
        [info("x", TensorProto.FLOAT, [5])],
        [info("y", TensorProto.INT64, [1, "n"])],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.fixture(params=["itself", "HETERO"])
def request_of(request, device):
    hetero = "HETERO:CPU" if device == "CPU" else f"HETERO:{device},CPU"
    with Core() as core:
        target = device if request.param == "itself" else hetero
        yield core.load_network(core.read_network(model()), target).create_infer_request()


def test_it_is_written_where_it_fits_and_named_where_it_does_not(request_of):
    two, three = np.array([0, 3, 0, 0, 2], np.float32), np.array([1, 1, 0, 1, 0], np.float32)
    np.testing.assert_array_equal(request_of.infer({"x": three})["y"], [[0, 1, 3]])
    mine = np.full((1, 2), -1)
    request_of.set_blob("y", Blob(mine))
    for _ in range(2):
        assert request_of.infer({"x": two})["y"] is mine
        np.testing.assert_array_equal(mine, [[1, 4]])
        mine[...] = -1
    with pytest.raises(BlobError, match=r"output 'y' has shape \[1,3\] .*\[1,2\]"):
        request_of.infer({"x": three})
    np.testing.assert_array_equal(mine, -1)
    other = np.zeros((1, 3), np.int64)
    request_of.set_blob("y", other)
    np.testing.assert_array_equal(request_of.infer()["y"], [[0, 1, 3]])
    np.testing.assert_array_equal(other, [[0, 1, 3]])
    request_of.start_async({"x": three})
    request_of.wait()
    assert request_of.get_blob("y").array is other
