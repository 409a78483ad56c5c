"""WeightStore: the constants of networks in device memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from collections.abc import Set as AbstractSet
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.locks import Lock
from polydevice.memory_budget import MemoryBudget
from polydevice.processor.halves import as_halves
from polydevice.processor.strips import row_major
from polydevice_gpu import cl
from polydevice_gpu.kernels.launch import Weights

_SAMPLE = 64
"""Elements at either end by which constants that might be equal are found."""


@dataclass(eq=False)
class _Upload:
    """A constant and the device memory that holds it in some form.

    The array is kept to compare others with it.
    """

    constant: Array
    buffer: cl.Buffer


class _Pool:
    """The uploads of all networks on one device, so that equal constants are uploaded once.

    It keeps none of them alive; a constant goes with the last network that uses it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._uploads: WeakValueDictionary[Hashable, _Upload] = WeakValueDictionary()
        self._turns: WeakValueDictionary[Hashable, _Turn] = WeakValueDictionary()

    def get(self, constant: Array, key: Hashable, upload: Callable[[], cl.Buffer]) -> _Upload:
        """Return what an equal constant was uploaded to; who finds none of it uploads."""
        with self._lock:
            turn = self._turns.setdefault(key, _Turn())
        with turn.lock:
            with self._lock:
                found = self._uploads.get(key)
            if found is not None and _are_equal(found.constant, constant):
                return found
            made = _Upload(constant, upload())
            with self._lock:
                self._uploads[key] = made
            return made


class _Turn:
    """Lets those that may be equal be uploaded one after the other."""

    def __init__(self) -> None:
        self.lock = Lock()


class _Stored:
    """A constant of a store, kept so that its id stays its own, and what it was uploaded to.

    Who uploads holds the lock, which Ctrl-C releases; a future's condition could stay locked.
    """

    def __init__(self, constant: Array) -> None:
        self.lock = Lock()
        self.constant = constant
        self.upload: _Upload | None = None


def _key(constant: Array, form: str, storage: ElementType) -> Hashable:
    """Return by what constants are found that might be equal to one."""
    ends = (constant.flat[:_SAMPLE].tobytes(), constant.flat[-_SAMPLE:].tobytes())
    # What somebody may change in place no longer is what was uploaded.
    digest = _digest(constant) if may_change(constant) else b""
    return (form, storage, constant.shape, constant.dtype.str, ends, digest)


def may_change(constant: Array) -> bool:
    """Whether an array, or one that it is a view of, can be written; a reader's cannot."""
    array: object = constant
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    return False


def _digest(constant: Array) -> bytes:
    content = np.ascontiguousarray(constant).reshape(-1).view(np.uint8)
    return hashlib.blake2b(content.data, digest_size=16).digest()


def _are_equal(one: Array, other: Array) -> bool:
    """Whether constants of equal shape and type are equal bit by bit (0 and -0 are not)."""
    if one is other:
        return True
    if not (one.flags.c_contiguous and other.flags.c_contiguous):
        return False
    return np.array_equal(one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8))


_POOLS: WeakKeyDictionary[cl.Device, _Pool] = WeakKeyDictionary()
_POOLS_LOCK = Lock()


def _pool_of(device: cl.Device) -> _Pool:
    with _POOLS_LOCK:
        return _POOLS.setdefault(device, _Pool())


class WeightStore:
    """Constants in device memory, in the form that kernels want; each uploaded once.

    Usable from many threads, which upload at the same time.

    One store is shared by the plans, streams and requests of an executable network. It holds the
    network's own constants; those that compiling made for one set of shapes (tables of an
    interpolation, say) lie in a store of the plan (`for_plan`), and go with it. What another
    network on the device uploaded already, the same one with other options say, is used too.
    """

    def __init__(
        self,
        device: cl.Device,
        behind: WeightStore | None = None,
        shared: AbstractSet[int] = frozenset(),
        memory: MemoryBudget | None = None,
    ) -> None:
        """Begin without constants.

        Args:
            device: where they go.
            behind: store of the network, for that of a plan.
            shared: ids of the constants that are taken from it.
            memory: of the network, against which they count; None to count nothing.
        """
        self._device = device
        self._memory = memory
        self._behind, self._shared = behind, shared
        self._lock = Lock()
        self._stored: dict[tuple[int, str, ElementType], _Stored] = {}
        # What counts already: plans of other shapes make equal constants, which are uploaded once.
        self._counted: WeakSet[_Upload] = WeakSet() if behind is None else behind._counted

    def buffer(self, constant: Array, storage: ElementType, form: Weights | None) -> cl.Buffer:
        """Return the buffer that holds a constant in a form (None: as it is)."""
        if self._behind is not None and id(constant) in self._shared:
            return self._behind.buffer(constant, storage, form)
        key = (id(constant), form.form if form else "", storage)
        with self._lock:
            stored = self._stored.setdefault(key, _Stored(constant))
        with stored.lock:
            if stored.upload is None:
                upload = self._uploaded(np.asarray(constant), storage, form)
                with self._lock:
                    self._count(upload)
                stored.upload = upload
            return stored.upload.buffer

    def _count(self, upload: _Upload) -> None:
        """Count an upload against the network's memory, once for all its plans."""
        if self._memory is None or upload in self._counted:
            return
        self._memory.hold(upload, upload.buffer.size_bytes, "a constant on the device")
        self._counted.add(upload)

    def for_plan(self, shared: AbstractSet[int]) -> WeightStore:
        """Return a store for one plan that takes the constants of these ids from this one."""
        return WeightStore(self._device, self, shared, self._memory)

    def _uploaded(self, constant: Array, storage: ElementType, form: Weights | None) -> _Upload:
        def upload() -> cl.Buffer:
            array, is_half = constant, storage is ElementType.f16
            if form is not None:
                array = form.make(as_halves(array) if is_half and form.only_moves else array)
            array = as_halves(array) if is_half else array.astype(storage.dtype, copy=False)
            array = row_major(array)
            buffer = self._device.memory.allocate(max(array.nbytes, 1), "weights")
            if array.nbytes:
                with self._device.queue() as queue:  # ends here: others wait for no other queue
                    queue.upload(buffer, array)
            return buffer

        key = _key(constant, form.form if form else "", storage)
        return _pool_of(self._device).get(constant, key, upload)

    @property
    def own_bytes(self) -> int:
        """Bytes of the constants in this store."""
        with self._lock:
            uploads = [stored.upload for stored in self._stored.values()]
        buffers = {id(upload): upload.buffer for upload in uploads if upload is not None}
        return sum(buffer.size_bytes for buffer in buffers.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of all constants, the shared ones included."""
        return self.own_bytes + (0 if self._behind is None else self._behind.size_bytes)

    def clear(self) -> None:
        """Forget all buffers; they are released when nothing uses them any more."""
        with self._lock:
            self._stored.clear()
