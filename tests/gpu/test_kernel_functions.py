"""What is read from a kernel's text before it becomes a function of one launch."""

from __future__ import annotations

import pytest

from polydevice_gpu.kernels.launch import Body, Launch
from polydevice_gpu.one_launch.function import Function, lines_with, why_no_function


def _launch(text: str) -> Launch:
    body = Body((), text, ("__global float* x",))
    return Launch("name", text, (64,), (64, 1, 1), body=body)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ""),
        ("first\n\nlast", ""),
        ("word", "word"),
        ("\na word b\nc\nword and word", "a word b\nword and word"),
        ("swords\n word\n\n", "swords\n word"),
    ],
)
def test_lines_with_a_word(text, found):
    assert lines_with(text, "word") == found


@pytest.mark.parametrize(
    ("text", "declares"),
    [
        ("x;\n  __local float own[3];", True),
        ("__local float own[\n    3];\n", True),
        ("__local uchar* p = memory;", False),
        ("f((__local float*)p); __local float own[3];", False),  # not where a line begins
        ("LOCAL_ARRAY(float, own, 3, , 16);", False),
    ],
)
def test_own_local_memory_makes_no_function(text, declares):
    assert why_no_function(_launch(text)).startswith("its kernel declares local") == declares


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("barrier(0);", True),
        ("my_barrier(0);", False),
        ("barriers;", False),
        ("my_barrier(0);\n\tbarrier(1);", True),
        ("2barrier(0); x.barrier(0);", True),
        ("2barrier(0);", False),
        ("", False),
    ],
)
def test_barriers_of_a_function(text, has):
    assert Function.of(_launch(text)).has_barriers == has
