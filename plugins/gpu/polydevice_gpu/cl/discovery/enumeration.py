"""Ask every OpenCL driver what it offers, each in a child process of its own.

A driver that crashes or hangs is found out there and never loaded into this process. Drivers that
work alone but not together (two copies of LLVM, say) are found by one more child that loads all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from polydevice.errors import OptionValueError
from polydevice_gpu.cl import child_process
from polydevice_gpu.cl.discovery.facts import DeviceFacts, Enumeration, Finding, Icd, Verdict
from polydevice_gpu.cl.discovery.hardware import inspect_hardware
from polydevice_gpu.cl.discovery.icd import list_icds, loader_environment, vendor_folders
from polydevice_gpu.cl.library import find_library, preloaded, pyopencl_folder

TIMEOUT_VARIABLE = "POLYDEVICE_GPU_PROBE_TIMEOUT_S"
DEFAULT_TIMEOUT_S = 10.0
_PARALLEL_CHILDREN = 4

_Answer = dict[str, Any]


def probe_timeout_s() -> float:
    """Return the time limit of one driver's child process, in seconds.

    Raises:
        OptionValueError: if the environment variable is not a positive number.
    """
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text or DEFAULT_TIMEOUT_S)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise OptionValueError(f"{TIMEOUT_VARIABLE}={text!r} is not a positive number of seconds")
    return seconds


def enumerate_drivers(timeout_s: float | None = None) -> Enumeration:
    """Find drivers, platforms and devices; never raises for what a driver does."""
    limit = probe_timeout_s() if timeout_s is None else timeout_s
    if pyopencl_folder() is None:
        missing = "the Python package pyopencl is not installed"
        finding = Finding("loader", "pyopencl", Verdict.REJECTED, missing, "pip install pyopencl")
        return Enumeration(findings=(finding, *inspect_hardware(())))
    if preloaded() or not sys.platform.startswith("linux"):
        return _all_at_once(limit)
    icds, unreadable = list_icds()
    with ThreadPoolExecutor(_PARALLEL_CHILDREN) as pool:
        outcomes = list(pool.map(lambda icd: _try_drivers([icd], limit), icds))
    verdicts = [_judge(icd, outcome, limit) for icd, outcome in zip(icds, outcomes, strict=True)]
    findings = [
        *(_rejected("driver", path, why, "repair or remove it") for path, why in unreadable),
        *verdicts,
    ]
    good = [
        (icd, outcome)
        for icd, outcome, finding in zip(icds, outcomes, verdicts, strict=True)
        if finding.verdict is Verdict.FOUND
    ]
    drivers, platforms, conflicts = _together(good, limit)
    findings += conflicts
    if not icds:
        findings.append(_nothing_installed())
    findings += _judge_platforms(platforms)
    findings += inspect_hardware(icds)
    return Enumeration(_devices(platforms), tuple(drivers), tuple(findings))


def _all_at_once(timeout_s: float) -> Enumeration:
    """Where the loader takes no folder (Windows, oclgrind): one child for all drivers together."""
    argument = {"opencl": find_library()[0], "driver": ""}
    outcome = child_process.run("discovery.child", argument, timeout_s=timeout_s)
    everything = Icd("system", "", "all drivers of this system")
    findings = [_judge(everything, outcome, timeout_s), *_judge_platforms(_platforms(outcome))]
    return Enumeration(_devices(_platforms(outcome)), None, tuple(findings))


def _try_drivers(icds: Sequence[Icd], timeout_s: float) -> child_process.Outcome:
    argument = {"opencl": find_library()[0], "driver": icds[0].driver if len(icds) == 1 else ""}
    with loader_environment(icds) as environment:
        return child_process.run(
            "discovery.child", argument, environment=environment, timeout_s=timeout_s
        )


def _together(
    good: Sequence[tuple[Icd, child_process.Outcome]], timeout_s: float
) -> tuple[list[Icd], list[_Answer], list[Finding]]:
    """Return the drivers that work in one process, their platforms in order, and the misfits.

    Order matters only after a conflict: drivers with a GPU are kept before those without.
    """
    if len(good) <= 1:
        return [icd for icd, _ in good], [p for _, o in good for p in _platforms(o)], []
    every = [icd for icd, _ in good]
    outcome = _try_drivers(every, timeout_s)
    if outcome.status == "ok":
        return every, _platforms(outcome), []
    by_use = sorted(good, key=lambda pair: not any(d.is_gpu for d in _devices(_platforms(pair[1]))))
    kept, platforms, misfits = [by_use[0][0]], _platforms(by_use[0][1]), list[Finding]()
    for icd, _ in by_use[1:]:
        outcome = _try_drivers([*kept, icd], timeout_s)
        if outcome.status == "ok":
            kept, platforms = [*kept, icd], _platforms(outcome)
            continue
        names = ", ".join(other.name for other in kept)
        reason = f"works alone, but not in one process with {names} ({outcome.detail})"
        fix = f"to use it, hide the others: OCL_ICD_VENDORS=<a folder with only {icd.name}>"
        misfits.append(_rejected("driver", _title(icd), reason, fix))
    return kept, platforms, misfits


def _judge(icd: Icd, outcome: child_process.Outcome, timeout_s: float) -> Finding:
    """Say what became of one driver tried alone."""
    loaded = any("library_loaded" in m for m in outcome.messages)
    stage = "when asked for its devices" if loaded else "while being loaded"
    said = f"; it printed: {outcome.stderr.splitlines()[-1]}" if outcome.stderr else ""
    if outcome.status == "crashed":
        return _rejected(
            "driver",
            _title(icd),
            f"the driver crashed {stage} ({outcome.detail}){said}",
            "update or remove this driver; it is kept out of this process",
        )
    if outcome.status == "hung":
        return _rejected(
            "driver",
            _title(icd),
            f"the driver hung {stage}: no answer within {timeout_s:g} s{said}",
            f"update or remove this driver, or give it longer with {TIMEOUT_VARIABLE}=60",
        )
    if outcome.status == "failed":
        return _rejected("driver", _title(icd), f"could not be tried: {outcome.detail}", "")
    if outcome.status == "raised":
        return _rejected(
            "driver",
            _title(icd),
            f"polydevice failed to ask it {stage}: {outcome.detail}",
            "this is a defect of polydevice, not of the driver; please report it",
        )
    for message in outcome.messages:
        if "library_error" in message:
            return _rejected(
                "driver",
                _title(icd),
                f"its library cannot be loaded: {message['library_error']}",
                f"reinstall the driver, or remove {icd.source}",
            )
        if "opencl_error" in message:
            fix = (
                "pip install --force-reinstall pyopencl, or install the system's ocl-icd-libopencl1"
            )
            return _rejected(
                "loader", "OpenCL", f"cannot be loaded: {message['opencl_error']}", fix
            )
    if not _platforms(outcome):
        return _rejected(
            "driver",
            _title(icd),
            f"loads, but offers no OpenCL platform{said}",
            "check that its GPU is visible here (lspci, the container's device options) and that "
            "driver and kernel module have the same version",
        )
    note = "not named by any .icd file; registered by polydevice" if icd.registered_by_us else ""
    return Finding("driver", _title(icd), Verdict.FOUND, note)


def _judge_platforms(platforms: Sequence[_Answer]) -> list[Finding]:
    findings = []
    for platform in platforms:
        name = f"{platform['name']} ({platform['version']})"
        if platform["devices"]:
            findings.append(Finding("platform", name, Verdict.FOUND))
        elif "rusticl" in platform["name"].lower():
            fix = "name the GPU's Mesa driver, for example RUSTICL_ENABLE=radeonsi or iris"
            findings.append(_rejected("platform", name, "offers no device: none is enabled", fix))
        elif "portable computing" in platform["name"].lower():
            fix = "it needs a folder for what it compiles: name a writable one in POCL_CACHE_DIR"
            findings.append(_rejected("platform", name, "offers no device", fix))
        else:
            fix = "check that the GPU is visible here and that you may open its device node"
            findings.append(_rejected("platform", name, "offers no device", fix))
    return findings


def _nothing_installed() -> Finding:
    folders = ", ".join(str(folder) for folder in vendor_folders())
    return _rejected(
        "driver",
        "OpenCL",
        f"no OpenCL driver is installed: no .icd file in {folders}",
        "install the GPU vendor's OpenCL driver; to use the CPU, PoCL: apt install pocl-opencl-icd",
    )


def _platforms(outcome: child_process.Outcome) -> list[_Answer]:
    if outcome.status != "ok":
        return []
    return [platform for m in outcome.messages for platform in m.get("platforms", [])]


def _devices(platforms: Sequence[_Answer]) -> tuple[DeviceFacts, ...]:
    return tuple(
        DeviceFacts.parse(platform, p, d)
        for p, platform in enumerate(platforms)
        for d in range(len(platform["devices"]))
    )


def _title(icd: Icd) -> str:
    return f"{icd.source} ({icd.driver})" if icd.driver else icd.source


def _rejected(kind: str, name: str, reason: str, fix: str) -> Finding:
    return Finding(kind, name, Verdict.REJECTED, reason, fix)
