"""Sums of convolutions of one value are one launch, for known and for new shapes."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from tests.cpu import models
from tests.cpu.loading import image
from tests.gpu.graphs import Sketch, SparingBuilder, check_answers, compiled


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


def test_branches_are_one_layer(opencl, builder):
    s = Sketch()
    x = s.input("x", 2, 6, 5, 7)
    total = s.add("sum", Add(), s.conv("wide", x, 6), s.conv("narrow", x, 6, 1))
    network = s.network(y=s.add("relu", Relu(), s.add("residual", Add(), x, total)))
    graph = compiled(network)
    (node,) = graph.nodes
    assert node.op.type == "Convolution"
    assert node.origins[0] in ("wide", "narrow")
    assert sorted(node.origins) == ["narrow", "relu", "residual", "sum", "wide"]
    check_answers(network, opencl, builder)


def test_branches_of_any_size():
    """The weights are added once, and every layer is told of whatever shape comes."""
    weights = {"w": image(0, 6, 1, 3, 3), "v": image(1, 6, 1, 1, 1), "b": image(2, 6)}
    norm = {name: image(3, 6) for name in ("gamma", "beta", "mean")}
    weights |= norm | {"variance": np.abs(image(4, 6)) + np.float32(0.2)}
    nodes = [
        ("Conv", ["x", "w", "b"], ["wide"], {"group": 6, "pads": [1] * 4}),
        ("Conv", ["x", "v"], ["narrow"], {"group": 6}),
        ("BatchNormalization", ["x", *norm, "variance"], ["itself"], {}),
        ("Add", ["wide", "narrow"], ["sum"], {}),
        ("Add", ["sum", "itself"], ["y"], {}),
    ]
    model = models.build(nodes, {"x": ["n", 6, "h", "w"]}, ["y"], weights)
    with Core() as core:
        network = core.read_network(model)
        layers = {node.name for node in network.nodes() if node.type not in ("Const", "Result")}
        request = core.load_network(network, "GPU", {"PERF_COUNT": "YES"}).create_infer_request()
        for number in range(4):
            x = image(number, 1 + number, 6, 5 + number, 8)
            (want,) = models.answer(model, {"x": x})
            np.testing.assert_allclose(request.infer({"x": x})["y"], want, rtol=1e-4, atol=1e-5)
            counts = request.get_perf_counts()
            ran = [name for name, count in counts.items() if count["status"] == "EXECUTED"]
            assert len(ran) == 1
            assert layers <= set(counts)
