"""Find OpenCL devices without letting a driver take the program down, and say why any is left out.

`discover` is what the rest uses; the modules below it, in the order data flows: `icd` (installed
drivers), `child` (runs in a child process), `enumeration`, `hardware` (what the kernel shows),
`remembered` (what an earlier process was told),
`selection` (who is admitted), `report`.
"""

from __future__ import annotations

from polydevice.locks import Lock
from polydevice_gpu.cl.discovery import remembered
from polydevice_gpu.cl.discovery.enumeration import enumerate_drivers
from polydevice_gpu.cl.discovery.facts import Enumeration
from polydevice_gpu.cl.discovery.report import Report
from polydevice_gpu.cl.discovery.selection import Selection, select

__all__ = ["Report", "Selection", "discover", "enumerate_once"]

_lock = Lock()
_found: list[Enumeration] = []  # the last one, once there is one


def enumerate_once(*, refresh: bool = False, timeout_s: float | None = None) -> Enumeration:
    """Return what the drivers offer; found once per process, by any number of threads.

    `refresh` asks the drivers again, for instance after one was repaired; `timeout_s` is how long
    each may take: they are asked then, too, and by default it is what the environment variable
    says. What an earlier process was told counts while nothing has changed (`remembered`).
    """
    with _lock:
        if refresh or not _found:
            known = remembered.recalled() if not refresh and timeout_s is None else None
            _found[:] = [_asked(timeout_s) if known is None else known]
        return _found[0]


def _asked(timeout_s: float | None) -> Enumeration:
    found = enumerate_drivers(timeout_s)
    remembered.keep(found)
    return found


def discover(selection: Selection | None = None, *, refresh: bool = False) -> Report:
    """Return the devices that a rule admits, and why each other one is left out.

    Args:
        selection: the rule; from the environment variable if None.
        refresh: ask the drivers again.

    Raises:
        OptionValueError: if the environment variable holds no legal rule or time limit.
    """
    rule = Selection.from_environment() if selection is None else selection
    found = enumerate_once(refresh=refresh)
    devices, findings = select(found.devices, rule)
    return Report(devices, (*found.findings, *findings), found)
