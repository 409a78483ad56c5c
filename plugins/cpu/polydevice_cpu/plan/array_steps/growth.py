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
from polydevice.errors import DeviceMemoryError, PolydeviceError
from polydevice.ops.concat import Concat
from polydevice.ops.containers import SequenceConstruct
from polydevice.ops.control_flow import If, Iteration
from polydevice.ops.gather import Gather, GatherElements, GatherND
from polydevice.ops.nms import NonMaxSuppression
from polydevice.ops.op import Op
from polydevice.ops.pointwise import BinaryPointwise
from polydevice.ops.reduce import Reduction
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.reverse import ReverseSequence
from polydevice.ops.scatter import ScatterElementsUpdate, ScatterNDUpdate, ScatterUpdate
from polydevice.ops.search import Unique
from polydevice.ops.select import Select
from polydevice.ops.slice import Slice, StridedSlice
from polydevice.ops.split import Split, VariadicSplit
from polydevice.ops.topk import TopK
from polydevice.ops.transpose import Transpose
from polydevice.shape import bounds
from polydevice.tensor import TensorDesc, desc_of

SMALL_ELEMENTS = 1 << 23
"""Results of other operations have at most the product of their inputs' elements, mostly far fewer;
up to this product, or what else is known of them, nothing is asked, since describing a node takes
20 to 80 µs."""

JOINING = Concat, SequenceConstruct
"""Operations whose results have the sum of their inputs' elements, not the product."""

NO_LARGER: tuple[type[Op], ...] = (
    *(GatherElements, Reduction, Reshape, ReverseSequence, ScatterElementsUpdate),
    *(ScatterNDUpdate, ScatterUpdate, Slice, Split, Squeeze, StridedSlice, TopK, Transpose),
    *(Unique, Unsqueeze, VariadicSplit),
)
"""Operations of which each result has no more elements than the largest input."""

SHORT_ELEMENTS = 16
"""Inputs up to this length may say how large a result is: limits of a range, a shape, repeats."""

SMALL_BYTES = 1 << 18
"""Results known to take no more are not looked at again."""

KEPT = 1024
"""How many lists of sizes an operation is remembered to take."""

Sizes = tuple[tuple[int, ...], ...]
"""Of several arrays."""

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
    # What is empty may become as much as its other axes say, as a sum of no rows does.
    sizes = [
        array.size or math.prod(filter(None, array.shape))
        for array in inputs
        if not array.dtype.hasobject
    ]
    if math.prod(sizes) <= SMALL_ELEMENTS:
        return True
    return _most_elements(op, inputs, sizes) <= SMALL_ELEMENTS


def _most_elements(op: Op, inputs: Sequence[Array], sizes: Sequence[int]) -> int:
    """How many elements a result has at most, whatever the inputs' values are."""
    if isinstance(op, JOINING):
        return sum(sizes)
    if isinstance(op, NO_LARGER):
        return max(sizes)
    if isinstance(op, NonMaxSuppression):  # image, class and box
        return 3 * int(inputs[1].size)
    if isinstance(op, (BinaryPointwise, Select)):
        rank = max(array.ndim for array in inputs)
        shapes = [(1,) * (rank - array.ndim) + array.shape for array in inputs]
        return math.prod(map(max, zip(*shapes, strict=True)))
    if isinstance(op, Gather) and inputs[0].ndim:
        shortest: int = max(min(inputs[0].shape), 1)
        return inputs[1].size * (inputs[0].size // shortest)
    if isinstance(op, GatherND) and inputs[1].shape[-1]:
        coordinates: int = inputs[1].shape[-1]
        each = math.prod(inputs[0].shape[op.batch_dims + coordinates :])
        return inputs[1].size // coordinates * each
    return math.prod(sizes)


def short_ones(inputs: Sequence[Array], numbers: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers, of these, of inputs that may say how large a result is."""
    return tuple(
        number
        for number in numbers
        if inputs[number].size <= SHORT_ELEMENTS and not inputs[number].dtype.hasobject
    )


class Growth:
    """What an operation makes of arrays that do not bound it by their sizes.

    To infer takes 20 to 80 µs, so what was found is kept: by the sizes of all inputs and the values
    of short ones, where these alone decide.
    """

    __slots__ = ("_most", "_op")

    def __init__(self, op: Op) -> None:
        self._op = op
        self._most: dict[tuple[Sizes | bytes, ...], int | None] = {}

    def admit(self, inputs: Sequence[Array], sizes: Sizes, short: Sequence[int]) -> None:
        """Return if the operation's result may be allocated.

        Args:
            inputs: of the operation.
            sizes: of those that are no constants.
            short: see `short_ones`, of the same.

        Raises:
            DeviceMemoryError: it is more than the network may use.
        """
        key: tuple[Sizes | bytes, ...] = (sizes, *[inputs[number].tobytes() for number in short])
        most = self._most.get(key, -1)
        if most == -1:
            if len(self._most) >= KEPT:
                self._most.clear()
            self._most[key] = most = self._found(inputs)
        if most is not None and (most <= SMALL_BYTES or _fits(most)):
            return
        descs = self._infer([desc_of(array) for array in inputs])
        size = sum(desc.span_bytes or 0 for desc in descs if desc.is_static)
        current_bounds().admit(size, self._op.type)

    def _found(self, inputs: Sequence[Array]) -> int | None:
        """What a result takes at most, by the values of short inputs; None where nobody knows."""
        described = [
            desc if array.size <= SHORT_ELEMENTS else desc.without_value()
            for array in inputs
            for desc in (desc_of(array),)
        ]
        return _most_bytes(self._infer(described))

    def _infer(self, described: list[TensorDesc]) -> list[TensorDesc]:
        """Describe the results; none of them where something is wrong: computing it says so."""
        try:
            return self._op.infer(described)
        except PolydeviceError:
            return []


def _fits(size_bytes: int) -> bool:
    """Whether so much may be allocated."""
    try:
        current_bounds().admit(size_bytes, "")
    except DeviceMemoryError:
        return False
    return True


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
    if type(result) is np.ndarray and result.nbytes < COUNTED_BYTES:
        return result
    if isinstance(result, np.generic):
        return np.asarray(result)
    if not isinstance(result, np.ndarray):  # a sequence, or nothing
        return result
    if result.nbytes >= COUNTED_BYTES and result.base is None:
        memory = current_bounds().memory
        if memory is not None:
            memory.hold(result, result.nbytes, op.type)
    return result
