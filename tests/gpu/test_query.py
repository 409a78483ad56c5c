"""What the GPU plugin says it can run, before it loads anything."""

from __future__ import annotations

from collections.abc import Sequence

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
from polydevice.ops.op import Op, operation
from polydevice.ops.reduce import ReduceMean
from polydevice.shape import Dim, Shape
from polydevice.tensor import TensorDesc
from polydevice_cpu.implement import implements


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


@operation("Unheard", domain="tests.gpu.test_query")
class Unheard(Op):
    """An operation that the CPU has and no kernel of the GPU takes."""

    def infer(self, inputs: Sequence[TensorDesc]) -> list[TensorDesc]:
        """Return the input."""
        return [inputs[0].without_value()]


@implements(Unheard)
def unheard(_: Unheard, x: np.ndarray) -> np.ndarray:
    return x + 1


@pytest.mark.parametrize("rank", [2, None])
def test_what_no_kernel_takes_is_refused_at_load(opencl, rank: int | None) -> None:
    """Not at the first inference, though only that brings the sizes."""
    shape = None if rank is None else Shape([Dim()] * rank)
    x = Node("x", Parameter(element_type=ElementType.f32, shape=shape))
    half = Node("half", Multiply(), [x.output, constant("h", np.float32(0.5)).output])
    made = Node("more", Unheard(), [half.output])
    network = Network("unheard", [x], [Node("out", Result(), [made.output])])
    with Core() as core:
        with pytest.raises(UnsupportedNetworkError, match="'more': no GPU kernel for Unheard"):
            core.load_network(network, "GPU")
        found = core.query_network(network, "GPU")
        assert "half" in found and "more" not in found
        mixed = core.load_network(network, "HETERO:GPU,CPU").create_infer_request()
        data = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(mixed.infer({"x": data})["more"], data / 2 + 1)


def test_what_no_kernel_takes_is_refused_also_where_the_host_reads_it(opencl) -> None:
    x = Node("x", Parameter(element_type=ElementType.f32, shape=Shape([2, 3])))
    axes = Node("axes", Parameter(element_type=ElementType.i64, shape=Shape([1])))
    made = Node("made", Unheard(), [axes.output])
    mean = Node("mean", ReduceMean(keep_dims=True), [x.output, made.output])
    network = Network("unheard axes", [x, axes], [Node("out", Result(), [mean.output])])
    with Core() as core, pytest.raises(UnsupportedNetworkError, match="Unheard"):
        core.load_network(network, "GPU")


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
