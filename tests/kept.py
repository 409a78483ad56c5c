"""What costs much to make and is always the same, kept in .cache by what it depends on."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")

CACHE = Path(__file__).parents[1] / ".cache"


def kept(folder: str, depends: object, make: Callable[[], Made]) -> Made:
    """Return what was made before, by this process or another, or make it.

    Args:
        folder: in .cache; it may be deleted at any time.
        depends: everything that the result depends on; its `repr` must tell.
        make: makes something that can be pickled. What it raises is not kept.
    """
    path = CACHE / folder / hashlib.sha256(repr(depends).encode()).hexdigest()
    if path.exists():
        found: Made = pickle.loads(path.read_bytes())
        return found
    made = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(pickle.dumps(made))
    unfinished.rename(path)
    return made
