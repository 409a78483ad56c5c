"""Descriptor: element type, sizes and memory layout of a tensor, as oneDNN sees it."""

from __future__ import annotations

import ctypes as c
import math
from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeGuard

import ml_dtypes
import numpy as np

from polydevice.shape import all_happen_to_be_equal, happen_to_be_equal
from polydevice.symbolic_size import is_symbolic, largest, number_of
from polydevice.symbolic_trace import current_trace
from polydevice_cpu.onednn.constants import (
    FORMAT_KIND_BLOCKED,
    MAX_RANK,
    DataType,
    Query,
    Tag,
)
from polydevice_cpu.onednn.library import Library, library

OPAQUE = "opaque"
"""The layout of a descriptor that says nothing about the order, or leaves it to oneDNN."""
_LETTERS = "abcdefghijkl"
Dims = c.c_int64 * MAX_RANK
CHOICES = 3
"""How many earlier choices of oneDNN are kept; the same weights of a layer have one or two."""
KEPT = 8192
"""How many descriptors stay for who asks for the same again; each takes some 1.5 kB."""

DATA_TYPES: dict[np.dtype[Any], DataType] = {
    np.dtype(np.float32): DataType.F32,
    np.dtype(ml_dtypes.bfloat16): DataType.BF16,
    np.dtype(np.float16): DataType.F16,
    np.dtype(np.int32): DataType.S32,
    np.dtype(np.int8): DataType.S8,
    np.dtype(np.uint8): DataType.U8,
}
DTYPES = {data_type: dtype for dtype, data_type in DATA_TYPES.items()}


def required() -> Library:
    """Return the library; only called where a caller has made sure that there is one."""
    found = library()
    assert found is not None
    return found


@lru_cache(maxsize=KEPT)
def dims(values: tuple[int, ...]) -> c.Array[c.c_int64]:
    """Return the values as a oneDNN dims array, which must not be changed."""
    return Dims(*map(int, values))


