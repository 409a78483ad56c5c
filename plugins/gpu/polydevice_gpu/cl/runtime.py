"""Start OpenCL in this process, with the drivers that discovery found good."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from polydevice.errors import DeviceLostError
from polydevice.locks import Lock
from polydevice_gpu.cl import library
from polydevice_gpu.cl.discovery import remembered
from polydevice_gpu.cl.discovery.facts import Enumeration
from polydevice_gpu.cl.discovery.icd import loader_environment

_lock = Lock()
_started_in: list[int] = []  # the process that loaded the drivers


def start(enumeration: Enumeration) -> None:
    """Make the loader load the good drivers, once per process.

    A loader reads its variables at the first call and never again, so they are set for that call
    only: child processes and other libraries keep the user's own. If the program used OpenCL
    before polydevice did, its loader has all drivers loaded already, and that is left as it is.

    Raises:
        DeviceLostError: in a process forked after OpenCL was started; drivers do not survive that.
    """
    with _lock:
        if _started_in:
            if _started_in[0] != os.getpid():
                raise DeviceLostError(
                    "this process was forked after OpenCL was started, and OpenCL drivers do not "
                    "survive a fork; use multiprocessing.get_context('spawn')"
                )
            return
        cl = library.library()
        with remembered.tried():
            if enumeration.drivers is None:
                library.list_platforms(cl)
            else:
                with loader_environment(enumeration.drivers) as variables, _environment(variables):
                    library.list_platforms(cl)
            devices = library.identities(cl)
        if devices != [device.identity for device in enumeration.devices]:
            remembered.forget()  # the next process asks the drivers
        _started_in.append(os.getpid())


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
