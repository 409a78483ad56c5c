"""Turn: launches whose groups wait for each other never run two at a time on a device."""

from __future__ import annotations

from collections.abc import Callable

from polydevice.locks import Lock, RLock
from polydevice_gpu import cl


class Turn:
    """Which queue of a device had the last such launch.

    Attributes:
        lock: held while one is enqueued; before `Device.enqueuing`, by whoever holds both.
    """

    def __init__(self) -> None:
        self.lock = RLock()
        self._queue: cl.Queue | None = None

    def enqueue(self, queue: cl.Queue, launch: Callable[[cl.Queue], None]) -> None:
        """Enqueue one, behind the last one, whatever queue that is on."""
        with self.lock:
            last, self._queue = self._queue, queue
            if last is not None and last.pointer != queue.pointer:
                last.mark().wait()  # on the host, as its queue may be of another context
            launch(queue)


def turn_of(device: cl.Device) -> Turn:
    """Return the turn of a device, one for all contexts in this process."""
    with _LOCK:
        key = device.handle.int_ptr
        if key not in _TURNS:
            _TURNS[key] = Turn()
        return _TURNS[key]


_LOCK = Lock()
_TURNS: dict[int, Turn] = {}
