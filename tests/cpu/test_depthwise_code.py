"""Depthwise convolutions that read and write bfloat16, by machine code."""

from __future__ import annotations

import math
import threading

import ml_dtypes
import numpy as np
import pytest

from polydevice.network.kept_layers import KEEP_F32
from polydevice_cpu.algorithms.by_machine.depthwise import layer
from polydevice_cpu.algorithms.by_machine.depthwise.layer import Layer
from polydevice_cpu.algorithms.by_machine.windows.following import Function
from polydevice_cpu.onednn.engine import address_of
from tests.cpu import models
from tests.cpu.loading import image, load
from tests.cpu.machine_code import by_machine_code, missing_avx512, needs
from tests.guard_pages import SIDES, guarded

pytestmark = needs(missing_avx512("avx512_bf16", "avx512bw"))

BF16 = np.dtype(ml_dtypes.bfloat16)
CHAINS = {
    "nothing": ([], lambda y: y),
    "ReLU6": ([(Function.CLIP, 0.0, 6.0)], lambda y: np.clip(y, 0, 6)),
    "ReLU": ([(Function.RELU, 0.0, 0.0)], lambda y: np.maximum(y, 0)),
    "hardswish, moved": (
        [(Function.HARDSWISH, 1 / 6, 0.5), (Function.LINEAR, 1.25, -0.25)],
        lambda y: 1.25 * y * np.clip(y / 6 + 0.5, 0, 1) - 0.25,
    ),
    "leaky": ([(Function.LEAKY, 0.1, 0.0)], lambda y: np.where(y < 0, 0.1 * y, y)),
    "ELU": ([(Function.ELU, 1.5, 0.0)], lambda y: np.where(y < 0, 1.5 * np.expm1(y), y)),
    "Gelu": (
        [(Function.GELU, 0.0, 0.0)],
        lambda y: y / 2 * (1 + np.vectorize(math.erf)(y / 2**0.5)),
    ),
    "swish": ([(Function.SWISH, 1.5, 0.0)], lambda y: y / (1 + np.exp(-1.5 * y))),
    "logistic": ([(Function.LOGISTIC, 0.0, 0.0)], lambda y: 1 / (1 + np.exp(-y))),
}


def convolved(x, weights, bias, made):
    """Sums in f64: x [N, H, W, C], weights [C, high, wide]."""
    (above, before), (down, across) = made.pads, made.steps
    pictures, channels, high, wide = made.result
    room = np.zeros((pictures, 400, 400, channels))
    room[:, above : above + x.shape[1], before : before + x.shape[2]] = x
    found = np.zeros((pictures, high, wide, channels)) + bias
    for i in range(weights.shape[1]):
        for j in range(weights.shape[2]):
            rows, columns = slice(i, i + high * down, down), slice(j, j + wide * across, across)
            found += room[:, rows, columns] * weights[:, i, j]
    return found


class Case:
    """A layer of random sizes and numbers."""

    def __init__(self, seed, chain="nothing", **sizes):
        random = np.random.default_rng(seed)
        window = sizes.get("window") or tuple(map(int, random.integers(1, 8, 2)))
        steps = sizes.get("steps") or tuple(map(int, random.integers(1, 4, 2)))
        pads = [tuple(int(random.integers(0, n)) for n in window) for _ in range(2)]
        pictures, channels = int(random.integers(1, 3)), int(random.integers(1, 100))
        channels = sizes.get("channels", channels)
        source = [int(random.integers(n, 30 + most)) for n, most in zip(window, (0, 90))]
        source[1] = sizes.get("width", source[1])
        result = [
            (n + p + q - k) // step + 1
            for n, p, q, k, step in zip(source, *pads, window, steps, strict=True)
        ]
        links, self.function = CHAINS[chain]
        self.layer = Layer(
            *((pictures, channels, *source), (pictures, channels, *result)),
            *(window, steps, pads[0], tuple(links)),
        )
        self.x = random.standard_normal((pictures, *source, channels)).astype(BF16)
        self.weights = random.standard_normal((channels, *window)).astype(np.float32)
        self.bias = random.standard_normal(channels).astype(np.float32)
        self.packed = layer.packed(self.weights), layer.packed(self.bias)
        sums = convolved(self.x.astype(np.float64), self.weights, self.bias, self.layer)
        self.wanted = self.function(sums)

    def check(self, result):
        """Eight bits of each result are right."""
        got = result.reshape(self.wanted.shape).astype(np.float64)
        most = 2.0**-8 * np.abs(self.wanted) + 1e-4 * np.abs(self.wanted).max()
        assert (np.abs(got - self.wanted) <= most).all(), self.layer


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("seed", range(40))
def test_random_layers_within_their_memory(seed, side):
    check_within_memory(Case(seed), side)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("steps", [(1, 8), (2, 12), (16, 16), (1, 40), (9, 127)])
@pytest.mark.parametrize("window", [(1, 1), (1, 3), (3, 7), (7, 2)])
def test_large_steps(window, steps, side):
    check_within_memory(Case([*window, *steps], window=window, steps=steps), side)


def check_within_memory(case, side):
    source, result = (
        guarded(side, 2 * size).view(BF16) for size in (case.x.size, case.wanted.size)
    )
    source[:] = case.x.reshape(-1)
    arrays = source, *case.packed, result
    call = layer.code(case.layer).bound([address_of(each) for each in arrays])
    for _ in range(2):  # the second begins anew
        result[:] = np.nan
        assert call() == 0
        case.check(result)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("channels", [16, 24, 32, 48, 64])
