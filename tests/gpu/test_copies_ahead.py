"""Products copy further ahead where a processor has few work-groups, which then find more room."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from polydevice.ops.matmul import MatMul
from polydevice_gpu.cl.programs.warp_groups import DECLARED_LOCAL_BYTES
from polydevice_gpu.kernels.gemm.gemm_wgmma import MatmulWgmma
from tests.gpu.graphs import Sketch, compiled
from tests.gpu.test_default_choices import GPU

HOPPER = dataclasses.replace(GPU, matrix_unit=True, async_copy=True, warp_group_unit=True)


def _node(rows):
    s = Sketch()
    weights = s.const("w", np.ones((768, 768), "f4"))
    network = s.network(y=s.add("y", MatMul(), s.input("x", rows, 768), weights))
    graph = compiled(network, **dataclasses.asdict(HOPPER))
    (node,) = (node for node in graph.nodes if isinstance(node.op, MatMul))
    return node


def _stages(rows, mode):
    (launch,) = MatmulWgmma().launches(_node(rows), mode, HOPPER)
    return int(re.search(r"#define STAGES (\d+)\n", launch.text)[1])


@pytest.mark.parametrize(("rows", "times"), [(128, 2), (64 * 22, 2), (64 * 23, 1), (64 * 264, 1)])
def test_stages(rows, times):
    mode = next(m for m in MatmulWgmma.modes if (m["BM"], m["BN"], m["SPLIT"]) == (64, 64, 1))
    assert _stages(rows, mode) == times * mode["STAGES"]


def test_two_work_groups_share_a_processor():
    # gemm_wgmma.cl: a stage holds BM rows and BN columns of BK terms, 2 bytes each.
    for mode in MatmulWgmma.modes:
        stage = (mode["BM"] + mode["BN"]) * mode["BK"] * 2
        groups = 1 if mode.get("LATE") else 2
        assert groups * _stages(64, mode) * stage <= DECLARED_LOCAL_BYTES
        if mode["TALL"] == 2:
            assert _stages(64, mode) == mode["STAGES"]
