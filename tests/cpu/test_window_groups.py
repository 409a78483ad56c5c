"""Convolutions in groups by machine code that is the same for all sizes."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.windows import kinds, sums
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.algorithms.by_machine.windows.window_code import Bundle
from polydevice_cpu.onednn import constants
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling.by_machine import suitable_windows
from tests.cpu import models
from tests.cpu.loading import image, load, wait_for_settling
from tests.cpu.machine_code import (
    by_machine_code,
    for_now,
    missing_avx512,
    with_avx512,
    with_vectors,
)
from tests.cpu.test_window_sums import CHAINS, Case
from tests.guard_pages import SIDES, guarded

GROUPS = [  # how many, and channels of the source and of the result of each
    *((2, 16, 16), (3, 16, 16), (4, 4, 4), (6, 4, 4), (8, 8, 8), (3, 8, 8), (16, 2, 2), (10, 3, 3)),
    *((9, 5, 5), (4, 7, 7), (2, 12, 12), (2, 24, 24), (3, 20, 33), (2, 5, 40), (2, 33, 70)),
    *((7, 1, 2), (4, 20, 1), (5, 6, 16), (4, 16, 8), (2, 1, 3)),
]
OTHERWISE = [(2, 12, 12), (4, 16, 8)]
"""What oneDNN adds block by block."""


class Grouped(Case):
    """A convolution of random numbers and sizes whose channels are in groups."""

    def __init__(self, seed, chain, groups):
        super().__init__(seed, chain, is_depthwise=False)
        self.groups, given, results = groups
        channels, made = self.groups * given, self.groups * results
        gaps = self.windows.gaps
        if seed % 4 == 1:  # they may have gaps along rows, too
            wide, left_out = self.windows.sizes[1], 1 + seed % 2
            gaps = gaps[0], left_out
            size = self.source[3] + (wide - 1) * left_out
            self.source = *self.source[:3], size
        self.source = self.source[0], channels, *self.source[2:]
        self.result = self.result[0], made, *self.result[2:]
        self.windows = self.windows._replace(groups=self.groups, gaps=gaps)
        self.x = self.numbers(self.source[0], *self.source[2:], channels)
        self.weights = self.numbers(self.groups, results, given, *self.windows.sizes)
        self.bias, self.slopes = self.numbers(made), self.numbers(made)
        held = self.numbers(self.result[0], *self.result[2:], made)
        sums_ = any(link[0] is Function.SUM for link in chain)
        self.held = held if sums_ else np.full_like(held, np.nan)

    def added(self):
        pad, (down, across) = [(0, 0), *self.pads, (0, 0)], self.windows.gaps
        pictures, made, high, wide = self.result
        x = np.pad(self.x.astype(float), pad)
        x = x.reshape(*x.shape[:3], self.groups, -1)
        y = np.zeros((pictures, high, wide, self.groups, made // self.groups))
        for i, j in np.ndindex(*self.windows.sizes):
            rows, columns = (
                slice(k * (gap + 1), k * (gap + 1) + (n - 1) * step + 1, step)
                for k, gap, n, step in zip(
                    *((i, j), (down, across), (high, wide), self.windows.steps), strict=True
                )
            )
            y += np.einsum("nhwgi,goi->nhwgo", x[:, rows, columns], self.weights[..., i, j])
        return y.reshape(pictures, high, wide, made)

    def packed(self):
        groups, results, given, *window = self.weights.shape
        size = Bundle.of(groups, given, results).size
        by_bundles = self.weights.reshape(-1, size, results, given, *window)
        return np.ascontiguousarray(by_bundles.transpose(0, 4, 5, 3, 1, 2))

    def logical(self):
        return self.weights


def skip_what_shares_vectors(groups):
    if missing_avx512() and Bundle.of(*groups).size > 1:
        pytest.skip(f"groups share vectors, for which there is code with AVX-512: {groups}")


@with_vectors
@pytest.mark.parametrize("chain", ["nothing", "prelu", "swish", "sum", "linear first"])
@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_sums_are_those_of_numpy(groups, chain):
    skip_what_shares_vectors(groups)
    computed = 0
    for seed in range(12):
        case = Grouped(seed, CHAINS[chain], groups)
        got = case.got()
        if got is not None and case.is_whole:
            computed += 1
            wanted = case.wanted()
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert computed > 6


@with_avx512
@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_answers_are_those_of_onednn_to_the_bit(groups):
    order = {"in": 0, "other": 0}
    for seed in range(40, 70):
        case = Grouped(seed, CHAINS["prelu"], groups)
        if seed % 4 == 0:
            odd = np.array([np.nan, np.inf, -np.inf, -0.0, 1e30, 1e-40], np.float32)
            np.put(case.x, case.random.integers(0, case.x.size, odd.size), odd)
        got = case.got()
        if got is None or not case.is_whole:
            continue
        code, wanted = case.by_onednn()
        behind = tuple(each for _, each in case.pads)
        most = suitable_windows.MOST_CHANNELS
        if code == constants.OF_BLOCKS:
            most = suitable_windows.most_in_groups(groups[2], groups[1])
        sizes = groups[1], case.result[3], most
        if code in suitable_windows.MOST_US and suitable_windows.is_in_order(
            case.windows, behind, *sizes
        ):
            order["in"] += 1
            bits = [np.where(np.isnan(each), 0, each).tobytes() for each in (got, wanted)]
            np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
            assert bits[0] == bits[1], (case.source, case.result, case.windows, code)
        else:
            order["other"] += 1
    assert groups in OTHERWISE or order["in"] > 3, order


@with_vectors
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_nothing_beside_is_read_or_written(side, groups):
    for seed in range(6):
        case = Grouped(seed, CHAINS["prelu"], groups)
        plain, got = case.got(), case.got(lambda size: guarded(side, size))
        assert plain is not None
        np.testing.assert_array_equal(got, plain)


@with_avx512
@pytest.mark.parametrize("groups", GROUPS[::3], ids=str)
def test_code_for_other_sizes_is_told_what_differs(rng, groups, monkeypatch):
    """Also where rows are computed in parts, of all groups each."""
    monkeypatch.setattr(kinds, "BAND_BYTES", 1 << 12)
    count, given, results = groups
    bundle = Bundle.of(*groups)
    weights = image(1, count * results, given, 3, 3)
    constants = sums.Constants(weights, image(2, count * results), None, [(0.0, 0.0)])
    what = {"terms": Terms.ALL_CHANNELS, "has_bias": True, "bundle": bundle}
    made = sums.Functions([Function.RELU], **what)
    windows = Windows((3, 3), (1, 2), (0, 1), (1, 2), is_depthwise=False, groups=count)
    for number in range(30):
        pictures, high, wide = rng.integers(3, 30, 3).tolist()
        result = pictures, count * results, high, (wide - 1) // 2 + 1
        told = sums.arguments((pictures, count * given, high, wide), result, windows)
        told = told._replace(at=4 * (number % 3))
        wanted = Code.of(sums.told_of(made, told.banded(), constants), constants)
        found = sums.code_of(made, told, constants)
        assert found.numbers == wanted.numbers
        assert found[1:4] == wanted[1:4]
    assert 1 < len(constants.codes) < 30


@with_avx512
@pytest.mark.parametrize("parts", [1, 3])
def test_rows_in_parts_are_the_same(parts, monkeypatch):
    for seed in (0, 2, 3, 6, 7, 8):
        case = Grouped(seed, [], (4, 8, 8))
        case.has_bias = False
        wanted, told = case.got(), sums.arguments(case.source, case.result, case.windows)
        monkeypatch.setattr(kinds, "BAND_BYTES", 1 << 8)
        monkeypatch.setattr(kinds, "FEW_ROWS", 1)
        assert told.banded().rows.size >= told.rows.size
        what = {"terms": Terms.ALL_CHANNELS, "has_bias": False, "bundle": told.cover.bundle}
        constants = sums.Constants(case.packed(), None, None, [])
        made, got = sums.Functions([], **what), np.full_like(wanted, np.nan)
        calls = [sums.told_of(made, part.banded(), constants) for part in told.parts(parts)]
        code = Code.of([each for call in calls for each in call], constants)
        assert code.bound([address_of(each) for each in (case.x, case.x, got)])() == 0
        monkeypatch.undo()
        np.testing.assert_array_equal(got, wanted)


def network(groups, windows, *, steps=1, gap=1, sizes=("n", "h", "w"), tail="relu"):
    """A convolution in groups between two others."""
    count, given, results = groups
    channels, made = count * given, count * results
    pads = [gap * (each // 2) for each in windows]
    weights = {
        "first": image(1, channels, 3, 1, 1),
        "grouped": image(2, made, given, *windows) / given,
        "bias": image(3, made),
        "beside": image(4, made, channels, 1, 1) / channels,
    }
    attributes = {"group": count, "pads": pads * 2, "strides": [steps] * 2, "dilations": [gap] * 2}
    nodes = [
        ("Conv", ["x", "first"], ["a"], {}),
        ("Conv", ["a", "grouped", "bias"], ["b"], attributes),
    ]
    if tail == "sum":
        beside = {"strides": [steps] * 2}
        nodes += [("Conv", ["a", "beside"], ["c"], beside), ("Add", ["b", "c"], ["d"], {})]
        nodes += [("Relu", ["d"], ["y"], {})]
    else:
        del weights["beside"]
        named = {"hardswish": "HardSwish", "relu": "Relu", "gelu": "Gelu"}
        nodes += [(named[tail], ["b"], ["y"], {})]
    batch, high, wide = sizes
    return models.build(nodes, {"x": [batch, 3, high, wide]}, ["y"], weights, opset=20)


SIZES = [(20, 31), (33, 18), (45, 62), (9, 70), (52, 27), (64, 64), (7, 8), (40, 21)]
NETWORKS = {
    "regnet": (((4, 16, 16), (3, 3)), {}),
    "regnet, strided": (((6, 16, 16), (3, 3)), {"steps": 2}),
    "resnext": (((8, 4, 4), (3, 3)), {"tail": "sum"}),
    "resnext, strided": (((32, 8, 8), (3, 3)), {"steps": 2, "tail": "sum"}),
    "wide": (((2, 24, 24), (3, 3)), {"tail": "hardswish"}),
    "wider": (((2, 40, 72), (3, 3)), {"tail": "sum"}),
    "one element": (((3, 20, 20), (1, 1)), {}),
    "one element of 8": (((3, 8, 8), (1, 1)), {"tail": "hardswish"}),
    "dilated": (((4, 16, 16), (3, 3)), {"gap": 2}),
    "twelve": (((4, 12, 12), (3, 3)), {"steps": 2, "tail": "hardswish"}),
    "five": (((3, 5, 5), (3, 3)), {"gap": 2}),
    "odd": (((3, 7, 7), (3, 5)), {"tail": "sum"}),
}


@with_avx512
@pytest.mark.parametrize("name", NETWORKS)
def test_new_shapes_are_answered_as_onnx_runtime_does(core, name, monkeypatch):
    """Machine code computes groups, and goes on where it is faster than oneDNN's."""
    monkeypatch.setattr(settling, "RUNS", 3)
    monkeypatch.setattr("polydevice_cpu.plan.filling.filled.STAYING_US", 0.0)
    args, more = NETWORKS[name]
    model, stays = network(*args, **more), Bundle.of(*args[0]).is_faster
    executable = load(core, model, CPU_THREADS_NUM=1)
    request, seen = executable.create_infer_request(), 0
    for number, (high, wide) in enumerate(SIZES):
        x = image(number, 1 + number % 3, 3, high, wide)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"].copy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        steps = [each for each in for_now(executable) if "GroupConvolution" in each]
        for _ in range(settling.RUNS):
            np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
        wait_for_settling()
        np.testing.assert_array_equal(request.infer({"x": x})["y"], got)
        if steps:
            seen += 1
            assert for_now(executable) == (steps if stays else [])
    assert (seen > 4) == (name != "dilated")  # which oneDNN adds up in another order


