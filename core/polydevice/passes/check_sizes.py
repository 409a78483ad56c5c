"""check_sizes: refuse values that no memory here can hold, before any work is done for them."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from polydevice.errors import ModelLimitError
from polydevice.network import Network

_CONTROL_GROUP = Path("/sys/fs/cgroup/memory.max")


@functools.cache
def host_memory_bytes() -> int:
    """Return what this process may use of the machine's memory; 2^47 where it is not known."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 47
    try:
        allowed = _CONTROL_GROUP.read_text().strip()
    except OSError:
        return total
    return min(total, int(allowed)) if allowed.isdigit() else total


def check_sizes(
    network: Network, limit_bytes: int, where: str, *, limit_elements: int | None = None
) -> None:
    """Check every value of known size against a memory; sizes of 0 count as 1.

    A plugin calls it when shapes are known, before it folds constants or makes a plan: a file of
    a few bytes can name sizes whose mere tables of indices would exhaust memory.

    Args:
        network: with inferred shapes; values of unknown sizes are passed over.
        limit_bytes: the most that one value may take.
        where: whose memory that is, for the message ("CPU").
        limit_elements: the most elements that the device can count; None for any number.

    Raises:
        ModelLimitError: naming the node, its shape, and the limit.
    """
    for node in network.nodes():
        for port in node.outputs:
            span = port.desc.span_bytes
            if span is not None and span > limit_bytes:
                raise ModelLimitError(
                    f"{node.title} makes a value {port.desc}, which takes {span} bytes (sizes of "
                    f"0 counted as 1); {where} has memory for {limit_bytes}. Give the network's "
                    "inputs smaller sizes, or correct the model"
                )
            if limit_elements is None or span is None or port.shape is None:
                continue
            if port.shape.elements > limit_elements:
                raise ModelLimitError(
                    f"{node.title} makes a value {port.desc} of {port.shape.elements} elements; "
                    f"{where} counts at most {limit_elements}. Give the network's inputs smaller "
                    "sizes, or load it on CPU"
                )
