"""arguments: checks of what users hand to public methods, each with one of our exceptions."""

from __future__ import annotations

import numbers
import operator
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polydevice.errors import OptionValueError, PolydeviceError

_SHOWN_CHARACTERS = 80


def shown(value: object) -> str:
    """Return a value for a message: its type too where that is wrong, and never pages of it."""
    text = repr(value)
    short = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    return f"{short} ({type(value).__name__})"


def text(value: Any, what: str, error: type[PolydeviceError]) -> str:
    """Return a text as it is; raise `error` for anything else."""
    if not isinstance(value, str):
        raise error(f"{what} {shown(value)} is not possible; give a text")
    return value


def integer(
    value: Any,
    what: str,
    error: type[PolydeviceError],
    *,
    least: int | None = None,
    most: int | None = None,
) -> int:
    """Return an integer, also NumPy's, as Python's; raise `error` for anything else (a bool)."""
    try:
        number = operator.index(_no_bool(value))
    except TypeError:
        raise error(f"{what}={shown(value)} is not possible; give an integer") from None
    if (least is not None and number < least) or (most is not None and number > most):
        limits = f"{least} or more" if most is None else f"{least} to {most}"
        raise error(f"{what}={number} is not possible; use {limits}")
    return number


MOST_REQUESTS = 10_000
"""Requests of one network, or of one queue; each has memory of its own."""


def number_of_requests(value: Any, what: str) -> int:
    """Return how many requests to make; raises OptionValueError for what is too many, or none."""
    return integer(value, what, OptionValueError, least=0, most=MOST_REQUESTS)


def milliseconds(value: Any, error: type[PolydeviceError]) -> float | None:
    """Return how long to wait in seconds; None for ever, which is None or -1.

    Args:
        value: milliseconds.
        error: raised for what is no number, not finite, or negative.
    """
    if value is None:
        return None
    number = value.item() if isinstance(value, np.number) else value  # no limits of small types
    is_number = isinstance(number, numbers.Real) and not isinstance(number, bool)
    if not is_number or not (number == -1 or 0 <= number < 1e15):
        raise error(f"timeout {shown(value)} ms is not possible; use -1, 0 or more")
    return None if number == -1 else min(float(number) / 1e3, _LONGEST_S)


def _no_bool(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError("a truth value is no number")
    return value


_LONGEST_S = 1e6
"""Eleven days; `threading` cannot wait for longer than some systems' clocks count."""


def path(value: Any, what: str, error: type[PolydeviceError]) -> Path:
    """Return the path of a file; raise `error` for what is none."""
    found = Path(os.fsdecode(value)) if isinstance(value, (str, bytes, os.PathLike)) else None
    if found is None or not found.name:
        raise error(f"{what} {shown(value)} is not possible; give the path of a file")
    try:
        found.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as failure:  # ValueError: characters that no path has
        raise error(f"{what} {shown(value)} is not possible: {failure}") from failure
    return found


def numbers_in(value: Any, what: str, error: type[PolydeviceError]) -> list[float]:
    """Return finite numbers of a sequence; raise `error` for anything else."""
    try:
        found = np.asarray(value)
        if found.ndim == 1 and found.dtype.kind in "iuf" and np.isfinite(found).all():
            return [float(each) for each in found]
    except (TypeError, ValueError):
        pass
    raise error(f"{what} {shown(value)} is not possible; give a sequence of finite numbers")


def options(value: Any, what: str, error: type[PolydeviceError]) -> dict[str, Any]:
    """Return a mapping with texts as keys, such as a configuration; {} for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise error(f"{what} {shown(value)} is not possible; give key → value, with texts as keys")
    return dict(value)
