"""Machine code that computes wide pictures, products of rows and means over all positions."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.windows import sums
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.algorithms.by_machine.windows.sums import Constants, arguments, of_rows
from polydevice_cpu.algorithms.by_machine.windows.tiles import Terms
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Attributes, Eltwise
from polydevice_cpu.onednn.constants import Algorithm, Arg, kind_of_code
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import MemoryObject, address_of
from polydevice_cpu.onednn.primitive import built, run_once
from polydevice_cpu.onednn.primitives import convolution, matmul
from polydevice_cpu.plan import settling
from polydevice_cpu.plan.building.weights import pack
from polydevice_cpu.plan.filling import filled
from polydevice_cpu.plan.filling.by_machine import suitable_windows as by_machine
from tests.cpu import models
from tests.cpu.loading import asked_from_now, image, load, wait_for_settling
from tests.cpu.machine_code import by_machine_code, with_avx512
from tests.cpu.test_window_sums import ALGORITHMS, run
from tests.guard_pages import SIDES, guarded

pytestmark = with_avx512

HEAVY = [  # channels, results, height, width, window, steps, pads
    (96, 24, 9, 77, (3, 3), (1, 1), (1, 1)),
    (33, 49, 23, 38, (3, 5), (1, 1), (1, 2)),
    (8, 80, 3, 61, (1, 3), (1, 1), (0, 1)),
    (64, 32, 31, 29, (3, 3), (2, 2), (1, 1)),
    (5, 17, 40, 2, (5, 1), (1, 1), (2, 0)),
    (20, 1, 2, 50, (2, 2), (1, 1), (0, 0)),
]


@pytest.mark.parametrize("case", HEAVY)
def test_heavy_convolutions_are_those_of_numpy_and_of_onednn_to_the_bit(case):
    channels, results, high, wide, window, steps, pads = case
    x, weights = image(1, 2, high, wide, channels), image(2, *window, channels, results)
    bias = image(3, results)
    padded = np.pad(x, [(0, 0), *[(pad, pad) for pad in pads], (0, 0)])
    views = np.lib.stride_tricks.sliding_window_view(padded, window, (1, 2))
    views = views[:, :: steps[0], :: steps[1]].astype(float)
    wanted = np.maximum(np.einsum("nhwcij,ijco->nhwo", views, weights.astype(float)) + bias, 0)
    source, result = (2, channels, high, wide), (2, results, *wanted.shape[1:3])
    told = arguments(source, result, Windows(window, steps, (0, 0), pads, is_depthwise=False))
    made = sums.Functions([Function.RELU], terms=Terms.ALL_CHANNELS, has_bias=True)
    got = np.full(wanted.shape, np.nan, np.float32)
    run(made, told, Constants(weights, bias, None, [(0.0, 0.0)]), x, got)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    src, dst = Descriptor.channels_last(source), Descriptor.channels_last(result)
    logical, row = weights.transpose(3, 2, 0, 1), Descriptor.dense((results,))
    chain = Attributes([Eltwise(Algorithm.RELU, 0.0, 0.0)])
    with openmp.threads(1):
        layout = Descriptor.any(logical.shape)
        code = built(convolution(src, layout, row, dst, steps, (1, 1), pads, pads, chain))
    theirs, packed = np.empty_like(got), pack(logical, code.weights)
    run_once(
        code,
        {
            Arg.SRC: MemoryObject(src, address_of(x)),
            Arg.WEIGHTS: MemoryObject(code.weights, address_of(packed)),
            Arg.BIAS: MemoryObject(row, address_of(bias)),
            Arg.DST: MemoryObject(dst, address_of(theirs)),
        },
    )
    assert kind_of_code(code) in by_machine.MOST_US
    assert got.tobytes() == theirs.tobytes()


PRODUCTS = [  # rows, positions, channels, matrices, results
    (5, 37, 24, 2, 48),
    (7, 50, 24, 2, 2),
    (1, 1, 3, 2, 5),
    (4, 18, 96, 3, 16),
    (3, 3, 40, 4, 100),
    (2, 6, 1, 2, 33),
]
CHAINS = {
    "relu": ([(Function.RELU, 0.0, 0.0)], lambda y: np.maximum(y, 0)),
    "sigmoid": (
        [(Function.LINEAR, 1.0, -0.1), (Function.LOGISTIC, 0.0, 0.0)],
        lambda y: 1 / (1 + np.exp(0.1 - y)),
    ),
}


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("sizes", PRODUCTS)
def test_products_of_rows_are_those_of_numpy_and_of_onednn_to_the_bit(sizes, chain, has_bias):
    rows, positions, channels, matrices, results = sizes
    links, function = CHAINS[chain]
    x, weights = image(1, rows, 1, positions, channels), image(2, 1, matrices, channels, results)
    bias = image(3, results) if has_bias else None
    wanted = function(x.astype(float) @ weights.astype(float) + (bias if has_bias else 0))
    told = of_rows(rows, weights.shape[1:], positions)
    made = sums.Functions([link[0] for link in links], terms=Terms.ALL_CHANNELS, has_bias=has_bias)
    constants = Constants(weights, bias, None, [link[1:] for link in links])
    for side in SIDES:
        given, got = (guarded(side, n * 4).view(np.float32) for n in (x.size, wanted.size))
        given[...] = x.reshape(-1)
        run(made, told, constants, given, got)
        np.testing.assert_allclose(got.reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-4)
    chained = Attributes([Eltwise(ALGORITHMS[name], *shares) for name, *shares in links])
    layouts = [Descriptor.dense(shape) for shape in (x.shape, wanted.shape, (1, 1, 1, results))]
    src, dst, row = layouts
    with openmp.threads(1):
        layout = Descriptor.any(weights.shape)
        code = built(matmul(src, layout, row if has_bias else None, dst, chained))
    theirs, packed = np.empty(wanted.shape, np.float32), pack(weights, code.weights)
    given = {
        Arg.SRC: MemoryObject(src, address_of(x)),
        Arg.WEIGHTS: MemoryObject(code.weights, address_of(packed)),
        Arg.DST: MemoryObject(dst, address_of(theirs)),
    }
    if has_bias:
        given[Arg.BIAS] = MemoryObject(row, address_of(bias))
    run_once(code, given)
    assert kind_of_code(code) in by_machine.MOST_US
    assert got.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("channels", [1, 16, 130, 300])
@pytest.mark.parametrize("terms", [Terms.PLAIN, Terms.LARGEST])
def test_one_position_of_many_channels(channels, terms):
    x = image(7, 2, 9, 11, channels)
    windows = Windows((9, 11), (1, 1), (0, 0), (0, 0), is_depthwise=True)
    told = arguments((2, channels, 9, 11), (2, channels, 1, 1), windows)
    is_mean = terms is Terms.PLAIN
    chain = [Function.QUOTIENT] if is_mean else []
    made = sums.Functions(chain, terms=terms, has_bias=False)
    first = (1.0, 0.0) if is_mean else (-1e30, -1e30)
    for side in SIDES:
        given = guarded(side, x.nbytes).view(np.float32)
        given[...] = x.reshape(-1)
        got = guarded(side, 8 * channels).view(np.float32).reshape(2, channels)
        run(made, told, Constants(None, None, None, [(99.0, 0.0)] * is_mean, first), given, got)
        wanted = x.mean((1, 2), dtype=float) if is_mean else x.max((1, 2))
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def picture():
    """What reads the input where it lies, heavy convolutions, and transposed ones to the output."""
    weights = {
        "stem": image(1, 24, 1, 3, 3) / 3,
        "wide": image(2, 24, 24, 3, 3) / 9,
        "bias": image(3, 24),
        "deep": image(8, 24, 24, 3, 3) / 9,
        "up": image(4, 24, 24, 2, 2) / 5,
        "more": image(5, 24),
        "out": image(6, 24, 1, 2, 2) / 5,
    }
    nodes = [
        ("Conv", ["x", "stem"], ["a"], {"pads": [1] * 4}),
        ("Relu", ["a"], ["b"], {}),
        ("Conv", ["b", "wide", "bias"], ["c"], {"pads": [1] * 4}),
        ("Sigmoid", ["c"], ["d"], {}),
        ("Conv", ["d", "deep"], ["held"], {"pads": [1] * 4}),
        ("Add", ["held", "b"], ["r"], {}),
        ("ConvTranspose", ["r", "up", "more"], ["e"], {"strides": [2, 2]}),
        ("Relu", ["e"], ["f"], {}),
        ("ConvTranspose", ["f", "out"], ["g"], {"strides": [2, 2]}),
        ("Sigmoid", ["g"], ["y"], {}),
    ]
    return models.build(nodes, {"x": ["n", 1, "h", "w"]}, ["y"], weights)


SIZES = [(20, 31), (33, 18), (45, 62), (9, 70), (52, 27), (1, 64), (150, 131)]


def test_new_shapes_read_inputs_and_write_outputs_where_they_lie(core, monkeypatch):
    monkeypatch.setattr(settling, "RUNS", 3)
    monkeypatch.setattr(filled, "STAYING_US", 0.0)
    model = picture()
    executable = load(core, model, CPU_THREADS_NUM=1)
    request, most = executable.create_infer_request(), 0
    asked = asked_from_now(monkeypatch)
    for number, (height, width) in enumerate(SIZES):
        given = [{"x": image(10 * number + k, 1 + number % 2, 1, height, width)} for k in range(3)]
        wanted = [models.answer(model, each)[0] for each in given]
        asked.clear()
        found = [request.infer(each)["y"].copy() for each in given]
        for got, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
        if by_machine_code(executable):
            windows = [kind for kind in by_machine_code(executable) if "Convolution" in kind]
            most = max(most, len(windows))
            assert not set(asked) & {"convolution_forward", "matmul"}
            wait_for_settling()
            for each, before in zip(given, found, strict=True):
                np.testing.assert_array_equal(request.infer(each)["y"], before)
            windows = [kind for kind in by_machine_code(executable) if "Convolution" in kind]
            assert windows == ["Convolution+ReLU"]  # that of one channel
    assert most == 5
