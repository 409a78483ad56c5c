"""The GPU family through the core: names, metrics, explanations."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from polydevice import Core
from polydevice.errors import DeviceNotFoundError, OptionValueError, UnknownMetricError
from polydevice_gpu import cl, plugin
from polydevice_gpu.cl.capabilities import Capabilities
from polydevice_gpu.cl.discovery import Report, Selection, select
from polydevice_gpu.cl.discovery.facts import DeviceFacts, Enumeration
from polydevice_gpu.reports.peak import gops

METRICS = [
    "AVAILABLE_DEVICES", "SUPPORTED_METRICS", "FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES",
    "SUPPORTED_CONFIG_KEYS", "RANGE_FOR_ASYNC_INFER_REQUESTS", "RANGE_FOR_STREAMS", "DEVICE_TYPE",
    "DEVICE_PCI_ADDRESS", "DEVICE_GOPS", "GPU_DEVICE_TOTAL_MEM_SIZE", "GPU_UARCH_VERSION",
    "GPU_EXECUTION_UNITS_COUNT",
]  # fmt: skip


def facts(name: str, **others: object) -> DeviceFacts:
    usual: dict[str, object] = {
        "platform_name": "P", "platform_vendor": "Intel(R) Corporation", "platform_version": "3.0",
        "platform_index": 0, "device_index": 0, "name": name, "version": "OpenCL 3.0", "type": 4,
        "vendor_id": 0x8086, "available": 1, "compiler_available": 1, "little_endian": 1,
        "local_memory_bytes": 65536, "queue_properties": 3, "global_memory_bytes": 1 << 34,
        "max_compute_units": 96, "max_clock_mhz": 1500, "ip_version_intel": 0x000C0007,
    }  # fmt: skip
    return DeviceFacts(**{**usual, **others})  # type: ignore[arg-type]


ARC = facts("Intel(R) Arc(TM) A770 Graphics", device_index=1)
UHD = facts("Intel(R) UHD Graphics 770 [0x4680] NEO ", unified_memory=1)
H100 = facts(
    "NVIDIA H100 80GB HBM3", platform_vendor="NVIDIA Corporation", vendor_id=0x10DE,
    platform_index=1, compute_capability_major_nv=9, max_compute_units=132, max_clock_mhz=1980,
    ip_version_intel=0,
)  # fmt: skip
POCL = facts("cpu-haswell", type=2, unified_memory=1, platform_index=2, ip_version_intel=6)


@pytest.fixture
def machine(monkeypatch):
    """Pretend that the machine has these devices."""

    def pretend(*devices: DeviceFacts) -> Core:
        found = Enumeration(devices=devices)

        def discover(selection: Selection) -> Report:
            admitted, findings = select(devices, selection)
            return Report(admitted, findings, found)

        monkeypatch.setattr(plugin.cl, "discover", discover)
        monkeypatch.setenv("POLYDEVICE_GPU_DEVICES", "all-gpus")
        return Core()

    return pretend


def gpus(core: Core) -> list[str]:
    return [name for name in core.available_devices if name.startswith("GPU")]


def test_integrated_gpu_is_number_0_and_others_follow_in_driver_order(machine) -> None:
    with machine(ARC, H100, UHD) as core:
        assert gpus(core) == ["GPU.0", "GPU.1", "GPU.2"]
        names = [core.get_metric(name, "FULL_DEVICE_NAME") for name in gpus(core)]
        assert names == [
            "Intel(R) UHD Graphics 770 [0x4680] (iGPU)",
            "Intel(R) Arc(TM) A770 Graphics (dGPU)",
            "NVIDIA H100 80GB HBM3 (dGPU)",
        ]
        assert core.get_metric("GPU", "FULL_DEVICE_NAME") == names[0]


def test_one_gpu_has_the_bare_name(machine) -> None:
    with machine(H100, POCL) as core:
        assert gpus(core) == ["GPU"]
        (report,) = [r for r in core.explain_devices() if r.device.startswith("GPU")]
        assert report.device == "GPU"


def test_original_rule_and_cpu_devices_by_configuration(machine) -> None:
    with machine(ARC, H100, UHD, POCL) as core:
        core.set_config({"GPU_DEVICES": "intel"}, "GPU")
        assert core.get_metric("GPU", "AVAILABLE_DEVICES") == ["0", "1"]
        core.set_config({"GPU_DEVICES": "cpu"}, "GPU")
        assert gpus(core) == ["GPU"]
        assert core.get_metric("GPU", "FULL_DEVICE_NAME") == "cpu-haswell (CPU)"
        core.set_config({"GPU_DEVICES": "name:h100"}, "GPU")
        assert core.get_metric("GPU", "FULL_DEVICE_NAME") == "NVIDIA H100 80GB HBM3 (dGPU)"


def test_what_was_left_out_is_in_the_error(machine) -> None:
    with machine(POCL) as core:
        assert gpus(core) == []
        with pytest.raises(DeviceNotFoundError) as caught:
            core.get_metric("GPU", "FULL_DEVICE_NAME")
    assert "cpu-haswell" in str(caught.value)
    assert "POLYDEVICE_GPU_DEVICES=all-gpus,cpu" in str(caught.value)


def test_metrics_of_facts(machine) -> None:
    with machine(UHD, H100) as core:
        assert sorted(core.get_metric("GPU.0", "SUPPORTED_METRICS")) == sorted(METRICS)
        assert core.get_metric("GPU.0", "DEVICE_TYPE") == "integrated"
        assert core.get_metric("GPU.1", "DEVICE_TYPE") == "discrete"
        assert core.get_metric("GPU.0", "GPU_UARCH_VERSION") == "12.0.7"
        assert core.get_metric("GPU.1", "GPU_UARCH_VERSION") == "9.0"
        assert core.get_metric("GPU.1", "GPU_EXECUTION_UNITS_COUNT") == 132
        assert core.get_metric("GPU.1", "GPU_DEVICE_TOTAL_MEM_SIZE") == 1 << 34
        assert core.get_metric("GPU", "RANGE_FOR_ASYNC_INFER_REQUESTS") == (1, 2, 1)
        assert core.get_metric("GPU", "RANGE_FOR_STREAMS") == (1, 2)
        with pytest.raises(UnknownMetricError, match="DEVICE_THERMAL"):
            core.get_metric("GPU", "DEVICE_THERMAL")


def test_speed_of_intel_follows_the_documented_formula() -> None:
    intel = replace(UHD, extensions="cl_intel_device_attribute_query")
    clock_times_units = 1.5 * 96
    assert gops(intel, Capabilities(dp4a=True)) == {
        "I8": clock_times_units * 64,
        "U8": clock_times_units * 64,
        "FP16": clock_times_units * 32,
        "FP32": clock_times_units * 16,
    }
    assert gops(intel, Capabilities())["I8"] == clock_times_units * 32 * 0.5


def test_speed_of_an_h100_is_that_of_its_data_sheet() -> None:
    """At 1.83 GHz boost, SXM5: 67 TFLOP/s f32, 989 f16, 1979 TOP/s int8, all dense."""
    speed = gops(replace(H100, max_clock_mhz=1830), Capabilities(tensor_cores_ptx=True))
    assert speed["FP32"] == pytest.approx(67_000, rel=0.1)
    assert speed["FP16"] == pytest.approx(989_000, rel=0.01)
    assert speed["I8"] == pytest.approx(1_979_000, rel=0.01)


def test_metrics_of_the_device_that_is_here() -> None:
    if not cl.discover().devices:
        pytest.skip(f"no OpenCL device here:\n{cl.discover().text()}")
    with Core() as core:
        capabilities = core.get_metric("GPU", "OPTIMIZATION_CAPABILITIES")
        assert capabilities[:3] == ["FP32", "BIN", "BATCHED_BLOB"]
        assert set(core.get_metric("GPU", "DEVICE_GOPS")) >= {"I8", "U8", "FP16", "FP32"}


def test_variable_that_is_not_legal(monkeypatch) -> None:
    monkeypatch.setenv("POLYDEVICE_GPU_DEVICES", "gpus")
    with Core() as core:
        assert gpus(core) == []
        with pytest.raises(OptionValueError, match="POLYDEVICE_GPU_DEVICES='gpus'"):
            core.get_metric("GPU", "FULL_DEVICE_NAME")
        assert any("POLYDEVICE_GPU_DEVICES='gpus'" in r.reason for r in core.explain_devices())


def test_importing_the_plugin_and_listing_devices_loads_no_opencl() -> None:
    program = """if True:
        import sys
        import polydevice_gpu
        assert "pydantic" not in sys.modules
        from polydevice import Core
        with Core() as core:
            core.available_devices
        assert "pyopencl" not in sys.modules
        assert "OpenCL" not in open("/proc/self/maps").read()
    """
    if not sys.platform.startswith("linux"):
        pytest.skip("reads the list of loaded libraries from /proc")
    subprocess.run([sys.executable, "-c", program], check=True, env=dict(os.environ), timeout=60)
