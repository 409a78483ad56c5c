"""A driver as strict as OpenCL 1.2 allows about transfers of no bytes; PoCL 6 is, PoCL 3.1 not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyopencl as ocl
import pytest

from polydevice_gpu.cl import library

_INVALID_VALUE = -30
_SIZE_ARGUMENT = {
    "clEnqueueReadBuffer": 4,
    "clEnqueueWriteBuffer": 4,
    "clEnqueueCopyBuffer": 5,
    "clEnqueueFillBuffer": 5,
}
_REGION_ARGUMENT = {"clEnqueueCopyBufferRect": 5, "clEnqueueCopyImageToBuffer": 4}


def refuse_empty_transfers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let transfers of no bytes fail; returns the names of the calls that failed so."""
    opened, refused = library.library(), []

    def wrap(name: str, is_empty) -> None:
        real = getattr(opened, name)

        def strict(*arguments: Any) -> Any:
            if is_empty(arguments):
                refused.append(name)
                return _INVALID_VALUE
            return real(*arguments)

        monkeypatch.setattr(opened, name, strict)

    for name, at in _SIZE_ARGUMENT.items():
        wrap(name, lambda arguments, at=at: not arguments[at])
    for name, at in _REGION_ARGUMENT.items():
        wrap(name, lambda arguments, at=at: not all(arguments[at]))
    real_copy = ocl.enqueue_copy

    def strict_copy(queue: Any, target: Any, source: Any, **places: Any) -> Any:
        arrays = [side for side in (target, source) if isinstance(side, np.ndarray)]
        if places.get("byte_count") == 0 or any(not array.nbytes for array in arrays):
            refused.append("pyopencl.enqueue_copy")
        return real_copy(queue, target, source, **places)

    monkeypatch.setattr(ocl, "enqueue_copy", strict_copy)
    return refused
