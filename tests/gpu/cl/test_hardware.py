"""GPUs without a driver and device nodes without permission, on a made-up /sys and /dev."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from polydevice_gpu.cl.discovery.facts import Icd, Verdict
from polydevice_gpu.cl.discovery.hardware import inspect_hardware


def pci(root: Path, address: str, kind: str, vendor: str) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "class").write_text(f"{kind}\n")
    (folder / "vendor").write_text(f"{vendor}\n")


@pytest.mark.parametrize(
    ("kind", "vendor", "name", "fix"),
    [
        ("0x030000", "0x8086", "Intel", "intel-opencl-icd"),
        ("0x030200", "0x10de", "NVIDIA", "--gpus"),
        ("0x120000", "0x1002", "AMD", "rocm-opencl-runtime"),
    ],
)
def test_gpu_without_a_driver(tmp_path, kind, vendor, name, fix) -> None:
    pci(tmp_path, "0000:01:00.0", kind, vendor)
    (finding,) = inspect_hardware([], tmp_path)
    assert finding.verdict is Verdict.REJECTED
    assert finding.name == f"{name} GPU at PCI 0000:01:00.0"
    assert fix in finding.fix


def test_gpu_with_its_driver_is_fine(tmp_path) -> None:
    pci(tmp_path, "0000:00:02.0", "0x030000", "0x8086")
    icd = Icd("intel.icd", "/usr/lib/x86_64-linux-gnu/intel-opencl/libigdrcl.so", "file")
    (finding,) = inspect_hardware([icd], tmp_path)
    assert finding.verdict is Verdict.FOUND


def test_what_is_no_gpu_of_these_vendors_is_left_alone(tmp_path) -> None:
    pci(tmp_path, "0000:00:1f.0", "0x060100", "0x8086")  # a bridge
    pci(tmp_path, "0000:00:01.0", "0x030000", "0x1234")  # a virtual machine's display
    assert inspect_hardware([], tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="device nodes are a matter of POSIX")
@pytest.mark.parametrize("node", ["dri/renderD128", "kfd", "nvidiactl", "nvidia0"])
def test_node_without_permission(tmp_path, monkeypatch, node) -> None:
    path = tmp_path / "dev" / node
    path.parent.mkdir(parents=True)
    path.touch()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may open everything
    monkeypatch.setattr(Path, "group", lambda _: "render")
    (finding,) = inspect_hardware([], tmp_path)
    assert finding.name == str(path)
    assert "sudo usermod -aG render" in finding.fix
