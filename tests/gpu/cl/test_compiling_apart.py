"""Programs compiled by child processes are those that this process would have compiled."""

from __future__ import annotations

import time

import numpy as np
import pytest

from polydevice.errors import InferCancelledError, KernelBuildError
from polydevice_gpu import cl
from polydevice_gpu.cl.capabilities import Capabilities
from polydevice_gpu.cl.programs import apart, program


def _source(number, body=None):
    text = body or f"out[get_global_id(0)] = get_global_id(0) * {number}"
    return cl.ProgramSource(f"p{number}", f"__kernel void f(__global int* out) {{ {text}; }}")


@pytest.fixture
def in_turn(monkeypatch):
    """Let the device be one whose driver compiles one program after the other; count children."""
    monkeypatch.setattr(Capabilities, "compiles_in_turn", True)
    monkeypatch.setattr(apart, "_MEMORY_OF_PROCESS", 1)
    monkeypatch.setattr(apart, "_PROGRAMS_EACH", 2)
    asked = []
    run = cl.Device.run_in_child

    def counted(self, module, argument, *rest):
        asked.append([job[0] for job in argument["jobs"]])
        return run(self, module, argument, *rest)

    monkeypatch.setattr(cl.Device, "run_in_child", counted)
    return asked


def test_each_program_is_compiled_once_and_kept(opencl, in_turn, monkeypatch, tmp_path):
    builder = cl.ProgramBuilder(opencl, tmp_path, threads=2)

    def never(*_):
        raise AssertionError("compiled here")

    monkeypatch.setattr(program.ProgramBuilder, "_compile", never)
    made = builder.build_all([_source(number) for number in range(3, 7)])
    assert len({name for names in in_turn for name in names}) == 4
    assert len(in_turn) == 2
    assert not any(each.from_cache for each in made)
    again = cl.ProgramBuilder(opencl, tmp_path, threads=2)
    assert all(each.from_cache for each in again.build_all([_source(n) for n in range(3, 7)]))
    assert len(in_turn) == 2
    assert [each.kernel("f").argument_count for each in made] == [1, 1, 1, 1]
    np.testing.assert_array_equal([each.name for each in made], ["p3", "p4", "p5", "p6"])


def test_one_that_does_not_compile_is_named_with_its_log(opencl, in_turn):
    sources = [*map(_source, (11, 12, 13)), _source(14, "nonsense")]
    with pytest.raises(KernelBuildError, match="(?s)'p14'.*nonsense"):
        cl.ProgramBuilder(opencl, threads=2).build_all(sources)
    assert len(in_turn) == 2


def test_one_child_compiles_what_nobody_waits_for(opencl, in_turn, monkeypatch):
    monkeypatch.setattr(program.ProgramBuilder, "_compile", None)
    builder = cl.ProgramBuilder(opencl, threads=2)
    for numbers in ((31,), range(32, 37)):
        with cl.compiling_aside(lambda: True):
            made = builder.build_all([_source(number) for number in numbers])
        assert [each.name for each in made] == [f"p{number}" for number in numbers]
    assert [len(names) for names in in_turn] == [1, 5]


def test_a_child_ends_with_what_its_programs_are_for(opencl, in_turn):
    began = time.monotonic()
    builder = cl.ProgramBuilder(opencl, threads=2)
    sources = [_source(number) for number in range(41, 44)]
    with (
        cl.compiling_aside(lambda: time.monotonic() < began + 0.01),
        pytest.raises(InferCancelledError, match="nobody waits"),
    ):
        builder.build_all(sources)
    assert not any(builder.has(each.source, each.options) for each in sources)
    assert len(in_turn) == 1


def test_few_programs_are_compiled_here(opencl, in_turn):
    cl.ProgramBuilder(opencl, threads=2).build_all([_source(21), _source(22)])
    assert not in_turn
