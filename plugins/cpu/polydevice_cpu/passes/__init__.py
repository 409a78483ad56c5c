"""Passes: what is done to a network once at load, whatever the shapes; `PIPELINE` is the order."""

from __future__ import annotations

from collections.abc import Callable

from polydevice.network import Network
from polydevice.passes.constant_folding import constant_folding


def _fold(network: Network) -> None:
    if network.evaluate is not None:
        constant_folding(network, network.evaluate)


PIPELINE: tuple[Callable[[Network], None], ...] = (
    _fold,  # weights stored as f16 or quantised become plain f32 constants
)


def prepare(network: Network) -> None:
    """Run all passes on a network, in place."""
    for pass_ in PIPELINE:
        pass_(network)
