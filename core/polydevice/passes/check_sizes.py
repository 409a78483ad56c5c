"""check_sizes: refuse values that no memory here can hold, before any work is done for them."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import ModelLimitError
from polydevice.files.stored import StoredBuffer
from polydevice.network import Network
from polydevice.node import Node


def constants(network: Network) -> Iterator[Array]:
    """Yield the constants that take memory, those in bodies included; mapped files do not."""
    for node in network.nodes():
        if node.constant is not None and not _is_mapped(node.constant):
            yield node.constant
        if node.op.has_bodies:
            bodies = (value for value in vars(node.op).values() if isinstance(value, Network))
            for body in bodies:
                yield from constants(body)


def _is_mapped(array: object) -> bool:
    while isinstance(array, np.ndarray):
        if isinstance(array, (np.memmap, StoredBuffer)):
            return isinstance(array, np.memmap)
        array = array.base
    return isinstance(array, mmap.mmap)


def check_sizes(
    network: Iterable[Node], limit_bytes: int, where: str, *, limit_elements: int | None = None
) -> None:
    """Check every value of known size against a memory; sizes of 0 count as 1.

    A plugin calls it when shapes are known, before it folds constants or makes a plan: a file of
    a few bytes can name sizes whose mere tables of indices would exhaust memory.

    Args:
        network: it, or some of its nodes, with inferred shapes; values of unknown sizes are passed
            over.
        limit_bytes: the most that one value may take.
        where: whose memory that is, for the message ("CPU").
        limit_elements: the most elements that the device can count; None for any number.

    Raises:
        ModelLimitError: naming the node, its shape, and the limit.
    """
    for node in network:
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
