"""What the GPU plugin says it can run, before it loads anything."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.errors import UnsupportedNetworkError
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.io import Parameter, Result
from polydevice.ops.matmul import MatMul
from polydevice.shape import Dim, Shape


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
