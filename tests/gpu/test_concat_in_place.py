"""Which concatenations cost nothing, and that they are right: OpenVINO is the judge."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice import Core
from polydevice.ops.activation import Relu
from polydevice.ops.arithmetic import Add
from polydevice.ops.concat import Concat
from polydevice.ops.math import Negative
from polydevice.ops.pooling import AvgPool
from polydevice.ops.reshape import Reshape
from polydevice.ops.search import Unique
from polydevice.ops.split import Split
from polydevice.ops.transpose import Transpose
from tests.gpu.graphs import (
    Sketch,
    SparingBuilder,
    check_answers,
    compiled,
    launching,
    openvino_answers,
    random_inputs,
)

NHWC = np.array([0, 2, 3, 1])


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


def copies(network) -> int:
    """How many launches the concatenations of a network make."""
    graph = compiled(network)
    kinds = {node.name: node for node in graph.nodes}
    counts = launching(graph)
    return sum(count for name, count in counts.items() if isinstance(kinds[name].op, Concat))


def test_concatenations_inside_others_move_along(opencl, builder):
    s = Sketch()
    x = s.input("x", 1, 8, 6, 5)
    a, b, c = s.conv("a", x, 8), s.conv("b", x, 16), s.conv("c", x, 8)
    inner = s.add("inner", Concat(axis=1), a, b)
    middle = s.add("middle", Concat(axis=1), inner, s.conv("d", inner, 8, 1))
    outer = s.add("outer", Concat(axis=1), c, middle)
    network = s.network(y=s.conv("last", outer, 8, 1))
    assert copies(network) == 0
    graph = compiled(network)
    for name in ("inner", "middle", "outer"):
        assert graph.fates[name].status == "OPTIMIZED_OUT"
    check_answers(network, opencl, builder)


def test_every_prefix_of_a_dense_block_is_a_view_of_the_whole(opencl, builder):
    s = Sketch()
    features = [s.input("x", 1, 8, 5, 5)]
    features = [s.conv("first", features[0], 8)]
    for number in range(4):
        joined = s.add(f"join{number}", Concat(axis=1), *features)
        features.append(s.add(f"relu{number}", Relu(), s.conv(f"conv{number}", joined, 8)))
    y = s.conv("last", s.add("all", Concat(axis=1), *features), 8, 1)
    network = s.network(y=y)
    assert copies(network) == 0
    check_answers(network, opencl, builder)


@pytest.mark.parametrize("batch", [1, 2])
def test_heads_of_a_detector_are_computed_into_the_list_of_boxes(opencl, builder, batch):
    s = Sketch()
    x = s.input("x", batch, 8, 6, 4)
    heads = []
    for number in range(2):
        if number:
            x = s.add("half", AvgPool(kernel=(2, 2), strides=(2, 2)), x)
        box = s.conv(f"head{number}", x, 12)
        box = s.add(f"turn{number}", Transpose(), box, s.const(f"order{number}", NHWC))
        shape = np.array([batch, -1, 4])
        heads.append(s.add(f"flat{number}", Reshape(), box, s.const(f"shape{number}", shape)))
    network = s.network(y=s.add("boxes", Concat(axis=1), *heads))
    assert copies(network) == 0
    check_answers(network, opencl, builder)


def test_a_value_concatenated_twice_is_computed_once_and_copied_once(opencl, builder):
    s = Sketch()
    a = s.conv("a", s.input("x", 2, 4, 5, 5), 8)
    network = s.network(y=s.conv("last", s.add("twice", Concat(axis=1), a, a), 8, 1))
    assert copies(network) == 1
    check_answers(network, opencl, builder)


def test_a_value_of_two_concatenations_is_copied_into_one(opencl, builder):
    s = Sketch()
    x = s.input("x", 1, 8, 4, 3)
    a, b = s.conv("a", x, 8), s.conv("b", x, 8)
    first = s.add("first", Concat(axis=1), a, b)
    second = s.add("second", Concat(axis=1), b, a)
    network = s.network(y=s.add("sum", Add(), s.conv("c", first, 8), s.conv("d", second, 8)))
    assert copies(network) == 2
    check_answers(network, opencl, builder)


def test_what_an_inner_and_an_outer_concatenation_share_is_right(opencl, builder):
    s = Sketch()
    x = s.input("x", 1, 8, 4, 3)
    a, b = s.conv("a", x, 8), s.conv("b", x, 8)
    inner = s.add("inner", Concat(axis=1), b, a)
    outer = s.add("outer", Concat(axis=1), a, inner)
    network = s.network(y=s.conv("last", outer, 8), inner=s.conv("also", inner, 4))
    check_answers(network, opencl, builder)


def test_inputs_constants_outputs_and_parts_are_copied(opencl, builder):
    s = Sketch()
    x = s.input("x", 1, 8, 4, 3)
    a = s.conv("a", x, 8)
    half = s.node("half", Split(num_splits=2), s.conv("b", x, 8), s.const("axis", np.array(1)))
    inner = s.add("inner", Concat(axis=1), a, s.conv("c", x, 4))
    joined = s.add("join", Concat(axis=1), x, inner, half.outputs[1], s.weights("k", 1, 4, 4, 3))
    network = s.network(y=s.conv("last", joined, 8), a=a, inner=inner, joined=joined)
    check_answers(network, opencl, builder)


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_every_axis(opencl, builder, axis):
    s = Sketch()
    x = s.input("x", 2, 8, 4, 3)
    parts = [s.conv(f"c{n}", x, 8) for n in range(3)]
    joined = s.add("join", Concat(axis=axis), *parts)
    y = s.add("again", Concat(axis=axis), joined, s.add("relu", Relu(), joined))
    network = s.network(y=s.add("pool", AvgPool(kernel=(2, 2), strides=(1, 1)), y))
    check_answers(network, opencl, builder)


def test_columns_are_written_with_gaps_for_the_others_between(opencl, builder):
    """No vector of neighbours may be stored there."""
    s = Sketch()
    x = s.input("x", 2, 16, 1)
    parts = s.add("a", Relu(), x), s.add("b", Negative(), x)
    network = s.network(y=s.add("join", Concat(axis=2), *parts))
    assert copies(network) == 0
    check_answers(network, opencl, builder)


def test_a_planar_concatenation_keeps_kernels_that_read_channels_in_vectors_right(opencl, builder):
    s = Sketch()
    x = s.input("x", 1, 16, 9, 8)
    small = s.conv("small", x, 8)  # channels side by side
    pooled = s.add("pool", AvgPool(kernel=(3, 3), strides=(1, 1)), small)
    large = s.add("large", Add(), x, s.weights("w", 1, 16, 9, 8))  # planar, and the example
    network = s.network(y=s.add("join", Concat(axis=1), large, small), pooled=pooled)
    check_answers(network, opencl, builder)


def test_what_the_host_reads_too_stays_where_it_lies_side_by_side(needs_gpu):
    s = Sketch()
    x = s.input("x", 2, 8, 4, 3)
    a, b = s.add("a", Relu(), x), s.add("b", Negative(), x)
    ranks = s.node("ranks", Unique(), a).outputs[2]
    y = s.add("pool", AvgPool(kernel=(2, 2), strides=(1, 1)), s.add("join", Concat(axis=1), a, b))
    network = s.network(y=y, ranks=ranks)
    inputs = random_inputs(network)
    with Core() as core:
        outputs = core.load_network(network, "GPU").infer(inputs)
    for name, answer in openvino_answers(network, inputs).items():
        np.testing.assert_allclose(outputs[name], answer, 1e-5, 1e-6, err_msg=name)
