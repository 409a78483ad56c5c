"""Variables on a GPU: pieces of device memory that take turns, made once."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core, TensorDesc
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.ops.arithmetic import Add
from polydevice.ops.io import Result
from polydevice.ops.state import Assign, ReadValue
from polydevice.shape import Shape
from polydevice_gpu.cl.memory.allocator import Allocator
from polydevice_gpu.runtime.runner import GpuRunner
from tests.gpu.graphs import Sketch

X = np.array([1, 2, 3], np.float32)


def running_sum() -> Network:
    """y = total + x; total = y, from zeros."""
    s = Sketch()
    read = s.add("read", ReadValue("total", ElementType.f32, Shape([3])))
    total = s.add("sum", Add(), read, s.input("x", 3))
    assign = s.node("assign", Assign("total"), total)
    results = [s.node("y", Result(output_name="y"), total)]
    return Network("running", s.parameters, results, [assign])


@pytest.mark.parametrize("change", ["nothing", "reset", "set"])
def test_no_inference_allocates(change, opencl, monkeypatch) -> None:
    with Core() as core:
        request = core.load_network(running_sum(), "GPU").create_infer_request()
        (variable,) = request.query_state()
        total = np.zeros(3, np.float32)
        for turn in range(8):
            if turn == 4:  # all memory has been made

                def allocate(self: Allocator, size_bytes: int, name: str) -> None:
                    raise AssertionError(f"{size_bytes} bytes were allocated for {name!r}")

                monkeypatch.setattr(Allocator, "allocate", allocate)
            if change == "reset":
                variable.reset()
                total = np.zeros(3, np.float32)
            elif change == "set":
                total = X * turn
                variable.state = total
            total = total + X
            np.testing.assert_array_equal(request.infer({"x": X})["y"], total)
            np.testing.assert_array_equal(variable.state, total)


def test_inferences_that_leave_all_on_the_device_are_gathered_twice(core, monkeypatch) -> None:
    """Variables read and write two pieces of memory in turn."""
    executable = core.load_network(running_sum(), "GPU")
    request = executable.create_infer_request()
    (variable,) = request.query_state()
    blob = executable.get_context().create_blob(TensorDesc(ElementType.f32, Shape([3])))
    blob.copy_from(X)
    request.set_blob("x", blob)
    request.keep_on_device("y")
    for _ in range(3):
        request.infer()
    gather, gathered = GpuRunner._gather, []
    monkeypatch.setattr(GpuRunner, "_gather", lambda self: gathered.append(1) or gather(self))
    for turn in range(4, 9):
        request.infer()
        np.testing.assert_array_equal(variable.state, turn * X)
    assert not gathered
    variable.state = 10 * X
    for turn in range(11, 15):
        request.infer()
        np.testing.assert_array_equal(variable.state, turn * X)
        answer = np.zeros(3, np.float32)
        request.get_blob("y").copy_to(answer)
        np.testing.assert_array_equal(answer, turn * X)
    variable.reset()
    request.infer()
    np.testing.assert_array_equal(variable.state, X)
    other = executable.get_context().create_blob(TensorDesc(ElementType.f32, Shape([3])))
    other.copy_from(2 * X)
    request.set_blob("x", other)
    for turn in (3, 5, 7):
        request.infer()
        np.testing.assert_array_equal(variable.state, turn * X)
    assert request.copies.with_host == 0
