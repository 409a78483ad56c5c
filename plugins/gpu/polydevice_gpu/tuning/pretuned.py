"""Tuning files that polydevice ships: for devices, drivers and kernels that were measured.

They stand in the folder ``pretuned`` beside this module. A file's name says what it was measured
with, and it counts for exactly that: ``<device>,<driver>,<family>,<version>.json``, the first two
as OpenCL calls them, with all but letters, digits and ``_.-~`` percent-encoded. The family is one
of the kernels (a folder of ``kernels``) and the version that of its sources, so that a change of
one family leaves the others' files in use. A file's choices are all of its family.

    python -m polydevice_gpu.tuning.pretuned tuned.json FOLDER -d GPU

writes the choices that a tuning file has for a device of this machine in that manner.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from polydevice.errors import OptionValueError
from polydevice_gpu import kernels
from polydevice_gpu.cl.discovery import discover
from polydevice_gpu.cl.discovery.facts import DeviceFacts
from polydevice_gpu.kernels.kernel import Kernel, all_kernels
from polydevice_gpu.tuning.tuning_file import TuningFile

FOLDER = Path(__file__).with_name("pretuned")

_DIGITS = 12
_SOURCES = (".cl", ".py", ".h")


def family_of(kernel: Kernel) -> str:
    """Return the folder of `kernels` in which a kernel stands; "" for one of someone else."""
    package, _, inside = type(kernel).__module__.partition(f"{kernels.__name__}.")
    return "" if package else inside.partition(".")[0]


@functools.cache
def version_of(family: str) -> str:
    """Return the first digits of the SHA-256 of what a family's kernels and modes are written in.

    That is all in its folder, and all that stands in no family's.
    """
    folder = Path(kernels.__file__).parent
    others = _families() - {family}
    names = []
    for inside, _, files in os.walk(folder):  # in an eighth of the time that Path.rglob takes
        where = Path(inside).relative_to(folder).parts
        if not where or where[0] not in others:
            names += ["/".join((*where, name)) for name in files if name.endswith(_SOURCES)]
    total = hashlib.sha256()
    for name in sorted(names):
        if name.partition(".")[0] not in others:
            total.update(name.encode() + b"\0")
            total.update(hashlib.sha256((folder / name).read_bytes()).digest())
    return total.hexdigest()[:_DIGITS]


@functools.cache
def _families() -> frozenset[str]:
    return frozenset(family_of(kernel) for them in all_kernels().values() for kernel in them)


def file_name(facts: DeviceFacts, family: str) -> str:
    """Return the name that the file of a device and a family has."""
    return f"{beginning(facts)}{family},{version_of(family)}.json"


def shipped_for(facts: DeviceFacts) -> Iterator[tuple[Path, bool]]:
    """Yield the files of a device and its driver, and whether each is of these kernels."""
    start = beginning(facts)
    found = FOLDER.iterdir() if FOLDER.is_dir() else []
    for path in sorted(path for path in found if path.name.startswith(start)):
        family = path.name.removeprefix(start).partition(",")[0]
        yield path, path.name == file_name(facts, family)


def pretuned(facts: DeviceFacts) -> TuningFile | None:
    """Return the choices that ship for a device; None when none do.

    Where there is no file of this device and driver, which is usual, no sources are read. A file
    that is broken costs a warning.
    """
    made = TuningFile(None)
    for path in (path for path, counts in shipped_for(facts) if counts):
        try:
            made.take(TuningFile.open(path, must_exist=True))
        except OptionValueError as error:
            warnings.warn(
                f"the pretuned file of {facts.name!r} is not used: {error}. Install polydevice "
                "again, or set TUNING_PRETUNED=NO",
                RuntimeWarning,
                stacklevel=2,
            )
    return made if len(made) else None


def ship(tuned: Path, facts: DeviceFacts, folder: Path) -> list[Path]:
    """Write a device's choices in a tuning file as files to ship, and return those.

    Args:
        tuned: what ``polydevice tune`` made on this device, with these kernels.
        facts: of the device.
        folder: where to.

    Raises:
        OptionValueError: `tuned` is missing or no tuning file.
    """
    families = {k.name: family_of(k) for them in all_kernels().values() for k in them}
    parts: dict[str, Any] = {}
    for kind, text, (name, mode), time_ns in TuningFile.open(tuned, must_exist=True).choices(
        facts.max_compute_units
    ):
        if text.endswith(facts.name) and families.get(name):
            part = parts.setdefault(families[name], {"version_2": {}, "time_ns": {}})
            part["version_2"].setdefault(kind, {})[text] = [name, mode]
            part["time_ns"].setdefault(kind, {})[text] = time_ns
    units = str(facts.max_compute_units)
    written = []
    for family, part in parts.items():
        content = TuningFile(None, {key: {units: kinds} for key, kinds in part.items()})
        path = folder / file_name(facts, family)
        path.write_text(content.text(), encoding="utf-8")
        written.append(path)
    return written


def beginning(facts: DeviceFacts) -> str:
    """Return what the names of a device's files begin with."""
    return f"{quote(facts.name, safe='')},{quote(facts.driver_version, safe='')},"


def main() -> int:
    """Write the files to ship of a tuning file; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m polydevice_gpu.tuning.pretuned")
    parser.add_argument("tuned", type=Path, help="tuning file of `polydevice tune`")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    parser.add_argument("-d", "--device", default="0", help="number of the GPU")
    options = parser.parse_args()
    facts = discover().device(options.device).facts
    for path in ship(options.tuned, facts, options.folder):
        sys.stdout.write(f"{path.name}: {len(TuningFile.open(path, must_exist=True))} choices\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
