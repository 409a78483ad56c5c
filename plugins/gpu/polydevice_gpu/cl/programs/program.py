"""Programs: built from source or from the cache, in parallel; build errors that can be read."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shlex
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.errors import InferCancelledError, KernelBuildError
from polydevice.files.file_cache import DEFAULT_LIMIT_BYTES
from polydevice.locks import Lock
from polydevice_gpu.cl import library
from polydevice_gpu.cl.device import Device
from polydevice_gpu.cl.programs import builtins, warp_groups
from polydevice_gpu.cl.programs.apart import compile_apart, compile_side_by_side, goes_on_aside
from polydevice_gpu.cl.programs.binary_cache import BinaryCache, program_key
from polydevice_gpu.cl.programs.build_error import build_error
from polydevice_gpu.cl.programs.kernel_facts import KernelFacts
from polydevice_gpu.cl.programs.kernel_objects import KernelObjects
from polydevice_gpu.cl.status import check

NO_COMPILE_VARIABLE = "POLYDEVICE_NO_COMPILE"

_BUILD_LOG = 0x1183
_PROGRAM_DEVICES, _BINARY_SIZES, _BINARIES = 0x1163, 0x1165, 0x1166
_INVALID_KERNEL_NAME = -46


@dataclass(frozen=True)
class ProgramSource:
    """What to build: OpenCL C text that includes nothing, and build options, one per item."""

    name: str
    source: str
    options: tuple[str, ...] = ()


class Program:
    """A built program of one device; its kernels may be used from any thread.

    Attributes:
        name: for messages.
        key: identifies source, options, device and driver.
        from_cache: whether nothing was compiled.
        facts: name → what is known of a kernel.
    """

    def __init__(
        self, device: Device, name: str, pointer: int, key: bytes, *, from_cache: bool
    ) -> None:
        """Take over OpenCL's program; made by `ProgramBuilder`."""
        self.device = device
        self.name = name
        self.pointer = pointer
        self.key = key
        self.from_cache = from_cache
        self.facts: dict[str, KernelFacts] = {}
        library.release_with(self, library.library().clReleaseProgram, pointer)

    def kernel(self, name: str) -> CompiledKernel:
        """Return a kernel of this program.

        Raises:
            KernelBuildError: if it has none of that name.
        """
        return CompiledKernel(self, name)

    @property
    def log(self) -> str:
        """What the compiler said; drivers say little about what compiles."""
        query, device = library.library().clGetProgramBuildInfo, self.device.handle.int_ptr
        return library.info_text(query, self.pointer, device, _BUILD_LOG)

    @functools.cached_property
    def binary(self) -> bytes:
        """What the driver gives as the program's binary; empty if it gives none."""
        query = library.library().clGetProgramInfo
        handles, sizes = (
            np.frombuffer(library.info_bytes(query, self.pointer, what) or b"", np.uintp).tolist()
            for what in (_PROGRAM_DEVICES, _BINARY_SIZES)
        )
        if not any(sizes):
            return b""
        # In a user's context there may be other devices, for which nothing was built; PoCL 3.1
        # leaves them out of the sizes.
        every = len(sizes) == len(handles)
        mine = handles.index(self.device.handle.int_ptr) if every else 0
        content = ctypes.create_string_buffer(sizes[mine])
        pointers = (ctypes.c_void_p * len(sizes))()
        pointers[mine] = ctypes.addressof(content)
        code = query(self.pointer, _BINARIES, ctypes.sizeof(pointers), pointers, None)
        return b"" if code else content.raw

    def __repr__(self) -> str:
        return f"Program({self.name!r})"


