"""Silence: NumPy does not warn where an inference computes infinities and NaN, values like others.

`np.errstate` makes what it sets anew each time, which takes 3 to 5 µs between other work. NumPy 2
keeps it in a variable of the context, which is set and reset in a tenth of that.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token, copy_context
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


def _functions() -> tuple[Callable[[], Any], Callable[[Any], None]]:
    found = _variable()
    if found is None:
        return _enter, _leave
    variable, value = found

    def begin() -> Token[Any]:
        return variable.set(value)

    return begin, variable.reset


def _enter() -> np.errstate:
    state = np.errstate(all="ignore")
    state.__enter__()
    return state


def _leave(state: np.errstate) -> None:
    state.__exit__(None, None, None)


begin_silence, end_silence = _functions()
"""The first one returns what the other one takes, in the same thread, to have things as before."""
