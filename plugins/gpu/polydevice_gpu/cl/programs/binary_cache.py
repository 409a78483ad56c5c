"""Compiled programs on disk, found by everything that could change them."""

from __future__ import annotations

from pathlib import Path

from polydevice.files.file_cache import DEFAULT_LIMIT_BYTES, KERNELS_SUFFIX, FileCache, digest_of
from polydevice.version import __version__
from polydevice_gpu.cl.discovery.facts import DeviceFacts


def program_key(source: str, options: str, facts: DeviceFacts) -> bytes:
    """Return the SHA-256 of everything that determines a program's binary."""
    return digest_of(
        __version__,
        source,
        options,
        facts.name,
        facts.version,
        facts.driver_version,
        facts.opencl_c_version,
        facts.platform_name,
        facts.platform_version,
    )


class BinaryCache(FileCache):
    """A folder of what ``CL_PROGRAM_BINARIES`` gave."""

    def __init__(self, folder: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> None:
        """Check the folder."""
        super().__init__(folder, KERNELS_SUFFIX, "compiled kernels", limit_bytes)
