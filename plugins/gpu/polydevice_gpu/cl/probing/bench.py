"""Bench: one device on which probes compile and run tiny kernels, in a child process."""

from __future__ import annotations

import contextlib
import ctypes
import struct
from dataclasses import dataclass
from typing import Any

from polydevice_gpu.cl import library
from polydevice_gpu.cl.programs import builtins, warp_groups

WORDS = 1024
"""Size of the buffer that every probe kernel gets, in 32-bit words; word i holds i."""
LANES = 64
"""Work-items of a probe, all in one group, unless it says otherwise."""
READ_WRITE_COPY = (1 << 0) | (1 << 5)
"""Flags of a buffer made of the host's words."""

_DEVICE_EXTENSIONS = 0x1030
_SIZES, _BINARIES = 0x1165, 0x1166
_BUILD_LOG = 0x1183
# Functions of these need OpenCL C 2.0 or 3.0. Elsewhere 1.2 is the safer choice: it is what NVIDIA
# and PoCL 3.1 are made for, and oclgrind 21.10 cannot run the generic address space of newer ones.
_NEED_NEWER_C = {"cl_khr_subgroups", "cl_khr_subgroup_shuffle", "cl_khr_integer_dot_product"}


class ProbeError(Exception):
    """The probe's answer is no; the text says at which step."""


class BuildRefusedError(ProbeError):
    """A program does not compile; `log` has the first line of what the driver says of it."""

    def __init__(self, code: int, log: str) -> None:
        """Keep the driver's words out of the text, which stands behind every probe's no."""
        super().__init__("does not compile")
        line = next((line.strip() for line in log.splitlines() if line.strip()), "")
        self.log = line or f"error {code}, without a word"


