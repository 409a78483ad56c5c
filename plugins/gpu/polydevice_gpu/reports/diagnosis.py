"""What `polydevice doctor` says about OpenCL: loader, drivers, probes' answers, known troubles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from polydevice.plugin import Line, Section
from polydevice_gpu.cl import library
from polydevice_gpu.cl.capabilities import NOT_ASKED, ProbedCapabilities, probed_capabilities
from polydevice_gpu.cl.discovery.facts import DeviceFacts
from polydevice_gpu.cl.discovery.icd import list_icds, vendor_folders
from polydevice_gpu.cl.discovery.report import Report
from polydevice_gpu.cl.discovery.troubles import TROUBLES, mend
from polydevice_gpu.tuning.pretuned import beginning, shipped_for


def diagnose(report: Report, seconds: float) -> list[Section]:
    """Return the sections after the list of what was looked at.

    Args:
        report: what discovery found.
        seconds: what all devices' probes may take, where their answers are not known yet.
    """
    sections = [Section("OpenCL loader and .icd files", (*_loader(), *_icd_files()))]
    found = report.enumeration
    for device in report.devices:
        facts = device.facts
        limit_s = seconds / len(report.devices)
        answers = probed_capabilities(facts, found.twin(facts), found.drivers, limit_s=limit_s)
        title = (
            f"GPU.{device.id}: {facts.name}, {facts.platform_name}, driver {facts.driver_version}"
        )
        sections.append(Section(title, tuple(_probes(facts, *answers))))
    sections.append(Section("Pretuned kernels", tuple(_pretuned(report))))
    sections.append(Section("Known troubles of these drivers", tuple(_troubles(found.devices))))
    return sections


def _loader() -> Iterator[Line]:
    """Name the file behind the OpenCL functions, and where it comes from."""
    try:
        library.library()
    except OSError as error:
        fix = "pip install --force-reinstall pyopencl"
        yield Line("loader", "cannot be opened", str(error), fix)
        return
    files = _mapped_files()
    if library.preloaded():
        origin = "preloaded: it takes the place of all drivers"
    elif any("pyopencl" in Path(file).parts for file in files):
        origin = "of pyopencl's package"
    else:
        origin = "of this system"
    asked, extension = library.find_library()
    via = f", through {asked}" if extension else ""
    yield Line("loader", ", ".join(files) or "unknown file", origin + via)


def _mapped_files() -> list[str]:
    """Return the loader's files in this process; empty where the system does not tell."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[-1] for line in lines}
    return sorted(path for path in paths if "opencl" in Path(path).name.lower())


def _icd_files() -> Iterator[Line]:
    yield Line("folders of .icd files", ", ".join(str(folder) for folder in vendor_folders()))
    icds, unreadable = list_icds()
    for icd in icds:
        note = "registered by polydevice" if icd.registered_by_us else ""
        yield Line(icd.source, icd.driver or "(no library)", note)
    for path, why in unreadable:
        yield Line(path, "left out", why, "repair or remove it")
    if not icds and not unreadable:
        fix = "install the GPU vendor's OpenCL driver; to use the CPU: apt install pocl-opencl-icd"
        yield Line("drivers", "none", "no .icd file in these folders", fix)


def _probes(
    facts: DeviceFacts, probed: ProbedCapabilities, reasons: dict[str, str]
) -> Iterator[Line]:
    if "open" in reasons:
        leave = f"leave the device out with POLYDEVICE_GPU_DEVICES=not:{facts.name}"
        fix = f"{mend(facts.platform_name)}, or {leave}"
        yield Line("probes", "could not run", reasons["open"], fix)
        return
    late = [name for name, why in reasons.items() if why == NOT_ASKED]
    for field in fields(probed):
        if field.name not in late:
            answer = getattr(probed, field.name)
            yield Line(field.name, _word(answer), reasons.get(field.name, ""))
    if late:
        fix = "load any network on the device: then all are asked, and the answers kept"
        yield Line(", ".join(late), "not known", NOT_ASKED, fix)


def _pretuned(report: Report) -> Iterator[Line]:
    for device in report.devices:
        files = list(shipped_for(device.facts))
        if not files:
            yield Line(f"GPU.{device.id}", "none shipped", f"{beginning(device.facts)}….json")
        for path, counts in files:
            answer = "shipped" if counts else "not used: of other kernels"
            yield Line(f"GPU.{device.id}", answer, path.name)


def _word(answer: Any) -> str:
    if isinstance(answer, bool):
        return "yes" if answer else "no"
    if isinstance(answer, tuple):
        return ", ".join(map(str, answer)) or "none"
    return str(answer)


def _troubles(devices: tuple[DeviceFacts, ...]) -> Iterator[Line]:
    known = False
    for trouble in TROUBLES:
        if any(trouble.concerns(device) for device in devices):
            known = True
            yield Line(trouble.driver, trouble.wrong, f"polydevice {trouble.answer}", trouble.fix)
    if not known:
        yield Line("none", "that polydevice knows of; docs/drivers.md lists what was tried")
