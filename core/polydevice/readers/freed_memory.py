"""Giving memory that was freed back to the system."""

from __future__ import annotations

import ctypes
import sys
from functools import lru_cache
from typing import Any


def give_back() -> None:
    """Let the system have what reading a file has freed again; takes less than 0.1 ms.

    glibc keeps it: of an ONNX file of 24 MB 23 MB stayed besides its constants.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@lru_cache(maxsize=1)
def _trim() -> Any:
    """glibc's `malloc_trim`; None with another C library."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
