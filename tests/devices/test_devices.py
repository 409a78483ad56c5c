"""The conformance suite that third parties inherit, on our own devices."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.testing.device_suite import DeviceSuite
from polydevice.testing.op_suite import OpSuite


class TestFake(DeviceSuite):
    device = "FAKE"
    exact = True

    def register(self, core: Core) -> None:
        core.register_plugin("polydevice.testing.fake_device", "FAKE")

    def answer(self, x: np.ndarray) -> np.ndarray:
        return np.zeros_like(x)

    test_an_unknown_operation_is_refused = None  # FAKE accepts every operation on purpose
    # It has no loops; tests/core/test_giving_up.py lets it take long instead.
    test_cancels_what_runs = None
    test_ends_when_its_time_is_over = None
    test_others_do_not_wait_for_an_endless_one = None
    test_closing_cancels_what_runs = None


class TestDevice(DeviceSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(TestDevice, "device", device, raising=False)


class TestOperations(OpSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(TestOperations, "device", device, raising=False)


class TestHetero(DeviceSuite):
    @pytest.fixture(autouse=True)
    def _choose(self, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
        members = device.partition(":")[2] or ("CPU" if device == "CPU" else f"{device},CPU")
        monkeypatch.setattr(TestHetero, "device", f"HETERO:{members}", raising=False)