@pytest.mark.parametrize("name", ["regnet", "resnext", "wider"])
def test_threads_share_groups(core, name):
    args, more = NETWORKS[name]
    model = network(*args, **more)
    request = load(core, model, CPU_THREADS_NUM=2).create_infer_request()
    for number, (high, wide) in enumerate([*SIZES, (90, 85), (101, 94)]):
        x = image(number, 1 + number % 2, 3, high, wide)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())


@with_avx512
@pytest.mark.parametrize("tail", ["relu", "hardswish", "sum", "gelu"])
@pytest.mark.parametrize("groups", [(8, 4, 4), (3, 12, 12), (2, 24, 24), (5, 3, 3), (2, 16, 16)])
def test_known_sizes_are_computed_so_where_that_is_faster(core, groups, tail):
    for number, (steps, gap) in enumerate([(1, 1), (2, 1), (1, 2)]):
        sizes = 2, 19 + number, 23
        model = network(groups, (3, 3), steps=steps, gap=gap, sizes=sizes, tail=tail)
        executable = load(core, model)
        request = executable.create_infer_request()
        x = image(number, 2, 3, *sizes[1:])
        (wanted,) = models.answer(model, {"x": x})
        for _ in range(2):
            got = request.infer({"x": x})["y"]
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        is_ours = any("GroupConvolution" in each for each in by_machine_code(executable))
        assert tail == "sum" or is_ours == Bundle.of(*groups).is_faster


