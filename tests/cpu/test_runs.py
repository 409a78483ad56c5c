"""Constants for few channels next to each other, as in pictures, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine.rows import elementwise
from polydevice_cpu.onednn.library import library
from tests.cpu import models
from tests.cpu.loading import image, load

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

SIZES = [(1, 24, 24), (2, 15, 27), (1, 16, 40), (3, 1, 1), (1, 1, 512), (700, 1, 1)]
"""Images, rows, columns: multiples of 64 pixels and not, and pixels that have no neighbour."""


def compare(core, model, given_of, sizes):
    request = load(core, model).create_infer_request()
    for number, each in enumerate(sizes):
        for seed in (number, number + 10):
            given = given_of(seed, *each)
            found = request.infer(given)
            for name, want in zip(sorted(found), models.answer(model, given), strict=True):
                np.testing.assert_allclose(found[name], want, rtol=1e-5, atol=1e-5)
    return request.runner.bound.plan.steps


def weights(*shapes):
    rng = np.random.default_rng(len(shapes))
    return {f"c{n}": rng.uniform(0.5, 2, s).astype(np.float32) for n, s in enumerate(shapes)}


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
@pytest.mark.parametrize("channels", [2, 3, 24])
@pytest.mark.parametrize("moved", [True, False], ids=["moved before", "moved behind"])
def test_a_picture_is_normalised(core, monkeypatch, known, channels, moved):
    monkeypatch.setattr(elementwise, "MOST", 0)  # as if there were many
    chain = [("Sub", "c0"), ("Div", "c1"), ("Mul", "c2")]
    move = ("Transpose", ["x"], ["a"], {"perm": [0, 3, 1, 2]})
    nodes, before = [move] if moved else [], "a" if moved else "x"
    for number, (kind, constant) in enumerate(chain):
        nodes.append((kind, [before, constant], [f"s{number}"], {}))
        before = f"s{number}"
    nodes.append(("Relu", [before], ["y"], {}))
    shape = (channels, 1, 1) if moved else (channels,)
    for sizes in SIZES if known else [None]:
        declared = [*sizes, channels] if sizes else ["n", "h", "w", channels]
        model = models.build(nodes, {"x": declared}, ["y"], weights(shape, (1, *shape), shape))
        found = compare(
            core,
            model,
            lambda seed, *sizes: {"x": image(seed, *sizes, channels)},
            [sizes] if sizes else SIZES,
        )
        if sizes == (1, 24, 24):
            (step,) = [step for step in found if step.type == "Subtract+Divide+Multiply+ReLU"]
            assert step.primitive.dst.shape == (24 * 24 // 64, 64 * channels)


@pytest.mark.parametrize(("kind", "swapped"), [
    ("Add", True), ("Sub", True), ("Div", True), ("Max", False), ("Min", True), ("PRelu", False),
])  # fmt: skip
def test_other_functions_and_orders(core, kind, swapped):
    move = ("Transpose", ["x"], ["a"], {"perm": [0, 3, 1, 2]})
    inputs = ["c0", "a"] if swapped else ["a", "c0"]
    nodes = [move, (kind, inputs, ["b"], {}), ("PRelu", ["b", "c1"], ["y"], {})]
    model = models.build(nodes, {"x": [2, 16, 17, 3]}, ["y"], weights((3, 1, 1), (3, 1, 1)))
    compare(core, model, lambda seed, *sizes: {"x": image(seed, *sizes, 3)}, [(2, 16, 17)])


def test_what_follows_reads_all_kinds_of_operands(core):
    """Of the same size, for each channel, column and picture, one number; computed and given."""
    move = {"perm": [0, 3, 1, 2]}
    nodes = [
        ("Transpose", ["x"], ["a"], move),
        ("Transpose", ["z"], ["e"], move),
        ("Mul", ["a", "c0"], ["b"], {}),
        ("Add", ["b", "e"], ["c"], {}),
        ("Mul", ["c", "v"], ["d"], {}),
        ("Sub", ["d", "c1"], ["f"], {}),
        ("Add", ["f", "one"], ["g"], {}),
        ("Add", ["g", "c2"], ["y"], {}),
    ]
    inputs = {"x": [2, 16, 17, 3], "z": [2, 16, 17, 3], "v": [1, 3, 1, 1], "one": [1, 1, 1, 1]}
    model = models.build(nodes, inputs, ["y"], weights((3, 1, 1), (1, 17), (2, 1, 1, 1)))
    compare(
        core,
        model,
        lambda seed, *_: {name: image(seed, *shape) for name, shape in inputs.items()},
        [()],
    )


def test_matrices_and_volumes(core):
    nodes = [
        ("Add", ["x", "c0"], ["y"], {}),
        ("Transpose", ["v"], ["a"], {"perm": [0, 4, 1, 2, 3]}),
        ("Mul", ["a", "c1"], ["z"], {}),
    ]
    inputs = {"x": [371, 5], "v": [2, 3, 8, 5, 6]}
    model = models.build(nodes, inputs, ["y", "z"], weights((5,), (6, 1, 1, 1)))
    compare(
        core,
        model,
        lambda seed, *_: {name: image(seed, *shape) for name, shape in inputs.items()},
        [()],
    )