class Descriptor:
    """A memory descriptor. Immutable; compare with ``==``.

    Make one with `any` (oneDNN chooses the layout), `dense` (row-major), `strided` (strides in
    elements) or `tagged`; who asks twice gets the same one.

    Attributes:
        key: equal for descriptors that oneDNN cannot tell apart; None where that is not known.
    """

    __slots__ = (
        "_choices",
        "_layout",
        "_library",
        "_plain_strides",
        "_stride_bytes",
        "data_type",
        "handle",
        "key",
        "shape",
        "size_bytes",
    )

    def __init__(
        self,
        handle: c.c_void_p,
        shape: tuple[int, ...],
        data_type: DataType,
        key: Hashable | None = None,
    ) -> None:
        self._library = required()
        self.key = key
        self.handle = handle
        self.shape = shape
        self.data_type = data_type
        self.size_bytes = self._library.value("memory_desc_get_size", handle)
        self._layout = ""
        self._choices: tuple[Descriptor, ...] | None = None
        self._stride_bytes: bytes | None = None
        self._plain_strides: tuple[int, ...] | bool | None = False

    @classmethod
    def any(cls, shape: Sequence[int], data_type: DataType = DataType.F32) -> Descriptor:
        """A tensor whose layout oneDNN chooses."""
        return cls.tagged(shape, Tag.ANY, data_type)

    @classmethod
    def tagged(
        cls, shape: Sequence[int], tag: Tag, data_type: DataType = DataType.F32
    ) -> Descriptor:
        """A tensor in a named layout."""
        sizes = tuple(shape)
        if current_trace() is not None and any(map(is_symbolic, sizes)):
            return SymbolicDescriptor(_tagged(numbers(sizes), tag, data_type), sizes, None, tag)
        return _tagged(sizes, tag, data_type)

    @classmethod
    def strided(
        cls, shape: Sequence[int], strides: Sequence[int], data_type: DataType = DataType.F32
    ) -> Descriptor:
        """A tensor with these strides, in elements."""
        sizes, steps = tuple(shape), tuple(strides)
        if current_trace() is not None and any(map(is_symbolic, (*sizes, *steps))):
            return SymbolicDescriptor(
                _strided(numbers(sizes), numbers(steps), data_type), sizes, steps
            )
        return _strided(sizes, steps, data_type)

    @classmethod
    def dense(cls, shape: Sequence[int], data_type: DataType = DataType.F32) -> Descriptor:
        """A row-major tensor without gaps."""
        sizes = tuple(shape)
        if current_trace() is not None and any(map(is_symbolic, sizes)):
            return cls.strided(sizes, row_major(sizes), data_type)
        return _dense(sizes, data_type)

    @classmethod
    def channels_last(cls, shape: Sequence[int], data_type: DataType = DataType.F32) -> Descriptor:
        """A tensor [N, C, spatial…] whose channels lie next to each other."""
        sizes = tuple(shape)
        if current_trace() is not None and any(map(is_symbolic, sizes)):
            return cls.strided(sizes, channels_last_strides(sizes), data_type)
        return _channels_last(sizes, data_type)

    @classmethod
    def clone(cls, address: int, key: Hashable | None = None) -> Descriptor:
        """A copy of the descriptor at an address that oneDNN owns."""
        lib = required()
        handle = lib.create("memory_desc_clone", address)
        rank, data_type, sizes = c.c_int(), c.c_int(), c.POINTER(c.c_int64)()
        lib.call("memory_desc_query", handle, Query.RANK, c.byref(rank))
        lib.call("memory_desc_query", handle, Query.DATA_TYPE, c.byref(data_type))
        lib.call("memory_desc_query", handle, Query.DIMS, c.byref(sizes))
        shape = tuple(sizes[k] for k in range(rank.value))
        return cls(handle, shape, DataType(data_type.value), key)

    def known_by_numbers(self) -> Descriptor:
        """The same descriptor, made of sizes and strides where they say all about it."""
        if self.strides is None or 0 in self.shape:
            return self
        plain = Descriptor.strided(self.shape, self.strides, self.data_type)
        return plain if plain == self else self

    def likely(self) -> tuple[Descriptor, ...]:
        """Layouts that oneDNN may have chosen where it was asked with this one: what it did before.

        Without any before, channels next to each other.
        """
        if self._choices is None:
            if self.layout != OPAQUE:
                return (self,)  # not kept: a circle would outlive whoever uses it
            if len(self.shape) > 2 and 0 not in self.shape:
                self._choices = (Descriptor.channels_last(self.shape, self.data_type),)
            else:
                self._choices = ()
        return self._choices

    def note_choice(self, choice: Descriptor) -> None:
        """Remember a layout that oneDNN chose; the last few are enough."""
        self._choices = (choice, *self.likely()[:CHOICES])

    def is_at(self, address: int) -> bool:
        """Whether the descriptor at an address that oneDNN owns is this one.

        Stricter than ``==``, which does not look at the strides of axes of size 1: code may be
        chosen by these.
        """
        if not self._library.value("memory_desc_equal", self.handle, address):
            return False
        if 1 not in self.shape:
            return True
        if self._stride_bytes is None:
            self._stride_bytes = self._read_stride_bytes(self.handle)
        return self._stride_bytes == self._read_stride_bytes(address) != b""

    def _read_stride_bytes(self, address: c.c_void_p | int) -> bytes:
        """The strides as oneDNN holds them; empty where the layout is none of strides."""
        found = c.c_void_p()
        status = self._library.value("memory_desc_query", address, Query.STRIDES, c.byref(found))
        return b"" if status or not found.value else c.string_at(found.value, 8 * len(self.shape))

    @property
    def strides(self) -> tuple[int, ...] | None:
        """Strides in elements when the layout is plain, None when it is blocked or padded."""
        if isinstance(self._plain_strides, bool):
            self._plain_strides = self._read_strides()
        return self._plain_strides

    def _read_strides(self) -> tuple[int, ...] | None:
        kind, blocks = c.c_int(), c.c_int()
        values, padded = c.POINTER(c.c_int64)(), c.POINTER(c.c_int64)()
        query = self._library.call
        query("memory_desc_query", self.handle, Query.FORMAT_KIND, c.byref(kind))
        if kind.value != FORMAT_KIND_BLOCKED:
            return None
        query("memory_desc_query", self.handle, Query.INNER_BLOCKS, c.byref(blocks))
        query("memory_desc_query", self.handle, Query.PADDED_DIMS, c.byref(padded))
        if blocks.value or any(padded[k] != n for k, n in enumerate(self.shape)):
            return None
        query("memory_desc_query", self.handle, Query.STRIDES, c.byref(values))
        return tuple(values[k] for k in range(len(self.shape)))

    @property
    def layout(self) -> str:
        """The order of dimensions in memory, in oneDNN's notation: ``acdb``, ``aBcd16b``.

        Letters go from the outermost dimension to the innermost, upper case for one that is cut
        into blocks, which follow with their sizes; ``+`` at the end: there are gaps.
        """
        if not self._layout:
            strides = self._plain_strides
            if isinstance(strides, tuple):
                self._layout = self._described(strides, ())
            else:
                self._layout = self._read_layout()
        return self._layout

    def _read_layout(self) -> str:
        blocks = self._read_blocks()
        if blocks is None:
            return OPAQUE
        strides = c.POINTER(c.c_int64)()
        self._library.call("memory_desc_query", self.handle, Query.STRIDES, c.byref(strides))
        return self._described(tuple(strides[: len(self.shape)]), blocks)

    def _read_blocks(self) -> tuple[tuple[int, int], ...] | None:
        """(size, axis) of what axes are cut into, outermost first; None where nothing tells."""
        query, handle = self._library.call, self.handle
        kind, count = c.c_int(), c.c_int()
        query("memory_desc_query", handle, Query.FORMAT_KIND, c.byref(kind))
        if kind.value != FORMAT_KIND_BLOCKED:
            return None
        query("memory_desc_query", handle, Query.INNER_BLOCKS, c.byref(count))
        if not count.value:
            return ()
        sizes, axes = c.POINTER(c.c_int64)(), c.POINTER(c.c_int64)()
        query("memory_desc_query", handle, Query.INNER_BLOCK_SIZES, c.byref(sizes))
        query("memory_desc_query", handle, Query.INNER_BLOCK_DIMENSIONS, c.byref(axes))
        return tuple((sizes[k], axes[k]) for k in range(count.value))

    def _described(self, strides: tuple[int, ...], blocks: tuple[tuple[int, int], ...]) -> str:
        gaps = not blocks and self.size_bytes != math.prod(self.shape) * self.dtype.itemsize
        return _notation(strides, blocks) + "+" * gaps

    def turned(self) -> Descriptor:
        """The same bytes with the last two axes exchanged; turning twice gives the same layout.

        The stride of an axis of size 1, which means nothing, becomes the one that a row-major or
        channels-last tensor of these sizes has.
        """
        *lead, a, b = range(len(self.shape))
        order = [*lead, b, a]
        shape = tuple(self.shape[d] for d in order)
        if self.strides is None:
            handle = self._library.create(
                "memory_desc_permute_axes", self.handle, (c.c_int * len(order))(*order)
            )
            return Descriptor(handle, shape, self.data_type, self.key and ("turned", self.key))
        *strides, first, second = (self.strides[d] for d in order)
        if shape[-1] == 1:
            second = first
        elif shape[-2] == 1:
            first = second * shape[-1]
        return Descriptor.strided(shape, (*strides, first, second), self.data_type)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type of the elements."""
        return DTYPES[self.data_type]

    @property
    def is_dense(self) -> bool:
        """Whether the layout is row-major without gaps."""
        strides = self.strides
        return strides is not None and all(
            size == 1 or stride == want
            for size, stride, want in zip(self.shape, strides, row_major(self.shape), strict=True)
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SymbolicDescriptor):
            return other == self
        return self is other or (
            isinstance(other, Descriptor)
            and bool(self._library.value("memory_desc_equal", self.handle, other.handle))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        layout = self.strides or "blocked"
        return f"Descriptor({self.data_type.name}{list(self.shape)}, {layout})"

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._library.destroy("memory_desc_destroy", self.handle)


class SymbolicDescriptor(Descriptor):
    """A descriptor whose sizes are formulas, while a plan with formulas is made.

    Attributes:
        known: the descriptor for the numbers that the sizes have now.
        source: where a layout without strides comes from: a tag; the primitive that chose it and
            the place that was asked for; or another descriptor, of which it is `turned`.
    """

    __slots__ = ("known", "source")

    def __init__(
        self,
        known: Descriptor,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        source: Tag | tuple[object, Query, int] | SymbolicDescriptor | None = None,
    ) -> None:
        self.known = known
        self.source = source
        self.key = None
        self.handle = known.handle
        self.shape = shape
        self.data_type = known.data_type
        self._library = known._library
        self._layout = known._layout
        self._plain_strides = strides
        self._choices = None
        self._stride_bytes = None
        elements = self._padded() if strides is None else self._taken(strides)
        self.size_bytes = elements * known.dtype.itemsize
        if number_of(self.size_bytes) != known.size_bytes:  # of constants, besides their elements
            self.size_bytes = known.size_bytes

    def _padded(self) -> int:
        """How many elements there are with what fills the last blocks."""
        sizes, blocks = list(self.shape), self.known._read_blocks() or ()
        whole = [1] * len(sizes)
        for size, axis in blocks:
            whole[axis] *= size
        return math.prod(-(-n // block) * block for n, block in zip(sizes, whole, strict=True))

    def _taken(self, strides: tuple[int, ...]) -> int:
        """How many elements the strides reach over; without gaps by one formula in any order."""
        elements: int = math.prod(self.shape)
        reach: int = largest([n * step for n, step in zip(self.shape, strides, strict=True)])
        return elements if happen_to_be_equal(elements, reach) else reach

    @property
    def layout(self) -> str:
        """The order of dimensions in memory."""
        return self.known.layout

    def turned(self) -> Descriptor:
        """The same bytes with the last two axes exchanged."""
        if self.strides is not None:
            return super().turned()
        *lead, a, b = self.shape
        return SymbolicDescriptor(self.known.turned(), (*lead, b, a), None, self)

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Descriptor):
            return self is other
        is_alike = all_happen_to_be_equal(self.shape, other.shape)
        if self.data_type is not other.data_type or not is_alike:
            return False
        if self.strides is None or other.strides is None:
            return self.known == number_descriptor(other)
        return same_steps(self.shape, self.strides, other.strides)

    __hash__ = None

    def __del__(self) -> None:
        """Leave the handle to `known`."""


def number_descriptor(descriptor: Descriptor) -> Descriptor:
    """Return a descriptor with the numbers that its sizes have now."""
    return descriptor.known if isinstance(descriptor, SymbolicDescriptor) else descriptor


def numbers(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the numbers that sizes have now."""
    return tuple(map(number_of, sizes))


