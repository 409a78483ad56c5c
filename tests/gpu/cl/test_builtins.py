"""Programs that declare the built-in functions they name compute what they do with the header."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from polydevice.errors import KernelBuildError
from polydevice_gpu import cl
from polydevice_gpu.cl.programs import builtins
from tests.gpu.cl.kernels import sixteen_of

HEADER = Path("/usr/share/pocl/include/opencl-c.h")
FUNCTION = re.compile(r"^([^\n#;{}]*?)\b(\w+)\s*\(([^;{}]*)\)\s*;", re.MULTILINE)
TYPE = re.compile(r"(u?(char|short|int|long)|float|double|half)\d*|size_t|void|cl_mem_fence_flags")
KNOWN = {"__cnfn": "const", "__purefn": "pure", "__conv": "convergent"}


def _functions(text: str) -> dict[str, set[tuple[object, ...]]]:
    """Return each function's overloads: result, attributes, and types of arguments."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/|^#[^\n]*", "", text, flags=re.DOTALL | re.MULTILINE)
    found = defaultdict(set)
    for before, name, given in FUNCTION.findall(text):
        words = before.split()
        known = frozenset(KNOWN[word] for word in words if word in KNOWN)
        (result,) = [word for word in words if TYPE.fullmatch(word)] or [""]
        found[name].add((result, known, tuple(map(_type, given.split(",")))))
    return found


def _type(argument: str) -> tuple[str, ...]:
    """Return an argument's type and address space, without its name."""
    words = argument.replace("*", " * ").split()
    return tuple(w for w in words if w == "*" or w.startswith("__") or TYPE.fullmatch(w))


def _ours(name: str) -> set[tuple[object, ...]]:
    """Read our declarations in the same way."""
    as_header = re.sub(
        r"(.*) __attribute__\(\(overloadable(?:, (\w+))?\)\);",
        lambda m: f"{next((k for k, v in KNOWN.items() if v == m[2]), '')} {m[1]};",
        builtins.declarations(name),
    )
    return _functions(as_header)[name]


@pytest.mark.skipif(not HEADER.is_file(), reason="PoCL 3's header of built-in functions is missing")
def test_every_overload_is_declared_as_the_compilers_header_declares_it() -> None:
    text = HEADER.read_text()
    if "__opencl_c_named_address_space_builtins" not in text:
        pytest.skip("PoCL 1.8's header, of Clang 11, attributes functions otherwise")
    header = _functions(text)
    ours = {name for name in header if builtins.declarations(name)}
    assert {"exp", "clamp", "select", "vload4", "vstorea_half8", "convert_uchar4_sat_rte"} <= ours
    for name in ours - {"convert_char_rte"}:  # the header's names char first in its own way
        wanted = {
            each for each in header[name] if not any("*" in a and a[0][0] != "_" for a in each[2])
        }  # without the address spaces' common one, of OpenCL C 2.0
        assert _ours(name) == wanted, name


@pytest.fixture
def headers(opencl, monkeypatch) -> list[bool]:
    """Whether each program that is compiled from now on needs the header."""
    if not opencl.capabilities.own_declarations:
        pytest.skip("this driver has no header of built-in functions to leave out")
    needed: list[bool] = []
    real = cl.ProgramBuilder._built

    def built(self, name, text, key, options):
        needed.append(builtins.OPTION not in options)
        return real(self, name, text, key, options)

    monkeypatch.setattr(cl.ProgramBuilder, "_built", built)
    return needed


def test_what_is_named_is_declared(opencl, headers) -> None:
    source = """#define JOIN(a, b) a##b
        __kernel void f(__global float* out) {
        int i = get_local_id(0);
        float4 v = JOIN(convert_, float4)((int4)(i, i + 1, i + 2, i + 3));
        out[i] = fmax(ldexp(v, 1), 5.0f).y + select(0.25f, 0.5f, i > 7); }"""
    i = np.arange(16)
    np.testing.assert_array_equal(
        sixteen_of(opencl, source), np.maximum(2 * (i + 1), 5) + np.where(i > 7, 0.5, 0.25)
    )
    assert headers == [False]


def test_doubles_are_not_computed_in_float(opencl, headers) -> None:
    if not opencl.capabilities.fp64:
        pytest.skip("no double")
    source = """__kernel void f(__global float* out) {
        double x = 1.0 + get_local_id(0) * 1e-12;
        out[get_local_id(0)] = (float)((fabs(x) - 1.0) * 1e12); }"""
    np.testing.assert_allclose(sixteen_of(opencl, source), np.arange(16), atol=1e-3)
    assert headers == [False]


def test_a_program_that_names_other_functions_is_built_with_the_header(opencl, headers) -> None:
    source = """__kernel void f(__global float* out) {
        float2 both = (float2)(3.0f, 4.0f);
        out[get_local_id(0)] = length(both); }"""
    np.testing.assert_array_equal(sixteen_of(opencl, source), 5)
    assert headers == [False, True]


def test_errors_are_those_of_the_source_as_it_is_written(opencl, headers) -> None:
    source = "__kernel void f(__global float* out) {\n  out[0] = exp(1.0f) + nothing;\n}"
    with pytest.raises(KernelBuildError, match=r">    2:   out\[0\] = exp\(1.0f\) \+ nothing;"):
        cl.ProgramBuilder(opencl).build("wrong", source)
    assert headers == [False, True]