ALONG = {  # groups, elements of a window, pads, step, distance
    "twelve": ((4, 12, 12), 9, 4, 1, 1),
    "strided": ((3, 20, 24), 5, 2, 2, 1),
    "dilated": ((8, 4, 4), 7, 9, 1, 3),
    "six": ((16, 6, 6), 9, 4, 1, 1),
    "wide": ((2, 48, 48), 8, 4, 1, 1),
    "several of one": ((5, 1, 3), 3, 1, 1, 1),
    "one element": ((4, 48, 80), 1, 0, 1, 1),
    "many weights": ((8, 128, 260), 1, 0, 1, 1),
}


OF_FEW = "dilated", "six"
"""Which share vectors, or which oneDNN's code for AVX2 reads otherwise."""


@with_vectors
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[with_avx512] * (name in OF_FEW)) for name in ALONG]
)
def test_groups_along_one_axis(core, name):
    (groups, given, results), size, pad, step, gap = ALONG[name]
    weights = {
        "k": image(1, groups * results, given, size) / given,
        "b": image(2, groups * results),
    }
    attributes = {"group": groups, "pads": [pad] * 2, "strides": [step], "dilations": [gap]}
    nodes = [("Conv", ["x", "k", "b"], ["a"], attributes), ("Relu", ["a"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", groups * given, "l"]}, ["y"], weights)
    executable, seen = load(core, model, CPU_THREADS_NUM=1), 0
    request = executable.create_infer_request()
    for number, length in enumerate([40, 33, 61, 25, 90, 47, 120, 28]):
        x = image(number, 1 + number % 2, groups * given, length)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        seen += any("GroupConvolution" in each for each in by_machine_code(executable))
    assert seen > 3


@pytest.mark.parametrize("groups", [(4, 4, 4), (2, 16, 16), (3, 24, 24)], ids=str)
def test_what_is_no_number_stays_in_its_group(core, groups):
    """Of the first group; of open sizes and of known ones."""
    count, given, results = groups
    weights = {"k": image(1, count * results, given, 3, 3) / given}
    node = ("Conv", ["x", "k"], ["y"], {"group": count, "pads": [1] * 4})
    for sizes in (("h", "w"), (9, 14)):
        model = models.build([node], {"x": [2, count * given, *sizes]}, ["y"], weights)
        request = load(core, model).create_infer_request()
        for number, (high, wide) in enumerate([(12, 9), (7, 20), (15, 11), (9, 14)]):
            if "h" not in sizes and (high, wide) != sizes:
                continue
            x = image(number, 2, count * given, high, wide)
            x[0, given - 1, 3, 4], x[1, 0, 2, 2] = np.nan, -np.inf
            (wanted,) = models.answer(model, {"x": x})
            got = request.infer({"x": x})["y"]
            np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
            assert not np.isnan(got[:, results:]).any()
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
