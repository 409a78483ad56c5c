"""KeptSource: a network as it was given, whose weights may be left in the file they came from."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.files.stored import LEAST_BYTES, Stored
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.io import Constant


class KeptSource:
    """A copy of a network, for what is made of it once more: an export, or another plan.

    Weights that know where they were read from need not stay in memory meanwhile.
    """

    def __init__(self, network: Network) -> None:
        """Copy a network; constant data is shared."""
        self._network = network.clone()
        self._nodes = self._network.nodes()
        self._stored = [_stored(node.constant) for node in self._nodes]
        self._away: list[Stored | None] = [None] * len(self._nodes)

    @property
    def constants(self) -> list[Array]:
        """The constants' data, as far as it was not let go of."""
        return [node.constant for node in self._nodes if node.constant is not None]

    @property
    def stored_bytes(self) -> int:
        """What the weights take that know where they were read from."""
        return sum(stored.size_bytes for stored in self._stored if stored is not None)

    def network(self) -> Network:
        """Return a copy with all weights; constant data is shared where it is in memory.

        Raises:
            ModelFileError: the file that weights were read from has changed.
        """
        network = self._network.clone()
        for node, stored in zip(network.nodes(), self._away, strict=True):
            if stored is not None:
                _set_constant(node, stored.array())
        return network

    def let_go(self) -> None:
        """Let go of weights that can be read again, unless their files have changed already."""
        files = {stored.file for stored in self._stored if stored is not None}
        kept = {file for file in files if file.keep()}
        self._away = [
            stored if stored is not None and stored.file in kept else None
            for stored in self._stored
        ]
        for node, stored in zip(self._nodes, self._away, strict=True):
            if stored is not None:
                empty(node)


def empty(node: Node) -> None:
    """Let a Constant keep its type and shape alone."""
    value = node.operation(Constant).value
    _set_constant(node, np.broadcast_to(np.zeros((), value.dtype), value.shape))


def _stored(value: Array | None) -> Stored | None:
    return None if value is None or value.nbytes < LEAST_BYTES else Stored.of(value)


def _set_constant(node: Node, value: Array) -> None:
    op = node.operation(Constant)
    node.op = op.replace(value=value)
    node.infer()
