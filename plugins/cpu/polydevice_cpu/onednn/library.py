"""Finding and loading the oneDNN library, its C prototypes, and what its status codes mean.

Looked up in order: the file named by the environment variable ``DNNL_LIB``, the Python package
``onednn-cpu-gomp`` (library at ``<prefix>/lib``), the system's loader. Any oneDNN v3 built for CPU
with an OpenMP or sequential runtime will do.
"""

from __future__ import annotations

import contextlib
import ctypes as c
import logging
import os
import site
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from polydevice.errors import DeviceLostError, DeviceMemoryError, PluginError
from polydevice.memory_budget import give_back_pages
from polydevice_cpu.onednn.constants import Status

log = logging.getLogger("polydevice.cpu")

_LIBRARY_NAMES = {"linux": "libdnnl.so.3", "darwin": "libdnnl.3.dylib", "win32": "dnnl.dll"}
_SEQUENTIAL, _OPENMP = 1, 2

SPIN_COUNT = 4000
"""Rounds that a waiting OpenMP thread spins before it sleeps; about 15 ns each."""

p, i, f, u, dim = c.c_void_p, c.c_int, c.c_float, c.c_uint, c.c_int64

_PROTOTYPES: dict[str, list[Any]] = {
    "engine_create": [p, i, c.c_size_t],
    "stream_create": [p, p, u],
    "stream_wait": [p],
    "memory_desc_create_with_strides": [p, i, p, i, p],
    "memory_desc_create_with_tag": [p, i, p, i, i],
    "memory_desc_clone": [p, p],
    "memory_desc_destroy": [p],
    "memory_desc_equal": [p, p],
    "memory_desc_get_size": [p],
    "memory_desc_permute_axes": [p, p, p],
    "memory_desc_query": [p, i, p],
    "memory_create": [p, p, p, p],
    "memory_destroy": [p],
    "memory_set_data_handle": [p, p],
    "primitive_attr_create": [p],
    "primitive_attr_destroy": [p],
    "primitive_attr_set_scratchpad_mode": [p, i],
    "primitive_attr_set_post_ops": [p, p],
    "primitive_attr_set_scales_mask": [p, i, i],
    "primitive_attr_set_zero_points_mask": [p, i, i],
    "post_ops_create": [p],
    "post_ops_destroy": [p],
    "post_ops_append_sum": [p, f, c.c_int32, i],
    "post_ops_append_eltwise": [p, i, f, f],
    "post_ops_append_binary": [p, i, p],
    "post_ops_append_prelu": [p, i],
    "set_primitive_cache_capacity": [i],
    "primitive_create": [p, p],
    "primitive_destroy": [p],
    "primitive_get_primitive_desc": [p, p],
    "primitive_desc_destroy": [p],
    "primitive_desc_query": [p, i, i, p],
    "primitive_desc_query_md": [p, i, i],
    "primitive_desc_next_impl": [p],
    "convolution_forward_primitive_desc_create": [p, p, i, i, *[p] * 9],
    "deconvolution_forward_primitive_desc_create": [p, p, i, i, *[p] * 9],
    "matmul_primitive_desc_create": [p, p, *[p] * 5],
    "pooling_forward_primitive_desc_create": [p, p, i, i, *[p] * 8],
    "eltwise_forward_primitive_desc_create": [p, p, i, i, p, p, f, f, p],
    "binary_primitive_desc_create": [p, p, i, p, p, p, p],
    "prelu_forward_primitive_desc_create": [p, p, i, p, p, p, p],
    "softmax_forward_primitive_desc_create": [p, p, i, i, p, p, i, p],
    "layer_normalization_forward_primitive_desc_create": [p, p, i, p, p, p, f, u, p],
    "lrn_forward_primitive_desc_create": [p, p, i, i, p, p, dim, f, f, f, p],
    "resampling_forward_primitive_desc_create": [p, p, i, i, p, p, p, p],
    "reduction_primitive_desc_create": [p, p, i, p, p, f, f, p],
    "concat_primitive_desc_create": [p, p, p, i, i, p, p],
    "reorder_primitive_desc_create": [p, p, p, p, p, p],
    "lstm_forward_primitive_desc_create": [p, p, i, i, *[p] * 11, u, p],
    "gru_forward_primitive_desc_create": [p, p, i, i, *[p] * 7, u, p],
    "lbr_gru_forward_primitive_desc_create": [p, p, i, i, *[p] * 7, u, p],
    "vanilla_rnn_forward_primitive_desc_create": [p, p, i, i, i, *[p] * 7, u, f, f, p],
}

