"""Functions between bytes, whose steps are rounded one by one; ONNX Runtime judges."""

from __future__ import annotations

import math

import numpy as np
import pytest
from onnx import helper

from polydevice.dtype import ElementType
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.ops import Fused, IntegerMatMul
from polydevice_gpu.rounded_ops import ShortErf
from tests.cpu.quantised_graphs import Graph, reference
from tests.gpu.graphs import Sketch


def _fragments(executable) -> str:
    nodes = executable.latest_plan().graph.nodes
    own = [node.op.fragment for node in nodes if isinstance(node.op, Fused)]
    return " ".join(map(str, [*own, *(node.epilogue for node in nodes)]))


def _check(core, g: Graph, y: str, shape, step: float):
    model = g.model(shape, np.float32, {y: np.float32})
    executable = core.load_network(core.read_network(model), "GPU")
    feed = {"x": g.rng.normal(size=shape).astype(np.float32)}
    (theirs,) = reference(model, feed)
    for _ in range(2):
        (ours,) = executable.infer(feed).values()
        away = np.abs(ours - theirs)
        assert away.max() <= step * 1.01
        assert (away > step / 2).mean() < 0.02, "another rounding"
    return executable


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_the_steps_of_gelu(core, opencl, kind) -> None:
    """erf that is rounded next may be short; the result is at most one step away."""
    g = Graph(np.random.default_rng(4))
    middle = 128 + int(np.iinfo(kind).min)

    def by(value: str, scale: float, zero: int = middle) -> str:
        return g.quantised_by(value, g.parameters(kind, scale, zero))

    x = g.quantised_by("x", g.parameters(np.uint8, 0.03, 119))
    x = by(g.emit("MatMul", x, g.weights((16, 37), 1)), 0.031)
    inner = by(g.emit("Div", x, g.store(np.float32(np.sqrt(2)))), 0.0221)
    erf = by(g.emit("Erf", inner), 1 / 127)
    more = by(g.emit("Add", erf, g.store(np.float32(1))), 2 / 255, int(np.iinfo(kind).min))
    y = by(g.emit("Mul", by(g.emit("Mul", x, more), 0.06), g.store(np.float32(0.5))), 0.0313)
    executable = _check(core, g, y, (2, 9, 16), 0.0313)
    target = target_of(opencl)
    if target.byte_product and not target.is_throughput:
        assert "ShortErf" in _fragments(executable), executable.explain()


def test_attention_of_bytes(core, opencl) -> None:
    """Queries, keys and values are floats before they are cut and turned: that takes no launch."""
    g = Graph(np.random.default_rng(6))
    x = g.quantised_by("x", g.parameters(np.uint8, 0.03, 119))
    joined = g.quantised_by(
        g.emit("MatMul", x, g.weights((16, 3 * 24), 1)), g.parameters(np.uint8, 0.031, 130)
    )
    parts = [f"part{number}" for number in range(3)]
    sizes = g.store(np.full(3, 24, np.int64))
    g.nodes.append(helper.make_node("Split", [joined, sizes], parts, "split", axis=2))
    shape, order = g.store(np.array([2, 9, 2, 12], np.int64)), ([0, 2, 1, 3], [0, 2, 3, 1])
    heads = []
    for number, part in enumerate(parts):
        by = g.parameters(np.uint8, 0.031, 130)
        cut = g.quantised_by(g.emit("Reshape", g.quantised_by(part, by), shape), by)
        turned = g.emit("Transpose", cut, perm=order[number == 1])
        heads.append(g.quantised_by(turned, by))
    scores = g.quantised_by(g.emit("MatMul", *heads[:2]), g.parameters(np.uint8, 0.11, 127))
    weights = g.quantised_by(g.emit("Softmax", scores, axis=-1), g.parameters(np.uint8, 1 / 255, 0))
    y = g.quantised_by(g.emit("MatMul", weights, heads[2]), g.parameters(np.uint8, 0.031, 130))
    executable = _check(core, g, y, (2, 9, 16), 0.031)
    target = target_of(opencl)
    if target.byte_product and not target.is_throughput:
        nodes = executable.latest_plan().graph.nodes
        (product,) = (node for node in nodes if isinstance(node.op, IntegerMatMul))
        assert product.output.storage is ElementType.f32, executable.explain()


@pytest.mark.parametrize("matrices", [4, 1])
def test_a_matrix_for_each_head(core, matrices) -> None:
    """Constants that are quantised, as relative positions are, by what is at run time."""
    g = Graph(np.random.default_rng(3))
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantise"))
    w = g.store(g.rng.integers(-127, 128, (matrices, 24, 37)).astype(np.int8))
    sums = g.emit("Cast", g.emit("MatMulInteger", "q", w, "z", g.store(np.int8(0))), to=1)
    y = g.emit("Mul", sums, g.emit("Mul", "s", g.store(np.float32(0.01))))
    _check(core, g, y, (2, 4, 9, 24), 1e-3)


def test_limits_that_are_two_operations(core) -> None:
    """What becomes pixels at the end of a network is limited by Min and Max."""
    g = Graph(np.random.default_rng(5))
    x = g.quantised_by("x", g.parameters(np.uint8, 0.03, 119))
    x = g.quantised_by(
        g.emit("MatMul", x, g.weights((16, 37), 1)), g.parameters(np.uint8, 0.03, 128)
    )
    y = g.quantised_by(g.emit("Mul", x, g.store(np.float32(200))), g.parameters(np.uint8, 2.3, 0))
    y = g.emit("Min", g.emit("Round", y), g.store(np.float32(255)))
    y = g.emit("Cast", g.emit("Max", y, g.store(np.float32(0))), to=2)
    y = g.emit("Cast", y, to=1)
    _check(core, g, y, (2, 9, 16), 3)


@pytest.mark.parametrize("width", [64, 7])
def test_the_short_error_function(core, width) -> None:
    """At most 2e-6 from erf; infinities too, and what is no number stays that."""
    x = np.linspace(-6, 6, 9100, dtype=np.float32)
    x[:6] = 0, np.inf, -np.inf, np.nan, 1e-30, -1e30
    x = x[: 9100 // width * width].reshape(-1, width)
    s = Sketch()
    network = s.network(y=s.add("y", ShortErf(), s.input("x", *x.shape)))
    right = np.reshape([math.erf(v) for v in x.reshape(-1).tolist()], x.shape)
    for _ in range(2):
        ours = core.load_network(network, "GPU").infer({"x": x})["y"]
        np.testing.assert_allclose(ours, right, rtol=0, atol=2e-6)
