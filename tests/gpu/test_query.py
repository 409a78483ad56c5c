"""What the GPU plugin says it can run, before it loads anything."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.io import Parameter, Result
from polydevice.ops.matmul import MatMul
from polydevice.ops.slice import Slice, SliceScatter
from polydevice.shape import Dim, Shape
from polydevice_gpu.kernels.kernel import _TABLE


def lines_of_height(height: int) -> Network:
    """Rows of any length, each column `height` numbers that a matrix takes."""
    sizes = Shape([Dim(1, None), Dim(1, None), Dim(1, None)])
    x = Node("x", Parameter(element_type=ElementType.f32, shape=sizes))
    weights = constant("w", np.ones((height, 3), np.float32))
    product = Node("product", MatMul(transpose_a=True), [x.output, weights.output])
    return Network("lines", [x], [Node("out", Result(), [product.output])])


def test_sizes_of_dynamic_inputs_are_found(opencl) -> None:
    with Core() as core:
        found = core.query_network(lines_of_height(48), "GPU")
        assert set(found) >= {"x", "product"}


def test_sizes_that_are_not_found(opencl) -> None:
    with Core() as core:
        with pytest.raises(UnsupportedNetworkError, match=r"no sizes.*network.reshape\(\)"):
            core.query_network(lines_of_height(47), "GPU")
        network = lines_of_height(47)
        network.reshape({"x": [2, 47, 5]})
        assert "product" in core.query_network(network, "GPU")


def scattered(rank: int | None) -> Network:
    """A layer that no kernel takes, behind an input of dynamic sizes."""
    shape = None if rank is None else Shape([Dim()] * rank)
    x = Node("x", Parameter(element_type=ElementType.f32, shape=shape))
    limits = [constant(name, np.array([v])).output for name, v in (("a", 0), ("b", 1), ("c", 1))]
    half = Node("half", Multiply(), [x.output, constant("h", np.float32(0.5)).output])
    axes = constant("axes", np.array([0])).output
    part = Node("part", Slice(), [half.output, *limits, axes])
    made = Node("unsupported", SliceScatter(), [half.output, part.output, *limits, axes])
    return Network("scattered", [x], [Node("out", Result(), [made.output])])


@pytest.fixture
def no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """SliceScatter stands for any operation without a kernel, also once it has one."""
    monkeypatch.setitem(_TABLE, SliceScatter, [])


@pytest.mark.usefixtures("no_kernel")
@pytest.mark.parametrize("rank", [2, None])
def test_what_no_kernel_takes_is_refused_at_load(opencl, rank: int | None) -> None:
    """Not at the first inference, though only that brings the sizes."""
    network = scattered(rank)
    with Core() as core:
        with pytest.raises(UnsupportedNetworkError, match="unsupported: no GPU kernel for Slice"):
            core.load_network(network, "GPU")
        assert "unsupported" not in core.query_network(network, "GPU")
        mixed = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(mixed.infer({"x": x})["unsupported"], x / 2)


def test_an_input_of_unknown_rank_can_be_loaded(opencl) -> None:
    x = Node("x", Parameter(element_type=ElementType.f32, shape=None))
    half = Node("half", Multiply(), [x.output, constant("h", np.float32(0.5)).output])
    network = Network("half", [x], [Node("out", Result(), [half.output])])
    with Core() as core:
        assert "half" in core.query_network(network, "GPU")
        request = core.load_network(network, "GPU").create_infer_request()
        for shape in [(2, 3), (4,), (), (1, 2, 3, 4)]:
            data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
            np.testing.assert_array_equal(request.infer({"x": data})["half"], data / 2)