_NAMES = (*_PROTOTYPES, "get_effective_cpu_isa")


class _Version(c.Structure):
    _fields_ = [
        ("major", c.c_int),
        ("minor", c.c_int),
        ("patch", c.c_int),
        ("hash", c.c_char_p),
        ("cpu_runtime", c.c_uint),
        ("gpu_runtime", c.c_uint),
    ]


@contextmanager
def _short_spinning() -> Iterator[None]:
    """Let OpenMP threads that wait give up their core after about 60 us, unless the user says else.

    libgomp lets them spin for milliseconds. On cores that other processes want too, the one that
    spins takes the time of the one it waits for: with 14 busy processes on two cores an inference
    of 3 ms took 120 ms or more, and 28 ms so. libgomp reads the setting when it is loaded, so it
    has no effect where another library has loaded it before.
    """
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = str(SPIN_COUNT)
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


class Library:
    """The loaded oneDNN library: `path`, `version`, `build` (its commit), and its functions.

    Raises:
        PluginError: the file cannot be loaded, or is not a oneDNN v3 for CPU with OpenMP.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with _short_spinning():
                self._c = c.CDLL(path)
            # A second handle without prototypes: a call through it is 0.3 us cheaper, and every
            # inference is made of such calls.
            self.execute = c.CDLL(path).dnnl_primitive_execute
            self.execute_address = c.cast(self.execute, c.c_void_p).value or 0
            self._c.dnnl_version.restype = c.POINTER(_Version)
            version = self._c.dnnl_version().contents
        except (OSError, AttributeError) as error:
            raise PluginError(f"oneDNN library {path!r} cannot be used: {error}") from error
        self.version = f"{version.major}.{version.minor}.{version.patch}"
        self.build = (version.hash or b"").decode(errors="replace")
        if version.major != 3:
            raise PluginError(f"oneDNN library {path!r} is version {self.version}; 3.x is needed")
        if version.cpu_runtime not in (_SEQUENTIAL, _OPENMP):
            raise PluginError(
                f"oneDNN library {path!r} has CPU runtime {version.cpu_runtime:#x}; "
                "a build with OpenMP (package onednn-cpu-gomp) is needed"
            )
        self._functions = {name: getattr(self._c, f"dnnl_{name}") for name in _NAMES}
        for name, arguments in _PROTOTYPES.items():
            self._functions[name].argtypes = arguments
        self.set_data_handle = self._c.dnnl_memory_set_data_handle
        # After 265 to 1,400 networks of a process oneDNN 3.2's cache gave the code of another
        # convolution, without an addition. What lives is shared by `Primitive.create` anyhow.
        self.call("set_primitive_cache_capacity", 0)
        self._c.dnnl_memory_desc_get_size.restype = c.c_size_t
        self._c.dnnl_primitive_desc_query_md.restype = c.c_void_p

    def call(self, name: str, *arguments: object) -> None:
        """Call ``dnnl_<name>``; raises unless it succeeds."""
        status = self._functions[name](*arguments)
        if status:
            raise status_error(name, status)

    def create(self, name: str, *arguments: object) -> c.c_void_p:
        """Call ``dnnl_<name>(&handle, *arguments)`` and return the handle."""
        handle = c.c_void_p()
        status = self._functions[name](c.byref(handle), *arguments)
        if status:
            raise status_error(name, status)
        return handle

    def create_if_supported(self, name: str, *arguments: object) -> c.c_void_p | None:
        """As `create`, but None where oneDNN says that it does not implement this case.

        oneDNN reports some combinations that it lacks (a padding larger than the kernel, say) as
        invalid arguments, so these count as not implemented too.
        """
        handle = c.c_void_p()
        status = self._functions[name](c.byref(handle), *arguments)
        if status in (Status.UNIMPLEMENTED, Status.LAST_IMPL_REACHED, Status.INVALID_ARGUMENTS):
            return None
        if status:
            raise status_error(name, status)
        return handle

    def value(self, name: str, *arguments: object) -> int:
        """Call ``dnnl_<name>`` and return what it returns (a size, a flag or an address)."""
        result: int | None = self._functions[name](*arguments)
        return result or 0

    def function(self, name: str) -> Callable[..., int]:
        """Return ``dnnl_<name>``, for who calls it often and looks at the status himself."""
        found: Callable[..., int] = self._functions[name]
        return found

    def destroy(self, name: str, handle: c.c_void_p | int | None) -> None:
        """Call ``dnnl_<name>`` on a handle; used by finalisers, so it never raises."""
        self._functions[name](handle)

    def give_back(self) -> None:
        """Let the system have the pages of the library's code, 19 MB once primitives were made.

        What runs of it comes back from the page cache as it is needed, 3 MB mostly. 44 MB of code
        have every implementation of every operation, which are asked one after the other whether
        they fit.
        """
        found = self._code_pages
        if found is not None:
            give_back_pages(*found)

    @cached_property
    def _code_pages(self) -> tuple[int, int] | None:
        """Address and size of the mapping that has the library's code as it is in the file.

        None where nothing tells, or somebody has written there, as a debugger does.
        """
        found: tuple[int, int] | None = None
        with contextlib.suppress(OSError), Path("/proc/self/smaps").open(encoding="utf-8") as lines:
            for line in lines:
                name, *rest = line.split()
                if found is not None:
                    if name == "Anonymous:":
                        return found if rest[0] == "0" else None
                elif not name.endswith(":"):
                    first, last = (int(each, 16) for each in name.split("-"))
                    if first <= self.execute_address < last:
                        if rest[0] != "r-xp":
                            return None
                        found = first, last - first
        return None


def give_back_code() -> None:
    """Let the system have pages of the library's code; see `Library.give_back`."""
    loaded = library()
    if loaded is not None:
        loaded.give_back()


