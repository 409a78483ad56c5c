"""Tuning files that polydevice ships: for devices, drivers and kernels that were measured.

They stand in the folder ``pretuned`` beside this module. A file's name says what it was measured
with, and it counts for exactly that: ``<device>,<driver>,<version of the kernels>.json``, the first
two as OpenCL calls them, with all but letters, digits and ``_.-~`` percent-encoded.
"""

from __future__ import annotations

import functools
import hashlib
import warnings
from pathlib import Path
from urllib.parse import quote

from polydevice.errors import OptionValueError
from polydevice_gpu import kernels
from polydevice_gpu.cl.discovery.facts import DeviceFacts
from polydevice_gpu.tuning.tuning_file import TuningFile

FOLDER = Path(__file__).with_name("pretuned")

_DIGITS = 12
_SOURCES = (".cl", ".py")


@functools.cache
def kernels_version() -> str:
    """Return the first digits of the SHA-256 of all that kernels and their modes are written in."""
    folder = Path(kernels.__file__).parent
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _SOURCES):
        total.update(path.relative_to(folder).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:_DIGITS]


def file_name(facts: DeviceFacts) -> str:
    """Return the name that the file of a device has."""
    return f"{_beginning(facts)}{kernels_version()}.json"


def pretuned(facts: DeviceFacts) -> TuningFile | None:
    """Return the choices that ship for a device; None when none do.

    Where there is no file of this device and driver, which is usual, no sources are read. A file
    that is broken costs a warning.
    """
    beginning = _beginning(facts)
    if not FOLDER.is_dir() or not any(p.name.startswith(beginning) for p in FOLDER.iterdir()):
        return None
    path = FOLDER / file_name(facts)
    if not path.is_file():
        return None
    try:
        return TuningFile.open(path, must_exist=True)
    except OptionValueError as error:
        warnings.warn(
            f"the pretuned file of {facts.name!r} is not used: {error}. Install polydevice again, "
            "or set TUNING_PRETUNED=NO",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _beginning(facts: DeviceFacts) -> str:
    return f"{quote(facts.name, safe='')},{quote(facts.driver_version, safe='')},"
