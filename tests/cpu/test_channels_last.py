"""Functions of single elements by NumPy keep the order of channels that lie next to each other."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu.onednn.library import library
from tests.cpu.loading import image, load
from tests.cpu.models import answer, build

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")


def peaks(axes):
    """Elements of a convolution that are the largest of their neighbours, others replaced."""
    ones = [3] * axes
    nodes = [
        ("Conv", ["x", "w"], ["a"], {"pads": [1] * (2 * axes)}),
        ("MaxPool", ["a"], ["m"], {"kernel_shape": ones, "pads": [1] * (2 * axes)}),
        ("Equal", ["a", "m"], ["same"], {}),
        ("Greater", ["a", "zero"], ["high"], {}),
        ("And", ["same", "high"], ["both"], {}),
        ("Not", ["both"], ["other"], {}),
        ("Cast", ["same"], ["mask"], {"to": 1}),
        ("Mul", ["a", "mask"], ["b"], {}),
        ("Where", ["other", "m", "b"], ["c"], {}),
        ("Where", ["both", "c", "zero"], ["d"], {}),
        ("Cast", ["both"], ["count"], {"to": 7}),
        ("ReduceSum", ["count"], ["n"], {"keepdims": 0}),
        ("Cast", ["n"], ["z"], {"to": 1}),
        ("Conv", ["d", "v"], ["y"], {}),
    ]
    weights = {
        "w": image(1, 17, 16, *ones), "v": image(2, 16, 17, *[1] * axes), "zero": np.float32(0),
    }  # fmt: skip
    return build(nodes, {"x": ["n", 16, *"hwd"[:axes]]}, ["y", "z"], weights)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_masks_of_images(core, axes):
    made, rng = peaks(axes), np.random.default_rng(axes)
    request = load(core, made).create_infer_request()
    for _ in range(6):
        shape = (int(rng.integers(1, 3)), 16, *(int(n) for n in rng.integers(3, 14, axes)))
        x = {"x": rng.standard_normal(shape).astype(np.float32)}
        for found, right in zip(request.infer(x).values(), answer(made, x), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-3)


def test_images_are_not_brought_into_another_order_between_convolutions(core):
    network = load(core, peaks(2))
    network.infer({"x": image(0, 1, 16, 20, 24)})
    steps = network.latest_plan().steps
    first, last = (n for n, step in enumerate(steps) if step.type.startswith("Convolution"))
    between = [step.type for step in steps[first:last]]
    assert "Equal" in between
    assert between.count("Reorder") <= 1  # of what is summed
