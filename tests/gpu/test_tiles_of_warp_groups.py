"""Products by tiles of warp groups, their instruction done in OpenCL C; NumPy is the judge."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.matmul import MatMul
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.gemm.gemm_wgmma import MatmulWgmma
from tests.gpu import graphs
from tests.gpu.trials import only
from tests.gpu.wgmma_in_c import in_c


@pytest.fixture
def use_mode(monkeypatch, opencl):
    """Let products run here by the units of warp groups, in a given mode."""
    compiler = importlib.import_module("polydevice_gpu.compiler.compiler")
    target = dataclasses.replace(target_of(opencl), matrix_unit=True, warp_group_unit=True)
    launches = MatmulWgmma.launches

    def without_units(self, node, mode, target):
        return [in_c(launch) for launch in launches(self, node, mode, target)]

    def use(mode: int) -> None:
        monkeypatch.setattr(compiler, "target_of", lambda _: target)
        monkeypatch.setattr(MatmulWgmma, "launches", without_units)
        monkeypatch.setattr(MatmulWgmma, "default_mode", lambda *_: mode)
        only(monkeypatch, MatMul, MatmulWgmma())

    return use


@pytest.mark.parametrize(
    ("rows", "terms", "columns", "tile"),
    [
        (70, 136, 72, {"BM": 64, "BN": 64}),
        pytest.param(133, 104, 130, {"BM": 128, "BN": 128}, marks=pytest.mark.full),
        pytest.param(130, 456, 200, {"BM": 64, "BN": 192}, marks=pytest.mark.full),
    ],
)
def test_products_of_sizes_that_fit_no_tile(core, opencl, use_mode, rows, terms, columns, tile):
    wanted = {**tile, "SPLIT": 1}.items()
    use_mode(next(n for n, mode in enumerate(MatmulWgmma.modes) if wanted <= mode.items()))
    random = np.random.default_rng(rows)
    x, w, bias = (
        random.standard_normal(shape).astype("f2")
        for shape in ((rows, terms), (terms, columns), (columns,))
    )
    x[rows // 2] = np.nan  # which no other row may show
    s = graphs.Sketch()
    given = s.input("x", rows, terms, kind=ElementType.f16)
    y = s.add("y", MatMul(), given, s.const("w", w))
    network = s.network(out=s.add("relu", Relu(), s.add("z", Add(), y, s.const("b", bias))))
    executable = graphs.loaded(network, opencl, graphs.SparingBuilder(opencl), core)
    assert "gemm_wgmma" in executable.explain()
    right = x.astype("f8") @ w.astype("f8") + bias.astype("f8")
    right = np.where(right > 0, right, 0 * right)
    for _ in range(2):
        (found,) = executable.infer({"x": x}).values()
        np.testing.assert_allclose(found, right, 2e-3, 2e-2)
