"""Building programs: once, in parallel, with errors that can be read."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest

from polydevice.errors import DeviceError, KernelBuildError
from polydevice_gpu import cl
from polydevice_gpu.cl import child_process, library
from polydevice_gpu.cl.programs import build_error, program, warp_groups

SOURCE = "__kernel void twice(__global int* x) { x[get_global_id(0)] *= FACTOR; }"


@pytest.fixture
def builder(opencl) -> cl.ProgramBuilder:
    return cl.ProgramBuilder(opencl)


def test_kernel_facts(builder) -> None:
    kernel = builder.build("twice", SOURCE, ("-DFACTOR=2",)).kernel("twice")
    assert kernel.argument_count == 1
    assert kernel.max_work_group_size >= 1


def test_equal_programs_are_built_once_also_by_many_threads(builder) -> None:
    programs: list[cl.Program] = []

    def build() -> None:
        programs.append(builder.build("twice", SOURCE, ("-DFACTOR=3",)))

    threads = [threading.Thread(target=build) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(programs) == 8
    assert len(set(map(id, programs))) == 1
    assert builder.build("twice", SOURCE, ("-DFACTOR=4",)) is not programs[0]


def test_build_all_keeps_the_order(opencl) -> None:
    builder = cl.ProgramBuilder(opencl, threads=4)
    sources = [cl.ProgramSource(f"p{n}", SOURCE, (f"-DFACTOR={n}",)) for n in range(2, 10)]
    assert [p.name for p in builder.build_all(sources)] == [s.name for s in sources]


def test_error_shows_program_kernel_device_line_and_log(builder, opencl) -> None:
    lines = ["// one", "// two", "__kernel void broken(__global int* x) {", "  x[0] = oops;", "}"]
    with pytest.raises(KernelBuildError) as caught:
        builder.build("my program", "\n".join(lines), ("-DA=1",))
    message = str(caught.value)
    assert "'my program' (kernels: broken)" in message
    assert opencl.name in message
    assert "-DA=1" in message
    assert ">    4:   x[0] = oops;" in message
    assert "     2: // two" in message
    assert "undeclared" in message


def test_error_is_told_to_every_thread_that_waits(builder) -> None:
    errors: list[Exception] = []

    def build() -> None:
        try:
            builder.build("broken", "__kernel void f() { nonsense }")
        except KernelBuildError as error:
            errors.append(error)

    threads = [threading.Thread(target=build) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) == 4
    with pytest.raises(KernelBuildError):
        builder.build("broken", "__kernel void f() { nonsense }")


def test_kernel_that_is_not_there(builder) -> None:
    program = builder.build("twice", SOURCE, ("-DFACTOR=2",))
    with pytest.raises(KernelBuildError, match="'twice' has no kernel 'thrice'"):
        program.kernel("thrice")


def test_a_driver_that_takes_no_source(builder, monkeypatch) -> None:
    real = library.library()

    class Refusing:
        def clCreateProgramWithSource(self, *arguments: object) -> None:  # noqa: N802 - OpenCL's
            status = arguments[-1]._obj
            status.value = -6  # CL_OUT_OF_HOST_MEMORY

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    monkeypatch.setattr(library, "library", Refusing)
    with pytest.raises(DeviceError, match=r"making program 'twice'.*-6"):
        builder.build("twice", SOURCE, ("-DFACTOR=5",))


def test_a_driver_that_gives_no_binary(builder, monkeypatch) -> None:
    program = builder.build("twice", SOURCE, ("-DFACTOR=2",))
    with monkeypatch.context() as patch:
        patch.setattr(library, "info_bytes", lambda *_: None)
        assert program.binary == b""


def test_compiling_can_be_forbidden(builder, monkeypatch) -> None:
    monkeypatch.setenv("POLYDEVICE_NO_COMPILE", "1")
    with pytest.raises(KernelBuildError, match="POLYDEVICE_NO_COMPILE=1 forbids"):
        builder.build("twice", SOURCE, ("-DFACTOR=17",))


def test_a_program_that_a_child_process_compiles(builder, opencl, monkeypatch) -> None:
    source = cl.ProgramSource("twice", SOURCE, ("-DFACTOR=5",))
    with monkeypatch.context() as here:
        here.setattr(program.ProgramBuilder, "_compile", None)
        made = builder.build_apart(source, lambda: True)
    assert made is not None
    assert made.from_cache
    assert builder.build_apart(source, lambda: False) is made
    buffer, numbers = opencl.memory.allocate(32, "x"), np.arange(8, dtype=np.int32)
    launches = cl.LaunchList(opencl)
    launches.add(made.kernel("twice"), (8,), None, [buffer])
    with opencl.queue() as queue:
        queue.upload(buffer, numbers)
        launches.enqueue(queue)
        queue.download(buffer, numbers)
    np.testing.assert_array_equal(numbers, 5 * np.arange(8))


def test_a_child_that_compiles_is_ended_with_what_wants_its_program(builder) -> None:
    began = time.monotonic()
    source = cl.ProgramSource("twice", SOURCE, ("-DFACTOR=6",))
    assert builder.build_apart(source, lambda: time.monotonic() < began + 0.01) is None
    assert not builder.has(source.source, source.options)


def test_what_no_child_compiles_is_compiled_here(builder, monkeypatch) -> None:
    """For the messages of the compiler, and where no child can be started."""
    broken = cl.ProgramSource("broken", "__kernel void broken(__global int* x) { x[0] = oops; }")
    with pytest.raises(KernelBuildError, match="undeclared"):
        builder.build_apart(broken, lambda: True)
    monkeypatch.setattr(sys, "executable", "")
    source = cl.ProgramSource("twice", SOURCE, ("-DFACTOR=7",))
    made = builder.build_apart(source, lambda: True)
    assert made is not None
    assert not made.from_cache


def test_a_compiler_that_dies_takes_a_child_alone(builder, monkeypatch) -> None:
    crashed = child_process.Outcome("crashed", (), "killed by SIGSEGV", "")
    monkeypatch.setattr(type(builder.device), "run_in_child", lambda *_: crashed)
    source = cl.ProgramSource("twice", SOURCE, ("-DFACTOR=8",))
    with pytest.raises(KernelBuildError, match="killed by SIGSEGV"):
        builder.build_apart(source, lambda: True)


@pytest.mark.parametrize(("value", "text"), [(3, "3"), (-1.5, "-1.5"), ("float", "float")])
def test_define(value, text) -> None:
    assert cl.define("NAME", value) == f"-DNAME={text}"


@pytest.mark.parametrize(
    ("name", "value"),
    [("A B", 1), ("1A", 1), ("A", "1 -DB=2"), ("A", '"'), ("A", "x\ny"), ("A", "'"), ("A", ""),
     ("A", "$(x)"), ("A=1", 1)],
)  # fmt: skip
def test_define_refuses_what_could_be_another_option(name, value) -> None:
    with pytest.raises(KernelBuildError, match="no safe macro"):
        cl.define(name, value)


def test_an_error_in_lines_that_come_from_elsewhere_says_from_where() -> None:
    """As NVIDIA's compiler reports them, and as PoCL's does, which heeds `#line`."""
    source = '__kernel void k() {}\n#line 40 "mine.py"\nfloat f() {\n  return unknown;\n}\n'
    for log, added in (
        ("<kernel>:4:12: error: unknown", True),
        ("mine.py:40:12: error: unknown", False),
    ):
        error = str(build_error.build_error("k", "device", source, "", log, -11))
        assert error.endswith("written at mine.py:41") == added


@pytest.mark.parametrize(("made", "least"), [("8.0", "8.4"), ("8.10", "8.10"), ("9.0", "9.0")])
def test_instructions_of_warp_groups_are_in_force(made, least) -> None:
    """Aimed at sm_90a, in a version that multiplies u8 by s8."""
    text = ".version {}\n.target sm_90{}, texmode_independent\n{}wgmma.fence.sync.aligned;\n"
    given = text.format(made, "", "//@warp_group ").encode() + b"\0"
    assert warp_groups.unmarked(given) == text.format(least, "a", "").encode()
