"""Which OpenCL drivers (ICDs) are installed, and how to make a loader see only some of them.

Facts about loaders (ocl-icd and the Khronos loader, each read and tried):

* ``OCL_ICD_VENDORS`` replaces the folder of .icd files; ocl-icd also takes one .icd file or a
  library name there. ``OCL_ICD_FILENAMES`` adds libraries, separated by ``:``.
* The loader in pyopencl's wheel always looks into ``$PYOPENCL_HOME/.libs`` as well, and crashes
  when that variable is not set.
* conda's loader looks into its own prefix and does not see the system's drivers.
* A loader reads all of that once, at the first call of clGetPlatformIDs.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from polydevice_gpu.cl.discovery.facts import Icd
from polydevice_gpu.cl.library import pyopencl_folder

SYSTEM_FOLDER = Path("/etc/OpenCL/vendors")
NVIDIA_DRIVER = "libnvidia-opencl.so.1"
_ICD_FILE_LIMIT_BYTES = 4096
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/usr/lib/wsl/lib",
)


def vendor_folders() -> list[Path]:
    """Folders with .icd files that a loader would read here, in its order."""
    chosen = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH")
    folders = [Path(chosen)] if chosen else []
    if not chosen:
        if (Path(sys.prefix) / "conda-meta").is_dir():
            folders.append(Path(sys.prefix) / "etc" / "OpenCL" / "vendors")
        folders.append(SYSTEM_FOLDER)
    bundled = pyopencl_folder()
    if bundled is not None:
        folders.append(bundled / ".libs")
    return folders


def list_icds() -> tuple[list[Icd], list[tuple[str, str]]]:
    """List drivers, each library once, and (file, reason) for .icd files that name none."""
    icds: list[Icd] = []
    unreadable: list[tuple[str, str]] = []
    for folder in vendor_folders():
        for path in _icd_files(folder):
            if path.suffix != ".icd":
                icds.append(Icd(path.name, str(path), "OCL_ICD_VENDORS"))
                continue
            try:
                with path.open("rb") as file:
                    content = file.read(_ICD_FILE_LIMIT_BYTES).decode("utf-8", "replace")
            except OSError as error:
                unreadable.append((str(path), f"cannot be read: {error.strerror}"))
                continue
            driver = content.strip().split("\n")[0].strip()
            if not driver:
                unreadable.append((str(path), "is empty: it should name a driver library"))
                continue
            if not driver.isprintable() or "\N{REPLACEMENT CHARACTER}" in driver:
                unreadable.append((str(path), "is not text: it should name a driver library"))
                continue
            icds.append(Icd(path.name, driver, str(path)))
    added = os.environ.get("OCL_ICD_FILENAMES", "").split(os.pathsep)
    icds += [Icd(Path(name).name, name, "OCL_ICD_FILENAMES") for name in added if name]
    if not os.environ.get("OCL_ICD_VENDORS"):
        icds.extend(_unregistered_nvidia(icds))
    once: dict[str, Icd] = {}
    for icd in icds:
        once.setdefault(icd.driver, icd)
    return list(once.values()), unreadable


def _icd_files(folder: Path) -> list[Path]:
    """The .icd files of a folder, sorted; or what a file or library given instead stands for."""
    # Methods of Path raise before Python 3.14 where one may not look.
    if os.path.isdir(folder):  # noqa: PTH112
        try:
            return sorted(p for p in folder.iterdir() if p.suffix == ".icd")
        except OSError:
            return []
    is_library = folder.suffix != ".icd"
    chosen = str(folder) == os.environ.get("OCL_ICD_VENDORS")
    return [folder] if chosen and (is_library or os.path.isfile(folder)) else []  # noqa: PTH113


def _unregistered_nvidia(icds: Sequence[Icd]) -> list[Icd]:
    """NVIDIA's driver, when it is installed but no .icd file names it (usual in containers)."""
    if any("nvidia" in icd.driver for icd in icds):
        return []
    searched = [*os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep), *_LIBRARY_FOLDERS]
    for folder in searched:
        driver = Path(folder, NVIDIA_DRIVER)
        if folder and os.path.exists(driver):  # noqa: PTH110 - as in `_icd_files`
            return [Icd("nvidia", str(driver), str(driver), True)]
    if NVIDIA_DRIVER.encode() in _linker_cache():
        return [Icd("nvidia", NVIDIA_DRIVER, NVIDIA_DRIVER, True)]
    return []


def _linker_cache() -> bytes:
    """The names of all libraries that the dynamic linker finds by itself, and where."""
    try:
        return Path("/etc/ld.so.cache").read_bytes()
    except OSError:
        return b""


@contextlib.contextmanager
def loader_environment(icds: Sequence[Icd]) -> Iterator[Mapping[str, str | None]]:
    """Give variables that make an OpenCL loader see exactly these drivers, in this order.

    The folder they name lives as long as the context; a loader has read it after its first call.
    """
    with tempfile.TemporaryDirectory(prefix="polydevice-icd-") as folder:
        vendors = Path(folder, "vendors")
        vendors.mkdir()
        for position, icd in enumerate(icds):
            (vendors / f"{position:02}-{Path(icd.name).stem}.icd").write_text(icd.driver + "\n")
        yield {
            # The Khronos loader joins folder and file name as text: keep the separator.
            "OCL_ICD_VENDORS": str(vendors) + os.sep,
            "OCL_ICD_FILENAMES": None,
            "OPENCL_VENDOR_PATH": None,
            "PYOPENCL_HOME": folder,
        }
