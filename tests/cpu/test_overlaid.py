"""Col2Im by machine code: windows laid over each other; sums by hand and ONNX Runtime judge."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.windows.overlaid import Axis, code_of
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

F = np.float32
CASES = [  # image, kernel, steps, gaps, padding
    ((1, 1), (1, 1), (1, 1), (1, 1), (0, 0)),
    ((5, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    ((9, 40), (2, 3), (1, 2), (2, 1), (0, 2)),
    ((12, 33), (4, 4), (4, 4), (1, 1), (0, 0)),
    ((17, 50), (1, 7), (3, 2), (1, 2), (0, 0)),
    ((6, 64), (2, 16), (2, 16), (1, 1), (0, 0)),
    ((8, 70), (3, 20), (2, 12), (1, 1), (1, 4)),
    ((4, 31), (1, 2), (3, 9), (1, 1), (0, 0)),  # with places that no window has
]


def axes_of(image, kernel, steps, gaps, pads):
    """How windows lie along both axes."""
    counts = [
        (n + 2 * p - g * (k - 1) - 1) // s + 1
        for n, k, s, g, p in zip(image, kernel, steps, gaps, pads, strict=True)
    ]
    return [Axis(*each) for each in zip(image, counts, kernel, steps, gaps, pads, strict=True)]


def laid_over(x, down, across):
    """Add each column up to its image, number by number."""
    planes = x.shape[0]
    y = np.zeros((planes, down.size, across.size))
    x = x.reshape(planes, down.taps, across.taps, down.windows, across.windows)
    for tap in np.ndindex(x.shape[1:3]):
        for window in np.ndindex(x.shape[3:]):
            row, column = (
                w * axis.step + t * axis.gap - axis.pad
                for w, t, axis in zip(window, tap, (down, across), strict=True)
            )
            if 0 <= row < down.size and 0 <= column < across.size:
                y[:, row, column] += x[(slice(None), *tap, *window)]
    return y


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("threads", [1, 3])
def test_code(side, case, threads):
    down, across = axes_of(*case)
    rng, planes = np.random.default_rng(1), 5
    columns = down.taps * across.taps * down.windows * across.windows
    x = guarded(side, 4 * planes * columns).view(F).reshape(planes, columns)
    x[...] = rng.normal(size=x.shape)
    got = guarded(side, 4 * planes * down.size * across.size).view(F)
    code = code_of(down, across, planes, threads)
    for _ in range(2):
        assert code.bound([address_of(x), address_of(got)])() == 0
    want = laid_over(x, down, across)
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-5)


@with_avx512
def test_what_would_take_too_many_numbers_is_left_to_numpy():
    assert code_of(Axis(1 << 20, 1, 2, 1, 1, 0), Axis(4, 4, 1, 1, 1, 0), 1) is None


@pytest.mark.parametrize("case", CASES)
def test_networks(core, case):
    down, across = axes_of(*case)
    image, kernel, steps, gaps, pads = (list(each) for each in case)
    given = {"strides": steps, "dilations": gaps, "pads": [*pads, *pads]}
    weights = {"image": np.array(image), "kernel": np.array(kernel)}
    nodes = [("Col2Im", ["x", "image", "kernel"], ["y"], given)]
    sizes = ["n", 3 * down.taps * across.taps, down.windows * across.windows]
    model = build(nodes, {"x": sizes}, ["y"], weights, opset=18)
    executable = load(core, model, CPU_THREADS_NUM=2)
    for images in (1, 3, 2, 5):
        x = np.random.default_rng(images).normal(size=(images, *sizes[1:])).astype(F)
        (want,) = answer(model, {"x": x})
        np.testing.assert_allclose(executable.infer({"x": x})["y"], want, rtol=1e-5, atol=1e-5)


@with_avx512
def test_code_computes_a_network(core):
    weights = {"image": np.array([5, 5]), "kernel": np.array([2, 2])}
    model = build([("Col2Im", ["x", "image", "kernel"], ["y"], {})], {"x": [1, 8, 16]}, ["y"],
                  weights, opset=18)  # fmt: skip
    executable = load(core, model)
    executable.infer({"x": np.ones((1, 8, 16), F)})
    assert "Col2Im" in by_machine_code(executable)
