"""What the process shares: evaluating operations on the host, and numbers for names."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from polydevice.core import shared_core
from polydevice.dtype import Array
from polydevice.ops.op import Op

_numbers = itertools.count()


def evaluate(op: Op, inputs: Sequence[Array]) -> list[Array] | None:
    """Compute an operation on arrays; None where no plugin can."""
    return shared_core().evaluate(op, inputs)


def new_name(kind: str) -> str:
    """Return a name for a node that was given none: its kind and a number."""
    return f"{kind}_{next(_numbers)}"
