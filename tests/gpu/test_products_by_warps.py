"""Products whose terms are shared by the warps of a group, their instructions done in OpenCL C.

The units run on few machines; which element is in which register is published (PTX ISA, "Matrix
fragments for mma.m16n8k16"), and is done here by exchanging registers through local memory.
"""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.arithmetic import Add
from polydevice.ops.matmul import MatMul
from polydevice_gpu import cl
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.kernels.product.gemm_warps import MatmulWarps
from tests.gpu import graphs
from tests.gpu.trials import only

KERNEL = "KERNEL(gemm_warps) {"
DONE_IN_C = """
#undef READ
#undef MULTIPLY
#define READ(to, from, kind) to = inside ? vload4(0, (__global const uint*)(from)) : (uint4)(0);
#define PLACE(register) (exchange + (warp * 32 + (register) / 8) * 6 + (register) % 8)
#define HALF(register, number) vload_half((number) & 1, (__local half*)PLACE(register))
#define MULTIPLY(c, a0, a1, a2, a3, b0, b1) \\
    { \\
        const uint own[6] = {a0, a1, a2, a3, b0, b1}; \\
        for (int r = 0; r < 6; r++) exchange[thread * 6 + r] = own[r]; \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
        for (int o = 0; o < 4; o++) \\
            for (int k = 0; k < 16; k++) { \\
                const int m = (lane >> 2) + (o >> 1) * 8, n = (lane & 3) * 2 + (o & 1); \\
                const int a = ((m & 7) * 4 + (k & 7) / 2) * 8 + (m >> 3) + 2 * (k >> 3); \\
                const int b = (n * 4 + (k & 7) / 2) * 8 + 4 + (k >> 3); \\
                c[o] += HALF(a, k) * HALF(b, k); \\
            } \\
        barrier(CLK_LOCAL_MEM_FENCE); \\
    }
"""


@pytest.fixture
def in_c(monkeypatch, opencl):
    """Let products of few rows run here, in a given mode."""
    compiler = importlib.import_module("polydevice_gpu.compiler.compiler")
    target = dataclasses.replace(target_of(opencl), matrix_unit=True)
    launches = MatmulWarps.launches

    def without_units(self, node, mode, target):
        threads = self.threads(mode)
        return [
            dataclasses.replace(
                launch,
                text=launch.text.replace(
                    KERNEL, f"{DONE_IN_C}{KERNEL}\n__local uint exchange[{threads} * 6];"
                ),
            )
            for launch in launches(self, node, mode, target)
        ]

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
def test_every_warp_takes_its_terms(core, opencl, in_c, rows, columns, terms, width):
    mode = next(i for i, mode in enumerate(MatmulWarps.modes) if mode["BN"] == width)
    in_c(mode)
    random = np.random.default_rng(rows)
    x, w = random.standard_normal((rows, terms)), random.standard_normal((terms, columns))
    x, w, bias = (a.astype("f2") for a in (x, w, random.standard_normal(columns)))
    x[rows // 2] = np.nan  # which no other row may show
    s = graphs.Sketch()
    given = s.input("x", rows, terms, kind=ElementType.f16)
    y = s.add("y", MatMul(), given, s.const("w", w))
    network = s.network(out=s.add("z", Add(), y, s.const("b", bias)))
    executable = graphs.loaded(network, opencl, cl.ProgramBuilder(opencl), core)
    assert "gemm_warps" in executable.explain()
    right = x.astype("f8") @ w.astype("f8") + bias.astype("f8")
    for _ in range(2):
        (found,) = executable.infer({"x": x}).values()
        np.testing.assert_allclose(found, right, 2e-3, 2e-2)
