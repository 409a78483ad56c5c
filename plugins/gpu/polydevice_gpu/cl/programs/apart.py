"""compile_apart: the binary of a program that takes long to compile, from a child process."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from polydevice.errors import KernelBuildError
from polydevice_gpu.cl.device import Device

_LIMIT_S = 600.0


def compile_apart(
    device: Device, name: str, source: str, options: str, goes_on: Callable[[], bool]
) -> bytes:
    """Compile in a child process, which may be ended at any time, unlike a compiler in this one.

    Returns:
        What the driver gives as the binary; nothing where the child was ended, could not be
        started, or refused the source.

    Raises:
        KernelBuildError: the child died of it, as this process would.
    """
    with tempfile.TemporaryDirectory(prefix="polydevice-") as folder:
        written, binary = Path(folder, "source.cl"), Path(folder, "binary")
        written.write_text(source, "utf-8")
        argument = {"source": str(written), "options": options, "binary": str(binary)}
        outcome = device.run_in_child("programs.building", argument, _LIMIT_S, goes_on)
        if outcome.status == "crashed" or (outcome.status == "hung" and goes_on()):
            raise KernelBuildError(
                f"the compiler of {device.name} {outcome.status} on program {name!r} in a child "
                f"process ({outcome.detail}); it is left out"
            )
        return binary.read_bytes() if {"built": True} in outcome.messages else b""