@lru_cache(maxsize=KEPT)
def _tagged(shape: tuple[int, ...], tag: Tag, data_type: DataType) -> Descriptor:
    handle = required().create(
        "memory_desc_create_with_tag", len(shape), dims(shape), data_type, tag
    )
    return Descriptor(handle, shape, data_type, (shape, "tag", tag, data_type))


@lru_cache(maxsize=KEPT)
def _strided(shape: tuple[int, ...], strides: tuple[int, ...], data_type: DataType) -> Descriptor:
    handle = required().create(
        "memory_desc_create_with_strides", len(shape), dims(shape), data_type, dims(strides)
    )
    made = Descriptor(handle, shape, data_type, (shape, strides, data_type))
    if 0 not in shape:
        made._plain_strides = strides
    return made


@lru_cache(maxsize=KEPT)
def _dense(shape: tuple[int, ...], data_type: DataType) -> Descriptor:
    made = Descriptor.strided(shape, row_major(shape), data_type)
    if 0 not in shape:
        made._layout = _LETTERS[: len(shape)]
    return made


@lru_cache(maxsize=KEPT)
def _channels_last(shape: tuple[int, ...], data_type: DataType) -> Descriptor:
    return Descriptor.strided(shape, channels_last_strides(shape), data_type)


def channels_last_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a tensor whose channels lie next to each other."""
    moved = row_major((shape[0], *shape[2:], shape[1]))
    return moved[0], moved[-1], *moved[1:-1]


@lru_cache(maxsize=4096)
def _notation(strides: tuple[int, ...], blocks: tuple[tuple[int, int], ...]) -> str:
    """Notation of an order of axes and blocks, outermost first."""
    cut = {axis for _, axis in blocks}
    order = sorted(range(len(strides)), key=lambda d: (-strides[d], d))
    text = "".join(_LETTERS[d].upper() if d in cut else _LETTERS[d] for d in order)
    return text + "".join(f"{size}{_LETTERS[axis]}" for size, axis in blocks)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in elements, of a row-major tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        if size:
            step *= size
    return tuple(reversed(strides))


def same_steps(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Whether two kinds of strides lead to the same places: those of sizes of 1 lead nowhere."""
    each = zip(shape, strides, others, strict=True)
    return all(
        happen_to_be_equal(step, other) or happen_to_be_equal(size, 1) for size, step, other in each
    )


