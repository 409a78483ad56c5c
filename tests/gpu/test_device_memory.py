"""A device that runs out of memory: whichever allocation fails, the error is clean and nothing
leaks, and a network loaded afterwards answers right."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from polydevice import Core
from polydevice.errors import DeviceMemoryError
from polydevice_gpu.cl.memory.allocator import Allocator

MODEL = Path(__file__).parents[1] / "models" / "data" / "wechat_qr_sr.xml"
IMAGE = {"data": np.random.default_rng(3).random((1, 1, 224, 224), np.float32)}


def test_every_allocation_fails_in_turn(opencl, monkeypatch) -> None:
    real = Allocator._reserve
    calls = 0
    failing = -1

    def reserve(self: Allocator, size_bytes: int, name: str) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise DeviceMemoryError(f"injected: no {size_bytes} bytes for {name!r}")
        real(self, size_bytes, name)

    monkeypatch.setattr(Allocator, "_reserve", reserve)
    gc.collect()  # what other tests left behind must not be freed while this one counts
    before = opencl.memory.bytes_allocated
    with Core() as core:
        network = core.read_network(MODEL)

        def run() -> np.ndarray:
            with core.load_network(network, "GPU") as executable:
                return next(iter(executable.infer(IMAGE).values()))

        right = run()
        gc.collect()
        needed, calls = calls, 0
        assert needed > 2
        # The first, the last and some between: each costs a load of the network.
        for number in sorted({1, 2, 3, needed // 2, needed - 1, needed}):
            calls, failing = 0, number
            with pytest.raises(DeviceMemoryError, match="injected"):
                run()
            gc.collect()
            assert opencl.memory.bytes_allocated == before
        failing = -1
        assert np.array_equal(run(), right)


def test_loading_and_closing_again_and_again_leaves_nothing(opencl) -> None:
    gc.collect()
    before = opencl.memory.bytes_allocated
    with Core() as core:
        network = core.read_network(MODEL)
        seen = set()
        for _ in range(5):
            with core.load_network(network, "GPU") as executable:
                executable.infer(IMAGE)
                seen.add(opencl.memory.bytes_allocated)
            del executable
            gc.collect()
            assert opencl.memory.bytes_allocated == before
    assert len(seen) == 1
