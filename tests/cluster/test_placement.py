"""Which of our devices is the GPU that Ray gave to a worker."""

from __future__ import annotations

import struct

import pytest

from polydevice.errors import DeviceNotFoundError
from polydevice.ray.placement import match
from polydevice_gpu.cl.discovery.child import _pci_address

NVIDIA = {
    "0": "00000000:1B:00.0", "GPU-aa": "00000000:1B:00.0",
    "1": "00000000:43:00.0", "GPU-bb": "00000000:43:00.0",
    "2": "00000001:43:00.0", "GPU-cc": "00000001:43:00.0",
}  # fmt: skip
OURS = {"GPU.0": "0001:43:00.0", "GPU.1": "0000:1b:00.0", "GPU.2": "0000:43:00.0", "GPU.3": ""}


def test_by_number_and_by_uuid() -> None:
    for given, names in (
        (["0"], ["GPU.1"]),
        (["1"], ["GPU.2"]),
        (["GPU-cc"], ["GPU.0"]),
        (["GPU-bb", "0"], ["GPU.2", "GPU.1"]),
    ):
        assert match(given, OURS, lambda: NVIDIA) == names


def test_a_worker_that_sees_only_its_own() -> None:
    assert match(["7"], {"GPU": ""}, dict) == ["GPU"]
    assert match(["3", "1"], {"GPU.0": "", "GPU.1": ""}, dict) == ["GPU.0", "GPU.1"]


def test_a_gpu_that_is_not_ours() -> None:
    for given, ours, listing in (
        (["5"], OURS, NVIDIA),
        (["0"], {}, NVIDIA),
        (["0"], OURS, {}),
        (["0"], {"GPU.0": "0000:99:00.0", "GPU.1": ""}, NVIDIA),
    ):
        with pytest.raises(DeviceNotFoundError, match="Ray gave GPU"):
            match(given, ours, lambda listing=listing: listing)


def test_addresses_as_drivers_say_them() -> None:
    four, eight = "=I", "=Q"
    assert _pci_address(struct.pack("=4I", 1, 0x1B, 2, 3), [None] * 3) == "0001:1b:02.3"
    nv = [struct.pack(four, 0), struct.pack(four, 0x43), struct.pack(eight, 0)]
    assert _pci_address(None, nv) == "0000:43:00.0"
    assert _pci_address(None, [None, *nv[1:]]) == ""
    assert _pci_address(b"", [None] * 3) == ""