class CompiledKernel:
    """One kernel function of a program. Facts are those of the compiled code on the device.

    It holds no arguments: every launch makes its own OpenCL kernel object with `instance`, because
    setting arguments is not safe between threads.
    """

    def __init__(self, program: Program, name: str) -> None:
        """Look the kernel up; use ``Program.kernel``."""
        self.program = program
        self.name = name
        self._own = KernelObjects()
        instance = self.instance(self._own)  # an error for a name that the program does not have
        facts = program.facts.get(name)
        if facts is None:
            facts = program.facts[name] = KernelFacts.of(instance, program.device.handle.int_ptr)
        self.argument_count = facts.argument_count
        self.max_work_group_size = facts.max_work_group_size
        self.local_memory_bytes = facts.local_memory_bytes

    def instance(self, owner: KernelObjects) -> int:
        """Make an OpenCL kernel object; its owner releases it.

        The first owner that asks gets the one of which the kernel's facts were asked.
        """
        cl, status, program = library.library(), ctypes.c_int(), self.program
        if (first := self._own.give()) is not None:
            return owner.take(first)
        pointer = cl.clCreateKernel(program.pointer, self.name.encode(), ctypes.byref(status))
        if status.value == _INVALID_KERNEL_NAME:
            raise KernelBuildError(
                f"program {program.name!r} has no kernel {self.name!r}; the name of a __kernel "
                "function in its source is needed"
            )
        check(status.value, f"making kernel {self.name!r} of program {program.name!r}")
        return owner.take(pointer)

    def __repr__(self) -> str:
        return f"CompiledKernel({self.name!r})"


