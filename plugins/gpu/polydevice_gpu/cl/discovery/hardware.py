"""GPUs that the kernel shows but no OpenCL driver serves, and device nodes nobody may open.

Linux only; elsewhere it finds nothing. Reads /sys and asks for permissions, opens no device.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polydevice_gpu.cl.discovery.facts import Finding, Icd, Verdict

_DISPLAY_CLASS = 0x03
_PROCESSING_ACCELERATOR = 0x1200


@dataclass(frozen=True)
class _Vendor:
    """How a vendor's OpenCL driver is recognised, and how it is installed."""

    name: str
    libraries: tuple[str, ...]
    install: str


_VENDORS = {
    0x8086: _Vendor(
        "Intel",
        ("igdrcl", "igdrclonce", "rusticl", "RusticlOpenCL", "beignet"),
        "install Intel's compute runtime: apt install intel-opencl-icd",
    ),
    0x10DE: _Vendor(
        "NVIDIA",
        ("nvidia", "rusticl", "RusticlOpenCL", "MesaOpenCL"),
        "install NVIDIA's driver; in a container pass --gpus all and "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ),
    0x1002: _Vendor(
        "AMD",
        ("amdocl", "rusticl", "RusticlOpenCL", "MesaOpenCL"),
        "install AMD's OpenCL driver: apt install rocm-opencl-runtime, or mesa-opencl-icd",
    ),
}

NODES = ("dev/dri/renderD*", "dev/kfd", "dev/nvidiactl", "dev/nvidia[0-9]*")
"""Where device nodes of GPUs are, below the root."""


def inspect_hardware(icds: Sequence[Icd], root: Path = Path("/")) -> list[Finding]:
    """Report GPUs on the PCI bus without a driver, and device nodes without permission."""
    return [*_gpus(icds, root), *_nodes(root)]


def _gpus(icds: Sequence[Icd], root: Path) -> list[Finding]:
    findings = []
    for device in sorted((root / "sys/bus/pci/devices").glob("*")):
        kind, vendor = _hex(device / "class"), _hex(device / "vendor")
        known = _VENDORS.get(vendor)
        if known is None or not (
            kind >> 16 == _DISPLAY_CLASS or kind >> 8 == _PROCESSING_ACCELERATOR
        ):
            continue
        name = f"{known.name} GPU at PCI {device.name}"
        if any(part in icd.driver for icd in icds for part in known.libraries):
            findings.append(Finding("hardware", name, Verdict.FOUND))
        else:
            reason = f"no OpenCL driver of {known.name} is registered"
            findings.append(Finding("hardware", name, Verdict.REJECTED, reason, known.install))
    return findings


def _hex(path: Path) -> int:
    try:
        return int(path.read_text().strip(), 16)
    except (OSError, ValueError):
        return 0


def _nodes(root: Path) -> list[Finding]:
    findings = []
    for pattern in NODES:
        for node in sorted(root.glob(pattern)):
            if os.access(node, os.R_OK | os.W_OK):
                continue
            group = _group(node)
            reason = "this user may not open the device node for reading and writing"
            fix = (
                f"sudo usermod -aG {group} $USER, then log in again"
                if group and group != "root"
                else f"ask an administrator for read and write permission on {node}"
            )
            findings.append(Finding("device node", str(node), Verdict.REJECTED, reason, fix))
    return findings


def _group(node: Path) -> str:
    try:
        return node.group()
    except (KeyError, OSError, NotImplementedError):
        return ""