def status_error(name: str, status: int) -> DeviceMemoryError | DeviceLostError:
    """Return the exception for a failed call of ``dnnl_<name>``."""
    if status == Status.OUT_OF_MEMORY:
        return DeviceMemoryError(f"oneDNN is out of memory in dnnl_{name}; use smaller batches")
    known = {s.value: s.name.lower() for s in Status}
    return DeviceLostError(f"dnnl_{name} failed: {known.get(status, f'status {status}')}")


def candidates() -> list[str]:
    """Return where the library is looked for, in order."""
    if os.environ.get("DNNL_LIB"):
        return [os.environ["DNNL_LIB"]]
    name = _LIBRARY_NAMES.get(sys.platform, "libdnnl.so.3")
    prefixes = dict.fromkeys([sys.prefix, *site.PREFIXES, site.getuserbase() or sys.prefix])
    paths = [str(Path(prefix) / "lib" / name) for prefix in prefixes]
    # Path.is_file() raises before Python 3.14 where one may not look, as in another user's home.
    found = [path for path in paths if os.path.isfile(path)]  # noqa: PTH113
    system = find_library("dnnl")
    return [*found, *([system] if system else [])]


@lru_cache(maxsize=1)
def _load() -> tuple[Library | None, str]:
    reasons = []
    for path in candidates():
        try:
            library = Library(path)
        except PluginError as error:
            reasons.append(str(error))
        else:
            log.debug("oneDNN %s from %s", library.version, path)
            return library, ""
    reason = "; ".join(reasons) or "no oneDNN library was found"
    fix = "Install the package onednn-cpu-gomp, or set DNNL_LIB to the path of a libdnnl.so.3"
    if "libgomp" in reason:
        fix = "Install GCC's OpenMP (on Debian and Ubuntu: apt-get install libgomp1)"
    message = f"{reason}. The CPU device computes with NumPy alone, several times slower. {fix}"
    log.warning("%s", message)
    return None, message


def library() -> Library | None:
    """Return the oneDNN library, loaded on first use, or None where there is none (logged once)."""
    return _load()[0]


def absence() -> str:
    """Return why there is no oneDNN library, with the fix; empty when there is one."""
    return _load()[1]


def has_instructions(bits: int) -> bool:
    """Whether oneDNN uses all of an instruction set, which `ONEDNN_MAX_CPU_ISA` may forbid it.

    Args:
        bits: as oneDNN numbers it.
    """
    loaded = library()
    return loaded is not None and loaded.value("get_effective_cpu_isa") & bits == bits
