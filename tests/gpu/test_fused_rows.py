"""Sums of rows with what stands around them: one launch on processors; ONNX Runtime judges."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.row_ops import RowSteps
from tests.cpu.quantised_graphs import Graph, reference


def _normalised(g: Graph, x: str, terms: int, axis: int, *, rounded: bool = True) -> str:
    """A normalisation in steps, each of which is rounded to 8 bits."""

    def by(value: str, scale: float, zero: int) -> str:
        return g.quantised_by(value, g.parameters(np.uint8, scale, zero)) if rounded else value

    mean = by(g.emit("ReduceMean", x, axes=[axis]), 0.0113, 128)
    centred = by(g.emit("Sub", x, mean), 0.0407, 128)
    square = by(g.emit("Mul", centred, centred), 0.0831, 0)
    variance = by(g.emit("ReduceMean", square, axes=[axis]), 0.0217, 0)
    more = by(g.emit("Add", variance, g.store(np.float32(1e-3))), 0.0219, 0)
    normal = by(g.emit("Div", centred, by(g.emit("Sqrt", more), 0.01, 0)), 0.03, 121)
    shape = (terms, 1) if axis == 1 else (terms,)
    numbers = [g.store(g.rng.uniform(0.5, 1.5, shape).astype(np.float32)) for _ in range(2)]
    return g.emit("Add", by(g.emit("Mul", normal, numbers[0]), 0.03, 117), numbers[1])


def _check(core, g: Graph, shape, results: dict, steps: float):
    """Run twice; a rounding of the network's may go to the neighbour, as sums have their order."""
    model = g.model(shape, np.float32, dict.fromkeys(results, np.float32))
    executable = core.load_network(core.read_network(model), "GPU")
    feed = {"x": g.rng.normal(size=shape).astype(np.float32)}
    for _ in range(2):
        for ours, theirs in zip(executable.infer(feed).values(), reference(model, feed)):
            away = np.abs(ours - theirs)
            assert away.max() <= steps
            assert (away > steps / 100).mean() < 0.02, "another rounding"
    return executable


def _rows(executable) -> list[RowSteps]:
    nodes = executable.latest_plan().graph.nodes
    return [node.op for node in nodes if isinstance(node.op, RowSteps)]


@pytest.mark.parametrize(("shape", "axis"), [((2, 9, 37), 2), ((1, 19, 83), 1), ((3, 5, 8), -1)])
def test_a_normalisation_whose_steps_are_rounded_is_one_launch(core, opencl, shape, axis) -> None:
    g = Graph(np.random.default_rng(5))
    x = g.quantised_by("x", g.parameters(np.uint8, 0.03, 119))
    y = g.quantised_by(_normalised(g, x, shape[axis], axis), g.parameters(np.uint8, 0.03, 119))
    executable = _check(core, g, shape, {y: 0}, 0.031)
    if not target_of(opencl).is_throughput:
        (op,) = _rows(executable)
        assert len(op.gatherings) == 2
        assert len(executable.latest_plan().steps) == 1, executable.explain()


def test_between_products_of_bytes(core, opencl) -> None:
    """Rows are bytes on both sides, and what is rounded in between is none in memory."""
    g = Graph(np.random.default_rng(8))
    x = g.quantised_by("x", g.parameters(np.uint8, 0.03, 119))
    x = g.quantised_by(
        g.emit("MatMul", x, g.weights((16, 37), 1)), g.parameters(np.uint8, 0.1, 128)
    )
    y = g.quantised_by(_normalised(g, x, 37, 2), g.parameters(np.uint8, 0.03, 119))
    y = g.emit("MatMul", y, g.weights((37, 20), 1))
    executable = _check(core, g, (2, 9, 16), {y: 0}, 0.5)
    if not target_of(opencl).is_throughput:
        assert len(_rows(executable)) == 1
        assert len(executable.latest_plan().steps) == 4, executable.explain()


def test_what_others_read_is_kept(core) -> None:
    """A mean that is a result, and rows that meet what a product made of them."""
    g = Graph(np.random.default_rng(6))
    centred = g.emit("Sub", "x", g.emit("ReduceMean", "x", axes=[2]))
    mean = g.emit("ReduceMean", g.emit("Abs", centred), axes=[2])
    normal = g.emit("Div", centred, g.emit("Add", mean, g.store(np.float32(0.1))))
    product = g.emit("MatMul", normal, g.store(g.rng.normal(size=(33, 33)).astype(np.float32)))
    y = g.emit("Sub", g.emit("Add", product, normal), g.emit("ReduceSum", product, axes_of(g)))
    _check(core, g, (2, 7, 33), {y: 0, mean: 0}, 3e-3)


def axes_of(g: Graph) -> str:
    return g.store(np.array([2], np.int64))


def test_no_numbers_and_infinities(core) -> None:
    """Rows of infinities, and of what is no number, are that: others are as they were."""
    g = Graph(np.random.default_rng(7))
    total = g.emit("ReduceSum", g.emit("Mul", "x", "x"), axes_of(g))
    y = g.emit("Sub", "x", g.emit("Mul", total, g.store(np.float32(0.01))))
    model = g.model((1, 5, 21), np.float32, {y: np.float32})
    x = g.rng.normal(size=(1, 5, 21)).astype(np.float32)
    x[0, 1, 20], x[0, 2, 3], x[0, 4, 0] = np.nan, np.inf, -np.inf
    with np.errstate(all="ignore"):
        (theirs,) = reference(model, {"x": x})
    (ours,) = core.load_network(core.read_network(model), "GPU").infer({"x": x}).values()
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_what_is_quantised_is_a_number(core, opencl) -> None:
    """Attention that may leave out all keys asks of each weight whether it is one.

    Nobody has to where bytes are multiplied; elsewhere what is quantised are floats.
    """
    g = Graph(np.random.default_rng(9))
    parameters = g.parameters(np.uint8, 1 / 255, 0)
    x = g.emit(
        "MatMul", g.quantised_by("x", g.parameters(np.uint8, 0.03, 119)), g.weights((16, 37), 1)
    )
    x = g.quantised_by(g.emit("Softmax", x, axis=-1), parameters)
    y = g.emit("Where", g.emit("IsNaN", x), g.store(np.float32(0)), x)
    y = g.emit("MatMul", g.quantised_by(y, parameters), g.weights((37, 20), 1))
    executable = _check(core, g, (2, 9, 16), {y: 0}, 0.02)
    assert "Select" not in [node.op.type for node in executable.latest_plan().graph.nodes]
    epilogues = str([node.epilogue for node in executable.latest_plan().graph.nodes])
    assert "IsNaN" not in epilogues or not target_of(opencl).byte_product
