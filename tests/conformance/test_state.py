"""ReadValue and Assign as IR: values kept between inferences, against OpenVINO."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import UnsupportedNetworkError
from tests.core.ir_text import constant, edges, layer, net, parameter, result

openvino = pytest.importorskip("openvino", reason="these tests compare with OpenVINO")
RANDOM = np.random.default_rng(13)
ROW = [(0, "FP32", (1, 4))]


def accumulator(opset: int) -> tuple[bytes, bytes]:
    """total ← total + x; returns total·2. The initial total is 10, 20, 30, 40."""
    attributes: dict[str, object] = {"variable_id": "total"}
    if opset == 6:
        attributes |= {"variable_type": "f32", "variable_shape": "1,4"}
    two = [(0, "FP32", (1, 4)), (1, "FP32", (1, 4))]
    version = f"opset{opset}"
    topology = net(
        parameter(0, "x", (1, 4))
        + constant(1, "first", (1, 4), 0, 16)
        + layer(2, "read", "ReadValue", attributes, ROW, [(1, "FP32", (1, 4))], version=version)
        + layer(3, "sum", "Add", None, two, [(2, "FP32", (1, 4))])
        + layer(4, "write", "Assign", {"variable_id": "total"}, ROW, [(1, "FP32", (1, 4))],
                version=version)
        + layer(5, "twice", "Add", None, two, [(2, "FP32", (1, 4))])
        + result(6, "y", (1, 4)),
        edges((1, 0, 2, 0), (2, 1, 3, 0), (0, 0, 3, 1), (3, 2, 4, 0), (3, 2, 5, 0), (3, 2, 5, 1),
              (5, 2, 6, 0)),
    )  # fmt: skip
    return topology, np.float32([10, 20, 30, 40]).tobytes()


@pytest.mark.parametrize("opset", [3, 6])
def test_state_is_kept_between_inferences_and_can_be_reset(opset: int, device: str) -> None:
    topology, weights = accumulator(opset)
    steps = RANDOM.uniform(-2, 2, (5, 1, 4)).astype(np.float32)
    with Core() as core:
        network = core.read_network(topology, weights)
        try:
            executable = core.load_network(network, device)
        except UnsupportedNetworkError as error:
            if device == "CPU":
                raise
            pytest.skip(f"{device}: {error}")
        request, other = executable.create_infer_request(), executable.create_infer_request()
        (name,) = network.outputs
        found = []
        for step, x in enumerate(steps):
            if step == 3:
                for variable in request.query_state():
                    assert variable.name == "total"
                    variable.reset()
            found.append(np.array(request.infer({"x": x})[name]))
            other.infer({"x": x * 100})  # requests do not share their state
    model = openvino.Core().read_model(topology, openvino.Tensor(np.frombuffer(weights, np.uint8)))
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    theirs = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    for step, x in enumerate(steps):
        if step == 3:
            theirs.reset_state()
        theirs.infer([x])
        want = np.array(theirs.get_output_tensor(0).data)
        np.testing.assert_allclose(found[step], want, rtol=1e-5, err_msg=f"step {step}")