def meaningful_strides(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return strides that oneDNN accepts: NumPy's for sizes of 1 may be anything, 0 too.

    By that of an only image oneDNN tells whether its channels lie next to each other, or its heads
    within each position; other strides than those of many images it has slower code for, or none.
    """
    result: list[int] = []
    inner = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        result.append(inner if happen_to_be_equal(size, 1) else stride)
        inner = result[-1] * size
    result.reverse()
    if shape and happen_to_be_equal(shape[0], 1):
        reach = (size * stride for size, stride in zip(shape[1:], result[1:], strict=True))
        result[0] = max(result[0], *reach) if len(shape) > 1 else result[0]
    return tuple(result)


def is_strided(layout: object) -> TypeGuard[Descriptor]:
    """Whether elements lie by strides, which nobody has to ask oneDNN for."""
    if not isinstance(layout, Descriptor) or layout.strides is None:
        return False
    return getattr(layout, "source", None) is None


def is_plain(layout: object) -> TypeGuard[Descriptor]:
    """Whether f32 lies by such strides."""
    return is_strided(layout) and layout.data_type is DataType.F32


def is_open(layout: object) -> TypeGuard[SymbolicDescriptor]:
    """Whether it is plain, by formulas of sizes."""
    return isinstance(layout, SymbolicDescriptor) and is_plain(layout)
