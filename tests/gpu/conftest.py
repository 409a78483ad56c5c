"""The OpenCL device that tests of the GPU plugin use directly, a Core, and a user of OpenCL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from polydevice import Core
from polydevice_gpu import cl


@pytest.fixture(scope="session")
def opencl() -> cl.Device:
    """The first OpenCL device that the rule admits."""
    report = cl.discover()
    if not report.devices:
        pytest.skip(f"no OpenCL device here:\n{report.text()}")
    return cl.open_device(report.devices[0])


@pytest.fixture
def core(opencl: cl.Device) -> Iterator[Core]:
    """A Core on a machine that has an OpenCL device."""
    with Core() as made:
        yield made


@pytest.fixture
def user(opencl: cl.Device):
    """A program's own OpenCL context and queue on that device."""
    from tests.gpu.remote import User  # imports pyopencl and the CPU tests' ONNX models

    return User(opencl)
