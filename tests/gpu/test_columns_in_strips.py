"""Large products in half: how their columns lie to be copied in bulk, and when they are chosen.

The units run on few machines; how they read local memory is published (PTX ISA, "Shared memory
matrix layout", swizzle of 128 bytes), and is done here byte by byte.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.matmul import MatMul
from polydevice_gpu.kernels.gemm.gemm_fed import MatmulFed, in_strips
from tests.gpu.graphs import Sketch, compiled
from tests.gpu.test_copies_ahead import HOPPER


@pytest.mark.parametrize(("columns", "terms"), [(64, 64), (256, 192)])
def test_local_memory_holds_a_step_of_64_columns_swizzled(columns, terms):
    random = np.random.default_rng(columns)
    matrix = random.standard_normal((columns, terms)).astype("f2")
    memory = in_strips(matrix).reshape(columns // 64, terms // 64, 64 * 64)
    for column, term in random.integers(0, (columns, terms), (500, 2)):
        at = column % 64 * 128 + term % 64 * 2
        at ^= (at >> 7 & 7) << 4  # bits 4-6 are exchanged by bits 7-9
        assert memory[column // 64, term // 64, at // 2] == matrix[column, term]


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "is_fed"),
    [(16896, 256, 2048, True), (4096, 768, 768, False), (300, 390, 264, False)],
)
def test_products_are_fed_where_that_is_expected_to_take_less_time(rows, columns, terms, is_fed):
    s = Sketch()
    x = s.input("x", rows, terms, kind=ElementType.f16)
    y = s.add("y", MatMul(), x, s.const("w", np.ones((terms, columns), "f2")))
    graph = compiled(s.network(y=y), **dataclasses.asdict(HOPPER))
    (choice,) = (node.choice for node in graph.nodes if isinstance(node.op, MatMul))
    assert (choice.kernel.name == MatmulFed.name) == is_fed
