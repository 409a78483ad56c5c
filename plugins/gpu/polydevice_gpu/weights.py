"""WeightStore: the constants of networks in device memory."""

from __future__ import annotations

import threading
from collections.abc import Set as AbstractSet

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice_gpu import cl
from polydevice_gpu.kernels.launch import Weights


class WeightStore:
    """Constants in device memory, in the form that kernels want; each uploaded once.

    One store is shared by the plans, streams and requests of an executable network. It holds the
    network's own constants; those that compiling made for one set of shapes (tables of an
    interpolation, say) lie in a store of the plan (`for_plan`), and go with it.
    """

    def __init__(
        self,
        device: cl.Device,
        behind: WeightStore | None = None,
        shared: AbstractSet[int] = frozenset(),
    ) -> None:
        self._device = device
        self._behind, self._shared = behind, shared
        self._lock = threading.Lock()
        self._buffers: dict[tuple[int, str, ElementType], tuple[cl.Buffer, Array]] = {}

    def buffer(self, constant: Array, storage: ElementType, form: Weights | None) -> cl.Buffer:
        """Return the buffer that holds a constant in a form (None: as it is)."""
        if self._behind is not None and id(constant) in self._shared:
            return self._behind.buffer(constant, storage, form)
        key = (id(constant), form.form if form else "", storage)
        with self._lock:
            if key not in self._buffers:
                self._buffers[key] = self._uploaded(constant, storage, form)
            return self._buffers[key][0]

    def for_plan(self, shared: AbstractSet[int]) -> WeightStore:
        """Return a store for one plan that takes the constants of these ids from this one."""
        return WeightStore(self._device, self, shared)

    def _uploaded(
        self, constant: Array, storage: ElementType, form: Weights | None
    ) -> tuple[cl.Buffer, Array]:
        array = np.asarray(constant) if form is None else form.make(np.asarray(constant))
        array = np.ascontiguousarray(array.astype(storage.dtype, copy=False))
        buffer = self._device.memory.allocate(max(array.nbytes, 1), "weights")
        if array.nbytes:
            with self._device.queue() as queue:
                queue.upload(buffer, array)
        # The array is kept so that its id stays its own.
        return buffer, constant

    @property
    def size_bytes(self) -> int:
        """Bytes of all constants, the shared ones included."""
        behind = 0 if self._behind is None else self._behind.size_bytes
        with self._lock:
            return behind + sum(buffer.size_bytes for buffer, _ in self._buffers.values())

    def clear(self) -> None:
        """Forget all buffers; they are released when nothing uses them any more."""
        with self._lock:
            self._buffers.clear()
