"""What tests of other runtimes' stand-ins have."""

from __future__ import annotations

import pytest

from polydevice.compat.onnxruntime import providers


@pytest.fixture(autouse=True)
def _first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_said", set())


@pytest.fixture
def on_device(device: str) -> list[str]:
    return ["PolydeviceGPU" if device.startswith("GPU") else "PolydeviceCPU"]
