"""Who is admitted, in which order, and what the others are told."""

from __future__ import annotations

import pytest

from polydevice.errors import OptionValueError
from polydevice_gpu.cl.discovery.facts import DeviceFacts, Verdict
from polydevice_gpu.cl.discovery.selection import Selection, select

GPU, CPU, ACCELERATOR, CUSTOM = 4, 2, 8, 16


def device(name: str, **facts: object) -> DeviceFacts:
    usual: dict[str, object] = {
        "platform_name": "P",
        "platform_vendor": "V",
        "platform_version": "OpenCL 3.0",
        "platform_index": 0,
        "device_index": 0,
        "name": name,
        "version": "OpenCL 3.0",
        "type": GPU,
        "available": 1,
        "compiler_available": 1,
        "little_endian": 1,
        "local_memory_bytes": 32768,
        "queue_properties": 3,
    }
    return DeviceFacts(**{**usual, **facts})  # type: ignore[arg-type]


def intel(name: str, **facts: object) -> DeviceFacts:
    return device(name, **{"platform_vendor": "Intel(R) Corporation", "vendor_id": 0x8086, **facts})


NVIDIA = device("H100", vendor_id=0x10DE)
AMD_INTEGRATED = device("Radeon 780M", vendor_id=0x1002, unified_memory=1, platform_index=2)
INTEL_INTEGRATED = intel("UHD Graphics 770", unified_memory=1, platform_index=1)
INTEL_DISCRETE = intel("Arc A770", platform_index=1, device_index=1)
POCL = device("cpu-haswell", type=CPU, unified_memory=1, platform_name="Portable Computing "
              "Language", platform_version="OpenCL 3.0 PoCL 5.0", platform_index=3)  # fmt: skip
INTEL_CPU = intel("Xeon", type=CPU, unified_memory=1, platform_index=4)
MACHINE = [NVIDIA, INTEL_INTEGRATED, INTEL_DISCRETE, AMD_INTEGRATED, POCL, INTEL_CPU]


def admitted(rule: str, devices: list[DeviceFacts] = MACHINE) -> list[str]:
    return [d.facts.name for d in select(devices, Selection.parse(rule))[0]]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("", ["UHD Graphics 770", "Radeon 780M", "H100", "Arc A770"]),
        ("all-gpus", ["UHD Graphics 770", "Radeon 780M", "H100", "Arc A770"]),
        ("intel", ["UHD Graphics 770", "Arc A770"]),
        ("cpu", ["cpu-haswell", "Xeon"]),
        ("intel, cpu", ["UHD Graphics 770", "Arc A770", "cpu-haswell", "Xeon"]),
        ("ALL-GPUS,CPU", ["UHD Graphics 770", "Radeon 780M", "H100", "Arc A770", "cpu-haswell",
                          "Xeon"]),
        ("name:pocl", ["cpu-haswell"]),
        ("name:arc,name:h100", ["H100", "Arc A770"]),
        ("not:intel,not:h100", ["UHD Graphics 770", "Radeon 780M", "Arc A770"]),
        ("not:arc", ["UHD Graphics 770", "Radeon 780M", "H100"]),
        ("name:graphics,not:uhd", []),
        ("accelerator", []),
    ],
)  # fmt: skip
def test_rule(rule: str, expected: list[str]) -> None:
    assert admitted(rule) == expected


def test_ids_follow_the_order() -> None:
    devices, _ = select(MACHINE, Selection.parse("all-gpus"))
    assert [d.id for d in devices] == ["0", "1", "2", "3"]


def test_order_does_not_depend_on_that_of_the_list() -> None:
    assert admitted("all-gpus", MACHINE[::-1]) == admitted("all-gpus")


def test_every_device_has_a_finding_and_every_refusal_a_fix() -> None:
    devices, findings = select(MACHINE, Selection.parse("intel"))
    assert len(findings) == len(MACHINE)
    for finding in findings:
        if finding.verdict is Verdict.REJECTED:
            assert finding.reason
            assert finding.fix
    assert sum(f.verdict is Verdict.ADMITTED for f in findings) == len(devices)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"version": "OpenCL 1.1 CUDA"}, "OpenCL 1.2 is needed"),
        ({"version": "nonsense"}, "OpenCL 1.2 is needed"),
        ({"compiler_available": 0}, "no OpenCL C compiler"),
        ({"available": 0}, "not available now"),
        ({"little_endian": 0}, "big-endian"),
        ({"local_memory_bytes": 0}, "0 bytes of local memory"),
        ({"type": CUSTOM}, "custom type"),
    ],
)
def test_missing_feature(facts: dict[str, object], reason: str) -> None:
    devices, (finding,) = select([device("X", **facts)], Selection.parse("all-gpus,cpu"))
    assert not devices
    assert reason in finding.reason


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"platform_vendor": "Mesa"}, "'Mesa'"),
        ({"vendor_id": 0x10DE}, "0x10de"),
        ({"queue_properties": 2}, "out of order"),
    ],
)
def test_original_rule_names_what_does_not_fit(facts: dict[str, object], reason: str) -> None:
    devices, (finding,) = select([intel("X", **facts)], Selection.parse("intel"))
    assert not devices
    assert reason in finding.reason
    assert "all-gpus" in finding.fix


def test_cpu_device_names_the_setting_that_admits_it() -> None:
    _, (finding,) = select([POCL], Selection.parse("all-gpus,not:xeon"))
    rule = finding.fix.partition("=")[2]
    assert admitted(rule, [POCL]) == ["cpu-haswell"]


@pytest.mark.parametrize(
    "rule", ["gpu", "all-gpu", "name", "name:", "not: ", "intel;cpu", "cpu,", ",", "vendor:intel"]
)
def test_rule_that_is_not_legal_names_the_legal_terms(rule: str, monkeypatch) -> None:
    monkeypatch.setenv("POLYDEVICE_GPU_DEVICES", rule)
    with pytest.raises(OptionValueError, match=r"POLYDEVICE_GPU_DEVICES=.*all-gpus, intel, cpu"):
        Selection.from_environment()
