"""Products whose terms are shared by the warps of a group, their instructions done in OpenCL C."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape
from polydevice.ops.transpose import Transpose
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.kernels.product.gemm_warps import MatmulWarps
from polydevice_gpu.passes.placing.tile_rows import tile_rows
from polydevice_gpu.tuning.candidates import candidates
from tests.gpu import graphs
from tests.gpu.mma_in_c import in_c
from tests.gpu.test_copies_ahead import HOPPER
from tests.gpu.trials import only

READ_IN_C = """
#undef READ
#undef COPY
#undef AWAIT
#undef CLOSE_STAGE
#define READ(to, from, kind) to = inside ? vload4(0, (__global const uint*)(from)) : (uint4)(0);
#define COPY(to, from, bytes) *(to) = (bytes) ? vload4(0, (__global const uint*)(from)) : (uint4)(0)
#define AWAIT(n)
#define CLOSE_STAGE()
"""


@pytest.fixture
def use_mode(monkeypatch, opencl):
    """Let products of few rows run here, in a given mode."""
    compiler = importlib.import_module("polydevice_gpu.compiler.compiler")
    launches = MatmulWarps.launches

    def without_units(self, node, mode, target):
        return [in_c(launch, READ_IN_C) for launch in launches(self, node, mode, target)]

    def use(mode: int, **more) -> None:
        target = dataclasses.replace(target_of(opencl), matrix_unit=True, **more)
        monkeypatch.setattr(compiler, "target_of", lambda _: target)
        monkeypatch.setattr(MatmulWarps, "launches", without_units)
        monkeypatch.setattr(MatmulWarps, "default_mode", lambda *_: mode)
        only(monkeypatch, MatMul, MatmulWarps())

    return use


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "width"),
    [
        (19, 13, 72, 8),
        (33, 26, 1032, 8),
        pytest.param(33, 50, 296, 24, marks=pytest.mark.full),  # takes PoCL seconds to compile
    ],
)
def test_every_warp_takes_its_terms(core, opencl, use_mode, rows, columns, terms, width):
    mode = next(i for i, mode in enumerate(MatmulWarps.modes) if mode["BN"] == width)
    use_mode(mode)
    random = np.random.default_rng(rows)
    x, w = random.standard_normal((rows, terms)), random.standard_normal((terms, columns))
    x, w, bias = (a.astype("f2") for a in (x, w, random.standard_normal(columns)))
    x[rows // 2] = np.nan  # which no other row may show
    s = graphs.Sketch()
    given = s.input("x", rows, terms, kind=ElementType.f16)
    y = s.add("y", MatMul(), given, s.const("w", w))
    network = s.network(out=s.add("z", Add(), y, s.const("b", bias)))
    executable = graphs.loaded(network, opencl, graphs.SparingBuilder(opencl), core)
    assert "gemm_warps" in executable.explain()
    right = x.astype("f8") @ w.astype("f8") + bias.astype("f8")
    for _ in range(2):
        (found,) = executable.infer({"x": x}).values()
        np.testing.assert_allclose(found, right, 2e-3, 2e-2)


@pytest.mark.parametrize(
    ("rows", "middle", "width", "more"),
    [
        (19, 64, 8, {}),
        (33, 96, 8, {"local_memory_bytes": 98304}),
        pytest.param(40, 320, 24, {"warp_group_unit": True}, marks=pytest.mark.full),
    ],
)
def test_rows_between_products_lie_in_tiles(core, opencl, use_mode, rows, middle, width, more):
    use_mode(next(i for i, mode in enumerate(MatmulWarps.modes) if mode["BN"] == width), **more)
    random = np.random.default_rng(rows)
    x, u = random.standard_normal((rows, 40)), random.standard_normal((40, middle))
    w = random.standard_normal((middle, 24))
    x, u, w = (a.astype("f2") for a in (x, u, w))
    x[rows // 2] = np.nan  # which no other row may show
    s = graphs.Sketch()
    given = s.input("x", rows, 40, kind=ElementType.f16)
    y = s.add("y", MatMul(), given, s.const("u", u))
    network = s.network(out=s.add("z", MatMul(), s.add("relu", Relu(), y), s.const("w", w)))
    executable = graphs.loaded(network, opencl, graphs.SparingBuilder(opencl), core)
    nodes = executable.get_exec_graph_info().nodes()
    lie = [node.rt_info["outputLayouts"] for node in nodes]
    assert "row tiles" in lie, lie
    right = np.maximum(x.astype("f8") @ u.astype("f8"), 0).astype("f2").astype("f8")
    right = right @ w.astype("f8")
    for _ in range(2):
        (found,) = executable.infer({"x": x}).values()
        np.testing.assert_allclose(found, right, 2e-3, 3e-1)


def test_rows_that_are_copied_for_a_product_become_half_on_the_way(core, opencl, use_mode):
    use_mode(next(i for i, mode in enumerate(MatmulWarps.modes) if mode["BN"] == 8))
    random = np.random.default_rng(3)
    x = random.standard_normal((8, 19, 5)).astype("f4")
    w = random.standard_normal((40, 24)).astype("f2").astype("f4")
    s = graphs.Sketch()
    turned = s.add("turned", Transpose(), s.input("x", *x.shape), s.const("order", [1, 2, 0]))
    rows = s.add("rows", Reshape(), turned, s.const("shape", np.array([19, 40])))
    network = s.network(out=s.add("y", MatMul(), rows, s.const("w", w)))
    settings = CompileSettings(floats=ElementType.f16)
    executable = graphs.loaded(network, opencl, graphs.SparingBuilder(opencl), core, settings)
    nodes = [node for node in executable.latest_plan().graph.nodes if not node.is_view]
    kinds = [(str(node.op.type), str(node.output.storage)) for node in nodes]
    assert kinds == [("Fused", "f16"), ("MatMul", "f32")], kinds
    right = x.transpose(1, 2, 0).reshape(19, 40).astype("f2").astype("f8") @ w.astype("f8")
    for _ in range(2):
        (found,) = executable.infer({"x": x}).values()
        np.testing.assert_allclose(found, right, 2e-3, 5e-2)


def test_rows_in_tiles_are_left_to_kernels_that_know_them():
    s = graphs.Sketch()
    y = s.input("x", 128, 768, kind=ElementType.f16)
    for name, columns, terms in (("up", 3072, 768), ("down", 768, 3072)):
        y = s.add(name, MatMul(), y, s.const(f"{name}/w", np.ones((terms, columns), "f2")))
    graph = graphs.compiled(s.network(out=y), **dataclasses.asdict(HOPPER))
    tile_rows(graph, frozenset())
    up, down = (node for node in graph.nodes if node.op.type == "MatMul")
    assert up.output.layout_name == down.inputs[0].layout_name == "row tiles"
    assert {choice.kernel.writes_tiles for choice in candidates(up, HOPPER)} == {True}
    assert {choice.kernel.reads_tiles for choice in candidates(down, HOPPER)} == {True}


def test_rows_that_are_read_as_others_too_lie_in_no_tiles(core, opencl, use_mode):
    use_mode(next(i for i, mode in enumerate(MatmulWarps.modes) if mode["BN"] == 8))
    random = np.random.default_rng(5)
    x, u = (random.standard_normal(shape).astype("f2") for shape in ((16, 40), (40, 64)))
    wide, narrow = (random.standard_normal((terms, 8)).astype("f2") for terms in (64, 32))
    s = graphs.Sketch()
    given = s.input("x", *x.shape, kind=ElementType.f16)
    y = s.add("y", MatMul(), given, s.const("u", u))
    turned = s.add("rows", Reshape(), y, s.const("shape", np.array([32, 32])))
    products = {
        "wide": s.add("wide", MatMul(), y, s.const("wide/w", wide)),
        "narrow": s.add("narrow", MatMul(), turned, s.const("narrow/w", narrow)),
    }
    network = s.network(**products)
    executable = graphs.loaded(network, opencl, graphs.SparingBuilder(opencl), core)
    found = executable.infer({"x": x})
    rows = (x.astype("f8") @ u.astype("f8")).astype("f2").astype("f8")
    np.testing.assert_allclose(found["wide"], rows @ wide.astype("f8"), 2e-3, 3e-1)
    others = rows.reshape(32, 32) @ narrow.astype("f8")
    np.testing.assert_allclose(found["narrow"], others, 2e-3, 3e-1)
