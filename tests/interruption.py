"""Ctrl-C at a chosen point of what polydevice does."""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any


class Interruption:
    """Raises KeyboardInterrupt as the n-th of some functions begins, ends or returns.

    Python raises it behind calls: as a function of Python's begins, and behind one of C, which a
    profiler sees.
    """

    def __init__(self, number: int, watched: str, events: tuple[str, ...], below: int = 0) -> None:
        """Interrupt at the n-th of these events in some functions.

        Args:
            number: from 1.
            watched: expression that is looked for in "file.py:function".
            events: of ``sys.setprofile``.
            below: how many calls further down, in any function, count too.
        """
        self.left = number
        self._watched, self._events, self._below = re.compile(watched), events, below

    def __enter__(self) -> None:
        self._before = sys.getprofile()
        sys.setprofile(self._see)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(self._before)

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event in self._events and self._is_watched(frame):
            self.left -= 1
            if not self.left:
                sys.setprofile(None)
                raise KeyboardInterrupt

    def _is_watched(self, frame: FrameType | None) -> bool:
        for _ in range(self._below + 1):
            if frame is None:
                return False
            code = frame.f_code
            name = code.co_filename.replace("\\", "/")
            if self._watched.search(f"{name}:{code.co_name}"):
                return True
            frame = frame.f_back
        return False