class _Build:
    """What those that want one program share: who builds it holds the lock."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.program: Program | None = None


class _Wanted(NamedTuple):
    """Build options as the device takes them, and the key of a source with them."""

    options: str
    key: bytes


class ProgramBuilder:
    """Builds programs for one device; equal ones only once, several at the same time.

    Usable from many threads.
    """

    def __init__(
        self,
        device: Device,
        cache_folder: str | Path | None = None,
        *,
        threads: int = 0,
        cache_limit_bytes: int = DEFAULT_LIMIT_BYTES,
        binaries: Mapping[bytes, bytes] | None = None,
    ) -> None:
        """Prepare to build.

        Args:
            device: the device.
            cache_folder: where binaries are kept; None for nowhere.
            threads: how many programs to compile at the same time; 0 for one per CPU.
            cache_limit_bytes: size of the folder beyond which old binaries go.
            binaries: key → binary of programs that were compiled elsewhere.
        """
        self.device = device
        self.threads = threads or os.cpu_count() or 1
        self._binaries = dict(binaries or {})
        self._apart: dict[bytes, bytes] = {}  # what other processes have just compiled
        self.cache: BinaryCache | None = None
        if cache_folder is not None:
            self.cache = BinaryCache(Path(cache_folder), cache_limit_bytes)
        self._lock = Lock()
        self._programs: weakref.WeakValueDictionary[bytes, Program] = weakref.WeakValueDictionary()
        self._builds: weakref.WeakValueDictionary[bytes, _Build] = weakref.WeakValueDictionary()

    def build(self, name: str, source: str, options: Sequence[str] = ()) -> Program:
        """Return the program of a source.

        Args:
            name: for messages.
            source: OpenCL C without ``#include``.
            options: build options; ``-cl-std`` with the device's `c_standard` is added unless one
                is given, and correctly rounded divisions are left out where the device has none.

        Raises:
            KernelBuildError: showing the source around the error and the compiler's log.
        """
        return self._program(name, source, self._wanted(source, options))

    def _wanted(self, source: str, options: Sequence[str]) -> _Wanted:
        """Return what a source is built with, and the key of that."""
        joined = self.completed(options)
        return _Wanted(joined, program_key(source, joined, self.device.facts))

    def _program(self, name: str, source: str, wanted: _Wanted) -> Program:
        joined, key = wanted
        with self._lock:
            known = self._programs.get(key)
            if known is not None:
                return known
            build = self._builds.setdefault(key, _Build())
        with build.lock:
            if build.program is None:
                build.program = (
                    self._load(name, key, joined)
                    or self._compiled_apart(name, key, joined)
                    or self._compile(name, source, key, joined)
                )
                with self._lock:
                    self._programs[key] = build.program
            return build.program

    def completed(self, options: Sequence[str]) -> str:
        """Return build options as the device takes them."""
        can = self.device.capabilities
        left_out = () if can.rounds_divisions else ("-cl-fp32-correctly-rounded-divide-sqrt",)
        texts = [text for text in options if text not in left_out]
        if not any(text.startswith("-cl-std") for text in texts):
            texts.append(f"-cl-std={can.c_standard}")
        return " ".join(texts)

    def has(self, source: str, options: Sequence[str] = ()) -> bool:
        """Whether the program of a source is there: in use, or kept as a binary."""
        return self._has(self._wanted(source, options).key)

    def _has(self, key: bytes) -> bool:
        with self._lock:
            if key in self._programs:
                return True
        return key in self._binaries or (self.cache is not None and self.cache.has(key))

    def build_apart(self, source: ProgramSource, goes_on: Callable[[], bool]) -> Program | None:
        """Build a program that takes long in a child process, and then make it of its binary.

        Where no child can build it, and for messages of the compiler, it is built as by `build`.

        Args:
            source: what to build.
            goes_on: asked ten times a second; once it says no, the child is ended.

        Returns:
            The program; None when the child was ended.

        Raises:
            KernelBuildError: the compiler refused it, or died.
        """
        if not self.has(source.source, source.options) and _may_compile():
            options = self.completed(source.options)
            binary = compile_apart(self.device, source.name, source.source, options, goes_on)
            if not goes_on():
                return None
            if binary:
                key = program_key(source.source, options, self.device.facts)
                if self.cache is not None:
                    self.cache.store(key, binary)
                else:
                    self._binaries[key] = binary
        return self.build(source.name, source.source, source.options)

    def load_ahead(self, source: ProgramSource, pool: ThreadPoolExecutor) -> Future[Program] | None:
        """Begin to load a program whose binary is kept; None where there is none."""
        wanted = self._wanted(source.source, source.options)
        if not self._has(wanted.key):
            return None
        return pool.submit(self._program, source.name, source.source, wanted)

    def build_all(self, sources: Sequence[ProgramSource]) -> list[Program]:
        """Build several programs at the same time, in the order given.

        Raises:
            KernelBuildError: of the first that fails.
            InferCancelledError: nobody waits any longer; or InferTimeoutError, likewise.
        """
        bounds = current_bounds()  # of the calling thread: who waits may give up
        goes_on = goes_on_aside()

        def build(source: ProgramSource, wanted: _Wanted) -> Program:
            bounds.check()
            if goes_on is not None and not goes_on():
                raise InferCancelledError("nobody waits for these programs any longer")
            return self._program(source.name, source.source, wanted)

        keyed = [self._wanted(source.source, source.options) for source in sources]
        if len(sources) > 1 or goes_on is not None:
            self._compile_side_by_side(sources, keyed)
        if len(sources) < 2 or self.threads < 2:
            return [build(*each) for each in zip(sources, keyed, strict=True)]
        workers = min(self.threads, len(sources))
        with ThreadPoolExecutor(workers, thread_name_prefix="polydevice-build") as pool:
            return list(pool.map(build, sources, keyed))

    def _compile_side_by_side(
        self, sources: Sequence[ProgramSource], keyed: Sequence[_Wanted]
    ) -> None:
        """Have other processes compile what is missing, where this one would do so in turn."""
        in_turn = self.device.capabilities.compiles_in_turn
        if not in_turn or os.environ.get(NO_COMPILE_VARIABLE) == "1":
            return
        missing = {
            key: (source.source, joined)
            for source, (joined, key) in zip(sources, keyed, strict=True)
            if not self._has(key)
        }
        made = compile_side_by_side(self.device, missing, self.threads)
        with self._lock:
            self._apart.update(made)

    def _compiled_apart(self, name: str, key: bytes, options: str) -> Program | None:
        """Make a program from what another process has compiled; None if there is nothing."""
        with self._lock:
            binary = self._apart.pop(key, None)
        program = self._from_binary(name, key, options, binary) if binary else None
        if program is not None and binary is not None:
            program.from_cache = False
            if self.cache is not None:
                self.cache.store(key, binary)
        return program

    def _load(self, name: str, key: bytes, options: str) -> Program | None:
        """Make a program from a binary; None if there is none that the driver takes."""
        given = self._binaries.get(key)
        program = self._from_binary(name, key, options, given) if given else None
        if program is not None or self.cache is None:
            return program
        cached = self.cache.load(key)
        if cached is None:
            return None
        program = self._from_binary(name, key, options, cached)
        if program is None:
            self.cache.set_aside(key)
        return program

    def _from_binary(self, name: str, key: bytes, options: str, binary: bytes) -> Program | None:
        cl, status, refused = library.library(), ctypes.c_int(), ctypes.c_int()
        devices = (ctypes.c_void_p * 1)(self.device.handle.int_ptr)
        sizes = (ctypes.c_size_t * 1)(len(binary))
        content = ctypes.create_string_buffer(binary, len(binary))
        contents = (ctypes.c_void_p * 1)(ctypes.addressof(content))
        pointer = cl.clCreateProgramWithBinary(
            self.device.context.int_ptr,
            *(1, devices, sizes, contents, ctypes.byref(refused), ctypes.byref(status)),
        )
        if status.value or refused.value or not pointer:
            return None
        program = Program(self.device, name, pointer, key, from_cache=True)
        failed = cl.clBuildProgram(pointer, 1, devices, options.encode(), None, None)
        return None if failed else program

    def _compile(self, name: str, source: str, key: bytes, options: str) -> Program:
        if not _may_compile():
            raise KernelBuildError(
                f"program {name!r} is not in the cache, and {NO_COMPILE_VARIABLE}=1 forbids to "
                "compile it; unset that variable"
            )
        program, code = None, 0
        if self.device.capabilities.own_declarations:
            declared = builtins.declared(source)
            program, code = self._built(name, declared, key, f"{options} {builtins.OPTION}")
        if program is None or code:
            program, code = self._built(name, source, key, options)
        if code:
            query, device = library.library().clGetProgramBuildInfo, self.device.handle.int_ptr
            log = library.info_text(query, program.pointer, device, _BUILD_LOG)
            raise build_error(name, self.device.name, source, options, log, code)
        if warp_groups.is_marked(source):
            program = self._with_warp_groups(program, options)
        if self.cache is not None:
            self.cache.store(key, program.binary)
        return program

    def _built(self, name: str, text: str, key: bytes, options: str) -> tuple[Program, int]:
        """Compile a text; return its program, and OpenCL's code for how that went."""
        cl, status = library.library(), ctypes.c_int()
        source = ctypes.c_char_p(text.encode())
        pointer = cl.clCreateProgramWithSource(
            self.device.context.int_ptr, 1, ctypes.byref(source), None, ctypes.byref(status)
        )
        check(status.value, f"making program {name!r}")
        program = Program(self.device, name, pointer, key, from_cache=False)
        devices = (ctypes.c_void_p * 1)(self.device.handle.int_ptr)
        return program, cl.clBuildProgram(pointer, 1, devices, options.encode(), None, None)

    def _with_warp_groups(self, program: Program, options: str) -> Program:
        """Build a program again from its PTX, with the instructions that are marked there."""
        ptx = warp_groups.unmarked(program.binary)
        made = self._from_binary(program.name, program.key, options, ptx)
        if made is None:
            raise KernelBuildError(
                f"program {program.name!r} does not build on {self.device.name} with its "
                "instructions of warp groups; `polydevice devices --why` says what was probed, and "
                "TUNING_FILE can choose another kernel"
            )
        made.from_cache = False
        return made


def _may_compile() -> bool:
    return os.environ.get(NO_COMPILE_VARIABLE) != "1"


def define(name: str, value: str | float) -> str:
    """Return the build option that defines a macro.

    Raises:
        KernelBuildError: if name or value could end the option and begin another.
    """
    text = repr(value) if isinstance(value, float) else str(value)
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or shlex.quote(text) != text:
        raise KernelBuildError(f"-D {name}={text} is no safe macro; use letters, digits and .+-")
    return f"-D{name}={text}"
