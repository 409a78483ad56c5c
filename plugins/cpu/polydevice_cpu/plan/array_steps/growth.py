"""growth: whether the result of an operation fits, found out before it is computed, and its memory.

Needed where sizes are known at inference alone: a Tile, a Range, a padding or a product of two
vectors makes any number of bytes of a few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.errors import PolydeviceError
from polydevice.ops.concat import Concat
from polydevice.ops.containers import SequenceConstruct
from polydevice.ops.control_flow import If, Iteration
from polydevice.ops.op import Op
from polydevice.shape import bounds
from polydevice.tensor import TensorDesc, desc_of

SMALL_ELEMENTS = 1 << 23
"""Results of other operations have at most the product of their inputs' elements, mostly far fewer;
up to this product nothing is asked, since describing a node takes 20 to 80 µs."""

JOINING = Concat, SequenceConstruct
"""Operations whose results have the sum of their inputs' elements, not the product."""

SHORT_ELEMENTS = 16
"""Inputs up to this length may say how large a result is: limits of a range, a shape, repeats."""

SMALL_BYTES = 1 << 18
"""Results known to take no more are not looked at again."""

KEPT = 1024
"""How many lists of sizes an operation is remembered to take."""

COUNTED_BYTES = 1 << 16
"""Results from this size on count as memory of the network; counting one takes some 3 µs."""


def is_small(op: Op, inputs: Sequence[Array]) -> bool:
    """Whether nothing need be asked about an operation's result on inputs of these sizes.

    What has bodies is not asked: they ask for what they make. To infer one takes milliseconds.
    """
    if isinstance(op, (Iteration, If)):
        return True
    if op.sized_by_values:
        return False
    sizes = [array.size for array in inputs if not array.dtype.hasobject]
    if isinstance(op, JOINING):
        return sum(sizes) <= SMALL_ELEMENTS
    return math.prod(size or 1 for size in sizes) <= SMALL_ELEMENTS


class Growth:
    """What an operation makes of arrays that do not bound it by their sizes.

    To infer takes 20 to 80 µs, so what was found small is kept: by the sizes of all inputs and the
    values of short ones, where these alone decide.
    """

    __slots__ = ("_op", "_small")

    def __init__(self, op: Op) -> None:
        self._op = op
        self._small: set[tuple[tuple[int, ...] | bytes, ...]] = set()

    def admit(self, inputs: Sequence[Array]) -> None:
        """Return if the operation's result may be allocated.

        Raises:
            DeviceMemoryError: it is more than the network may use.
        """
        key: tuple[tuple[int, ...] | bytes, ...] = ()
        for array in inputs:
            is_short = array.size <= SHORT_ELEMENTS and not array.dtype.hasobject
            key += (array.shape, array.tobytes() if is_short else b"")
        if key in self._small:
            return
        described = [
            desc if array.size <= SHORT_ELEMENTS else desc.without_value()
            for array in inputs
            for desc in (desc_of(array),)
        ]
        most = _most_bytes(self._infer(described))
        if most is not None and most <= SMALL_BYTES:
            if len(self._small) >= KEPT:
                self._small.clear()
            self._small.add(key)
            return
        descs = self._infer([desc_of(array) for array in inputs])
        size = sum(desc.span_bytes or 0 for desc in descs if desc.is_static)
        current_bounds().admit(size, self._op.type)

    def _infer(self, described: list[TensorDesc]) -> list[TensorDesc]:
        """Describe the results; none of them where something is wrong: computing it says so."""
        try:
            return self._op.infer(described)
        except PolydeviceError:
            return []


def _most_bytes(descs: list[TensorDesc]) -> int | None:
    """What results take at most; None where that is not known."""
    total = 0
    for desc in descs:
        sizes = [] if desc.shape is None else [bounds(size)[1] for size in desc.shape]
        if desc.kind != "tensor" or desc.shape is None or None in sizes:
            return None
        elements = math.prod(size for size in sizes if size is not None)
        total += elements * desc.element_type.dtype.itemsize
    return total if descs else None


def counted(op: Op, result: Array | np.generic | list[Array] | None) -> Any:
    """Return what an operation computed as an array, counted as the network's until it is gone.

    NumPy makes scalars of what has no axes. A view is not counted: what it looks at is.

    Raises:
        DeviceMemoryError: it is more than the network may use.
    """
    if isinstance(result, np.generic):
        return np.asarray(result)
    if not isinstance(result, np.ndarray):  # a sequence, or nothing
        return result
    if result.nbytes >= COUNTED_BYTES and result.base is None:
        memory = current_bounds().memory
        if memory is not None:
            memory.hold(result, result.nbytes, op.type)
    return result
