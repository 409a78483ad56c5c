"""Packed weights: constants in the layouts that primitives want, made once and shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from polydevice.dtype import Array
from polydevice.locks import Lock
from polydevice.memory_budget import MemoryBudget, give_back_pages
from polydevice.symbolic_trace import settled
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import DATA_TYPES, Descriptor, meaningful_strides
from polydevice_cpu.onednn.engine import ALIGNMENT_BYTES, MemoryObject, address_of, aligned
from polydevice_cpu.onednn.primitive import run_once
from polydevice_cpu.onednn.primitives import reorder
from polydevice_cpu.plan.value import Kind, Storage, Value

SMALL_BYTES = 1 << 22
"""Weights up to this size are packed by one thread."""

SHELF_BYTES = 16 << 20
"""How much memory is taken at once for packed weights, in pages of 2 MiB where Linux has them."""

PAGE_BYTES = 2 << 20

PLAIN_BYTES = 1 << 20
"""What is packed before that: a small network does not take a large page."""

_Identity = tuple[int, tuple[int, ...], tuple[int, ...], np.dtype[Any]]


class _Shelf:
    """Memory for packed weights, one behind the other.

    NumPy asks for large pages for arrays of 4 MiB or more, and most weights are smaller. A
    product of few rows reads all of its weights once: with pages of 4 KiB a MiniLM of 18 tokens
    took 1.06 to 1.15 times as long, convolutional networks 1.01 to 1.03.
    """

    def __init__(self) -> None:
        self._taken = 0
        self._left = np.empty(0, np.uint8)

    def place(self, size_bytes: int) -> Array:
        """Return uninitialised bytes that start at a cache line."""
        self._taken += size_bytes
        if self._taken <= PLAIN_BYTES or size_bytes > SHELF_BYTES // 4:
            return aligned(size_bytes)
        whole = -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if self._left.size < whole:
            raw = np.empty(SHELF_BYTES + PAGE_BYTES, np.uint8)  # untouched, it takes no memory
            start = -address_of(raw) % PAGE_BYTES
            self._left = raw[start : start + SHELF_BYTES]
        place, self._left = self._left[:size_bytes], self._left[whole:]
        return place

    def give_back(self) -> None:
        """Let the system have what is left of the large page that was begun, 1 MB as a rule."""
        start = address_of(self._left)
        give_back_pages(start, min(-start % PAGE_BYTES, self._left.size))


class WeightStore:
    """All packed weights of one executable network; every plan and request shares them."""

    def __init__(self, memory: MemoryBudget) -> None:
        """Begin without weights.

        Args:
            memory: of the network; what is packed counts.
        """
        self._memory = memory
        self._lock = Lock()
        self._shelf = _Shelf()
        self._derived: dict[tuple[_Identity, str], tuple[Array, Array]] = {}
        self._packed: dict[_Identity, tuple[Array, list[Value]]] = {}
        self._made: dict[tuple[_Identity, str], tuple[Array, list[Value]]] = {}
        self._plans: list[Value] = []
        self._elsewhere: WeakValueDictionary[int, Array] = WeakValueDictionary()

    def note(self, array: Array) -> None:
        """Count what is packed elsewhere for this network, as long as somebody has it."""
        with self._lock:
            if self._elsewhere.get(address_of(array)) is not array:
                self._memory.hold_arrays(self, [array], "a packed constant")
                self._elsewhere[address_of(array)] = array

    def packed(self, array: Array, descriptor: Descriptor) -> Value:
        """Return `array` in the layout and type of `descriptor`, one value for all plans.

        The array is recognised by address, sizes and strides; it must not change.
        """
        with self._lock:
            _, versions = self._packed.setdefault(_identity(array), (array, []))
            return self._version(versions, descriptor, lambda: array)

    def in_layout(self, array: Array, descriptor: Descriptor) -> Value:
        """Return `array` in the layout of `descriptor`: one value where its memory is kept anyway.

        What a plan has computed for itself is packed anew.
        """
        if _identity(array) in self._packed:
            return self.packed(array, descriptor)
        return constant_value(pack(array, descriptor), descriptor)

    def packed_from(
        self, array: Array, name: str, make: Callable[[Array], Array], descriptor: Descriptor
    ) -> Value:
        """Return ``make(array)`` packed; what was made is kept in no other form."""
        key = _identity(array), settled(name)
        with self._lock:
            _, versions = self._made.setdefault(key, (array, []))
            return self._version(versions, descriptor, lambda: make(array))

    def _version(
        self, versions: list[Value], descriptor: Descriptor, plain: Callable[[], Array]
    ) -> Value:
        for known in versions:
            if known.descriptor == descriptor:
                return known
        data = None
        if self._plans:
            data = pack(plain(), descriptor)
            if (there := self._in_a_plan(data, descriptor)) is not None:
                versions.append(there)
                return there
        self._memory.hold(self, descriptor.size_bytes, "a packed constant")
        if data is None:
            data = pack(plain(), descriptor, self._shelf.place)
        made = constant_value(data, descriptor)
        versions.append(made)
        return made

    def _in_a_plan(self, data: Array, descriptor: Descriptor) -> Value | None:
        """Return what a plan has of the same bytes: its source was let go, and made again."""
        for known in self._plans:
            packed = known.storage.array
            if known.descriptor == descriptor and packed is not None and (packed == data).all():
                return known
        return None

    def derived(self, array: Array, name: str, make: Callable[[Array], Array]) -> Array:
        """Return ``make(array)``, made once per array and name.

        Sizes that the name says are numbers from then on, where they were formulas.
        """
        key = _identity(array), settled(name)
        with self._lock:
            if key not in self._derived:
                self._derived[key] = (array, make(array))
            return self._derived[key][1]

    def give_back(self) -> None:
        """Let the system have memory that was taken, and is not needed for now."""
        with self._lock:
            self._shelf.give_back()

    def forget_sources(self) -> None:
        """Let go of what was packed; what a later plan packs anew is that of the first if equal."""
        with self._lock:
            self._plans = self._values()
            self._derived.clear()
            self._packed.clear()
            self._made.clear()

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._plans.clear()
            self._derived.clear()
            self._packed.clear()
            self._made.clear()
            self._shelf = _Shelf()

    @property
    def size_bytes(self) -> int:
        """Bytes of all packed weights together."""
        with self._lock:
            elsewhere = sum(array.nbytes for array in self._elsewhere.values())
            return elsewhere + sum(value.storage.size_bytes for value in self._values())

    def _values(self) -> list[Value]:
        """All that is packed, each once."""
        kept = (*self._packed.values(), *self._made.values())
        values = [*self._plans, *(value for _, versions in kept for value in versions)]
        return list({id(value): value for value in values}.values())


def constant_value(data: Array, descriptor: Descriptor) -> Value:
    """Return the value of which these are the bytes."""
    storage = Storage(Kind.CONSTANT, data.nbytes, array=data)
    shape, strides = descriptor.shape, descriptor.strides
    return Value(storage, shape, descriptor.dtype, strides, descriptor=descriptor)


def _identity(array: Array) -> _Identity:
    return (address_of(array), array.shape, array.strides, array.dtype)


def pack(array: Array, descriptor: Descriptor, place: Callable[[int], Array] = aligned) -> Array:
    """Return the bytes of `array`, which may be a transposed view, in another layout."""
    if any(step <= 0 and size > 1 for size, step in zip(array.shape, array.strides, strict=True)):
        array = np.ascontiguousarray(array)  # one number broadcast to many, or turned round
    strides = meaningful_strides(array.shape, [s // array.itemsize for s in array.strides])
    given = Descriptor.strided(array.shape, strides, DATA_TYPES[array.dtype])
    if array.size == 1 and descriptor.size_bytes == array.nbytes and given == descriptor:
        data = place(array.nbytes)  # a scale or a zero point, of which there are hundreds
        data[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return data
    # On a busy machine, waiting for a second thread takes 100 times longer than a small reorder.
    count = openmp.thread_count() if descriptor.size_bytes > SMALL_BYTES else 1
    with openmp.threads(count):
        move = reorder(given, descriptor, Attributes())
    if move is None and not array.flags.c_contiguous:  # weights of an LSTM, with SSE4.1 alone
        return pack(np.ascontiguousarray(array), descriptor, place)
    assert move is not None, f"oneDNN cannot reorder {given} to {descriptor}"
    data = place(max(descriptor.size_bytes, 1))
    arguments: dict[int, MemoryObject] = {
        Arg.SRC: MemoryObject(given, array.ctypes.data),
        Arg.DST: MemoryObject(descriptor, data.ctypes.data),
    }
    with openmp.threads(count):
        run_once(move, arguments)
    return data
