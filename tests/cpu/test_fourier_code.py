"""Fourier transforms of few points by machine code, which sums in f64; and networks of them."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.ops import signal as ops
from polydevice.testing.op_case import OpCase, network_of
from polydevice_cpu.algorithms.by_machine.fourier import transform
from polydevice_cpu.algorithms.by_machine.fourier.transform import Line, Side, code_of
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.engine import address_of
from tests.cpu import models
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, missing_avx512, with_avx512
from tests.guard_pages import SIDES, guarded

SIZES = [*range(1, 20), 24, 30, 31, 37, 60, 64, 74, 90, 113, 128, 150, 256]
TYPES = np.float32, np.float64


def guarded_as(x, side):
    """A copy against a page without access."""
    copy = guarded(side, x.nbytes).view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def side_of(x, axis, *, pairs):
    """How a row-major array lies that is transformed along an axis."""
    steps = [*x.strides, x.itemsize][: x.ndim - pairs]
    behind = x.itemsize * (1 + pairs)
    outer = steps[axis] * x.shape[axis]
    return Side(steps[axis], outer, behind, x.dtype == np.float64)


def transformed(x, line, axis, dtype, side="after", threads=1):
    """What code computes of [outer, points, inner] or [outer, points, inner, 2]."""
    shape = [*x.shape[:3]]
    shape[axis] = line.results
    x = guarded_as(x, side)
    y = guarded_as(np.full((*shape, 2) if line.to_pairs else shape, 7, dtype), side)
    sides = side_of(x, axis, pairs=line.of_pairs), side_of(y, axis, pairs=line.to_pairs)
    made = code_of(line, x.shape[0], x.shape[2], *sides, threads)
    assert made is not None
    call = made.bound([address_of(x), address_of(y)])
    for _ in range(2):
        y[...] = 7
        assert call() == 0
    return y


def pairs(z):
    return np.stack([z.real, z.imag], -1)


@with_avx512
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("size", SIZES)
def test_transforms(rng, size, side) -> None:
    points, inner = int(rng.integers(1, size + 1)), int(rng.choice([1, 3]))
    results = int(rng.integers(1, size + 1))
    source, result = TYPES[rng.integers(2)], TYPES[rng.integers(2)]
    tolerance = {"rtol": 2e-7 if result is np.float32 else 1e-12, "atol": 1e-12}
    x = rng.standard_normal((2, points, inner, 2)).astype(source)
    for inverse, transform_ in ((False, np.fft.fft), (True, np.fft.ifft)):
        line = Line(size, points, results, inverse, True, True)
        want = transform_(x[..., 0] + 1j * x[..., 1].astype(np.float64), size, 1)[:, :results]
        got = transformed(x, line, 1, result, side)
        np.testing.assert_allclose(got, pairs(want), **tolerance)
        real = transformed(
            np.ascontiguousarray(x[..., 0]), line._replace(of_pairs=False), 1, result
        )
        want = transform_(x[..., 0].astype(np.float64), size, 1)[:, :results]
        np.testing.assert_allclose(real, pairs(want), **tolerance)
        parts = transformed(x, line._replace(to_pairs=False), 1, result, side)
        np.testing.assert_array_equal(parts, got[..., 0])


@with_avx512
def test_factors_of_points(rng) -> None:
    x, window = rng.standard_normal((3, 20, 1)), rng.standard_normal(20)
    line = Line(20, 20, 11, False, False, True, window.tobytes())
    want = pairs(np.fft.rfft(x * window[:, None], axis=1))
    np.testing.assert_allclose(transformed(x, line, 1, np.float64), want, rtol=0, atol=1e-13)


@with_avx512
@pytest.mark.parametrize("shape", [(40, 24, 1, 2), (3, 30, 50, 2)])
def test_threads_share_rows(rng, monkeypatch, shape) -> None:
    monkeypatch.setattr(transform, "SHARED", 1)
    x = rng.standard_normal(shape)
    line = Line(shape[1], shape[1], shape[1], False, True, True)
    with openmp.threads(2):
        got = transformed(x, line, 1, np.float64, threads=2)
    np.testing.assert_allclose(
        got, pairs(np.fft.fft(x[..., 0] + 1j * x[..., 1], axis=1)), rtol=1e-9
    )


@with_avx512
def test_many_rows_of_many_points_are_numpys() -> None:
    few, some, many = (Line(n, n, n, False, True, True) for n in (512, 640, 4099))
    side = Side(8, 0, 8 * 512, False)
    assert code_of(few, 1, 2, side, side, 1) is not None
    assert code_of(some, 1, 20_000, side, side, 1) is None
    assert code_of(many, 1, 1, side, side, 1) is None


def wanted(op, x, axes, sizes):
    """What NumPy computes in f64."""
    numpys = {ops.DFT: "fftn", ops.IDFT: "ifftn", ops.RDFT: "rfftn", ops.IRDFT: "irfftn"}
    places = op.axes_of(axes, x.ndim)
    wide = x.astype(np.float64)
    given = wide[..., 0] + 1j * wide[..., 1] if op.complex_input else wide
    found = getattr(np.fft, numpys[type(op)])(given, sizes, places)
    return (pairs(found) if op.complex_output else found).astype(x.dtype)


def assert_near(got, want, *, is_numpys=False):
    """As near as f64 or f32 tell; NumPy computes some transforms of f32 in f32."""
    bounds = {"rtol": 1e-12, "atol": 1e-13}
    if want.dtype == np.float32:
        bounds = {"rtol": 2e-7, "atol": 1e-5 if missing_avx512() or is_numpys else 1e-7}
    np.testing.assert_allclose(got, want, **bounds)


CASES = [
    ((3, 6, 2), [0], None),
    ((2, 5, 9, 2), [1, 2], None),
    ((2, 5, 9, 2), [2, 0], [4, 7]),
    ((2, 3, 16, 2), [-1], [29]),
    ((2, 3, 4, 5, 2), [0, 1, 2, 3], None),
]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", [ops.DFT, ops.IDFT, ops.RDFT, ops.IRDFT])
@pytest.mark.parametrize(("shape", "axes", "sizes"), CASES)
def test_a_network(core, rng, kind, shape, axes, sizes, dtype) -> None:
    op, x = kind(), rng.standard_normal(shape).astype(dtype)
    if kind is ops.RDFT:
        x = np.ascontiguousarray(x[..., 0])
    want = wanted(op, x, axes, sizes)
    numbers = [np.array(each) for each in (axes, sizes) if each is not None]
    constants = set(range(1, 1 + len(numbers)))
    network = network_of(OpCase(op, [x, *numbers], [want], constants=constants))
    executable = core.load_network(network, "CPU", {})
    (got,) = executable.infer({next(iter(network.inputs)): x}).values()
    assert_near(got, want, is_numpys=kind is ops.IDFT)
    if not missing_avx512() and kind is not ops.IDFT:
        assert by_machine_code(executable) == [op.type] * len(axes)


@pytest.mark.parametrize("hop", [1, 3, 8])
@pytest.mark.parametrize("windowed", [False, True])
def test_frames_of_open_sizes(core, rng, hop, windowed) -> None:
    weights = {"hop": np.array(hop), "length": np.array(10)}
    weights["window"] = rng.standard_normal(10).astype(np.float32)
    inputs = ["x", "hop", "window" if windowed else "", "length"]
    model = models.build([("STFT", inputs, ["y"], {})], {"x": ["n", "t", 1]}, ["y"], weights)
    executable = load(core, model)
    for batch, length in ((1, 10), (2, 33), (3, 100), (2, 33)):
        x = rng.standard_normal((batch, length, 1)).astype(np.float32)
        (want,) = models.answer(model, {"x": x})
        got = executable.infer({"x": x})["y"]
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)
        if not missing_avx512():
            assert by_machine_code(executable) == ["STFT"]


@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_transforms_of_open_sizes(core, rng, axis, inverse) -> None:
    nodes = [("DFT", ["x", "", "axis"], ["y"], {"inverse": inverse})]
    sizes = {"x": ["n", "m", "k", 2]}
    model = models.build(nodes, sizes, ["y"], {"axis": np.array(axis)}, opset=20)
    executable = load(core, model)
    for shape in ((1, 1, 1, 2), (3, 8, 5, 2), (2, 90, 7, 2), (30, 3, 40, 2), (2, 0, 4, 2)):
        x = rng.standard_normal(shape).astype(np.float32)
        if shape[axis]:  # ONNX Runtime, for one, is right to 1e-3 alone
            want = wanted(ops.IDFT() if inverse else ops.DFT(), x, [axis], None)
            got = executable.infer({"x": x})["y"]
            assert_near(got, want, is_numpys=inverse)


def test_what_is_no_number_reaches_its_row_alone(core, rng) -> None:
    nodes = [("DFT", ["x", "", "axis"], ["y"], {})]
    model = models.build(nodes, {"x": [4, 9, 2]}, ["y"], {"axis": np.array(1)}, opset=20)
    x = rng.standard_normal((4, 9, 2)).astype(np.float32)
    want = wanted(ops.DFT(), x, [1], None)
    x[1, 3, 0], x[2, 4, 1] = np.nan, np.inf
    got = load(core, model).infer({"x": x})["y"]
    np.testing.assert_allclose(got[::3], want[::3], rtol=1e-6, atol=1e-6)
    assert np.isnan(got[1]).any(-1).all()
    assert (~np.isfinite(got[2])).any(-1).all()
