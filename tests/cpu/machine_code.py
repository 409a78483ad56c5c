"""What tests of machine code share: where it must be, what it computes, and windows."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.processor.machine_code import function_of, processor_flags
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Algorithm
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.library import library
from polydevice_cpu.onednn.primitive import built
from polydevice_cpu.onednn.primitives import eltwise
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.step import MACHINE_CODE
from tests.cpu import models
from tests.cpu.loading import wait_for_settling

RETURNS_0 = bytes.fromhex("f30f1efa31c0c3")  # endbr64; xor eax, eax; ret


def missing(*flags: str) -> str:
    """Why code with these instructions cannot run here; empty where it must be there.

    What is tested is not asked: code that is missing by mistake fails, and is not skipped.
    """
    if function_of(RETURNS_0) is None:
        return "no machine code on this system"
    absent = sorted({*flags} - processor_flags())
    return f"the processor has no {', '.join(absent)}" if absent else ""


def missing_avx512(*flags: str) -> str:
    """The same of AVX-512 and what goes beyond it: oneDNN may have been told not to use it."""
    if library() is None:
        return "no oneDNN library on this machine"
    row = Descriptor.dense((16,))
    relu = built(eltwise(Algorithm.RELU, row, row, 0, 0, Attributes()))
    if "avx512" not in relu.implementation:
        return f"oneDNN uses {relu.implementation} here, not AVX-512"
    return missing(*flags)


_AVX2 = 0x7
"""oneDNN's bits of an instruction set with AVX2 and FMA."""


def missing_vectors(*flags: str) -> str:
    """The same of code that is made of instructions of AVX2 where AVX-512 is missing."""
    found = library()
    if not missing_avx512(*flags):
        return ""
    if found is None or found.value("get_effective_cpu_isa") & _AVX2 != _AVX2:
        return "no oneDNN library that uses AVX2"
    return missing("avx2", "fma", "f16c", *flags)


_AMX = 0xFEF
"""oneDNN's bits of an instruction set with tiles."""


def missing_tiles(*flags: str) -> str:
    """The same of AMX tiles, which oneDNN may have been told not to use as well."""
    reason, found = missing_avx512("amx_tile", *flags), library()
    if reason or found is None:
        return reason
    uses_them = found.value("get_effective_cpu_isa") & _AMX == _AMX
    return "" if uses_them else "oneDNN is told not to use AMX tiles"


def needs(reason: str) -> pytest.MarkDecorator:
    """Skip a test for a reason, if there is one."""
    return pytest.mark.skipif(bool(reason), reason=reason)


def are_sigmoids_apart() -> bool:
    """Whether logistic functions, Swish, GELU and Tanh are steps of their own, of our code."""
    return bool(missing_avx512()) and not missing_vectors()


def followed(sums: str, sigmoid: str) -> list[str]:
    """How steps are called that compute sums and such a function of them."""
    return [sums, sigmoid] if are_sigmoids_apart() else [f"{sums}+{sigmoid}"]


with_avx = needs(missing("avx"))
with_avx2 = needs(missing("avx2", "fma"))
with_vectors = needs(missing_vectors())
with_avx512 = needs(missing_avx512())
with_sigmoids_fused = needs("they are steps of their own with AVX2" * are_sigmoids_apart())
with_tiles_of_bytes = needs(missing_tiles("amx_int8", "fsrm"))


def by_machine_code(executable):
    """The types of the steps of the latest plan that machine code computes."""
    steps = executable.latest_plan().steps
    return [step.type for step in steps if step.implementation == MACHINE_CODE]


def for_now(executable):
    """Those of them that are windows and products, which oneDNN has code for, too."""
    heavy = "Convolution", "MatMul", "Pool"
    return [
        kind
        for kind in by_machine_code(executable)
        if any(name in kind.partition("+")[0] for name in heavy)
    ]


def compared(executable, model, feeds, *, stays=False):
    """How many inferences machine code computed: as ONNX Runtime, and to the bit as later ones.

    Args:
        executable: of the model, which has an input x and an output y.
        model: for ONNX Runtime.
        feeds: values of x, of other shapes each.
        stays: whether machine code computes plans that have run often, too, or how many of the
            first steps of these (below 0, of the last ones); else oneDNN does. None: either.
    """
    request, seen = executable.create_infer_request(), 0
    for x in feeds:
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"].copy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        steps = for_now(executable)
        if steps:
            seen += 1
            for _ in range(settling.RUNS):
                np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
            wait_for_settling()
            np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
            if stays is None:
                continue
            staying = steps[stays:] if stays < 0 else steps[:stays]
            assert for_now(executable) == (steps if stays is True else staying)
    return seen


def drawn_windows(rng: np.random.Generator) -> tuple[Windows, list[int], list[int]]:
    """Windows over two axes drawn at random, sizes of a picture, and how many windows it has.

    They may reach beyond the picture by all that they have.
    """
    window, steps, gaps = (tuple(map(int, rng.integers(*n, 2))) for n in ((1, 5), (1, 4), (0, 3)))
    reach = [(taps - 1) * (gap + 1) + 1 for taps, gap in zip(window, gaps, strict=True)]
    pads = tuple(int(rng.integers(0, n + 1)) for n in reach)
    behind = [int(rng.integers(0, n + 1)) for n in reach]
    sizes = [int(n + rng.integers(0, 12)) for n in reach]
    lengths = zip(sizes, pads, behind, reach, steps, strict=True)
    counts = [(size + pad + end - n) // step + 1 for size, pad, end, n, step in lengths]
    return Windows(window, steps, gaps, pads, is_depthwise=False), sizes, counts
