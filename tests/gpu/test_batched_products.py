"""Products of two variables in local memory: what feeds them, what they fuse, who gets them."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.matmul import MatMul
from polydevice.ops.slice import Slice
from polydevice.ops.transpose import Transpose
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.views import is_view
from tests.gpu.graphs import Sketch, SparingBuilder, compiled, loaded, random_inputs

GPU = {"local_memory_bytes": 32768, "scalar_lanes": 32}


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


def product(a=(2, 3, 7, 9), b=(2, 3, 9, 13), **settings):
    s = Sketch()
    return s.network(y=s.add("product", MatMul(**settings), s.input("a", *a), s.input("b", *b)))


def choice(network, **target):
    """The kernel of the product and its tile."""
    node = next(n for n in compiled(network, **target).nodes if n.name == "product")
    mode = node.choice.kernel.modes[node.choice.mode]
    return node.choice.kernel.name, (mode.get("BM"), mode.get("BN"))


def test_devices_without_local_memory_keep_vectors():
    assert choice(product())[0] == "matmul_vector"
    assert choice(product(), **GPU)[0] == "batched_tiled"


def test_products_that_would_leave_a_tile_empty_keep_vectors():
    assert choice(product((50, 3, 7), (50, 7, 9)), **GPU)[0] == "matmul_vector"
    assert choice(product((50, 1, 7), (50, 7, 1)), **GPU)[0] == "matmul_ref"


@pytest.mark.parametrize(
    ("m", "n", "batch", "units", "tile"),
    [
        (1, 900, 12, 4, (16, 64)),
        (900, 5, 12, 4, (64, 16)),
        (1024, 1024, 16, 4, (128, 128)),
        (64, 64, 40, 80, (32, 64)),
    ],
)
def test_tiles_follow_the_sizes(m, n, batch, units, tile):
    network = product((batch, m, 64), (batch, n, 64), transpose_b=True)
    found = choice(network, compute_units=units, max_work_group_size=1024, **GPU)
    assert found == ("batched_tiled", tile)


@pytest.mark.parametrize("transposed", [False, True])
def test_lanes_read_columns_only_where_they_lie_side_by_side(transposed):
    network = product((4, 70, 64), (4, 64, 64), transpose_b=transposed)
    target = {**GPU, "sub_group_sizes": (16, 32), "max_work_group_size": 256}
    node = next(n for n in compiled(network, **target).nodes if n.name == "product")
    passed = node.choice.passed.get("batched_subgroup", "")
    assert ("do not lie side by side" in passed) == transposed


def test_a_tile_fits_the_work_group_and_the_local_memory():
    network = product((16, 1024, 64), (16, 64, 1024))
    small = {"local_memory_bytes": 16384, "scalar_lanes": 32, "compute_units": 4}
    assert choice(network, max_work_group_size=256, **small)[1] == (64, 64)
    assert choice(network, max_work_group_size=128, **small)[1] == (32, 64)


@pytest.mark.parametrize("kind", [ElementType.f32, ElementType.f16], ids=str)
def test_views_are_read_where_they_lie_and_what_follows_is_fused(
    monkeypatch, opencl, builder, kind
):
    s = Sketch()
    a, b = s.input("a", 2, 37, 3, 19, kind=kind), s.input("b", 1, 3, 45, 43, kind=kind)
    turned = s.add("turned", Transpose(), a, s.const("order", np.array([0, 2, 1, 3])))
    limits = [s.const(f"l{i}", np.array([v])) for i, v in enumerate((3, 41, 2, 3))]
    cut = s.add("cut", Slice(), b, *limits)  # every second of 38, begun within a row
    y = s.add("product", MatMul(transpose_b=True), turned, cut)
    bias, more = s.input("bias", 45, kind=kind), s.input("more", 2, 3, 37, 45, kind=kind)
    y = s.add("sum", Add(), s.add("biased", Add(), y, bias), more)
    network = s.network(y=s.add("relu", Relu(), y))
    given = random_inputs(network)
    given = {name: array.astype(kind.dtype) for name, array in given.items()}

    target = dataclasses.replace(
        target_of(opencl), local_memory_bytes=32768, max_work_group_size=1024
    )
    monkeypatch.setattr(
        importlib.import_module("polydevice_gpu.compiler.compiler"), "target_of", lambda _: target
    )
    executable = loaded(network, opencl, builder)
    assert "batched_tiled" in executable.explain()
    *before, node = compiled(network, **GPU).nodes
    assert all(is_view(n) for n in before), before
    assert node.origins == ["product", "biased", "sum", "relu"]
    request = executable.create_infer_request()
    wide = {name: array.astype("f8") for name, array in given.items()}
    left, right = wide["a"].transpose(0, 2, 1, 3), wide["b"][..., 3:41:2]
    answer = np.maximum(left @ right.swapaxes(-1, -2) + wide["bias"] + wide["more"], 0)
    tolerance = 1e-5 if kind is ElementType.f32 else 2e-2
    for _ in range(2):
        found = request.infer(given)["y"]
        np.testing.assert_allclose(found.astype("f8"), answer, tolerance, tolerance)
