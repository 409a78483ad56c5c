"""Silence: NumPy does not warn where an inference computes infinities and NaN, values like others.

`np.errstate` makes what it sets anew each time, which takes 3 to 5 µs between other work. NumPy 2
keeps it in a variable of the context, which is set twice in a tenth of that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

import numpy as np


def _variable() -> tuple[ContextVar[Any], Any] | None:
    """Return where NumPy keeps what it does about errors, and the value to ignore them.

    None where it is kept otherwise.
    """
    with np.errstate(all="ignore"):
        inside, wanted = dict(copy_context().items()), np.geterr()
    with np.errstate(all="raise"):  # whatever it is outside
        for variable, value in inside.items():
            if not variable.name.startswith("numpy."):
                continue
            before = np.geterr()
            token = variable.set(value)
            is_silent = np.geterr() == wanted
            variable.reset(token)
            if is_silent and np.geterr() == before:
                return variable, value
    return None


def _functions() -> tuple[Callable[[], Any], Callable[[], Any], Callable[[Any], Any]]:
    found = _variable()
    if found is None:
        return np.geterr, _ignore, _restore
    variable, value = found
    return variable.get, partial(variable.set, value), variable.set


def _ignore() -> None:
    np.seterr(all="ignore")


def _restore(before: dict[str, Any]) -> None:
    np.seterr(**before)


about_errors, ignore_errors, restore = _functions()
"""The first one returns what the last one takes, in the same thread, to have things as before.

What to restore is asked for before anything is set, so that Ctrl-C at any time leaves it as it was;
with NumPy 1 unless it comes while that is restored.
"""
