"""What drivers offered is kept for the next process, which need not ask them in child processes.

A child that asks NVIDIA's driver takes 0.4 s of each process that loads a network. What was found
counts while everything that could change it is as it was: the kernel's boot, drivers, loader,
device nodes, PCI devices, the variables that drivers read, the user, and this package's code.

The protection by child processes stays: only what all drivers answered without trouble is kept,
and a process takes the entry away while it loads the drivers itself. Where one crashes or hangs
there, no entry is left, and the next process finds it out in a child. Linux only.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from polydevice.files import cache_folder
from polydevice_gpu.cl.discovery.facts import DeviceFacts, Enumeration, Finding, Verdict
from polydevice_gpu.cl.discovery.hardware import NODES, inspect_hardware
from polydevice_gpu.cl.discovery.icd import list_icds, vendor_folders
from polydevice_gpu.cl.library import find_library, preloaded, pyopencl_folder

_SUFFIX, _TRIED = ".json", ".tried"
_MOST_FILES = 16
_FILE_LIMIT_BYTES = 1 << 20

_VARIABLES = (
    *("AMD_", "CL_", "CUDA_", "DRI_", "EGL_", "GALLIUM_", "GPU_", "HIP_", "HSA_", "IGC_", "INTEL_"),
    *("LD_", "LIBGL_", "MESA_", "NEO", "NVIDIA_", "NV_", "OCL_", "OPENCL_", "POCL_"),
    *("ROC", "RUSTICL_", "SYCL_", "UR_", "XDG_CACHE_HOME", "HOME", "ZE_", "ZES_"),
)
"""How the names of variables begin that a driver, its loader or the linker may read.

