"""Variables that keep their value from one inference to the next."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import NetworkError, UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Add
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import find_operation
from polydevice.ops.state import Assign, ReadValue
from polydevice.shape import Shape

F32 = ElementType.f32


def running_sum(initial):
    """y = total + x; total = y."""
    x = Node("x", Parameter(F32, Shape([3])))
    if initial is None:
        read = Node("read", ReadValue("total", F32, Shape([3])))
    else:
        start = constant("start", np.full(3, initial, np.float32))
        read = Node("read", ReadValue("total"), [start.output])
    total = Node("sum", Add(), [read.output, x.output])
    assign = Node("assign", Assign("total"), [total.output])
    return Network("running", [x], [Node("y", Result(output_name="y"), [total.output])], [assign])


def load(core, network, device):
    try:
        return core.load_network(network, device)
    except UnsupportedNetworkError as error:
        pytest.skip(f"{device}: {error}")


@pytest.mark.parametrize("initial", [None, 10.0])
def test_a_running_sum(initial, device):
    x = np.array([1, 2, 3], np.float32)
    with Core() as core:
        request = load(core, running_sum(initial), device).create_infer_request()
        for count in (1, 2, 3):
            y = request.infer({"x": x})["y"]
            np.testing.assert_array_equal(y, x * count + (initial or 0.0))


def test_requests_do_not_share_their_variables(device):
    x = np.ones(3, np.float32)
    with Core() as core:
        executable = load(core, running_sum(None), device)
        first, second = executable.create_infer_request(), executable.create_infer_request()
        first.infer({"x": x})
        np.testing.assert_array_equal(first.infer({"x": x})["y"], x * 2)
        np.testing.assert_array_equal(second.infer({"x": x})["y"], x)


def test_a_variable_can_be_read_set_and_reset(device):
    x = np.ones(3, np.float32)
    with Core() as core:
        request = load(core, running_sum(5.0), device).create_infer_request()
        request.infer({"x": x})
        (variable,) = request.query_state()
        assert variable.name == "total"
        np.testing.assert_array_equal(variable.state, x * 6)
        variable.state = np.array([1, 2, 3], np.float32)
        np.testing.assert_array_equal(request.infer({"x": x})["y"], [2, 3, 4])
        variable.reset()
        np.testing.assert_array_equal(request.infer({"x": x})["y"], x * 6)


def test_shapes():
    op = find_operation("ReadValue", "opset6").from_ir(
        {"variable_id": "v", "variable_type": "f32", "variable_shape": "1,?,4"}, 6
    )
    node = Node("read", op)
    assert str(node.output.desc) == "f32[1,?,4]"
    start = constant("start", np.zeros((1, 2, 4), np.float32))
    assert str(Node("read", op, [start.output]).output.desc) == "f32[1,?,4]"
    wrong = constant("start", np.zeros((2, 2, 4), np.float32))
    with pytest.raises(NetworkError, match="does not fit"):
        Node("read", op, [wrong.output])
    with pytest.raises(NetworkError, match="its initial value f64"):
        Node("read", op, [constant("start", np.zeros((1, 2, 4))).output])
    with pytest.raises(NetworkError, match="neither an input nor a variable_type"):
        Node("read", ReadValue("v"))
