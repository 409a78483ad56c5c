"""Products whose terms are shared by the warps of a group, their instructions done in OpenCL C."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.arithmetic import Add
from polydevice.ops.matmul import MatMul
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.product.gemm_warps import MatmulWarps
from tests.gpu import graphs
from tests.gpu.mma_in_c import in_c
from tests.gpu.trials import only

READ_IN_C = """
#undef READ
#define READ(to, from, kind) to = inside ? vload4(0, (__global const uint*)(from)) : (uint4)(0);
"""


@pytest.fixture
def use_mode(monkeypatch, opencl):
    """Let products of few rows run here, in a given mode."""
    compiler = importlib.import_module("polydevice_gpu.compiler.compiler")
    target = dataclasses.replace(target_of(opencl), matrix_unit=True)
    launches = MatmulWarps.launches

    def without_units(self, node, mode, target):
        return [in_c(launch, READ_IN_C) for launch in launches(self, node, mode, target)]

    def use(mode: int) -> None:
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
