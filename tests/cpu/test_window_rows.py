"""Convolutions along one axis by machine code, also transposed ones, whatever follows them."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.symbolic_trace import tracing
from polydevice_cpu.algorithms.by_machine.windows import kinds, transposed
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.algorithms.by_machine.windows.sums import (
    Constants,
    Functions,
    arguments,
    code_of,
    code_of_all,
)
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.algorithms.by_machine.windows.window_code import Bundle
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling.by_machine import suitable_windows as by_machine
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load
from tests.cpu.machine_code import are_sigmoids_apart, by_machine_code, compared, with_vectors
from tests.guard_pages import SIDES, guarded

pytestmark = with_vectors

LENGTHS = [40, 33, 57, 91, 64, 120]

FOLLOWED = {
    "nothing": [("Identity", ["a"], ["y"], {})],
    "relu": [("Relu", ["a"], ["y"], {})],
    "leaky": [("LeakyRelu", ["a"], ["y"], {"alpha": 0.2})],
    "elu": [("Elu", ["a"], ["y"], {"alpha": 1.5})],
    "gelu": [("Gelu", ["a"], ["y"], {})],
    "tanh": [("Tanh", ["a"], ["y"], {})],
    "logistic": [("Sigmoid", ["a"], ["y"], {})],
}


def along(geometry, followed, channels=12, results=20, taps=5):
    """A convolution of pictures of one axis, and what follows it."""
    weights = {"w": image(1, results, channels, taps) / channels, "bias": image(2, results)}
    nodes = [("Conv", ["x", "w", "bias"], ["a"], geometry), *followed]
    return models.build(nodes, {"x": ["n", channels, "w"]}, ["y"], weights, opset=20)


def across(geometry, followed, channels=12, results=20, taps=8):
    """The same of a transposed convolution."""
    weights = {"w": image(1, channels, results, taps) / channels, "bias": image(2, results)}
    nodes = [("ConvTranspose", ["x", "w", "bias"], ["a"], geometry), *followed]
    return models.build(nodes, {"x": ["n", channels, "w"]}, ["y"], weights, opset=20)


def check(core, model, channels=12, **config):
    """That new lengths are computed by machine code and stay so; return how often they were."""
    executable = load(core, model, CPU_THREADS_NUM=1, **config)
    feeds = [image(number, 1 + number % 2, channels, n) for number, n in enumerate(LENGTHS)]
    return compared(executable, model, feeds, stays=True)


GEOMETRIES = {
    "plain": {},
    "same": {"pads": [2, 2]},
    "gaps": {"pads": [12, 12], "dilations": [6]},
    "causal": {"pads": [8, 0], "dilations": [2]},
    "steps": {"pads": [1, 2], "strides": [3]},
}


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_windows_of_one_axis(core, monkeypatch, geometry):
    monkeypatch.setattr(settling, "RUNS", 2)
    assert check(core, along(GEOMETRIES[geometry], FOLLOWED["leaky"])) >= 3


@pytest.mark.parametrize("followed", FOLLOWED)
def test_what_follows(core, monkeypatch, followed):
    monkeypatch.setattr(settling, "RUNS", 2)
    assert check(core, along({"pads": [2, 2]}, FOLLOWED[followed])) >= 3


TRANSPOSED = {
    "halves": {"strides": [4], "pads": [2, 2]},
    "odd": {"strides": [3], "pads": [1, 2]},
    "none left out": {"strides": [5]},
    "more behind": {"strides": [2], "pads": [3, 3], "output_padding": [1]},
}


@pytest.mark.parametrize("geometry", TRANSPOSED)
def test_transposed_windows(core, monkeypatch, geometry):
    monkeypatch.setattr(settling, "RUNS", 2)
    assert check(core, across(TRANSPOSED[geometry], FOLLOWED["elu"])) >= 3


@pytest.mark.parametrize("rank", [1, 2])
def test_sums_that_are_rounded_again_and_again(core, monkeypatch, rank):
    """Each time takes four or five functions."""
    monkeypatch.setattr(settling, "RUNS", 2)
    levels = ["scale", "zero"]
    weights = {"w": image(1, 20, 12, *[3] * rank) / 9, "scale": np.array(0.017, np.float32)}
    weights["zero"] = np.array(101, np.uint8)
    nodes = [("Conv", ["x", "w"], ["a0"], {"pads": [1] * 2 * rank})]
    for number in range(3):
        read, way = f"a{number}", ("Relu", "LeakyRelu", "Sigmoid")[number]
        nodes += [("QuantizeLinear", [read, *levels], [f"b{number}"], {})]
        nodes += [("DequantizeLinear", [f"b{number}", *levels], [f"c{number}"], {})]
        nodes += [(way, [f"c{number}"], ["y" if number == 2 else f"a{number + 1}"], {})]
    model = models.build(nodes, {"x": ["n", 12, *"hw"[:rank]]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    sizes = [(n,) for n in LENGTHS] if rank == 1 else PICTURES
    feeds = [image(number, 1 + number % 2, 12, *each) for number, each in enumerate(sizes)]
    assert compared(executable, model, feeds, stays=rank == 1) >= 3
    assert len(executable.latest_plan().steps) < 5


def branches(rank, results=20):
    """Convolutions whose results are added, subtracted and divided, and squeezed."""
    weights = {name: image(n, results, 12, *[3] * rank) / 9 for n, name in enumerate("bcde")}
    form = {"pads": [1] * 2 * rank}
    nodes = [("Conv", ["x", name], [f"a{name}"], form) for name in "bcde"]
    nodes += [("Sub", ["ab", "ac"], ["f"], {}), ("Add", ["f", "ad"], ["g"], {})]
    nodes += [("Add", ["ae", "g"], ["h"], {}), ("Div", ["h", "three"], ["i"], {})]
    nodes += [("LeakyRelu", ["i"], ["j"], {"alpha": 0.2}), ("Add", ["j", "ac"], ["k"], {})]
    nodes += [("Mul", ["k", "three"], ["y"], {})]
    weights["three"] = np.array(3, np.float32)
    return models.build(nodes, {"x": ["n", 12, *"hw"[:rank]]}, ["y"], weights)


@pytest.mark.parametrize("rank", [1, 2])
def test_sums_with_several_branches(core, monkeypatch, rank):
    """One step adds, subtracts and divides; of pictures until plans have settled."""
    monkeypatch.setattr(settling, "RUNS", 2)
    model = branches(rank)
    executable = load(core, model, CPU_THREADS_NUM=1)
    sizes = [(n,) for n in LENGTHS] if rank == 1 else PICTURES
    feeds = [image(number, 1 + number % 2, 12, *each) for number, each in enumerate(sizes)]
    assert compared(executable, model, feeds, stays=rank == 1) >= 3
    request = executable.create_infer_request()
    x = image(9, 1, 12, *[23] * rank)
    request.infer({"x": x})
    found = by_machine_code(executable)
    assert len(found) == 4
    assert any(kind.count("Add") > 1 and "Divide" in kind for kind in found)
    assert any("Subtract" in kind for kind in found)


@pytest.mark.parametrize(("rank", "group"), [(1, 1), (2, 1), (2, 20)])
def test_sums_that_a_number_for_each_channel_is_added_to(core, monkeypatch, rank, group):
    """Behind other sums, where it is no bias."""
    monkeypatch.setattr(settling, "RUNS", 2)
    weights = {name: image(n, 20, 20 // group, *[3] * rank) / 9 for n, name in enumerate("bcd")}
    weights["moved"] = image(3, 1, 20, *[1] * rank)
    form = {"pads": [1] * 2 * rank, "group": group}
    nodes = [("Conv", ["x", "b"], ["e"], form), ("Relu", ["e"], ["f"], {})]
    nodes += [("Conv", ["f", "c"], ["g"], form), ("Sigmoid", ["g"], ["h"], {})]
    nodes += [("Conv", ["h", "d"], ["i"], form), ("Add", ["f", "i"], ["j"], {})]
    nodes += [("Relu", ["j"], ["k"], {}), ("Add", ["k", "moved"], ["l"], {})]
    nodes += [("Add", ["l", "h"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", 20, *"hw"[:rank]]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    sizes = [(n,) for n in LENGTHS] if rank == 1 else PICTURES
    feeds = [image(number, 1 + number % 2, 20, *each) for number, each in enumerate(sizes)]
    assert compared(executable, model, feeds, stays=rank == 1) >= 3
    executable.infer({"x": image(9, 1, 20, *[23] * rank)})
    assert len(by_machine_code(executable)) == 3 + are_sigmoids_apart()


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("groups", [1, 4])
def test_several_tensors_that_lie_elsewhere(rng, groups, side):
    """Each has an address of its own, for other sizes, too."""
    chain = Function.ADD, Function.LEAKY, Function.SUBTRACT, Function.QUOTIENT, Function.ADD
    shares = [(0.0, 0.0), (0.5, 0.0), (0.0, 0.0), (3.0, 0.0), (0.0, 0.0)]
    bundle = None if groups == 1 else Bundle.of(groups, 3, 5)
    made = Functions(chain, terms=Terms.ALL_CHANNELS, has_bias=False, bundle=bundle)
    windows = Windows((1, 1), (1, 1), (0, 0), (0, 0), is_depthwise=False, groups=groups)
    matrices = rng.normal(size=(groups, 3, 5)).astype(np.float32)
    known = Constants(matrices.reshape(-1, 5), None, None, shares)
    for high, wide in [(3, 40), (7, 5), (1, 1)]:
        sizes, placed = (2, high, wide), []
        for channels in (3, 5, 5, 5, 5):
            count = 2 * high * wide * channels * groups
            memory = guarded(side, 4 * count)[: 4 * count].view(np.float32)
            placed.append(memory.reshape(*sizes, channels * groups))
            placed[-1][...] = rng.normal(size=placed[-1].shape)
        x, first, second, third, y = placed
        told = arguments((2, 3 * groups, *sizes[1:]), (2, 5 * groups, *sizes[1:]), windows)
        assert code_of(made, told, known).bound([address_of(each) for each in placed])() == 0
        parts = x.reshape(*sizes, groups, 3)
        sums = np.einsum("nhwgi,gij->nhwgj", parts, matrices).reshape(y.shape) + first
        wanted = (np.where(sums > 0, sums, sums / 2) - second) / 3 + third
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


def test_tanh_of_any_number(rng):
    """Small ones, too, and what is no number."""
    scales = 10.0 ** rng.uniform(-38, 3, 4000)
    x = np.array([*rng.normal(size=4000) * scales, np.nan, np.inf, -np.inf, 0.0], np.float32)
    made = Functions([Function.TANH], terms=Terms.OWN_CHANNEL, has_bias=False)
    windows = Windows((1, 1), (1, 1), (0, 0), (0, 0), is_depthwise=True)
    told = arguments((1, 4, 1001, 1), (1, 4, 1001, 1), windows)
    constants = Constants(np.ones((1, 4), np.float32), None, None, [(0.0, 0.0)])
    y = np.empty_like(x)
    assert code_of(made, told, constants).bound([address_of(each) for each in (x, x, y)])() == 0
    np.testing.assert_allclose(y, np.tanh(x.astype(float)), rtol=3e-6, atol=1e-38)
    assert np.isnan(y[-4])


def pictures(channels, results, taps):
    """A convolution of pictures, and Tanh behind it."""
    weights = {"w": image(1, results, channels, taps, taps) / channels, "bias": image(2, results)}
    form = {"pads": [taps // 2] * 4}
    nodes = [("Conv", ["x", "w", "bias"], ["a"], form), *FOLLOWED["tanh"]]
    return models.build(nodes, {"x": ["n", channels, "h", "w"]}, ["y"], weights, opset=20)


@pytest.mark.parametrize(
    ("channels", "results", "taps", "stays"),
    [(1, 40, 5, True), (24, 40, 3, True), (24, 40, 5, False), (24, 3, 3, False)],
)
def test_pictures_that_tanh_follows(core, monkeypatch, channels, results, taps, stays):
    """They are computed by machine code where it takes as long as oneDNN's.

    Where Tanh is a step of its own, convolutions are as oneDNN's to the bit, and Tanh stays.
    """
    monkeypatch.setattr(settling, "RUNS", 2)
    model = pictures(channels, results, taps)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [
        image(number, 1 + number % 2, channels, *sizes) for number, sizes in enumerate(PICTURES)
    ]
    if are_sigmoids_apart():
        assert compared(executable, model, feeds, stays=channels == 1) >= 3
        assert "Tanh" in by_machine_code(executable)
    else:
        assert (compared(executable, model, feeds, stays=True) >= 3) is stays


@pytest.mark.parametrize("axes", [1, 2])
def test_transposed_windows_are_onednns_without_avx512(core, monkeypatch, axes):
    monkeypatch.setattr(by_machine, "has_vectors", lambda: False)
    weights = {"w": image(1, 12, 20, *[4] * axes) / 12, "bias": image(2, 20)}
    nodes = [("ConvTranspose", ["x", "w", "bias"], ["y"], {"strides": [2] * axes})]
    model = models.build(nodes, {"x": ["n", 12, *"hw"[:axes]]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(number, 1, 12, *sizes[:axes]) for number, sizes in enumerate(PICTURES)]
    assert compared(executable, model, feeds) == 0


PICTURES = [(9, 8), (8, 13), (17, 5), (11, 11), (6, 30), (21, 7)]

TRANSPOSED_OF_PICTURES = {
    "halves": ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "odd": ((3, 5), {"strides": [2, 3], "pads": [1, 0, 1, 2]}),
    "one axis": ((3, 5), {"strides": [1, 2], "pads": [1, 2, 1, 2], "output_padding": [0, 1]}),
}


@pytest.mark.parametrize("followed", ["relu", "gelu"])
@pytest.mark.parametrize("geometry", TRANSPOSED_OF_PICTURES)
def test_transposed_windows_of_pictures(core, monkeypatch, geometry, followed):
    monkeypatch.setattr(settling, "RUNS", 2)
    taps, form = TRANSPOSED_OF_PICTURES[geometry]
    weights = {"w": image(1, 12, 20, *taps) / 12, "bias": image(2, 20)}
    nodes = [("ConvTranspose", ["x", "w", "bias"], ["a"], form), *FOLLOWED[followed]]
    model = models.build(nodes, {"x": ["n", 12, "h", "w"]}, ["y"], weights, opset=20)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(number, 1 + number % 2, 12, *sizes) for number, sizes in enumerate(PICTURES)]
    assert compared(executable, model, feeds, stays=True) >= 3


@pytest.mark.parametrize(("channels", "results"), [(55, 39), (91, 14), (24, 1)])
def test_transposed_windows_side_by_side(core, monkeypatch, channels, results):
    """Products by some matrices: to the bit as oneDNN's; in place of its gemm, they stay."""
    monkeypatch.setattr(settling, "RUNS", 2)
    weights = {"w": image(1, channels, results, 2, 2) / channels, "bias": image(2, results)}
    nodes = [("ConvTranspose", ["x", "w", "bias"], ["y"], {"strides": [2, 2]})]
    model = models.build(nodes, {"x": ["n", channels, "h", "w"]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    sizes = [*PICTURES, (33, 29)]
    feeds = [image(number, 1 + number % 2, channels, *each) for number, each in enumerate(sizes)]
    assert compared(executable, model, feeds, stays=are_sigmoids_apart()) >= 3


@pytest.mark.parametrize(("results", "most"), [(8, 1 << 20), (20, 4 * 12 * 20 * 16 - 1)])
def test_few_results_and_large_weights_of_pictures_are_onednns(core, monkeypatch, results, most):
    monkeypatch.setattr(by_machine, "MOST_TRANSPOSED_BYTES", most)
    form = {"strides": [2, 1], "pads": [1, 1, 1, 1]}
    weights = {"w": image(1, 12, results, 4, 4) / 12, "bias": image(2, results)}
    nodes = [("ConvTranspose", ["x", "w", "bias"], ["y"], form)]
    model = models.build(nodes, {"x": ["n", 12, "h", "w"]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(number, 1, 12, *sizes) for number, sizes in enumerate(PICTURES)]
    assert compared(executable, model, feeds, stays=True) == 0


def test_positions_with_nothing_to_read_are_onednns(core):
    """Windows of 2 elements that are 3 apart leave every third position to the bias."""
    model = across({"strides": [3]}, FOLLOWED["relu"], taps=2)
    assert check(core, model) == 0


def test_weights_that_no_cache_holds_are_onednns(core, monkeypatch):
    monkeypatch.setattr(by_machine, "MOST_WEIGHTS_BYTES", 4 * 12 * 20 * 5 - 1)
    assert check(core, along({"pads": [2, 2]}, FOLLOWED["relu"])) == 0


def residual():
    """Two convolutions whose results are added, one of them to what is used elsewhere, too."""
    weights = {"first": image(1, 16, 16, 3) / 16, "second": image(2, 16, 16, 3) / 16}
    nodes = [
        ("Conv", ["x", "first"], ["a"], {"pads": [1, 1]}),
        ("LeakyRelu", ["a"], ["b"], {"alpha": 0.1}),
        ("Conv", ["b", "second"], ["c"], {"pads": [2, 2], "dilations": [2]}),
        ("Add", ["c", "x"], ["d"], {}),
        ("Conv", ["d", "first"], ["e"], {"pads": [1, 1]}),
        ("Add", ["e", "d"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", 16, "w"]}, ["y"], weights)


def test_what_is_added_may_lie_elsewhere(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 2)
    assert check(core, residual(), channels=16) >= 3


def test_onednn_is_asked_for_no_convolution(core, monkeypatch):
    executable = load(core, residual(), CPU_THREADS_NUM=1)
    for number, length in enumerate(LENGTHS[:4]):
        executable.infer({"x": image(number, 1, 16, length)})
    asked = asked_from_now(monkeypatch)
    executable.infer({"x": image(9, 1, 16, 77)})
    assert len(by_machine_code(executable)) == 3
    assert not [name for name in asked if "convolution" in name]


@pytest.mark.parametrize("side", SIDES)
def test_nothing_beside_is_read_or_written(side):
    """Of phases of a transposed convolution along one and two axes, and of what is added."""
    random = np.random.default_rng(3)
    for steps, taps, pads, sizes in [
        *(((4, 1), (8, 1), (2, 0), (9, 1)), ((3, 1), (7, 1), (1, 0), (6, 1))),
        *(((2, 2), (2, 2), (0, 0), (5, 4)), ((5, 1), (11, 3), (4, 1), (3, 7))),
        *(((2, 3), (4, 5), (1, 2), (4, 9)), ((1, 2), (3, 3), (1, 1), (1, 6))),
    ]:
        results = 19
        high, wide = (
            (size - 1) * step + tap - 2 * pad
            for size, step, tap, pad in zip(sizes, steps, taps, pads)
        )
        numbers = {
            "x": (2, *sizes, 5),
            "w": (*taps, 5, results),
            "bias": (results,),
            "other": (2, high, wide, results),
            "y": (2, high, wide, results),
        }
        placed = {}
        for name, shape in numbers.items():
            made = random.normal(size=shape).astype(np.float32)
            memory = guarded(side, made.nbytes)[: made.nbytes].view(np.float32)
            placed[name] = memory.reshape(shape)
            placed[name][...] = made
        others = Constants(None, placed["bias"], None, [(0.0, 0.0)])
        made_of = transposed.phases(placed["w"], steps, pads, others, np.ascontiguousarray)
        made = Functions([Function.ADD], terms=Terms.ALL_CHANNELS, has_bias=True)
        shapes = (2, 5, *sizes), (2, results, high, wide)
        code = code_of_all(transposed.calls_of_phases(made, made_of, *shapes))
        x, y, other = placed["x"], placed["y"], placed["other"]
        assert code.bound([address_of(each) for each in (x, other, y)])() == 0
        wanted = np.zeros((2, high + 2 * pads[0], wide + 2 * pads[1], results))
        for row, column, tap, across in np.ndindex(*sizes, *taps):
            place = slice(None), row * steps[0] + tap, column * steps[1] + across
            wanted[place] += x[:, row, column].astype(float) @ placed["w"][tap, across]
        wanted = wanted[:, pads[0] : pads[0] + high, pads[1] : pads[1] + wide]
        np.testing.assert_allclose(y, wanted + placed["bias"] + other, rtol=1e-4, atol=1e-4)


def test_fewer_positions_than_a_step_has():
    """Phases that begin behind the end of a result are left out."""
    x, w = image(1, 2, 2, 1, 5), image(2, 4, 4, 5, 19)
    made_of = transposed.phases(w, (4, 4), (0, 0), Constants(None, None, None, ()), np.array)
    made = Functions([], terms=Terms.ALL_CHANNELS, has_bias=False)
    calls = transposed.calls_of_phases(made, made_of, (2, 5, 2, 1), (2, 19, 6, 3))
    assert len(calls) == 4 * 3
    y = np.full((2, 6, 3, 19), np.nan, np.float32)
    assert code_of_all(calls).bound([address_of(each) for each in (x, x, y)])() == 0
    wanted = [x[:, row // 4, 0] @ w[row % 4, column] for row, column in np.ndindex(6, 3)]
    np.testing.assert_allclose(y.reshape(2, 18, 19), np.stack(wanted, 1), rtol=1e-4, atol=1e-4)


def test_places_whose_windows_read_alike_are_one_kind():
    """Those of windows with gaps, as many as lie between two elements."""
    found = kinds.kinds_of(20, 20, 3, 1, 3, 4)
    made = [found.numbers[at : at + 4] for at in range(0, len(found.numbers), 4)]
    assert sorted(made) == [(0, 4, 1, 3), (4, 12, 0, 3), (16, 4, 0, 2)]
    assert found.elements == 4 * 2 + 12 * 3 + 4 * 2


def test_kinds_of_places_are_what_each_window_reads(rng):
    """Of axes of any size, also of fewer positions than a window has elements."""
    is_refused = set()
    for _ in range(4000):
        taps, step, left_out, pad = rng.integers((1, 1, 0, 0), (6, 5, 4, 6)).tolist()
        size, behind = rng.integers((1, 0), (40, 6)).tolist()
        reach = (taps - 1) * (left_out + 1) + 1
        count = (size + pad + behind - reach) // step + 1
        if count < 1:
            continue
        wanted = {}
        for place in range(count):
            read = [
                tap for tap in range(taps) if 0 <= place * step - pad + tap * (left_out + 1) < size
            ]
            wanted[place] = (read[0], read[-1] + 1) if read else None
        found = kinds.kinds_of(count, size, taps, step, left_out, pad)
        is_refused.add(found is None)
        assert (found is None) == (None in wanted.values())
        if found is None:
            continue
        made = {}
        for at in range(0, len(found.numbers), 4):
            first, places, begin, end = found.numbers[at : at + 4]
            made |= dict.fromkeys(range(first, first + places), (begin, end))
        assert made == wanted
        assert found.size == len(found.numbers) // 4
        assert found.elements == sum(end - begin for begin, end in wanted.values())
    assert is_refused == {False, True}


def test_kinds_by_formulas_are_what_each_window_reads(rng):
    """Of one size all sizes that its guards admit, whatever rest the steps leave of them."""
    served = 0
    for _ in range(300):
        taps, step, left_out, pad = rng.integers((1, 1, 0, 0), (6, 5, 3, 4)).tolist()
        behind, gap = int(rng.integers(0, 4)), left_out + 1
        reach = (taps - 1) * gap + 1

        def count_of(size):
            return (size + pad + behind - reach) // step + 1  # noqa: B023 - asked at once

        now = int(rng.integers(1, 50))
        if count_of(now) < 1:
            continue
        with tracing() as trace:
            size = trace.input(now)
            found = kinds.kinds_of(count_of(size), size, taps, step, left_out, pad)
        if found is None:
            continue
        formulas = trace.formulas([*found.numbers, found.elements])
        for other in range(1, 60):
            told = formulas([other])
            if told is None:
                continue
            served += other != now
            *numbers, elements = told[0]
            read = {}
            for place, places, begin, end in zip(*[iter(numbers)] * 4, strict=True):
                read |= dict.fromkeys(range(place, place + places), (begin, end))
                assert places >= 0
            assert sum(numbers[1::4]) == len(read)
            assert elements == sum(end - begin for begin, end in read.values())
            assert sorted(read) == list(range(count_of(other)))
            for place, (begin, end) in read.items():
                start = place * step - pad
                inside = [tap for tap in range(taps) if 0 <= start + tap * gap < other]
                assert (begin, end) == (inside[0], inside[-1] + 1)
    assert served > 3000
