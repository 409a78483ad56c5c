"""The OpenCL device that tests of the GPU plugin use directly."""

from __future__ import annotations

import pytest

from polydevice_gpu import cl


@pytest.fixture(scope="session")
def opencl() -> cl.Device:
    """The first OpenCL device that the rule admits."""
    report = cl.discover()
    if not report.devices:
        pytest.skip(f"no OpenCL device here:\n{report.text()}")
    return cl.open_device(report.devices[0])
