"""What drivers said about themselves, and what was found wrong: plain data."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from typing import Any

_GPU = 1 << 2
_CPU = 1 << 1
_ACCELERATOR = 1 << 3
_OUT_OF_ORDER = 1


class Verdict(enum.Enum):
    """What became of something that discovery looked at."""

    ADMITTED = "admitted"
    FOUND = "found"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Finding:
    """One line of the report: a loader, driver (ICD), platform, device or piece of hardware.

    `reason` says why it was rejected or what is remarkable; `fix` is what to do about it.
    """

    kind: str
    name: str
    verdict: Verdict
    reason: str = ""
    fix: str = ""


@dataclass(frozen=True)
class Icd:
    """An installable client driver: a library, and the file (or rule) that names it."""

    name: str
    driver: str
    source: str
    registered_by_us: bool = False


@dataclass(frozen=True)
class DeviceFacts:
    """What a driver answered about one device, asked in a child process.

    `platform_index` and `device_index` are its place in driver order; `single_precision` has
    OpenCL's bits of CL_DEVICE_SINGLE_FP_CONFIG. Numbers a driver does not know are 0.
    """

    platform_name: str
    platform_vendor: str
    platform_version: str
    platform_index: int
    device_index: int
    name: str = ""
    vendor: str = ""
    driver_version: str = ""
    profile: str = ""
    version: str = ""
    extensions: str = ""
    opencl_c_version: str = ""
    type: int = 0
    vendor_id: int = 0
    max_compute_units: int = 0
    max_work_group_size: int = 0
    max_work_item_sizes: tuple[int, ...] = ()
    preferred_vector_width_char: int = 0
    preferred_vector_width_float: int = 0
    preferred_vector_width_half: int = 0
    native_vector_width_float: int = 0
    max_clock_mhz: int = 0
    max_allocation_bytes: int = 0
    image_support: int = 0
    address_alignment_bits: int = 0
    single_precision: int = 0
    global_memory_bytes: int = 0
    local_memory_kind: int = 0
    local_memory_bytes: int = 0
    little_endian: int = 0
    available: int = 0
    compiler_available: int = 0
    queue_properties: int = 0
    unified_memory: int = 0
    ip_version_intel: int = 0
    feature_capabilities_intel: int = 0
    compute_capability_major_nv: int = 0
    compute_capability_minor_nv: int = 0
    pci_address: str = ""

    @property
    def is_gpu(self) -> bool:
        """Whether the driver calls it a GPU."""
        return bool(self.type & _GPU)

    @property
    def is_cpu(self) -> bool:
        """Whether the driver calls it a CPU."""
        return bool(self.type & _CPU)

    @property
    def kind(self) -> str:
        """``GPU``, ``CPU``, ``accelerator`` or ``custom``."""
        if self.is_gpu:
            return "GPU"
        if self.is_cpu:
            return "CPU"
        return "accelerator" if self.type & _ACCELERATOR else "custom"

    @property
    def is_integrated(self) -> bool:
        """Whether it is a GPU that shares its memory with the host."""
        return self.is_gpu and bool(self.unified_memory)

    @property
    def out_of_order(self) -> bool:
        """Whether queues can run out of order."""
        return bool(self.queue_properties & _OUT_OF_ORDER)

    @property
    def opencl_version(self) -> tuple[int, int]:
        """Device version as (major, minor); (0, 0) if the text is not as specified."""
        parts = self.version.split()
        try:
            major, minor = parts[1].split(".")[:2]
            return int(major), int(minor)
        except (IndexError, ValueError):
            return 0, 0

    @property
    def extension_names(self) -> frozenset[str]:
        """Names of the extensions that the driver claims."""
        return frozenset(self.extensions.split())

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What tells it from others; equal for twins on one platform."""
        return self.platform_name, self.platform_version, self.name, self.driver_version

    @classmethod
    def parse(cls, platform: dict[str, Any], platform_index: int, device_index: int) -> DeviceFacts:
        """Make facts from a child process's report, ignoring what this version does not know."""
        answers = dict(platform["devices"][device_index])
        answers["max_work_item_sizes"] = tuple(answers.get("max_work_item_sizes", ()))
        known = {f.name for f in fields(cls)}
        return cls(
            platform_name=str(platform["name"]),
            platform_vendor=str(platform["vendor"]),
            platform_version=str(platform["version"]),
            platform_index=platform_index,
            device_index=device_index,
            **{key: value for key, value in answers.items() if key in known},
        )


@dataclass(frozen=True)
class Enumeration:
    """Everything discovery found before any device was admitted.

    `findings` hold the loader, drivers, platforms and hardware; devices get theirs on selection.
    `drivers` are the ICDs that this process may load; None means all that the loader finds.
    """

    devices: tuple[DeviceFacts, ...] = ()
    drivers: tuple[Icd, ...] | None = ()
    findings: tuple[Finding, ...] = ()

    def twin(self, facts: DeviceFacts) -> int:
        """Number a device among those that say the same about themselves (equal GPUs)."""
        place = (facts.platform_index, facts.device_index)
        return sum(
            other.identity == facts.identity and (other.platform_index, other.device_index) < place
            for other in self.devices
        )
