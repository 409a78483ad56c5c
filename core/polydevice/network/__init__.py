"""Network: a graph of operations, with its shapes and its named inputs and outputs."""

from __future__ import annotations

from polydevice.network.names import namer, unique_name
from polydevice.network.network import Network, PathLike

__all__ = ["Network", "PathLike", "namer", "unique_name"]
