"""source_place: where a class or function is defined, for people who want to read it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def source_place(thing: type | Callable[..., Any]) -> str:
    """Return file and line of a definition, such as ``polydevice/ops/softmax.py:14``."""
    thing = inspect.unwrap(thing)
    module = inspect.getmodule(thing)
    name = thing.__module__.replace(".", "/")
    name += "/__init__.py" if hasattr(module, "__path__") else ".py"
    try:
        return f"{name}:{max(inspect.getsourcelines(thing)[1], 1)}"
    except (OSError, TypeError):  # defined without a file, as by exec
        return name
