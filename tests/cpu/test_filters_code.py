"""Pictures and volumes read around points by machine code: GridSample, deformable convolutions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from polydevice.ops.grid_sample import GridMode, GridPadding, GridSample
from polydevice_cpu.algorithms.by_machine.resampling import filters
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.ops import grid_sample
from tests.cpu.loading import load
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.models import answer, build
from tests.guard_pages import SIDES, guarded

pytestmark = with_avx512
F = np.float32
MODES = {"nearest": GridMode.NEAREST, "linear": GridMode.BILINEAR, "cubic": GridMode.BICUBIC}
PADDINGS = [padding.value for padding in GridPadding]


def put(side, array):
    """The same numbers beside a page without access."""
    place = guarded(side, array.nbytes).view(array.dtype).reshape(array.shape)
    place[...] = array
    return place


def run(code, *arrays):
    assert code.bound([address_of(array) for array in arrays])() == 0


def odd_positions(rng, shape):
    """Positions from -1 to 1 and beyond, with those where something ends among them."""
    positions = rng.uniform(-1.7, 1.7, shape).astype(F)
    some = rng.random(shape) < 0.2
    positions[some] = rng.choice([-1, 1, 0, -3, 2.5], some.sum())
    return positions


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_every_number_of_points_and_axes(side, axes, mode):
    """NumPy's way, one array per element of the filter, which ONNX Runtime judges elsewhere."""
    rng = np.random.default_rng(axes)
    lengths = 1, 15, 16, 17, 50
    for padding, align, points in itertools.product(GridPadding, (False, True), lengths):
        images, channels = (int(n) for n in rng.integers(1, 4, 2))
        sizes = [int(n) for n in rng.integers(1, 7, axes)]
        x = put(side, rng.normal(size=(images, channels, *sizes)).astype(F))
        ones = (1,) * (axes - 1)
        grid = put(side, odd_positions(rng, (images, points, *ones, axes)))
        op = GridSample(align_corners=align, mode=MODES[mode], padding_mode=padding)
        with np.errstate(all="ignore"):
            want = grid_sample.grid_sample(op, x.astype(np.float64), grid.astype(np.float64))
        result = guarded(side, 4 * images * channels * points).view(F)
        form = filters.Form(MODES[mode], padding, axes)
        counts = filters.Points(images, channels, tuple(sizes), 1, points)
        for threads in (1, 3):
            result[:] = np.nan
            run(filters.code_of(form, counts, threads, align_corners=align), x, grid, result)
            got = result.reshape(want.shape)
            if mode == "nearest":  # halves are rounded apart where a position differs by a digit
                off = np.abs(got - want) > 1e-6
                assert off.mean() < 0.1
                got = np.where(off, want, got)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-5, err_msg=f"{op} {sizes}")


def test_threads_share_points(monkeypatch):
    """However few, and not a multiple of what is computed at once."""
    monkeypatch.setattr(filters, "SHARED", 1)
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2, 3, 6, 5)).astype(F)
    form = filters.Form(GridMode.BICUBIC, GridPadding.REFLECTION, 2)
    for points in (1, 16, 33, 500):
        grid = rng.uniform(-1.3, 1.3, (2, points, 2)).astype(F)
        alone, shared = (np.full((2, 3, points), np.nan, F) for _ in range(2))
        counts = filters.Points(2, 3, (6, 5), 1, points)
        run(filters.code_of(form, counts, 1), x, grid, alone)
        code = filters.code_of(form, counts, 2)
        assert code.threads == (2 if points > 16 else 1)
        run(code, x, grid, shared)
        np.testing.assert_array_equal(alone, shared)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("factors", [True, False])
def test_points_counted_from_places(side, cut, factors):
    """Each sample by itself, as a sum of four weighted elements."""
    rng = np.random.default_rng(cut)
    images, channels, sizes, parts, points = 2, 3, (5, 7), 4, 21
    x = put(side, rng.normal(size=(images, channels, *sizes)).astype(F))
    places = rng.integers(-2, 7, (parts, 2, points)).astype(F)
    shifts = put(side, rng.uniform(-3, 3, (images, parts, 2, points)).astype(F))
    shifts[rng.random(shifts.shape) < 0.2] = 0
    shifts[0, 0, 0, :3] = np.nan, np.inf, -np.inf
    weights = put(side, rng.random((images, parts, points)).astype(F))
    result = guarded(side, 4 * images * channels * parts * points).view(F)
    form = filters.Form(
        *(GridMode.BILINEAR, GridPadding.ZEROS, 2), is_grid=False, is_cut=cut, has_factors=factors
    )
    counts = filters.Points(images, channels, sizes, parts, points)
    given = [x, shifts, *([weights] if factors else []), result]
    code = filters.code_of(form, counts, 1, places=places)
    assert code.kept is places
    run(code, *given)
    want = np.zeros((images, channels, parts, points))
    for image, part, point in np.ndindex(images, parts, points):
        at = (places[part, :, point] + shifts[image, part, :, point]).astype(np.float64)
        sample = sampled(x[image], at, cut=cut)
        want[image, :, part, point] = sample * (weights[image, part, point] if factors else 1)
    np.testing.assert_allclose(result.reshape(want.shape), want, rtol=1e-4, atol=2e-5)


