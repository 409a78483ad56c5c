"""Variables on a GPU: pieces of device memory that take turns, made once."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.ops.arithmetic import Add
from polydevice.ops.io import Result
from polydevice.ops.state import Assign, ReadValue
from polydevice.shape import Shape
from polydevice_gpu.cl.memory.allocator import Allocator
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
