"""The test file of a third-party device: polydevice's shipped suites, and what it has rewritten."""

import numpy as np

from polydevice import Core, opset
from polydevice.testing.device_suite import DeviceSuite
from polydevice.testing.op_suite import OpSuite


class TestNpu(DeviceSuite):
    device = "NPU"


class TestNpuOperations(OpSuite):
    device = "NPU"
    operations = {"Add", "HSwish", "Multiply", "ReLU", "SoftMax"}


def test_what_the_device_lacks_is_taken_apart_or_recognised():
    """A batch normalisation, x + 0.5 here, and an HSwish in steps, of which it has no Clamp."""
    x = opset.parameter([1, 1, 4], "f32", name="x")
    numbers = (np.full(1, number, np.float32) for number in (2, 1, 0.5, 3))
    norm = opset.batch_norm_inference(x, *numbers, epsilon=1.0)
    clip = opset.clamp(opset.add(norm, np.float32(3)), min=0.0, max=6.0)
    y = opset.divide(opset.multiply(norm, clip), np.float32(6))
    with Core() as core:
        network = core.load_network(opset.network("steps", {"y": y}), "NPU")
        assert [node.type for node in network.steps] == ["Multiply", "Add", "HSwish"]
        given = np.array([[[-3.5, -0.5, 1.5, 4.5]]], np.float32)
        np.testing.assert_allclose(network.infer({"x": given})["y"], [[[0, 0, 5 / 3, 5]]], 1e-6)
