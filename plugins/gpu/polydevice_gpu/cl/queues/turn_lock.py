"""TurnLock: who uses a queue; passed on in the order in which threads asked for it."""

from __future__ import annotations

import threading
from collections import deque

from typing_extensions import Self

from polydevice.bounds import current_bounds
from polydevice.locks import Lock


class TurnLock:
    """A lock whose holder can let those go first who wait for it, as a long loop does.

    Python's own locks are taken by whoever is quickest, which is the one that gave them back.

    Attributes:
        is_shared: whether anybody ever waited for it.
    """

    def __init__(self) -> None:
        self.is_shared = False
        self._mutex = Lock()
        self._owner: int | None = None
        self._waiting: deque[tuple[int, threading.Lock]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._waiting)

    def acquire(self) -> None:
        """Take it.

        Raises:
            InferCancelledError: (or InferTimeoutError) the inference ended while it waited.
        """
        try:
            mine = self._queue_up()
            if mine is not None:
                current_bounds().acquire(mine)
        except BaseException:
            self._leave()
            raise

    def take_back(self) -> None:
        """Take it again after `release`, whatever became of the inference: it has to clean up."""
        try:
            mine = self._queue_up()
            if mine is not None:
                mine.acquire()
        except BaseException:  # Ctrl-C
            self._leave()
            raise

    def _queue_up(self) -> threading.Lock | None:
        """Take it if it is free; else return a lock that `release` opens when it is our turn."""
        me = threading.get_ident()
        with self._mutex:
            if self._owner is None:
                self._owner = me
                return None
            self.is_shared = True
            mine = threading.Lock()
            mine.acquire()
            self._waiting.append((me, mine))
            return mine

    def _leave(self) -> None:
        """Wait no longer; our turn may have come at that moment."""
        me = threading.get_ident()
        with self._mutex:
            self._waiting = deque(each for each in self._waiting if each[0] != me)
        self.release()

    def release(self) -> None:
        """Pass it on; nothing where the thread does not hold it.

        Ctrl-C may raise as it begins: who catches KeyboardInterrupt around all that was done with
        the lock calls it once more.
        """
        with self._mutex:
            if self._owner != threading.get_ident():
                return
            self._owner = None
            if self._waiting:
                # No call before the last one, behind which Ctrl-C could raise.
                self._owner, turn = self._waiting[0]
                del self._waiting[0]
                turn.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
