"""The whole test file of a third-party device: polydevice's shipped suites."""

from polydevice.testing.device_suite import DeviceSuite
from polydevice.testing.op_suite import OpSuite


class TestNpu(DeviceSuite):
    device = "NPU"


class TestNpuOperations(OpSuite):
    device = "NPU"
    operations = {"Add", "Multiply", "ReLU", "SoftMax"}
