"""Windows of one element, and products with constants, of new shapes by machine code."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import may_share
from polydevice_cpu.algorithms.by_machine.windows import sums
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.filling import filled
from polydevice_cpu.plan.filling.by_machine import positions
from polydevice_cpu.plan.filling.by_machine import weights as packed
from polydevice_cpu.processor import has_bf16
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load
from tests.cpu.machine_code import by_machine_code, compared, missing_avx512, with_vectors

pytestmark = with_vectors


@pytest.fixture(autouse=True)
def _small_ones_do_not_stay(monkeypatch):
    """In plans that have run often oneDNN computes all, so that answers are compared with its."""
    monkeypatch.setattr(filled, "STAYING_US", 0.0)


FOLLOWED = {
    "nothing": [("Identity", ["a"], ["y"], {})],
    "hardsigmoid": [("HardSigmoid", ["a"], ["y"], {"alpha": 0.25, "beta": 0.4})],
    "hardswish, scaled": [("HardSwish", ["a"], ["b"], {}), ("Mul", ["b", "factor"], ["y"], {})],
    "logistic": [("Sigmoid", ["a"], ["y"], {})],
    "added": [("Relu", ["a"], ["b"], {}), ("Add", ["a", "b"], ["y"], {})],
    "added, scaled, shifted": [
        ("Conv", ["x", "beside"], ["b"], {}),
        *[("Sigmoid", ["b"], ["c"], {}), ("Add", ["a", "c"], ["d"], {})],
        *[("Mul", ["d", "scales"], ["e"], {}), ("Add", ["e", "shifts"], ["y"], {})],
    ],
}
SIZES = [(5, 7), (8, 3), (1, 1), (2, 9), (11, 1), (30, 17), (1, 5), (6, 16)]


def convolution(followed, channels, results, axes=2):
    weights = {
        "w": image(1, results, channels, *[1] * axes) / channels,
        "bias": image(2, results),
        "factor": np.array(0.7, np.float32),
        "beside": image(3, results, channels, *[1] * axes) / channels,
    }
    for seed, name in enumerate(["scales", "shifts"], start=4):
        weights[name] = image(seed, results, *[1] * axes)
    nodes = [("Conv", ["x", "w", "bias"], ["a"], {}), *followed]
    sizes = ["n", channels, *"hw"[:axes]]
    return models.build(nodes, {"x": sizes}, ["y"], weights, opset=20)


def product(channels, results):
    weights = {"w": image(1, channels, results) / channels, "bias": image(2, results)}
    nodes = [("MatMul", ["x", "w"], ["a"], {}), ("Add", ["a", "bias"], ["b"], {})]
    nodes.append(("Relu", ["b"], ["y"], {}))
    return models.build(nodes, {"x": ["n", "rows", channels]}, ["y"], weights)


@pytest.mark.parametrize("followed", FOLLOWED)
@pytest.mark.parametrize(
    ("channels", "results"), [(3, 5), (24, 16), (40, 72), (130, 200), (700, 9), (17, 1090)]
)
def test_windows_of_one_element(core, monkeypatch, channels, results, followed):
    """Channels of the result in one part of the weights or several, the last one not full."""
    monkeypatch.setattr(settling, "RUNS", 3)
    model = convolution(FOLLOWED[followed], channels, results)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(k, 1 + k % 2, channels, *sizes) for k, sizes in enumerate(SIZES)]
    is_either = channels > positions.MOST_WITH_AVX2 and "shifted" in followed
    assert compared(executable, model, feeds, stays=None if is_either else False) >= 4


@pytest.mark.parametrize(("channels", "results"), [(5, 130), (120, 360), (512, 48)])
def test_products_with_constants(core, monkeypatch, channels, results):
    monkeypatch.setattr(settling, "RUNS", 3)
    model = product(channels, results)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(k, 1 + k % 3, rows, channels) for k, rows in enumerate([4, 9, 33, 2, 100, 17])]
    assert compared(executable, model, feeds) >= 3


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("channels", "results"), [(40, 72), (700, 130), (1100, 17), (20, 1090)])
def test_products_that_are_scaled_and_shifted_by_channel(
    core, monkeypatch, channels, results, threads
):
    """As MobileBERT's, which are added to what was before; some have no bias."""
    monkeypatch.setattr(settling, "RUNS", 3)
    weights = {name: image(seed, results) for seed, name in enumerate(["bias", "scale", "shift"])}
    for seed, name in enumerate("vw"):
        weights[name] = image(seed, channels, results) / channels
    nodes = [("MatMul", ["x", "v"], ["a"], {}), ("Relu", ["a"], ["b"], {})]
    nodes += [("MatMul", ["x", "w"], ["c"], {})]
    nodes += (
        [("Add", ["c", "bias"], ["d"], {})] if results % 2 else [("Identity", ["c"], ["d"], {})]
    )
    nodes += [("Add", ["d", "b"], ["e"], {}), ("Mul", ["e", "scale"], ["f"], {})]
    nodes += [("Add", ["f", "shift"], ["g"], {}), ("Sigmoid", ["g"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", "rows", channels]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    feeds = [image(k, 1 + k % 3, rows, channels) for k, rows in enumerate([4, 9, 33, 2, 50, 17])]
    seen = compared(executable, model, feeds, stays=None)
    assert seen >= 3 or threads > 1


_FLUSHES = "f30f1efa 50 0fae1c24 810c2440800000 0fae1424 58 31c0 c3"
_FLUSHES_NOT = "f30f1efa 50 0fae1c24 812424bf7fffff 0fae1424 58 31c0 c3"
"""endbr64; push rax; stmxcsr [rsp]; or, and; ldmxcsr [rsp]; pop rax; xor eax, eax; ret"""


def test_nothing_of_them_is_lost_where_a_library_flushes_tiny_numbers(core):
    """As one does that is loaded and was compiled for speed: all threads begun behind it, too."""
    weights = {name: image(seed, 48) for seed, name in enumerate(["scale", "shift"])}
    weights |= {"v": image(3, 40, 48) / 40, "w": image(4, 40, 48) / 40}
    nodes = [("MatMul", ["x", "v"], ["a"], {}), ("Relu", ["a"], ["b"], {})]
    nodes += [("MatMul", ["x", "w"], ["c"], {}), ("Add", ["c", "b"], ["d"], {})]
    nodes += [("Mul", ["d", "scale"], ["e"], {}), ("Add", ["e", "shift"], ["y"], {})]
    model = models.build(nodes, {"x": ["n", "rows", 40]}, ["y"], weights)
    request = load(core, model, CPU_THREADS_NUM=1).create_infer_request()
    feeds = [image(k, 1, rows, 40) for k, rows in enumerate([4, 9, 33, 17])]
    wanted = [models.answer(model, {"x": x})[0] for x in feeds]
    flushes, not_ = (function_of(bytes.fromhex(each)) for each in (_FLUSHES, _FLUSHES_NOT))
    assert flushes is not None
    assert not_ is not None
    flushes()
    try:
        found = [request.infer({"x": x})["y"].copy() for x in feeds]
    finally:
        not_()
    for got, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


def test_small_products_stay(core, monkeypatch):
    """Code of oneDNN's for some rows is gone from the processor's cache when they come back."""
    monkeypatch.setattr(settling, "RUNS", 3)
    monkeypatch.setattr(filled, "STAYING_US", positions.STAYING_US)
    model = product(40, 72)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(k, 1 + k % 3, rows, 40) for k, rows in enumerate([24, 9, 33, 20, 100, 17])]
    assert compared(executable, model, feeds, stays=True) >= 3


def test_windows_along_one_axis(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 3)
    model = convolution(FOLLOWED["logistic"], 20, 70, axes=1)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(k, 2, 20, length) for k, length in enumerate([4, 9, 33, 1, 100, 17])]
    assert compared(executable, model, feeds) >= 3


@pytest.mark.parametrize("results", [48, 200])
def test_windows_of_one_element_of_many_channels_stay(core, monkeypatch, results):
    """oneDNN adds sums of some of them; in an order that is followed where it has AVX2 alone."""
    monkeypatch.setattr(settling, "RUNS", 3)
    model = convolution(FOLLOWED["logistic"], 2048, results)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(k, 1 + k % 2, 2048, *sizes) for k, sizes in enumerate(SIZES)]
    assert compared(executable, model, feeds, stays=not missing_avx512()) >= 4


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("followed", ["nothing", "bias", "bias, twice added"])
@pytest.mark.parametrize(
    ("channels", "results"), [(513, 7), (600, 130), (1024, 33), (1025, 16), (1600, 80), (3072, 24)]
)
def test_sums_of_some_channels_are_added_as_by_onednn(
    core, monkeypatch, channels, results, followed, threads
):
    """Of 512 channels, or of 1,024 where there are more; of 320 without AVX-512.

    All are added at once where a tensor is added to what the result has held.
    """
    monkeypatch.setattr(settling, "RUNS", 3)
    weights = {"w": image(1, channels, results) / channels, "bias": image(2, results)}
    weights["v"] = image(3, channels, results) / channels
    nodes = [("MatMul", ["x", "w"], ["a"], {})]
    if followed == "nothing":
        nodes.append(("Relu", ["a"], ["y"], {}))
    else:
        nodes += [("Add", ["a", "bias"], ["b"], {}), ("Relu", ["b"], ["c"], {})]
        nodes.append(("Sigmoid", ["c"], ["y" if followed == "bias" else "d"], {}))
    if followed == "bias, twice added":
        nodes += [("MatMul", ["x", "v"], ["e"], {}), ("Add", ["e", "d"], ["f"], {})]
        nodes.append(("Add", ["f", "c"], ["y"], {}))
    model = models.build(nodes, {"x": ["n", "rows", channels]}, ["y"], weights)
    executable = load(core, model, CPU_THREADS_NUM=threads)
    feeds = [image(k, 1 + k % 3, rows, channels) for k, rows in enumerate([4, 9, 33, 2, 50, 17])]
    stays = -1 if followed == "bias, twice added" else 0
    seen = compared(executable, model, feeds, stays=stays)
    assert seen >= 3 or threads > 1  # who shares a product


