"""What is chosen without tuning where a wrong choice was measured to take twice the time."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from polydevice.ops.arithmetic import Multiply
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.pooling import MaxPool
from polydevice.ops.topk import TopK, TopKMode, TopKSort
from polydevice.ops.transpose import Transpose
from polydevice_gpu.kernels.target import Target
from tests.gpu.graphs import Sketch, compiled

GPU = Target(
    scalar_lanes=32, compute_units=132, local_memory_bytes=49152, max_work_group_size=1024,
    vector_width=4,
)  # fmt: skip
CORES = Target(vector_width=16, compute_units=2)


def _choice(network, op, target=GPU):
    nodes = [
        n for n in compiled(network, **dataclasses.asdict(target)).nodes if isinstance(n.op, op)
    ]
    choice = nodes[-1].choice
    return choice.kernel.name, choice.kernel.modes[choice.mode]


@pytest.mark.parametrize(
    ("shape", "wanted", "name"),
    [
        ((100_000, 80), 1, "topk_heap"),  # 34 µs; 1,869 in groups
        ((1000, 100), 5, "topk_group"),  # 28 µs; 63 in heaps
        ((1, 8400), 100, "topk_group"),  # 296 µs; 1,226
        ((300, 3000), 1000, "topk_group"),  # 0.12 ms; 14.5
    ],
)
def test_topk(shape, wanted, name):
    s = Sketch()
    op = TopK(axis=1, mode=TopKMode.MAX, sort=TopKSort.VALUE)
    y = s.add("y", op, s.input("x", *shape), s.const("k", np.array(wanted)))
    assert _choice(s.network(y=y), TopK)[0] == name


@pytest.mark.parametrize(
    ("channels", "width"), [(8, 8), (104, 8), (200, 8), (48, 16), (1000, 16), (3, 1)]
)
def test_vectors_of_pointwise_layers_fit_the_channels(channels, width):
    """8 channels in vectors of 16 would go one by one: 32 µs instead of 1.5."""
    s = Sketch()
    x = s.input("x", 2, 12, 96, channels)
    image = s.add("image", Transpose(), x, s.const("order", np.array([0, 3, 1, 2])))
    y = s.add("y", Multiply(), image, s.input("scale", 2, channels, 1, 1))
    back = s.add("back", Transpose(), y, s.const("last", np.array([0, 2, 3, 1])))
    graph = compiled(s.network(y=back), **dataclasses.asdict(CORES))
    node = next(n for n in graph.nodes if n.choice and len(n.inputs) == 2)
    assert node.choice.kernel.modes[node.choice.mode]["WIDTH"] == width


@pytest.mark.parametrize(("size", "width"), [(112, 8), (13, 4)])
def test_vectors_of_pooling(size, width):
    s = Sketch()
    x = s.input("x", 1, size, size, 64)
    image = s.add("image", Transpose(), x, s.const("order", np.array([0, 3, 1, 2])))
    op = MaxPool(kernel=(3, 3), strides=(2, 2), pads_begin=(1, 1), pads_end=(1, 1))
    name, mode = _choice(s.network(y=s.add("y", op, image)), MaxPool)
    assert (name, mode) == ("pooling_vector", {"WIDTH": width})


@pytest.mark.parametrize("terms", [8, 0])
def test_products_of_no_terms_read_no_tile(terms):
    """A tile's first step would be read from weights without elements; they are zeros at load."""
    s = Sketch()
    weights = s.const("w", np.ones((terms, 16), "f4"))
    network = s.network(y=s.add("y", MatMul(), s.input("x", 9, terms), weights))
    if terms:
        assert _choice(network, MatMul)[0] == "gemm_tiled"
    else:
        graph = compiled(network, **dataclasses.asdict(GPU))
        assert not any(isinstance(node.op, MatMul) for node in graph.nodes)


@pytest.mark.parametrize(
    ("queries", "keys", "rows", "parts"), [(1, 4096, 8, 16), (4096, 4096, 64, 1)]
)
def test_keys_of_few_queries_are_cut_into_parts(queries, keys, rows, parts):
    """Eight heads alone would occupy eight of 132 processors."""
    s = Sketch()
    inputs = (s.input(name, 1, 8, n, 64) for name, n in zip("qkv", (queries, keys, keys)))
    y = s.add("y", ScaledDotProductAttention(), *inputs)
    name, mode = _choice(s.network(y=y), ScaledDotProductAttention)
    assert (name, mode) == ("attention_tiled", {"BM": rows, "BN": 32, "SPLIT": parts})


@pytest.mark.parametrize(
    ("rows", "columns", "terms", "target", "is_few"),
    [
        (1, 512, 128, GPU, True),
        (4, 2112, 128, GPU, True),
        (5, 512, 128, GPU, False),
        (1, 2113, 128, GPU, False),
        (1, 512, 1024, GPU, True),
        (1, 512, 1025, GPU, False),  # more than 2 MiB
        (1, 512, 128, dataclasses.replace(GPU, sizes_vary=True), False),
        (1, 512, 128, CORES, False),
    ],
)
def test_products_of_few_rows(rows, columns, terms, target, is_few):
    """A tile of rows would be mostly empty, and few work-groups would take all the terms."""
    s = Sketch()
    weights = s.const("w", np.ones((terms, columns), "f4"))
    network = s.network(y=s.add("y", MatMul(), s.input("x", rows, terms), weights))
    assert (_choice(network, MatMul, target)[0] == "few_rows") is is_few


@pytest.mark.parametrize(("pixels", "is_few"), [(4, True), (5, False)])
def test_convolutions_of_few_pixels(pixels, is_few):
    s = Sketch()
    weights = s.const("w", np.ones((258, 1, 256), "f4"))
    op = Convolution(strides=(128,), pads_begin=(0,), pads_end=(0,), dilations=(1,))
    x = s.input("x", 1, 1, 128 * (pixels + 1))
    assert (
        _choice(s.network(y=s.add("y", op, x, weights)), Convolution)[0] == "few_rows"
    ) is is_few
