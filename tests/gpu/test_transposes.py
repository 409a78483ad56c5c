"""Copies and pointwise operations that transpose: squares through local memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.transpose import Transpose
from polydevice_gpu.compiler import compiler
from polydevice_gpu.compiler.device_target import target_of
from tests.gpu import graphs
from tests.gpu.graphs import Sketch
from tests.gpu.trials import simulated

CASES = [
    ((33, 70), (1, 0)),
    ((2, 37, 5, 9), (0, 2, 3, 1)),
    ((2, 5, 9, 37), (0, 3, 1, 2)),
    ((35, 3, 40), (2, 1, 0)),
    ((3, 2, 64, 32), (1, 0, 3, 2)),
    ((17, 2, 3, 16), (3, 1, 2, 0)),
    ((2, 65, 2, 3, 20), (0, 4, 2, 3, 1)),
]
KINDS = [np.float32, np.float16, np.int32, np.uint8, np.int64]


@pytest.fixture(scope="module")
def builder(opencl):
    return graphs.SparingBuilder(opencl, threads=1)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: np.dtype(kind).name)
@pytest.mark.parametrize(("shape", "order"), CASES)
def test_transposes(monkeypatch, opencl, builder, shape, order, kind):
    # As on a device whose work-items run in lockstep and share fast memory.
    target = dataclasses.replace(
        target_of(opencl), scalar_lanes=32, local_memory_bytes=32768, max_work_group_size=1024
    )
    monkeypatch.setattr(compiler, "target_of", lambda _: target)
    random = np.random.default_rng(5)
    x = (random.standard_normal(shape) * 9).astype(kind)
    y = (random.standard_normal([shape[axis] for axis in order]) * 9).astype(kind)
    s = Sketch()
    a = s.input("a", *x.shape, kind=ElementType.of(x.dtype))
    b = s.input("b", *y.shape, kind=ElementType.of(y.dtype))
    turned = s.add("turned", Transpose(), a, s.const("order", np.array(order)))
    total = s.add("total", Add(), turned, b)
    network = s.network(copy=turned, total=s.add("relu", Relu(), total))
    with Core() as core:
        loaded = graphs.loaded(network, opencl, builder, core)
        names = {p.name for p in loaded.plan((x.shape, y.shape)).programs}
        in_squares = kind in (np.float32, np.float16, np.int32)
        assert any("elementwise_tiled" in name for name in names) == in_squares
        request = loaded.create_infer_request()
        for _ in range(1 if simulated() else 2):
            found = request.infer({"a": x, "b": y})
            np.testing.assert_array_equal(found["copy"], x.transpose(order))
            np.testing.assert_array_equal(found["total"], np.maximum(x.transpose(order) + y, 0))
