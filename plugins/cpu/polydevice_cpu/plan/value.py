"""Value and Storage: where a plan keeps a tensor, and in which layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from polydevice.dtype import Array
from polydevice.locks import Lock
from polydevice.shape import happen_to_be_equal
from polydevice.symbolic_size import number_of
from polydevice_cpu.onednn.constants import MAX_RANK
from polydevice_cpu.onednn.descriptor import DATA_TYPES, Descriptor, meaningful_strides, row_major
from polydevice_cpu.onednn.engine import MemoryObject, address_of
from polydevice_cpu.onednn.library import library


class Kind(Enum):
    """Who provides the bytes of a storage."""

    ARENA = "arena"
    """The request's arena; shared by values that do not live at the same time."""
    KEPT = "kept"
    """The request, for what depends on sizes alone: the first inference with a plan computes it."""
    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "constant"
    OBJECTS = "objects"
    """An input or constant array of Python objects (strings); it has no bytes to look at."""


class Storage:
    """A run of bytes that values lie in.

    Attributes:
        index: which input or output of the network, for these kinds.
        array: the data, for constants.
        first, last: numbers of the first and last step that touch it; -1 before any does.
        offset_bytes: place in the arena, once the plan has given it one.
    """

    __slots__ = (
        "_address",
        "_shared",
        "array",
        "first",
        "index",
        "kind",
        "last",
        "offset_bytes",
        "size_bytes",
    )

    def __init__(
        self, kind: Kind, size_bytes: int, *, index: int = 0, array: Array | None = None
    ) -> None:
        self.kind = kind
        self.size_bytes = size_bytes
        self.index = index
        self.array = array
        self.first = self.last = -1
        self.offset_bytes = 0
        self._address = 0
        self._shared: Storage | None = None

    @property
    def address(self) -> int:
        """Where a constant's data lies, which stays; to ask NumPy takes 1 us, and first 20."""
        if not self._address:
            assert self.array is not None
            self._address = address_of(self.array)
        return self._address

    @property
    def data(self) -> Array:
        """The bytes of a constant; or itself where it has objects."""
        array = self.array
        assert array is not None
        return array if array.dtype.hasobject else array.reshape(-1).view(np.uint8)

    @property
    def root(self) -> Storage:
        """The storage whose bytes these are: itself, or the one it shares."""
        return self if self._shared is None else self._shared.root

    @property
    def is_shared(self) -> bool:
        """Whether it lies in the bytes of another one."""
        return self._shared is not None

    @property
    def shared(self) -> Storage | None:
        """The storage in whose bytes it lies, if not in its own."""
        return self._shared

    def share(self, other: Storage) -> None:
        """Lie in the bytes of another storage of the same size from now on."""
        self._shared = other

    def touch(self, step: int) -> None:
        """Note that step number `step` reads or writes here."""
        self.first = step if self.first < 0 else min(self.first, step)
        self.last = max(self.last, step)


_MAKING = Lock()


