"""Endless loops of ONNX models, at exit and in forked processes, on every device."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper

from polydevice import Core
from tests.tiers import firsts


def looping(trips: bool = True) -> bytes:
    """y = x + 1 + 1 …, `trips` times; for ever if the model does not say how often."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Constant", [], ["one"], value_float=1.0),
            helper.make_node("Add", ["v", "one"], ["n"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("v", TensorProto.FLOAT, [3]),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("n", TensorProto.FLOAT, [3]),
        ],
    )
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])]
    if trips:
        inputs.append(helper.make_tensor_value_info("trips", TensorProto.INT64, []))
    graph = helper.make_graph(
        [helper.make_node("Loop", ["trips" if trips else "", "", "x"], ["y"], body=body)],
        "looping",
        inputs,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )
    opset = [helper.make_opsetid("", 21)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=10).SerializeToString())


def run(tmp_path, device: str, body: str) -> str:
    model = tmp_path / "model.onnx"
    model.write_bytes(looping(trips="trips" in body))
    code = (
        "import os, sys, threading, numpy as np\n"
        "from polydevice import Core\n"
        f"core = Core(); executable = core.load_network({str(model)!r}, {device!r})\n"
        "request = executable.create_infer_request(); x = np.ones(3, np.float32)\n" + body
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("trips", [-5, -1, 0, 2])
def test_a_negative_number_of_trips_is_none(device, trips):
    x = np.arange(3, dtype=np.float32)
    with Core() as core:
        request = core.load_network(core.read_network(looping()), device).create_infer_request()
        for _ in range(2):
            y = request.infer({"x": x, "trips": np.array(trips)})["y"]
            np.testing.assert_array_equal(y, x + max(trips, 0))


@pytest.mark.parametrize("start", firsts(1, ["start_async", "daemon"]))
def test_exit_while_a_loop_runs_for_ever(tmp_path, device, start):
    begin = "request.start_async({'x': x})\n"
    if start == "daemon":
        begin = "threading.Thread(target=request.infer, args=[{'x': x}], daemon=True).start()\n"
    out = run(tmp_path, device, begin + "print(request.wait(50)); print('end')\n")
    assert out.endswith("end\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
def test_a_forked_child_infers_or_says_why_not(tmp_path, device):
    out = run(
        tmp_path,
        device,
        """
feed = {"x": x, "trips": np.array(2)}
request.infer(feed); request.start_async(feed); request.wait()
sys.stdout.flush()
if os.fork() == 0:
    from polydevice.errors import DeviceLostError
    for use in (lambda: request.infer(feed), executable.create_infer_request,
                lambda: (request.start_async(feed), request.wait())):
        try:
            use(); print("works")
        except DeviceLostError as error:
            print(error)
    executable.close()
    sys.stdout.flush(); os._exit(0)
os.wait()
print(request.infer(feed)["y"][0])
""",
    )
    *child, last = out.splitlines()
    assert last == "3.0"
    assert len(child) == 3
    if device == "CPU":
        assert set(child) == {"works"}
    else:
        assert all("multiprocessing.get_context('spawn')" in line for line in child)
