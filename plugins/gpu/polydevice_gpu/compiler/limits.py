"""What no value may exceed: memory of host and device, and the numbers that kernels count with."""

from __future__ import annotations

from polydevice.memory_budget import host_memory_bytes
from polydevice.network import Network
from polydevice.passes.check_sizes import check_sizes
from polydevice_gpu import cl

MOST_ELEMENTS = (1 << 31) - 1
"""Kernels count the elements of a value in 32 bits."""


def check_memory(network: Network, device: cl.Device) -> None:
    """Check that memory can hold every value of known size, and that kernels can count it.

    Raises:
        ModelLimitError: naming the first node whose value is too large.
    """
    limit = max(host_memory_bytes(), device.facts.global_memory_bytes)
    check_sizes(network, limit, device.facts.name, limit_elements=MOST_ELEMENTS)


def check_elements(network: Network) -> None:
    """Check that kernels can count every value; memory for it is checked when it is allocated.

    Raises:
        ModelLimitError: naming the first node whose value is too large.
    """
    check_sizes(network, MOST_ELEMENTS * 16, "the device", limit_elements=MOST_ELEMENTS)