class Value:
    """A tensor in a storage: plain (with strides) or in a layout that only oneDNN knows.

    Attributes:
        strides: in elements; None for a blocked layout, which then has a `descriptor`.
    """

    __slots__ = (
        "_copies",
        "_descriptor",
        "_memory",
        "dtype",
        "offset_bytes",
        "shape",
        "storage",
        "strides",
    )

    def __init__(
        self,
        storage: Storage,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None,
        *,
        offset_bytes: int = 0,
        descriptor: Descriptor | None = None,
    ) -> None:
        self.storage = storage
        self.shape = shape
        self.dtype = dtype
        self.strides = strides
        self.offset_bytes = offset_bytes
        self._descriptor = descriptor
        self._memory: MemoryObject | None = None
        self._copies: list[Value] | None = None

    @property
    def copies(self) -> list[Value]:
        """The same tensor in all layouts that it is in; one list shared by all of them."""
        if self._copies is None:  # few have any, and the list is a circle
            self._copies = [self]
        return self._copies

    @copies.setter
    def copies(self, copies: list[Value]) -> None:
        self._copies = copies

    @property
    def is_dense(self) -> bool:
        """Whether the layout is row-major without gaps."""
        return self.strides is not None and all(
            happen_to_be_equal(stride, want) or happen_to_be_equal(size, 1)
            for size, stride, want in zip(
                self.shape, self.strides, row_major(self.shape), strict=True
            )
        )

    @property
    def has_no_gaps(self) -> bool:
        """Whether the elements fill a run of memory, in any order of dimensions."""
        if self.strides is None:
            return False
        steps = zip(self.shape, self.strides, strict=True)
        return happen_to_be_equal(sum((n - 1) * s for n, s in steps) + 1, self.elements)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def in_reach(self) -> bool:
        """Whether oneDNN is there and can read it: known type, some elements, ranks 1 to 12."""
        return (
            library() is not None
            and self.dtype in DATA_TYPES
            and 0 < len(self.shape) <= MAX_RANK
            and self.elements > 0
            and (self.strides is None or not _overlaps(self.shape, self.strides))
        )

    @property
    def own_descriptor(self) -> Descriptor | None:
        """The layout for oneDNN, if it is there; where there are strides, they tell it."""
        return self._descriptor

    @property
    def descriptor(self) -> Descriptor:
        """The layout for oneDNN; only where `in_reach`."""
        if self._descriptor is None:
            assert self.strides is not None
            self._descriptor = Descriptor.strided(self.shape, self.strides, DATA_TYPES[self.dtype])
        return self._descriptor

    @property
    def constant_memory(self) -> MemoryObject:
        """The memory object of a constant, which plans and requests share; only where `in_reach`.

        It neither moves nor changes, and stays as long as the value: requests have its handle.
        """
        if self._memory is None:
            assert self.storage.array is not None
            address = address_of(self.storage.array) + self.offset_bytes
            made = MemoryObject(self.descriptor, address)
            with _MAKING:  # another thread may have been here, whose request has that one's handle
                return self._keep(made)
        return self._memory

    def _keep(self, made: MemoryObject) -> MemoryObject:
        if self._memory is None:
            self._memory = made
        return self._memory

    def allocate(self) -> Array:
        """Return new memory for a value of this shape and type, not initialised."""
        return np.empty(self.shape, self.dtype)

    def view(
        self, shape: tuple[int, ...], strides: tuple[int, ...], *, skip_bytes: int = 0
    ) -> Value:
        """Return another look at the same bytes."""
        return Value(
            self.storage,
            shape,
            self.dtype,
            meaningful_strides(shape, strides),
            offset_bytes=self.offset_bytes + skip_bytes,
        )

    def turned(self) -> Value:
        """Return another look at the same bytes, the last two axes exchanged.

        Only where `in_reach`.
        """
        return self.seen_as(self.descriptor.turned())

    def in_memory_order(self) -> tuple[Value, list[int]]:
        """Return the same bytes row-major, and which axis each of its axes is.

        Itself, and its own axes, where it has blocks or gaps.
        """
        places, strides = list(range(len(self.shape))), self.strides
        if strides is None or self.is_dense or not self.has_no_gaps:
            return self, places
        places.sort(key=lambda axis: -strides[axis])
        shape = tuple(self.shape[axis] for axis in places)
        return self.view(shape, row_major(shape)), places

    def from_memory_order(self, places: Sequence[int]) -> Value:
        """Return a row-major value with its axes where `in_memory_order` took them from."""
        if list(places) == sorted(places):
            return self
        steps, back = row_major(self.shape), [places.index(axis) for axis in range(len(places))]
        return self.view(tuple(self.shape[n] for n in back), tuple(steps[n] for n in back))

    def seen_as(self, descriptor: Descriptor) -> Value:
        """Return another look at the same bytes."""
        return Value(
            self.storage,
            descriptor.shape,
            self.dtype,
            descriptor.strides,
            offset_bytes=self.offset_bytes,
            descriptor=descriptor,
        )

    def array(self, data: Array) -> Array:
        """Return the NumPy view of this value; `data` holds the storage's bytes (uint8)."""
        assert self.strides is not None
        if 0 in self.shape:  # a part of nothing may begin behind its end
            return np.empty(self.shape, self.dtype)
        item = self.dtype.itemsize
        strides = [s * item for s in self.strides]
        array: Array = np.ndarray(self.shape, self.dtype, data, self.offset_bytes, strides)
        return array

    def __repr__(self) -> str:
        layout = "dense" if self.is_dense else self.strides or "blocked"
        return f"Value({self.storage.kind.value}, {self.dtype}{list(self.shape)}, {layout})"


class UnpackedValue(Value):
    """A constant that is to be packed into a layout, once its formulas are numbers."""

    __slots__ = ()


class LaterValue(Value):
    """A constant that is packed into a layout where nothing reads it as it is; see `make`."""

    __slots__ = ("make",)
    make: Callable[[], Value]


def _overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether oneDNN refuses the strides: each must step over all that smaller ones reach.

    It counts a stride of 3 over 2 elements as 6 although the last one ends at 4.
    """
    reach = 1
    steps = sorted(zip(strides, shape, strict=True), key=lambda step: [*map(number_of, step)])
    for stride, size in steps:  # any order in which none is too short tells the same
        if not happen_to_be_equal(size, 1):
            if stride < reach:
                return True
            reach = stride * size
    return False
