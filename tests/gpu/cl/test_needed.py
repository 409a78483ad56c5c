"""What programs need of their text: what their kernels name, in whichever way."""

from __future__ import annotations

import numpy as np

from polydevice_gpu.cl.programs import builtins
from polydevice_gpu.cl.programs.needed import needed
from tests.gpu.cl.kernels import sixteen_of

HELPERS = """// says: used_by_nobody
#define TWICE(x) (2 * (x))
#define LONG(x) \\
    TWICE(x) /* and no more */ \\
    + 1
#define MAKE(F) \\
    static inline F half_of_##F(F x) { \\
        return x / 2; \\
    }
MAKE(float)
MAKE(int)
static inline float first(
    float x) {
    if (x > 0) {
        return x;
    }
    return LONG(x);
}
static inline float second(float x) { return first(x) + 1; }
"""


def _helpers_left(kernel: str, helpers: str = HELPERS) -> str:
    text = needed(helpers + kernel)
    assert text.endswith(kernel)
    return text.removesuffix(kernel)


def test_a_kernel_that_names_no_helper_stands_alone() -> None:
    kernel = "__kernel void f(__global float* out) { out[0] = 1; }\n"
    assert not _helpers_left(kernel).strip()


def test_helpers_bring_those_that_they_name() -> None:
    left = _helpers_left("__kernel void f(__global float* out) { out[0] = second(2); }\n")
    assert [line for line in left.splitlines() if line.strip()] == [
        "#define TWICE(x) (2 * (x))",
        "#define LONG(x) \\",
        "    TWICE(x)   \\",
        "    + 1",
        "static inline float first(",
        "    float x) {",
        "    if (x > 0) {",
        "        return x;",
        "    }",
        "    return LONG(x);",
        "}",
        "static inline float second(float x) { return first(x) + 1; }",
    ]


def test_functions_that_a_macro_makes_bring_it() -> None:
    left = _helpers_left("__kernel void f(__global int* out) { out[0] = half_of_int(8); }\n")
    assert "MAKE(int)\n" in left
    assert "#define MAKE(F)" in left
    assert "MAKE(float)" not in left
    assert "second" not in left


def test_names_that_are_pasted_together_are_found() -> None:
    helpers = """#define JOIN(a, b) a##b
#define BOTH(IN) (IN##_LOAD(0) + STEP_##IN(1))
#define IN0_LOAD(i) in0[i]
#define IN1_LOAD(i) in1[i]
#define STEP_IN0(i) i
#define WRITE4_FIRST(v) v
#define STORE8(v) v
#define nobody 1
"""
    left = _helpers_left(
        "__kernel void f() { JOIN(JOIN(WRITE, 4), _FIRST)(1); JOIN(STORE, 8)(2); BOTH(IN0); }\n",
        helpers,
    )
    assert left == helpers.replace("#define nobody 1\n", "")


def test_conditions_keep_what_they_ask_for() -> None:
    helpers = "#define FAST 1\n#define SLOW 2\n#if FAST\n#define STEP 3\n#endif\n"
    assert _helpers_left("int f() { return STEP; }\n", helpers) == helpers.replace(
        "#define SLOW 2\n", ""
    )


def test_only_what_is_needed_is_declared() -> None:
    helpers = "static inline float far(float x) { return exp(x); } // log\n"
    assert "exp" not in builtins.declared(helpers + "__kernel void f() {}\n")
    assert "float exp(float)" in builtins.declared(helpers + "float g() { return far(1); }\n")


def test_a_string_that_looks_like_a_comment_is_built_whole(opencl) -> None:
    source = """__constant char text[] = "//"; // a comment, too
        __kernel void f(__global float* out) {
        out[get_local_id(0)] = exp((float)sizeof(text)); }"""
    np.testing.assert_allclose(sixteen_of(opencl, source), np.exp(3.0), rtol=1e-6)