@pytest.mark.parametrize("for_weights_us", [0.0, 1.0])
def test_more_weights_may_take_longer(core, monkeypatch, for_weights_us):
    """Than oneDNN's code, for which they may have to be brought into another layout."""
    monkeypatch.setattr(settling, "RUNS", 3)
    monkeypatch.setattr(filled, "FOR_NOW_US", 1e-6)
    monkeypatch.setattr(positions, "FOR_WEIGHTS_US", for_weights_us)
    model = product(120, 360)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(k, 1 + k % 3, rows, 120) for k, rows in enumerate([40, 90, 33, 20, 100, 17])]
    seen = compared(executable, model, feeds)
    assert seen >= 3 if for_weights_us else seen == 0


def test_products_of_many_numbers_are_left_to_onednn(core):
    model = product(4097, 40)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(k, 2, rows, 4097) for k, rows in enumerate([40, 90, 33, 20, 100])]
    assert compared(executable, model, feeds) == 0
    assert executable.compiled.templates.filled


def test_weights_of_many_parts_are_left_to_onednn(core, monkeypatch):
    monkeypatch.setattr(packed, "MOST_PARTS", 2)
    model = convolution(FOLLOWED["nothing"], 8, 200)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(k, 1, 8, *sizes) for k, sizes in enumerate(SIZES)]
    assert compared(executable, model, feeds) == 0
    assert executable.compiled.templates.filled


