"""Variables that keep their value from one inference to the next."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import (
    BlobError,
    NetworkError,
    RequestBusyError,
    UnsupportedNetworkError,
)
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.concat import Concat
from polydevice.ops.io import Parameter, Result
from polydevice.ops.op import find_operation
from polydevice.ops.state import Assign, ReadValue
from polydevice.shape import Dim, Shape

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
        if device == "CPU":
            raise
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


def growing_list(start):
    """All that was given so far: y = concat(list, x); list = y. `start` makes the first list."""
    x = Node("x", Parameter(F32, Shape([Dim(0, None), 3])))
    read = Node("read", ReadValue("list", F32, Shape([Dim(0, None), 3])), [start(x)])
    longer = Node("longer", Concat(axis=0), [read.output, x.output])
    assign = Node("assign", Assign("list"), [longer.output])
    result = Node("y", Result(output_name="y"), [longer.output])
    return Network("growing", [x], [result], [assign])


def nothing(x):
    return constant("nothing", np.zeros((0, 3), np.float32)).output


def doubled(x):
    return Node("doubled", Multiply(), [x.output, constant("two", np.float32(2)).output]).output


@pytest.mark.parametrize("start", [nothing, doubled])
def test_a_variable_that_grows(start, device):
    random = np.random.default_rng(7)
    with Core() as core:
        executable = load(core, growing_list(start), device)
        requests = [executable.create_infer_request() for _ in range(2)]
        for _ in range(2):  # the second time from the beginning again
            known = [np.zeros((0, 3), np.float32) for _ in requests]
            for count in (2, 1, 5):
                for i, request in enumerate(requests):
                    x = random.standard_normal((count, 3)).astype(np.float32)
                    if start is doubled and not len(known[i]):
                        known[i] = x * 2
                    known[i] = np.concatenate([known[i], x])
                    request.start_async({"x": x})
                for i, request in enumerate(requests):
                    request.wait()
                    np.testing.assert_array_equal(request.get_blob("y").array, known[i])
                    np.testing.assert_array_equal(request.query_state()[0].state, known[i])
            for request in requests:
                request.query_state()[0].reset()


def test_a_value_that_a_variable_cannot_have(device):
    with Core() as core:
        request = load(core, running_sum(None), device).create_infer_request()
        request.infer({"x": np.ones(3, np.float32)})
        (variable,) = request.query_state()
        with pytest.raises(BlobError, match="element type f32, not int32|not int32"):
            variable.state = np.ones(3, np.int32)
        with pytest.raises(BlobError, match="shape"):
            variable.state = np.ones(4, np.float32)
        np.testing.assert_array_equal(variable.state, [1, 1, 1])


def test_variables_are_left_alone_while_their_request_runs(device):
    """The callback of one request, which has ended, looks at another that waits for the stream."""
    x = np.ones(3, np.float32)
    with Core() as core:
        executable = load(core, running_sum(5.0), device)
        request = executable.create_infer_request()
        (variable,) = request.query_state()
        ready, seen = threading.Event(), []

        def look(*_):
            ready.wait(30)
            for act in (
                lambda: variable.state,
                variable.reset,
                lambda: setattr(variable, "state", x),
            ):
                with pytest.raises(RequestBusyError, match="variable 'total' is running"):
                    act()
            seen.append(True)

        other = executable.create_infer_request()
        other.set_completion_callback(look)
        other.start_async({"x": x})
        request.start_async({"x": x})
        ready.set()
        other.wait()
        request.wait()
        assert seen == [True]
        np.testing.assert_array_equal(variable.state, x * 6)


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
