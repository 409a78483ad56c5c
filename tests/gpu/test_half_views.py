"""Views in networks that are stored as f16: what enters and leaves stays f32."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.dtype import ElementType
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.activation import Relu
from polydevice.ops.io import Parameter, Result
from polydevice.ops.reshape import Reshape
from polydevice.ops.transpose import Transpose
from polydevice.shape import Shape


@pytest.mark.usefixtures("needs_gpu")
def test_views_of_inputs_and_views_that_are_outputs() -> None:
    x = Node("x", Parameter(element_type=ElementType.f32, shape=Shape((2, 3, 4, 5))))
    order = constant("order", np.array([0, 2, 3, 1]))
    turned = Node("turned", Transpose(), [x.output, order.output])
    relu = Node("relu", Relu(), [turned.output])
    shape = constant("shape", np.array([2, 60]))
    flat = Node("flat", Reshape(special_zero=False), [relu.output, shape.output])
    results = [Node(f"out{i}", Result(), [n.output]) for i, n in enumerate((turned, flat))]
    given = np.random.default_rng().standard_normal((2, 3, 4, 5)).astype(np.float32)
    with Core() as core:
        config = {"INFERENCE_PRECISION_HINT": "f16"}
        executable = core.load_network(Network("views", [x], results), "GPU", config)
        found = executable.infer({"x": given})
    wanted = given.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(found["turned"], wanted)
    relu_wanted = np.maximum(wanted, 0).reshape(2, 60)
    # Half precision keeps 11 bits: 2^-11 of the value.
    np.testing.assert_allclose(found["flat"], relu_wanted, rtol=2**-11, atol=1e-7)