@dataclass
class Bench:
    """One device with a context and an in-order queue.

    Attributes:
        c_standard: of OpenCL C that programs are compiled by.
        declares: whether programs declare the built-in functions they name, as kernels then do.
    """

    cl: ctypes.CDLL
    platform: int
    device: int
    context: int
    queue: int
    extensions: frozenset[str]
    c_standard: str
    declares: bool = False

    def build(self, source: str, standard: str = "", options: str = "") -> int:
        """Compile by a standard, or by these options; return the program."""
        standard = standard or self.c_standard
        if standard and not options:
            options = f"-cl-std={standard}"
        if self.declares:
            with contextlib.suppress(ProbeError):  # it names what is not declared
                return self._build(builtins.declared(source), f"{options} {builtins.OPTION}")
        return self._build(source, options)

    def _build(self, source: str, options: str) -> int:
        status = ctypes.c_int()
        text = ctypes.c_char_p(source.encode())
        program = self.cl.clCreateProgramWithSource(
            self.context, 1, ctypes.byref(text), None, ctypes.byref(status)
        )
        devices = (ctypes.c_void_p * 1)(self.device)
        given = options.encode()
        code = status.value or self.cl.clBuildProgram(program, 1, devices, given, None, None)
        if code:
            about = self.cl.clGetProgramBuildInfo, program, self.device, _BUILD_LOG
            raise BuildRefusedError(code, library.info_text(*about) if program else "")
        if warp_groups.is_marked(source):
            return self._with_warp_groups(program, given)
        return int(program)

    def binary(self, program: int) -> bytes:
        """Return the binary of a program of this one device."""
        content = ctypes.create_string_buffer(
            int.from_bytes(
                library.info_bytes(self.cl.clGetProgramInfo, program, _SIZES) or b"", "little"
            )
        )
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(content))
        self.cl.clGetProgramInfo(program, _BINARIES, ctypes.sizeof(pointers), pointers, None)
        return content.raw

    def _with_warp_groups(self, program: int, options: bytes) -> int:
        """Build again from the PTX of a program; return the second one."""
        ptx = ctypes.create_string_buffer(warp_groups.unmarked(self.binary(program)))
        devices, status = (ctypes.c_void_p * 1)(self.device), ctypes.c_int()
        made = self.cl.clCreateProgramWithBinary(
            *(self.context, 1, devices, (ctypes.c_size_t * 1)(len(ptx) - 1)),
            *((ctypes.c_void_p * 1)(ctypes.addressof(ptx)), None, ctypes.byref(status)),
        )
        self.cl.clReleaseProgram(program)
        if status.value or self.cl.clBuildProgram(made, 1, devices, options, None, None):
            raise ProbeError("its PTX does not build for sm_90a")
        return int(made)

    def run(
        self,
        source: str,
        *,
        items: int = LANES,
        local_bytes: int = 0,
        standard: str = "",
        options: str = "",
    ) -> list[int]:
        """Run ``probe(__global int* out[, __local int* tile])`` in one work-group of `items`."""
        status = ctypes.c_int()
        program = self.build(source, standard, options)
        kernel = self.cl.clCreateKernel(program, b"probe", ctypes.byref(status))
        words = (ctypes.c_uint * WORDS)(*range(WORDS))
        buffer = ctypes.c_void_p(
            self.cl.clCreateBuffer(
                self.context, READ_WRITE_COPY, 4 * WORDS, words, ctypes.byref(status)
            )
        )
        self.cl.clSetKernelArg(kernel, 0, ctypes.sizeof(buffer), ctypes.byref(buffer))
        if local_bytes:
            self._check("local memory", self.cl.clSetKernelArg(kernel, 1, local_bytes, None))
        size = (ctypes.c_size_t * 1)(items)
        enqueue = self.cl.clEnqueueNDRangeKernel
        try:
            code = enqueue(self.queue, kernel, 1, None, size, size, 0, None, None)
            self._check("enqueue", code)
            read = self.cl.clEnqueueReadBuffer
            code = read(self.queue, buffer, 1, 0, 4 * WORDS, words, 0, None, None)
            self._check("read", code)
        finally:
            self.cl.clReleaseMemObject(buffer)
            self.cl.clReleaseKernel(kernel)
            self.cl.clReleaseProgram(program)
        return list(words)

    def expect(self, source: str, expected: list[int], **arguments: Any) -> bool:
        """Run and compare the first words."""
        got = self.run(source, **arguments)[: len(expected)]
        if got != expected:
            raise ProbeError("computes wrong numbers")
        return True

    def need(self, *names: str) -> None:
        """Go on only if the driver claims one of these extensions."""
        if not self.extensions & set(names):
            raise ProbeError(f"no {' or '.join(names)}")

    def need_nvidia_extensions(self) -> None:
        """Go on only where inline PTX has a chance: asm text aborts some CPU compilers."""
        if not any(name.startswith("cl_nv_") for name in self.extensions):
            raise ProbeError("no cl_nv_ extension")

    def words(self, query: int, width: int) -> list[int]:
        """Ask the device for an array of integers of `width` bytes; empty if it does not know."""
        answer = library.info_bytes(self.cl.clGetDeviceInfo, self.device, query) or b""
        code = "Q" if width == 8 else "I"
        return list(struct.unpack(f"={len(answer) // width}{code}", answer))

    def _check(self, step: str, code: int) -> None:
        if code:
            raise ProbeError(f"{step} failed with {code}")


def make_bench(argument: dict[str, Any]) -> Bench:
    """Make a context and a queue on the device that ``main`` of a module is asked about.

    Raises:
        LookupError: it is gone.
    """
    cl = library.library()
    platform, device = library.find_device(cl, tuple(argument["identity"]), argument["twin"])
    status = ctypes.c_int()
    devices = (ctypes.c_void_p * 1)(device)
    context = cl.clCreateContext(None, 1, devices, None, None, ctypes.byref(status))
    queue = cl.clCreateCommandQueue(context, device, 0, ctypes.byref(status))
    extensions = library.info_text(cl.clGetDeviceInfo, device, _DEVICE_EXTENSIONS).split()
    return Bench(cl, platform, device, context, queue, frozenset(extensions), "")


def open_bench(argument: dict[str, Any]) -> Bench:
    """Make what `make_bench` does, and find out by which standard it adds.

    Raises:
        LookupError: it is gone, or does not even add: what it lacks may be there the next time, as
            a folder that PoCL can write.
    """
    bench = make_bench(argument)
    newer = ("CL3.0", "CL2.0") if bench.extensions & _NEED_NEWER_C else ()
    why = ""
    for standard in (*newer, "CL1.2"):
        try:
            bench.expect(
                "__kernel void probe(__global int* out) { out[get_local_id(0)] += 1; }",
                [i + 1 for i in range(LANES)],
                standard=standard,
            )
        except BuildRefusedError as error:
            why = f"does not compile: {error.log}"
        except ProbeError as error:
            why = str(error)
        else:
            bench.c_standard = standard
            return bench
    raise LookupError(f"even an addition {why}")
