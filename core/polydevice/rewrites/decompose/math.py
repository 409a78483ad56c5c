"""What hands its input on."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.math import Identity
from polydevice.rewrites.rule import decomposes


@decomposes(Identity)
def _identity(build: Emitter, op: Identity, inputs: Sequence[Port]) -> list[Port]:
    return [inputs[0]]