def test_functions_behind_whole_and_half_blocks(chain, channels):
    case = Case([channels, len(chain)], chain, channels=channels)
    result = np.full(case.wanted.shape, np.nan, BF16)
    arrays = case.x, *case.packed, result
    assert layer.code(case.layer).bound([address_of(each) for each in arrays])() == 0
    case.check(result)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("width", [1, 2, 50, 333])
def test_threads_share_parts(width, threads):
    """Wide pictures are cut into bands of columns, and for threads into bands of rows."""
    case = Case([width, threads], window=(3, 1) if width == 1 else (5, 2), width=width)
    result = np.full(case.wanted.shape, np.nan, BF16)
    arrays = case.x, *case.packed, result
    call = layer.code(case.layer, threads).bound([address_of(each) for each in arrays])
    for _ in range(3):  # each begins anew
        result[...] = np.nan
        assert call() == 0
        case.check(result)


RELU6 = ("Clip", ["d", "zero", "six"], ["e"], {})


def network(tail=RELU6, channels=40, **attributes):
    """1x1 to more channels, depthwise, 1x1 to fewer, as in MobileNets."""
    rng = np.random.default_rng(channels)
    weights = {
        "w": rng.normal(0, 0.3, (channels, 16, 1, 1)).astype(np.float32),
        "k": rng.normal(0, 0.3, (channels, 1, 3, 3)).astype(np.float32),
        "b": rng.normal(size=channels).astype(np.float32),
        "v": rng.normal(0, 0.2, (16, channels, 1, 1)).astype(np.float32),
        "t": rng.normal(size=(1, channels, 21, 19)).astype(np.float32),
        "zero": np.float32(0),
        "six": np.float32(6),
    }
    attributes = {"group": channels, "pads": [1] * 4, **attributes}
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Conv", ["c", "k", "b"], ["d"], attributes),
        tail,
        ("Conv", ["e", "v"], ["y"], {}),
    ]
    return models.build(nodes, {"x": [1, 16, 21, 19]}, ["y"], weights, opset=17)


def agree(got, model, x):
    (want,) = models.answer(model, {"x": x})
    assert np.abs(got - want).max() < 0.03 * np.abs(want).max()


@pytest.mark.parametrize("threads", [1, 2])
def test_nothing_is_converted_around_it(core, threads):
    model, x = network(), image(2, 1, 16, 21, 19)
    executable = load(core, model, ENFORCE_BF16="YES", CPU_THREADS_NUM=threads)
    request = executable.create_infer_request()
    agree(request.infer({"x": x})["y"], model, x)
    assert by_machine_code(executable) == ["GroupConvolution+Add+Clamp"]
    moved = [step.type for step in executable.latest_plan().steps if step.type == "Reorder"]
    assert len(moved) == 2  # the input, and the output


def test_requests_at_once(core):
    model = network()
    executable = load(core, model, ENFORCE_BF16="YES", CPU_THREADS_NUM=2)
    inputs = [image(seed, 1, 16, 21, 19) for seed in range(4)]
    answers = [{} for _ in inputs]

    def work(number):
        request = executable.create_infer_request()
        for _ in range(20):
            answers[number] = request.infer({"x": inputs[number]})["y"].copy()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(inputs))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for x, got in zip(inputs, answers, strict=True):
        agree(got, model, x)


OTHERS = {
    "a sum with another tensor": ({}, ("Add", ["d", "t"], ["e"], {})),
    "gaps in windows": ({"dilations": [2, 2], "pads": [2] * 4}, ("Relu", ["d"], ["e"], {})),
    "pads as wide as windows": ({"pads": [3, 0, 3, 0]}, ("Relu", ["d"], ["e"], {})),
    "windows behind the picture": ({"pads": [0, 0, 0, 400]}, ("Relu", ["d"], ["e"], {})),
}


@pytest.mark.parametrize("other", OTHERS)
def test_onednn_computes_others(core, other):
    attributes, tail = OTHERS[other]
    model, x = network(tail, **attributes), image(3, 1, 16, 21, 19)
    executable = load(core, model, ENFORCE_BF16="YES")
    agree(executable.create_infer_request().infer({"x": x})["y"], model, x)
    assert by_machine_code(executable) == []


def test_layers_that_are_kept_in_f32(core):
    model, x = network(), image(4, 1, 16, 21, 19)
    given = core.read_network(model)
    for node in given.nodes():
        if node.type == "GroupConvolution":
            node.rt_info[KEEP_F32] = "as a test"
    executable = core.load_network(given, "CPU", {"ENFORCE_BF16": "YES"})
    agree(executable.create_infer_request().infer({"x": x})["y"], model, x)
    assert by_machine_code(executable) == []


def test_open_sizes(core):
    """What is planned for one shape, and what is filled in for others, agree."""
    model = network()
    given = core.read_network(model)
    given.reshape({"x": [-1, 16, -1, -1]})
    request = core.load_network(given, "CPU", {"ENFORCE_BF16": "YES"}).create_infer_request()
    for number, sizes in enumerate([(1, 21, 19), (2, 9, 33), (1, 3, 4), (3, 40, 17)]):
        x = image(number, sizes[0], 16, *sizes[1:])
        got = request.infer({"x": x})["y"]
        for one, each in zip(x, got, strict=True):
            alone = core.read_network(model)
            alone.reshape({"x": [1, 16, *sizes[1:]]})
            whole = core.load_network(alone, "CPU").create_infer_request()
            want = whole.infer({"x": one[None]})["y"][0]
            assert np.abs(each - want).max() < 0.03 * np.abs(want).max()
