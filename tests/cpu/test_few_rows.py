"""Many matrices of few rows times one matrix, which are multiplied at once; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_cpu import processor
from polydevice_cpu.algorithms.by_machine.code import has_avx512
from polydevice_cpu.algorithms.by_machine.rows import product
from polydevice_cpu.onednn.library import library
from polydevice_cpu.plan.step import PrimitiveStep
from tests.cpu import models
from tests.cpu.loading import image, load

pytestmark = pytest.mark.skipif(library() is None, reason="no oneDNN library on this machine")

TAILS = {
    "nothing": [("Identity", ["c"], ["y"], {})],
    "a bias": [("Add", ["b", "c"], ["d"], {}), ("Relu", ["d"], ["y"], {})],
    "a sum": [("Add", ["c", "b"], ["d"], {}), ("Add", ["z", "d"], ["y"], {})],
    "a sum over rows": [("Add", ["c", "p"], ["y"], {})],
    "a factor": [("Mul", ["c", "f"], ["d"], {}), ("Sigmoid", ["d"], ["y"], {})],
    "slopes": [("PRelu", ["c", "b"], ["y"], {})],
    "slopes of another axis": [("PRelu", ["c", "s"], ["y"], {})],
    "itself": [("Sigmoid", ["c"], ["d"], {}), ("Mul", ["c", "d"], ["y"], {})],
}


def few_rows(tail, rows, known):
    rng = np.random.default_rng(len(tail))
    weights = {
        "w": rng.standard_normal((24, 20)).astype(np.float32) / 5,
        "b": rng.standard_normal(20).astype(np.float32),
        "s": rng.standard_normal((4, 1, 1)).astype(np.float32),
        "p": rng.standard_normal((rows, 20)).astype(np.float32),
        "f": np.float32(0.7),
    }
    sizes = (3, 4) if known else ("n", 4)
    inputs = {"x": [*sizes, rows, 24]}
    if tail == "a sum":
        inputs["z"] = [*sizes, rows, 20]
    return models.build(
        [("MatMul", ["x", "w"], ["c"], {}), *TAILS[tail]], inputs, ["y"], weights
    ), inputs


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
def test_few_rows_of_many_matrices(core, tail, rows, known):
    model, inputs = few_rows(tail, rows, known)
    request = load(core, model).create_infer_request()
    for number in (3,) if known else (1, 3, 2, 5):
        given = {name: image(number, number, *shape[1:]) for name, shape in inputs.items()}
        (want,) = models.answer(model, given)
        np.testing.assert_allclose(request.infer(given)["y"], want, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not processor.has_bf16(), reason="no bfloat16 on this processor")
def test_few_rows_in_bf16(core):
    model, inputs = few_rows("a sum", 1, known=True)
    given = {name: image(1, *shape) for name, shape in inputs.items()}
    (want,) = models.answer(model, given)
    found = load(core, model, ENFORCE_BF16="YES").infer(given)["y"]
    np.testing.assert_allclose(found, want, rtol=0.05, atol=0.05)


def test_they_are_rows_of_one_matrix(core, monkeypatch):
    monkeypatch.setattr(product, "MOST", 0)  # as if there were many numbers
    model, inputs = few_rows("a sum", 1, known=True)
    request = load(core, model).create_infer_request()
    request.infer({name: image(1, *shape) for name, shape in inputs.items()})
    steps = request.runner.bound.plan.steps
    found = [step.primitive.dst.shape for step in steps if isinstance(step, PrimitiveStep)]
    # With bias and sum; as pixels where oneDNN packs weights for these alone.
    assert found == ([(12, 20)] if has_avx512() else [(1, 20, 1, 12)])


@pytest.mark.parametrize("known", [True, False], ids=["known", "open"])
@pytest.mark.parametrize("sequence_first", [False, True])
def test_heads_that_lie_between_others(core, known, sequence_first):
    """Queries and keys of all heads in one row each; oneDNN multiplies none by itself."""
    batch, length, heads, size = (3 if known else "n"), (11 if known else "l"), 4, 8
    weights = {
        "grid": np.array([0, 0, 3, heads, size]),
        **{name: np.array(number) for number, name in enumerate(("q at", "k at", "v at"))},
        "w": image(3, heads, size, 6),
    }
    order = [1, 2, 0, 3] if sequence_first else [0, 2, 1, 3]
    turned = [1, 2, 3, 0] if sequence_first else [0, 2, 3, 1]
    nodes = [
        ("Reshape", ["x", "grid"], ["g"], {}),
        *[("Gather", ["g", f"{name} at"], [f"{name}g"], {"axis": 2}) for name in "qkv"],
        ("Transpose", ["qg"], ["q"], {"perm": order}),
        ("Transpose", ["kg"], ["k"], {"perm": turned}),
        ("Transpose", ["vg"], ["v"], {"perm": order}),
        ("MatMul", ["q", "k"], ["s"], {}),
        ("Softmax", ["s"], ["p"], {"axis": -1}),
        ("MatMul", ["p", "v"], ["o"], {}),
        ("MatMul", ["o", "w"], ["y"], {}),
    ]
    rows = [length, batch] if sequence_first else [batch, length]
    model = models.build(nodes, {"x": [*rows, 3 * heads * size]}, ["y"], weights)
    executable = load(core, model)
    request = executable.create_infer_request()
    for number in range(2 if known else 5):
        sizes = [3, 11] if known else [number + 2, 9 + 3 * number]
        given = {"x": image(number, *(sizes[::-1] if sequence_first else sizes), 96)}
        (want,) = models.answer(model, given)
        np.testing.assert_allclose(request.infer(given)["y"], want, rtol=1e-4, atol=1e-5)
    used = {step.implementation for step in executable.latest_plan().steps}
    if processor.has_bf16():  # whose 512-bit registers oneDNN's batched code wants
        assert not any("gemm" in name and "brg" not in name for name in used)
