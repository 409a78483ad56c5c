"""check: run a case on the device, and on CPU also with the NumPy function it falls back to.

What OpenVINO answers is read from the IR that OpenVINO reads.
"""

from __future__ import annotations

import pytest

from polydevice.errors import UnsupportedNetworkError
from polydevice.testing.op_case import OpCase, run_case
from polydevice_cpu.implement import run
from tests.ops.openvino_oracle import OpenVinoCase


def check(case: OpCase, device: str) -> None:
    """Run the case; skip when the device says that it lacks the operation."""
    if device == "CPU":
        # oneDNN replaces some of these in a network; they serve where it is missing.
        run_case(case, "CPU (NumPy)", compute=run)
    try:
        run_case(case, device, network=case.read() if isinstance(case, OpenVinoCase) else None)
    except UnsupportedNetworkError as error:
        pytest.skip(f"{device}: {error}")
