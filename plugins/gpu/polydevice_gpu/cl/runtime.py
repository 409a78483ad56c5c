"""Start OpenCL in this process, with the drivers that discovery found good."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from polydevice.errors import DeviceLostError, PolydeviceError
from polydevice.locks import Latch, Lock
from polydevice_gpu.cl import library
from polydevice_gpu.cl.discovery import discover, remembered
from polydevice_gpu.cl.discovery.facts import Enumeration
from polydevice_gpu.cl.discovery.icd import loader_environment

_lock = Lock()
_HEAD_START_S = 0.06
_process: list[int] = []  # the one that loads the drivers
_started: list[bool] = []


def claim_process() -> None:
    """Note that this process is to load the drivers.

    Raises:
        DeviceLostError: it was forked after another one began to.
    """
    if not _process:
        _process.append(os.getpid())
    if _process[0] != os.getpid():
        raise DeviceLostError(
            "this process was forked after OpenCL was started, and OpenCL drivers do not "
            "survive a fork; use multiprocessing.get_context('spawn')"
        )


def start(enumeration: Enumeration, entered: Latch | None = None) -> None:
    """Make the loader load the good drivers, once per process.

    A loader reads its variables at the first call and never again, so they are set for that call
    only: child processes and other libraries keep the user's own. If the program used OpenCL
    before polydevice did, its loader has all drivers loaded already, and that is left as it is.

    Args:
        enumeration: which drivers to load.
        entered: set once they are being loaded.

    Raises:
        DeviceLostError: in a process forked after OpenCL was started; drivers do not survive that.
    """
    with _lock:
        claim_process()
        if _started:
            return
        cl = library.library()
        with remembered.tried():
            if entered is not None:
                entered.set()
            if enumeration.drivers is None:
                library.list_platforms(cl)
            else:
                with loader_environment(enumeration.drivers) as variables, _environment(variables):
                    library.list_platforms(cl)
            devices = library.identities(cl)
        if devices != [device.identity for device in enumeration.devices]:
            remembered.forget()  # the next process asks the drivers
        _started.append(True)


def start_ahead() -> threading.Thread:
    """Begin to start the drivers for a device that is going to be opened, which takes 0.3 s.

    Nothing where there is none; whoever opens one hears of what goes wrong. It returns the thread
    when they are being loaded, unless child processes are asked first: others that were busy in
    Python meanwhile kept the thread from getting there for 0.1 s.
    """
    entered = Latch()

    def begin() -> None:
        try:
            with suppress(PolydeviceError, OSError):
                report = discover()
                if report.devices:
                    start(report.enumeration, entered)
        finally:
            if not entered.is_set:
                entered.set()

    thread = threading.Thread(target=begin, name="polydevice-drivers")
    thread.start()
    entered.wait(_HEAD_START_S)
    return thread


@contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    try:
        _set(variables)
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