Not PYOPENCL_HOME, which pyopencl sets when it is imported, and we for each loader.
"""

_STATES = (
    "/proc/sys/kernel/random/boot_id",
    "/proc/driver/nvidia/version",
    "/sys/fs/cgroup/memory.max",  # of which drivers for processors tell their memory
)


@dataclass(frozen=True)
class _Entry:
    """A file and what it must say to count."""

    path: Path
    key: str


def recalled() -> Enumeration | None:
    """Return what the drivers offered to an earlier process; None where they are to be asked."""
    entry = _entry()
    if entry is None or not os.access(entry.path.parent, os.W_OK):  # it is taken away meanwhile
        return None
    try:
        with entry.path.open("rb") as file:
            content = json.loads(file.read(_FILE_LIMIT_BYTES))
        if content["key"] != entry.key or content["checksum"] != _checksum(content["found"]):
            return None
        found = _parsed(content["found"])
        drivers = tuple(list_icds()[0])  # which libraries are loaded no file of ours says
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return Enumeration(found.devices, drivers, (*found.findings, *inspect_hardware(drivers)))


def keep(found: Enumeration) -> None:
    """Keep what drivers that gave no trouble offered; nothing where one did."""
    drivers = [finding for finding in found.findings if finding.kind in {"driver", "loader"}]
    if not found.devices or any(finding.verdict is Verdict.REJECTED for finding in drivers):
        return
    if found.drivers != tuple(list_icds()[0]):
        return
    entry = _entry()
    if entry is None:
        return
    plain = {
        "devices": [asdict(device) for device in found.devices],
        "findings": [
            {**asdict(each), "verdict": each.verdict.value}
            for each in found.findings
            if each.kind in {"driver", "platform"}  # the hardware is looked at each time
        ],
    }
    content = {"key": entry.key, "found": plain, "checksum": _checksum(plain)}
    with contextlib.suppress(OSError):  # without it, drivers are asked again
        cache_folder.write_atomically(entry.path, json.dumps(content, indent=1).encode())
        _remove_oldest(entry.path.parent)


@contextlib.contextmanager
def tried() -> Iterator[None]:
    """Take the entry away while drivers are loaded; whoever comes back from that returns it."""
    entry = _entry()
    if entry is None:
        yield
        return
    aside, taken = entry.path.with_suffix(f".{os.getpid()}{_TRIED}"), False
    with contextlib.suppress(OSError):  # none, or another process has it meanwhile
        entry.path.replace(aside)
        taken = True
    yield
    if taken:
        with contextlib.suppress(OSError):
            aside.replace(entry.path)


def forget() -> None:
    """Drop the entry: what it says is not what this process sees."""
    entry = _entry()
    if entry is not None:
        with contextlib.suppress(OSError):
            entry.path.unlink()


def _entry() -> _Entry | None:
    """Return the file for this machine as it is now; None where nothing can be kept."""
    if not sys.platform.startswith("linux") or pyopencl_folder() is None or preloaded():
        return None
    folder = cache_folder.default_folder() / "gpu-drivers"
    states = [_text(path) for path in _STATES]
    if not states[0] or cache_folder.why_unusable(folder):
        return None
    key = json.dumps([_code_digest(), *states, _surroundings()])
    return _Entry(folder / f"{hashlib.sha256(key.encode()).hexdigest()}{_SUFFIX}", key)


def _surroundings() -> list[Any]:
    """Return what decides what drivers offer in a process that is begun now."""
    icds, unreadable = list_icds()
    files = [find_library()[0], *(icd.driver for icd in icds), *(icd.source for icd in icds)]
    files += [str(folder) for folder in vendor_folders()]
    files += ["/etc/ld.so.cache", "/sys/bus/pci/devices"]
    nodes = sorted(path for pattern in NODES for path in Path("/").glob(pattern))
    return [
        [list(asdict(icd).values()) for icd in icds],
        unreadable,
        [_stat(path) for path in files],
        [[str(path), os.access(path, os.R_OK | os.W_OK)] for path in nodes],
        _names("/sys/bus/pci/devices"),
        sorted((k, v) for k, v in os.environ.items() if k.startswith(_VARIABLES)),
        [os.geteuid(), len(os.sched_getaffinity(0))],
    ]


@functools.cache
def _code_digest() -> str:
    """Name what asks drivers now: another version of it asks them again."""
    here = Path(__file__).parent
    modules = ("child", "enumeration", "facts", "icd", "remembered")
    content = b"".join((here / f"{name}.py").read_bytes() for name in modules)
    return hashlib.sha256(content).hexdigest()


def _stat(path: str) -> list[Any]:
    try:
        info = os.stat(path)  # noqa: PTH116 - of a text that may name no file
    except (OSError, ValueError):
        return [path]
    return [path, info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, ValueError):
        return ""


def _parsed(plain: Any) -> Enumeration:
    """Make an enumeration of what JSON says; raises ValueError, KeyError or TypeError."""
    devices = tuple(_made(DeviceFacts, each) for each in plain["devices"])
    findings = tuple(
        _made(Finding, {**each, "verdict": Verdict(each["verdict"])}) for each in plain["findings"]
    )
    return Enumeration(devices, findings=findings)


def _made(kind: Any, values: Any) -> Any:
    """Make a dataclass of texts and numbers, each of the type that it declares."""
    legal = {"str": str, "int": int, "Verdict": Verdict, "tuple[int, ...]": list}
    given = {}
    for field in fields(kind):
        value = values[field.name]
        whole = not isinstance(value, list) or all(type(each) is int for each in value)
        if type(value) is not legal[str(field.type)] or not whole:
            raise ValueError(f"{field.name}={value!r} is no {field.type}")
        given[field.name] = tuple(value) if isinstance(value, list) else value
    return kind(**given)


def _checksum(found: Any) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _remove_oldest(folder: Path) -> None:
    """Remove all but the newest files: a boot, or a variable, makes another one."""
    kept: Sequence[Path] = [path for path in folder.iterdir() if path.suffix in {_SUFFIX, _TRIED}]
    aged = sorted(kept, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in aged[_MOST_FILES:]:
        path.unlink(missing_ok=True)
