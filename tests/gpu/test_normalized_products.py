"""Products that normalise the rows which they read; the judge is NumPy in f64."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.matmul import MatMul
from polydevice.ops.normalization import MVN, EpsMode
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.compiler.stages import build_graph
from polydevice_gpu.kernels.product.normalized import NormalizedWgmma
from polydevice_gpu.ops import NormalizedMatMul
from tests.gpu import graphs
from tests.gpu.test_copies_ahead import HOPPER
from tests.gpu.wgmma_in_c import in_c

EPSILON = 1e-5


def _network(s, rows, terms, numbers):
    x = s.input("x", 1, rows, terms, kind=ElementType.f16)
    norm = MVN(normalize_variance=True, eps=EPSILON, eps_mode=EpsMode.INSIDE_SQRT)
    y = s.add("n", norm, x, s.const("axes", np.array([-1])))
    y = s.add("scaled", Multiply(), y, s.const("gamma", numbers["gamma"]))
    y = s.add("shifted", Add(), y, s.const("beta", numbers["beta"]))
    y = s.add("product", MatMul(transpose_b=True), y, s.const("w", numbers["w"]))
    return s.network(y=s.add("biased", Add(), y, s.const("bias", numbers["bias"])))


def _numbers(terms, columns):
    random = np.random.default_rng(columns)
    shapes = {"gamma": terms, "beta": terms, "w": (columns, terms), "bias": columns}
    return {name: random.standard_normal(shape).astype("f2") for name, shape in shapes.items()}


@pytest.fixture
def use_mode(monkeypatch, opencl):
    """Let products normalise here, in a given mode."""
    compiler = importlib.import_module("polydevice_gpu.compiler.compiler")
    target = dataclasses.replace(
        target_of(opencl), matrix_unit=True, warp_group_unit=True, compute_units=132
    )
    launches = NormalizedWgmma.launches

    def without_units(self, node, mode, target):
        return [in_c(launch, exchanges=True) for launch in launches(self, node, mode, target)]

    def use(mode: int) -> None:
        monkeypatch.setattr(compiler, "target_of", lambda _: target)
        monkeypatch.setattr(NormalizedWgmma, "launches", without_units)
        monkeypatch.setattr(NormalizedWgmma, "default_mode", lambda *_: mode)

    return use


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "mode"),
    [
        (70, 136, 72, 0),
        pytest.param(130, 840, 200, 1, marks=pytest.mark.full),
        pytest.param(130, 264, 136, 2, marks=pytest.mark.full),
    ],
)
def test_rows_far_from_zero(core, opencl, use_mode, rows, terms, columns, mode):
    use_mode(mode)
    numbers = _numbers(terms, columns)
    random = np.random.default_rng(rows)
    x = random.standard_normal((1, rows, terms)) * random.uniform(0.1, 3, (1, rows, 1))
    x = (x + random.uniform(-20, 20, (1, rows, 1))).astype("f2")
    x[0, rows // 2] = np.nan  # which no other row may show
    network = _network(graphs.Sketch(), rows, terms, numbers)
    executable = graphs.loaded(network, opencl, graphs.SparingBuilder(opencl), core)
    (node,) = (node for node in executable.latest_plan().graph.nodes if not node.is_view)
    assert isinstance(node.op, NormalizedMatMul)
    wide = {name: array.astype("f8") for name, array in numbers.items()}
    centred = x.astype("f8") - x.astype("f8").mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
    right = (normal * wide["gamma"] + wide["beta"]) @ wide["w"].T + wide["bias"]
    for _ in range(2):
        (found,) = executable.infer({"x": x}).values()
        np.testing.assert_allclose(found, right, 3e-3, 5e-2)


def _graph(build, **target):
    """Compile what `build(sketch, x)` makes of x, 1 x 197 x 768 in half, for such a device."""
    s = graphs.Sketch()
    x = s.input("x", 1, 197, 768, kind=ElementType.f16)
    return graphs.compiled(s.network(**build(s, x)), **{**dataclasses.asdict(HOPPER), **target})


def _half(*shape):
    return np.random.default_rng(1).standard_normal(shape).astype("f2")


def _norm(s, x, axes=(-1,), mode=EpsMode.INSIDE_SQRT, scale=(768,)):
    norm = MVN(normalize_variance=True, eps=EPSILON, eps_mode=mode)
    y = s.add("n", norm, x, s.const("axes", np.array(axes)))
    return s.add("scaled", Multiply(), y, s.const("gamma", _half(*scale)))


def _product(s, x, name="product", columns=2304):
    return s.add(name, MatMul(), x, s.const(f"{name}/w", _half(768, columns)))


def _normalising(graph):
    return sum(isinstance(node.op, NormalizedMatMul) for node in graph.nodes)


def test_queries_keys_and_values_are_one_product_of_rows_that_it_normalises():
    def build(s, x):
        y = _norm(s, x)
        q, k, v = (_product(s, y, name, 768) for name in "qkv")
        return {"y": s.add("values", MatMul(), s.add("scores", MatMul(transpose_b=True), q, k), v)}

    graph = _graph(build)
    assert _normalising(graph) == 1
    assert not any(isinstance(node.op, MVN) for node in graph.nodes)


def _and(s, y, more):
    return {"y": _product(s, y), "z": more(s, y)}


APART = {
    "other axes": lambda s, x: {"y": _product(s, _norm(s, x, axes=(-2,)))},
    "epsilon outside": lambda s, x: {"y": _product(s, _norm(s, x, mode=EpsMode.OUTSIDE_SQRT))},
    "a scale of each row": lambda s, x: {"y": _product(s, _norm(s, x, scale=(197, 1)))},
    "a scale that is computed": lambda s, x: {
        "y": _product(s, s.add("more", Multiply(), _norm(s, x), s.add("z", Add(), x, x)))
    },
    "also read otherwise": lambda s, x: _and(s, _norm(s, x), lambda s, y: s.add("z", Add(), y, x)),
    "also a result": lambda s, x: _and(s, _norm(s, x), lambda _, y: y),
    "odd columns": lambda s, x: {"y": _product(s, _norm(s, x), columns=2303)},
}


def test_in_one_launch_others_find_it_normalised_beside_the_product():
    s = graphs.Sketch()
    x = s.input("x", 1, 197, 768, kind=ElementType.f16)
    network = s.network(**APART["also read otherwise"](s, x))
    network.evaluate = graphs.evaluate
    settings = CompileSettings(may_join=True, side_by_side=True)
    graph = build_graph(network, HOPPER, graphs.evaluate, settings)
    assert _normalising(graph) == 1
    (norm,) = (node for node in graph.nodes if isinstance(node.op, MVN))
    place = graph.nodes.index(norm)
    assert isinstance(graph.nodes[place + 1].op, NormalizedMatMul)
    assert graph.nodes[place + 1].inputs[0] is norm.inputs[0]


@pytest.mark.parametrize("case", APART)
def test_others_stay_apart(case):
    assert _normalising(_graph(APART[case])) == 0


@pytest.mark.parametrize("lacks", [{"warp_group_unit": False}, {"sizes_vary": True}])
def test_other_devices_and_sizes_that_vary(lacks):
    def build(s, x):
        return {"y": _product(s, _norm(s, x))}

    assert _normalising(_graph(build)) == 1
    assert _normalising(_graph(build, **lacks)) == 0
