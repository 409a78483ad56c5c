"""Guard pages: every buffer of the CPU device against memory that must not be touched.

``pytest --guard-pages=after`` (or ``before``) puts inputs, outputs, packed weights, constants,
scratchpads and each place of the arena in pages of their own, which end (or start) where a page
without access starts (or ends), so that one byte too far is a crash at the place that reads or
writes it. Fresh memory is NaN, again before every inference, so that nothing read too early goes
unseen either. Run it with ``-n 1``, for which a crash is one failed test.
"""

from __future__ import annotations

import ctypes
import mmap
from functools import partial

import numpy as np
import pytest

SIDES = ("after", "before")
_PAGE = mmap.PAGESIZE
POISON = 0xFF  # NaN in every floating-point type
_protect = ctypes.CDLL(None, use_errno=True).mprotect
_protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def guarded(side: str, size_bytes: int) -> np.ndarray:
    """Poisoned bytes that end right before a page without access, or start right behind one."""
    pages = -(-max(size_bytes, 1) // _PAGE)
    whole = mmap.mmap(-1, (pages + 2) * _PAGE)
    bytes_ = np.frombuffer(whole, np.uint8)
    address = bytes_.ctypes.data
    bytes_[:] = POISON
    for page in (address, address + (pages + 1) * _PAGE):
        if _protect(page, _PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = _PAGE if side == "before" else (pages + 1) * _PAGE - size_bytes
    return bytes_[start : start + size_bytes]


def install(patch: pytest.MonkeyPatch, side: str) -> None:
    """Let the CPU device take all memory from `guarded` until the patch is undone."""
    from polydevice_cpu.onednn import primitive
    from polydevice_cpu.plan import compiled
    from polydevice_cpu.plan.binding import workspace
    from polydevice_cpu.plan.building import weights
    from tests.guarded_plan import GuardedPlan

    patch.setattr(compiled, "BoundPlan", partial(GuardedPlan, side))
    for module in (workspace, weights, primitive):
        patch.setattr(module, "aligned", partial(guarded, side))
