"""Windows as wide as an input of one channel: its columns are channels, and answers stay right."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from polydevice.ops.convolution import Convolution
from tests.cpu.loading import image, load
from tests.cpu.models import answer


def network(weights, *, size=(2, 1, 11, 12), opens=(), **attributes):
    """A convolution with a bias and an activation, and the largest result of each channel."""
    stored = {"w": weights, "b": image(1, len(weights))}
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv", **attributes),
        helper.make_node("Relu", ["y"], ["z"], "relu"),
        helper.make_node("ReduceMax", ["z"], ["m"], "most", axes=[2], keepdims=0),
    ]
    shape = [f"n{axis}" if axis in opens else size for axis, size in enumerate(size)]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "zm"],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    imports = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()


def planned(core, model, *sizes):
    """Shapes of the weights that are multiplied with, once the answers are right."""
    executable = load(core, model)
    request = executable.create_infer_request()
    for seed, size in enumerate((*sizes, *sizes)):
        x = image(seed, *size)
        got = request.infer({"x": x}).values()
        for ours, theirs in zip(got, answer(model, {"x": x}), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    nodes = executable.compiled.network.nodes()
    return [n.inputs[1].shape.static for n in nodes if isinstance(n.op, Convolution)]


@pytest.mark.parametrize(
    ("rows", "attributes"),
    [
        (1, {}),
        (3, {}),
        (4, {"strides": [2, 1]}),
        (3, {"strides": [3, 5], "pads": [2, 0, 1, 0]}),
        (2, {"dilations": [4, 1]}),
        (5, {"auto_pad": "VALID"}),
    ],
)
def test_columns_are_channels(core, rows, attributes):
    model = network(image(rows, 7, 1, rows, 12), **attributes)
    assert planned(core, model, (2, 1, 11, 12)) == [(7, 12, rows, 1)]


def test_rows_may_be_of_any_number(core):
    model = network(image(4, 7, 1, 3, 12), opens=(0, 2))
    sizes = [(2, 1, 11, 12), (1, 1, 5, 12), (3, 1, 3, 12), (1, 1, 40, 12)]
    assert planned(core, model, *sizes) == [(7, 12, 3, 1)]


@pytest.mark.parametrize(
    ("shape", "form"),
    [
        ((7, 1, 3, 12), {"pads": [0, 1, 0, 1], "strides": [1, 20]}),  # a border is seen there
        ((7, 1, 3, 12), {"auto_pad": "SAME_UPPER"}),
        ((7, 1, 3, 11), {}),
        ((7, 1, 3, 5), {"size": (2, 1, 11, 5)}),
        ((7, 2, 3, 12), {"size": (2, 2, 11, 12)}),
        ((7, 1, 3, 12), {"opens": (3,)}),
    ],
)
def test_other_windows_stay(core, shape, form):
    model = network(image(6, *shape), **form)
    assert planned(core, model, form.get("size", (2, 1, 11, 12))) == [shape]
