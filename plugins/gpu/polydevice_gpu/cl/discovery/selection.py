"""Which of the devices found are GPU.0, GPU.1, …: the rule, as the user wrote it.

Grammar, in `GPU_DEVICES` or the environment variable `POLYDEVICE_GPU_DEVICES`::

    terms     = term {"," term}
    term      = "all-gpus"       every device that its driver calls a GPU (the default)
              | "intel"          the original rule: Intel's platform, a GPU of vendor 0x8086 whose
                                 queues run out of order
              | "cpu"            CPU-type OpenCL devices (PoCL, Intel's CPU runtime)
              | "accelerator"    accelerator-type devices
              | "name:" text     devices of any type with this text in the name of device or
                                 platform, or in their version; upper and lower case are equal
              | "not:" text      none of those, whatever else admits them

A device is admitted when any term admits it and no ``not:`` term excludes it. With ``not:`` terms
only, ``all-gpus`` is meant.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from polydevice.errors import OptionValueError, nearest
from polydevice_gpu.cl.discovery.facts import DeviceFacts, Finding, Verdict

VARIABLE = "POLYDEVICE_GPU_DEVICES"
OPTION = "GPU_DEVICES"
DEFAULT = "all-gpus"
_WORDS = ("all-gpus", "intel", "cpu", "accelerator")
LEGAL = "all-gpus, intel, cpu, accelerator, name:TEXT, not:TEXT; several separated by commas"
_INTEL_PLATFORM = "Intel(R) Corporation"
_INTEL_VENDOR_ID = 0x8086
_MINIMUM_LOCAL_BYTES = 16 * 1024


@dataclass(frozen=True)
class Selection:
    """A parsed rule. `words` are the plain terms, `names` and `excluded` lower-case texts."""

    text: str
    words: frozenset[str]
    names: tuple[str, ...]
    excluded: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Selection:
        """Read a rule; an empty text is the default.

        Raises:
            ValueError: naming the term and the legal ones.
        """
        words: set[str] = set()
        names: list[str] = []
        excluded: list[str] = []
        for term in (part.strip() for part in (text or DEFAULT).split(",")):
            prefix, colon, rest = term.partition(":")
            prefix, rest = prefix.strip().lower(), rest.strip().lower()
            if not colon and prefix in _WORDS:
                words.add(prefix)
            elif colon and rest and prefix in ("name", "not"):
                (names if prefix == "name" else excluded).append(rest)
            else:
                hint = nearest(prefix, (*_WORDS, "name", "not"))
                raise ValueError(f"the term {term!r} is unknown.{hint} legal: {LEGAL}")
        if not words and not names:
            words.add(DEFAULT)
        return cls(text or DEFAULT, frozenset(words), tuple(names), tuple(excluded))

    @classmethod
    def from_environment(cls) -> Selection:
        """Read the rule from the environment variable; the default if it is not set.

        Raises:
            OptionValueError: naming the variable, the term and the legal ones.
        """
        text = os.environ.get(VARIABLE, "")
        try:
            return cls.parse(text)
        except ValueError as error:
            raise OptionValueError(f"{VARIABLE}={text!r}: {error}") from None


@dataclass(frozen=True)
class AdmittedDevice:
    """A device with its id: ``"0"`` is GPU and GPU.0."""

    id: str
    facts: DeviceFacts


def select(
    devices: Sequence[DeviceFacts], selection: Selection
) -> tuple[tuple[AdmittedDevice, ...], tuple[Finding, ...]]:
    """Admit devices and number them: integrated GPUs, then other GPUs, then the rest.

    Within each group the order is the drivers'. Returns the admitted devices and one finding for
    every device.
    """
    judged = [(device, *_judge(device, selection)) for device in devices]
    admitted = sorted((d for d, reason, _ in judged if not reason), key=_rank)
    numbered = tuple(AdmittedDevice(str(n), facts) for n, facts in enumerate(admitted))
    ids = {id(device.facts): device.id for device in numbered}
    findings = tuple(
        Finding("device", describe(device), Verdict.REJECTED, reason, fix)
        if reason
        else Finding("device", describe(device), Verdict.ADMITTED, f"GPU.{ids[id(device)]}")
        for device, reason, fix in judged
    )
    return numbered, findings


def describe(device: DeviceFacts) -> str:
    """Name a device the way a report does."""
    return f"{device.name} [{device.kind}] on {device.platform_name}"


def _rank(device: DeviceFacts) -> tuple[int, int, int]:
    group = 0 if device.is_integrated else 1 if device.is_gpu else 2
    return group, device.platform_index, device.device_index


def _judge(device: DeviceFacts, selection: Selection) -> tuple[str, str]:
    """Return (reason, fix); the reason is empty if the device is admitted."""
    missing = _missing_feature(device)
    if missing:
        return missing
    texts = (device.name, device.platform_name, device.platform_version, device.version)
    searched = " | ".join(texts).lower()
    for text in selection.excluded:
        if text in searched:
            return f"excluded by not:{text}", f"remove not:{text} from {OPTION} or {VARIABLE}"
    if any(text in searched for text in selection.names):
        return "", ""
    return _judge_kind(device, selection)


def _judge_kind(device: DeviceFacts, selection: Selection) -> tuple[str, str]:
    words = selection.words
    if device.is_gpu:
        if "all-gpus" in words or ("intel" in words and not _why_not_intel(device)):
            return "", ""
        if "intel" in words:
            return (
                f"the rule 'intel' is set, and {_why_not_intel(device)}",
                f"admit every vendor's GPU: {VARIABLE}=all-gpus",
            )
        return f"the rule {selection.text!r} admits no GPU", f"add all-gpus to {VARIABLE}"
    term = {"CPU": "cpu", "accelerator": "accelerator"}.get(device.kind)
    if term is None:
        return "devices of custom type run built-in kernels only", "use another device"
    if term in words:
        return "", ""
    return (
        f"it is a {device.kind}-type OpenCL device, which the rule {selection.text!r} leaves out",
        f"admit it with {VARIABLE}={selection.text},{term}",
    )


def _why_not_intel(device: DeviceFacts) -> str:
    if device.platform_vendor != _INTEL_PLATFORM:
        return f"the platform's vendor is {device.platform_vendor!r}"
    if device.vendor_id != _INTEL_VENDOR_ID:
        return f"the vendor id is {device.vendor_id:#x}, not {_INTEL_VENDOR_ID:#x}"
    return "" if device.out_of_order else "its queues cannot run out of order"


def _missing_feature(device: DeviceFacts) -> tuple[str, str] | None:
    """Say which feature that every kernel needs is missing, and what to do."""
    update = "update the driver, or use another device"
    if not device.available:
        return "the driver says that it is not available now", "see whether something else holds it"
    if device.opencl_version < (1, 2):
        return f"it offers {device.version or 'no version'}; OpenCL 1.2 is needed", update
    if not device.compiler_available:
        return "its driver has no OpenCL C compiler", "install the vendor's full OpenCL driver"
    if not device.little_endian:
        return "it is big-endian", "use another device"
    if device.local_memory_bytes < _MINIMUM_LOCAL_BYTES:
        have = device.local_memory_bytes
        return f"it has {have} bytes of local memory; {_MINIMUM_LOCAL_BYTES} are needed", update
    return None
