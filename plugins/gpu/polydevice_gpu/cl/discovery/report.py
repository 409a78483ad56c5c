"""The result of discovery, and how it reads."""

from __future__ import annotations

from dataclasses import dataclass

from polydevice.errors import DeviceNotFoundError
from polydevice_gpu.cl.discovery.facts import Enumeration, Finding, Verdict
from polydevice_gpu.cl.discovery.selection import AdmittedDevice


@dataclass(frozen=True)
class Report:
    """Admitted devices in the order of their ids, and a finding for everything looked at."""

    devices: tuple[AdmittedDevice, ...]
    findings: tuple[Finding, ...]
    enumeration: Enumeration

    def device(self, device_id: str = "0") -> AdmittedDevice:
        """Return the device with an id.

        Raises:
            DeviceNotFoundError: naming the ids there are, or why there are none.
        """
        for device in self.devices:
            if device.id == device_id:
                return device
        if self.devices:
            known = ", ".join(f"GPU.{d.id} ({d.facts.name})" for d in self.devices)
            raise DeviceNotFoundError(f"there is no GPU.{device_id}. Found: {known}")
        raise DeviceNotFoundError(f"no OpenCL device can be used as GPU.\n{self.text()}")

    def text(self) -> str:
        """Describe every finding, one per line, each fix on a line below."""
        lines = []
        for finding in self.findings:
            lines.append(_line(finding))
            if finding.fix:
                lines.append(f"    fix: {finding.fix}")
        return "\n".join(lines)


def _line(finding: Finding) -> str:
    mark = {Verdict.ADMITTED: "+", Verdict.FOUND: "+", Verdict.REJECTED: "-"}[finding.verdict]
    line = f"{mark} {finding.kind} {finding.name}"
    if finding.verdict is Verdict.REJECTED:
        return f"{line}: left out: {finding.reason}"
    return f"{line}: {finding.reason}" if finding.reason else line
