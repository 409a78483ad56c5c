"""isolation: a stranger's code runs within a time limit, and what it raises harms nobody else."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from polydevice.errors import PluginError, PolydeviceError

LIMIT_S = float(os.environ.get("POLYDEVICE_PLUGIN_TIMEOUT", "10"))
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
