"""isolation: a stranger's code runs within a time limit, and what it raises harms nobody else."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from polydevice.errors import PluginError, PolydeviceError

VARIABLE = "POLYDEVICE_PLUGIN_TIMEOUT"
_DEFAULT_S, _MOST_S = 10.0, 86_400.0


def _limit_s() -> float:
    """Return the time limit that the environment sets; what is no number costs a warning."""
    text = os.environ.get(VARIABLE)
    try:
        seconds = _DEFAULT_S if text is None else float(text)
    except ValueError:
        seconds = 0.0
    if 0 < seconds <= _MOST_S:
        return seconds
    warnings.warn(
        f"{VARIABLE}={text} is no number of seconds from above 0 to {_MOST_S:g}; "
        f"{_DEFAULT_S:g} is used",
        RuntimeWarning,
        stacklevel=2,
    )
    return _DEFAULT_S


LIMIT_S = _limit_s()
"""How long importing a third-party plugin, or one call of its hooks, may take, in seconds."""

T = TypeVar("T")


class PluginTimeoutError(PluginError):
    """A plugin's code did not return in time; it may still be running."""


@contextmanager
def contained(doing: str) -> Iterator[None]:
    """Turn what is raised, even SystemExit, into a PluginError; our errors and Ctrl-C stay."""
    try:
        yield
    except (PolydeviceError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise PluginError(f"{doing} raised {error!r}") from error


def within_limit(work: Callable[[], T], doing: str) -> T:
    """Run `work` in a thread of its own, so that code that hangs costs only the time limit.

    Raises:
        PluginTimeoutError: it takes longer.
        PolydeviceError: what it raised; a PluginError for what is not ours.
    """
    results: list[T] = []
    failures: list[PolydeviceError] = []

    def run() -> None:
        try:
            with contained(doing):
                results.append(work())
        except PolydeviceError as error:
            failures.append(error)
        except BaseException as error:  # noqa: BLE001 - Ctrl-C is never raised in this thread
            failures.append(PluginError(f"{doing} raised {error!r}"))

    thread = threading.Thread(target=run, name=doing, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    if failures:
        raise failures[0]
    if results:
        return results[0]
    raise PluginTimeoutError(
        f"{doing} took longer than {LIMIT_S:g} s (POLYDEVICE_PLUGIN_TIMEOUT sets the limit)"
    )