def sampled(planes, at, *, cut):
    total = np.zeros(len(planes))
    if not np.isfinite(at).all():
        return total
    if cut:
        if not all(0 <= place < size for place, size in zip(at, planes.shape[1:], strict=True)):
            return total
        at = [min(place, size - 1) for place, size in zip(at, planes.shape[1:], strict=True)]
    for step in itertools.product((0, 1), repeat=2):
        row, column = (int(np.floor(place)) + k for place, k in zip(at, step, strict=True))
        if 0 <= row < planes.shape[1] and 0 <= column < planes.shape[2]:
            weight = (1 - abs(at[0] - row)) * (1 - abs(at[1] - column))
            total += weight * planes[:, row, column]
    return total


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("align", [0, 1])
def test_grids_of_many_sizes(core, mode, padding, align):
    """ONNX Runtime judges; behind other steps, and with sizes that come with the inputs."""
    rng = np.random.default_rng(align)
    kinds = {"mode": mode, "padding_mode": padding, "align_corners": align}
    inputs = {"x": ["n", "c", "h", "w"], "grid": ["n", "p", "q", 2]}
    nodes = [("Relu", ["x"], ["r"], {}), ("GridSample", ["r", "grid"], ["s"], kinds),
             ("Sigmoid", ["s"], ["y"], {})]  # fmt: skip
    model = build(nodes, inputs, ["y"], {}, opset=20)
    executable = load(core, model)
    shapes = ((2, 3, 5, 7), (4, 6)), ((3, 11, 9, 4), (1, 3)), ((5, 1, 1, 8), (7, 7))
    shapes += (((1, 2, 30, 20), (1, 1)), ((2, 3, 5, 7), (4, 6)), ((1, 1, 1, 1), (3, 5)))
    for shape, places in shapes:
        feed = {
            "x": rng.normal(size=shape).astype(F),
            "grid": rng.uniform(-1.4, 1.4, (shape[0], *places, 2)).astype(F),
        }
        (want,) = answer(model, feed)
        np.testing.assert_allclose(executable.infer(feed)["y"], want, rtol=1e-4, atol=1e-5)
    assert "GridSample" in by_machine_code(executable)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("padding", PADDINGS)
def test_volumes(core, mode, padding):
    rng = np.random.default_rng(4)
    kinds = {"mode": mode, "padding_mode": padding}
    shapes = {"x": [2, 3, 4, 5, 6], "grid": [2, 3, 2, 5, 3]}
    model = build([("GridSample", ["x", "grid"], ["y"], kinds)], shapes, ["y"], {}, opset=20)
    executable = load(core, model)
    for _ in range(2):
        feed = {"x": rng.normal(size=shapes["x"]).astype(F),
                "grid": rng.uniform(-1.3, 1.3, shapes["grid"]).astype(F)}  # fmt: skip
        (want,) = answer(model, feed)
        np.testing.assert_allclose(executable.infer(feed)["y"], want, rtol=1e-4, atol=1e-5)
    assert by_machine_code(executable) == ["GridSample"]


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize(("groups", "parts"), [(1, 1), (2, 1), (1, 2), (2, 4)])
@pytest.mark.parametrize("rows", [3, "n"])
def test_deformable_convolutions(core, mask, groups, parts, rows):
    """ONNX Runtime judges them, with a bias and a function behind; with rows that come, too."""
    rng = np.random.default_rng(groups)
    taps, spatial = parts * 6, (5, 7)
    kinds = {"kernel_shape": [3, 2], "strides": [2, 1], "dilations": [1, 2], "pads": [1, 2, 1, 0],
             "group": groups, "offset_group": parts}  # fmt: skip
    inputs = {"x": [rows, 8, 10, 7], "o": [rows, 2 * taps, *spatial]}
    inputs |= {"m": [rows, taps, *spatial]} if mask else {}
    weights = {"w": rng.normal(size=(6, 8 // groups, 3, 2)).astype(F),
               "b": rng.normal(size=6).astype(F)}  # fmt: skip
    nodes = [
        ("DeformConv", ["x", "w", "o", "b", *("m" if mask else [])], ["d"], kinds),
        ("Relu", ["d"], ["y"], {}),
    ]
    model = build(nodes, inputs, ["y"], weights, opset=19)
    executable = load(core, model)
    for batch in [3, 3] if rows == 3 else [3, 1, 2, 3]:
        feed = {
            name: rng.normal(size=(batch, *shape[1:])).astype(F) for name, shape in inputs.items()
        }
        (want,) = answer(model, feed)
        np.testing.assert_allclose(executable.infer(feed)["y"], want, rtol=1e-4, atol=1e-4)
    found = by_machine_code(executable)
    assert ("DeformableColumns" in found) == (rows == 3), found


def test_without_code_for_large_planes():
    assert filters.is_known((5, 7))
    assert not filters.is_known((1 << 24,))
    assert not filters.is_known((1 << 20, 1 << 12))
    assert not filters.is_known((2, 2, 2, 2))
    assert not filters.is_known((0, 3))
