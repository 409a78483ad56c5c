"""Attention whose scores are larger than the caches is one step; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.attention import heads as by_machine
from polydevice_cpu.algorithms.by_machine.attention.heads import Heads
from polydevice_cpu.algorithms.by_machine.matrices import Seen
from polydevice_cpu.algorithms.by_machine.matrix_code import Function
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan.joined import attention as joined_attention
from tests.cpu import models
from tests.cpu.loading import image, load
from tests.cpu.machine_code import with_avx512
from tests.guard_pages import SIDES, guarded

F = np.float32

pytestmark = with_avx512


def seen(array):
    return Seen(array.shape, tuple(step // 4 for step in array.strides))


def shares(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("mask", ["none", "of a text", "of all", "of each"])
def test_blocks_of_rows(side, mask, threads, monkeypatch):
    """Of 24 rows at most, whose last ones are fewer; memory around is not touched."""
    monkeypatch.setattr(by_machine, "SCORES_BYTES", 4 * 130 * 25)
    random = np.random.default_rng(len(mask))

    def placed(*shape):
        count = int(np.prod(shape))
        array = guarded(side, 4 * count)[: 4 * count].view(F).reshape(shape)
        array[...] = random.normal(size=shape)
        return array

    for count, heads, rows, positions, size, columns in (
        (2, 3, 50, 130, 16, 32),
        (1, 2, 61, 67, 33, 80),
        (3, 1, 48, 90, 8, 10),
    ):
        # Heads lie next to each other in memory.
        q, k = placed(count, rows, heads, size), placed(count, positions, heads, size)
        v, y = placed(count, positions, heads, columns), placed(count, rows, heads, columns)
        turned = (0, 2, 1, 3)
        functions = [(Function.LINEAR, (0.25, 0.0))]
        wanted = 0.25 * np.einsum("nqhd,nkhd->nhqk", q.astype(float), k)
        operands = []
        sizes = {"of a text": (count, 1, 1, positions), "of all": (1, 1, rows, positions)}
        sizes["of each"] = count, heads, rows, positions
        if mask in sizes:
            operands = [placed(*sizes[mask])]
            functions.append((Function.ADD, seen(operands[0])))
            wanted = wanted + operands[0]
        wanted = np.einsum("nhqk,nkhe->nqhe", shares(wanted), v.astype(float))
        made = Heads(
            *(seen(q.transpose(turned)), seen(k.transpose(0, 2, 3, 1))),
            *(seen(v.transpose(turned)), seen(y.transpose(turned)), tuple(functions)),
        )
        room = placed(by_machine.room_numbers(made, threads))
        code = by_machine.code_of(made, threads)
        call = code.bound([address_of(each) for each in (q, k, v, *operands, y, room)])
        for _ in range(2):
            y[...] = np.nan
            assert call() == 0
            np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-5)


def attention(kept=(), mask=True):
    """Three heads of 24 numbers: queries, keys and values of products, as models have them."""
    wide, heads = 72, 3
    stored = {name: image(number, wide, wide) / 8 for number, name in enumerate("qkv")}
    stored |= {"parts": np.array([0, 0, heads, wide // heads]), "whole": np.array([0, 0, wide])}
    stored["root"] = F(0.2)
    nodes = []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            ("MatMul", ["x", name], [f"{name}1"], {}),
            ("Reshape", [f"{name}1", "parts"], [f"{name}2"], {}),
            ("Transpose", [f"{name}2"], [f"{name}3"], {"perm": order}),
        ]
    nodes += [
        ("MatMul", ["q3", "k3"], ["scores"], {}),
        ("Mul", ["scores", "root"], ["scaled"], {}),
        ("Add", ["scaled", "mask"], ["masked"], {}) if mask else ("Neg", ["mask"], ["other"], {}),
        ("Softmax", ["masked" if mask else "scaled"], ["shares"], {"axis": -1}),
        ("MatMul", ["shares", "v3"], ["mixed"], {}),
        ("Transpose", ["mixed"], ["turned"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["turned", "whole"], ["y"], {}),
    ]
    inputs = {"x": ["n", "t", wide], "mask": ["n", 1, 1, "t"]}
    return models.build(nodes, inputs, ["y", *kept, *([] if mask else ["other"])], stored)


def run(core, model, threads, count=2, length=520):
    network = core.read_network(model)
    network.reshape({"x": [count, length, 72], "mask": [count, 1, 1, length]})
    executable = core.load_network(network, "CPU", {"CPU_THREADS_NUM": threads})
    request = executable.create_infer_request()
    for seed in range(2):
        given = {"x": image(seed, count, length, 72), "mask": image(seed, count, 1, 1, length)}
        wanted = models.answer(model, given)
        for _ in range(2):
            for got, right in zip(request.infer(given).values(), wanted, strict=True):
                np.testing.assert_allclose(got, right, rtol=1e-3, atol=1e-4)
    return [step.type for step in executable.latest_plan().steps]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mask", [True, False])
def test_one_step(core, mask, threads):
    types = run(core, attention(mask=mask), threads)
    assert len([each for each in types if "SoftMax" in each and each.count("MatMul") == 2]) == 1
    assert "SoftMax" not in types


@pytest.mark.parametrize("kept", ["scores", "shares"])
def test_what_others_read_stays(core, kept):
    assert "SoftMax" in run(core, attention([kept]), 1)


def test_scores_that_several_share_stay(core):
    """One text's shares mix the values of four: they would be computed four times."""
    nodes = [
        ("Transpose", ["x"], ["k"], {"perm": [0, 2, 1]}),
        ("MatMul", ["x", "k"], ["scores"], {}),
        ("Softmax", ["scores"], ["shares"], {"axis": -1}),
        ("MatMul", ["shares", "v"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": [1, 1000, 16], "v": [4, 1000, 16]}, ["y"], {})
    executable = load(core, model, CPU_THREADS_NUM=1)
    given = {"x": image(1, 1, 1000, 16), "v": image(2, 4, 1000, 16)}
    (wanted,) = models.answer(model, given)
    np.testing.assert_allclose(executable.infer(given)["y"], wanted, rtol=1e-3, atol=1e-4)
    assert "SoftMax" in [step.type for step in executable.latest_plan().steps]


def test_few_scores_stay_three_steps(core):
    assert "SoftMax" in run(core, attention(), 1, count=1, length=300)


def test_without_avx512_there_are_three_steps(core, monkeypatch):
    monkeypatch.setattr(joined_attention, "has_avx512", lambda: False)
    assert "SoftMax" in run(core, attention(), 1)


def test_open_sizes(core):
    """Plans for any sizes, and those that run often, of long texts and short ones."""
    model = attention()
    request = load(core, model, CPU_THREADS_NUM=1).create_infer_request()
    for number, length in enumerate([30, 600, 90, 530, 700, 600, 530]):
        given = {"x": image(number, 2, length, 72), "mask": image(number, 2, 1, 1, length)}
        (wanted,) = models.answer(model, given)
        for _ in range(4):
            np.testing.assert_allclose(request.infer(given)["y"], wanted, rtol=1e-3, atol=1e-4)