def test_onednn_is_asked_for_nothing_then(core, monkeypatch):
    executable = load(core, convolution(FOLLOWED["added"], 40, 72), CPU_THREADS_NUM=1)
    request = executable.create_infer_request()
    for number, sizes in enumerate(SIZES[:4]):
        request.infer({"x": image(number, 1, 40, *sizes)})
    asked = asked_from_now(monkeypatch)
    for number, sizes in enumerate([(12, 13), (40, 3), (7, 7)]):
        request.infer({"x": image(number, 1, 40, *sizes)})
        assert by_machine_code(executable)
    assert not [name for name in asked if name.startswith("convolution")]


@pytest.mark.skipif(not has_bf16(), reason="the processor does not compute with bfloat16")
def test_bfloat16_is_left_to_onednn(core):
    model = convolution(FOLLOWED["nothing"], 40, 72)
    executable = load(core, model, CPU_THREADS_NUM=1, ENFORCE_BF16="YES")
    request = executable.create_infer_request()
    for number, sizes in enumerate(SIZES):
        x = image(number, 1, 40, *sizes)
        (wanted,) = models.answer(model, {"x": x})
        got = request.infer({"x": x})["y"]
        np.testing.assert_allclose(got, wanted, rtol=0.05, atol=0.03 * np.abs(wanted).max())


@pytest.mark.skipif(not may_share(), reason="this oneDNN has no OpenMP whose threads share work")
@pytest.mark.parametrize("few_ns", [0.0, sums.FEW_NS])
def test_several_threads_share_the_positions(core, monkeypatch, few_ns):
    monkeypatch.setattr(settling, "RUNS", 3)
    for module in (sums, positions):
        monkeypatch.setattr(module, "FEW_NS", few_ns)
    model = convolution(FOLLOWED["logistic"], 130, 200)
    executable = load(core, model, CPU_THREADS_NUM=2)
    feeds = [image(k, 1 + k % 2, 130, *sizes) for k, sizes in enumerate(SIZES)]
    assert compared(executable, model, feeds) >= 4


def test_requests_of_other_shapes_compute_side_by_side(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 1 << 30)
    model = convolution(FOLLOWED["hardswish, scaled"], 40, 72)
    executable = load(core, model, CPU_THREADS_NUM=1)
    feeds = [image(k, 1, 40, 4 + k, 40 - k) for k in range(16)]
    wanted = [models.answer(model, {"x": x})[0] for x in feeds]
    wrong = []

    def infer(order):
        request = executable.create_infer_request()
        for number in order:
            got = request.infer({"x": feeds[number]})["y"]
            if not np.allclose(got, wanted[number], rtol=1e-4, atol=1e-5):
                wrong.append(number)

    orders = [np.random.default_rng(k).permutation(16).tolist() * 4 for k in range(3)]
    threads = [threading.Thread(target=infer, args=(order,)) for order in orders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    executable.create_infer_request().infer({"x": image(16, 1, 40, 25, 9)})  # not one of the first
    assert by_machine_code(executable)
