"""Pointwise layers join what computes their input although views or concatenations lie between."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polydevice.dtype import ElementType
from polydevice.ops.activation import Gelu, PRelu, Relu, Sigmoid
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.blocks import DepthMode, DepthToSpace
from polydevice.ops.concat import Concat
from polydevice.ops.convert import Convert
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.split import Split
from polydevice.ops.transpose import Transpose
from polydevice_gpu.passes.fusing.fuse_beyond_views import _shape_before
from tests.gpu.graphs import Sketch, SparingBuilder, check_answers, compiled, launching


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


def _squeezed(s: Sketch, x, name: str):
    """A one-dimensional convolution as ONNX exporters of TensorFlow and JAX write it."""
    tall = s.add(f"{name}/tall", Unsqueeze(), x, s.const(f"{name}/axis", np.array([2])))
    y = s.conv(name, tall, 8, 1)
    return s.add(f"{name}/flat", Squeeze(), y, s.const(f"{name}/axis2", np.array([2])))


def test_what_follows_the_squeeze_of_a_one_dimensional_convolution(opencl, builder):
    s = Sketch()
    y = _squeezed(s, s.input("x", 2, 6, 12), "conv")
    y = s.add("bias", Add(), y, s.weights("b", 1, 8, 1))
    y = s.add("prelu", PRelu(), y, s.weights("slope", 8))
    y = s.add("swish", Multiply(), y, s.add("sigmoid", Sigmoid(), y))
    y = s.add("per column", Multiply(), s.weights("columns", 12), y)
    network = s.network(y=s.add("pooled", Add(), y, s.weights("whole", 2, 8, 12)))
    graph = compiled(network)
    conv = next(node for node in graph.nodes if node.name == "conv")
    assert conv.origins[1:] == ["bias", "prelu", "sigmoid", "swish", "per column", "pooled"]
    check_answers(network, opencl, builder)


def test_turned_joined_and_cut_axes(opencl, builder):
    s = Sketch()
    y = s.conv("conv", s.input("x", 2, 3, 4, 5), 6)
    y = s.add("turn", Transpose(), y, s.const("order", np.array([0, 2, 3, 1])))
    y = s.add("scale", Multiply(), y, s.weights("m", 6))
    y = s.add("rows", Reshape(), y, s.const("shape", np.array([2, 20, 6])))
    y = s.add("shift", Add(), y, s.weights("a", 20, 1))
    y = s.add("heads", Reshape(), y, s.const("shape2", np.array([2, 20, 2, 3])))
    y = s.add("gelu", Gelu(), s.add("each", Add(), y, s.weights("e", 2, 3)))
    network = s.network(y=y)
    assert list(launching(compiled(network))) == ["conv"]
    check_answers(network, opencl, builder)


def test_operands_that_are_computed_go_along_where_that_is_free(opencl, builder):
    s = Sketch()
    x, gate = s.input("x", 2, 3, 4, 5), s.input("gate", 2, 1, 5, 6)
    y = s.conv("conv", x, 6)
    y = s.add("turn", Transpose(), y, s.const("order", np.array([0, 2, 3, 1])))
    y = s.add("gated", Multiply(), y, gate)
    y = s.add("full", Add(), y, s.add("other", Relu(), s.input("z", 2, 4, 5, 6)))
    network = s.network(y=s.add("pool", MatMul(), y, s.weights("w", 6, 4)))
    conv = next(node for node in compiled(network).nodes if node.name == "conv")
    assert conv.origins == ["conv", "gated", "other", "full"]
    check_answers(network, opencl, builder)


def test_an_operand_whose_axes_of_one_size_change_places_is_turned(opencl, builder):
    """Its shape without axes of size 1 is (4, 4) before the transposition and behind it."""
    s = Sketch()
    y = s.conv("conv", s.input("x", 2, 4, 4, 6), 8)
    y = s.add("cut", Reshape(), y, s.const("shape", np.array([2, 2, 4, 6, 4])))
    y = s.add("first", Add(), y, s.add("row", Relu(), s.input("r", 1, 1, 1, 1, 4)))
    y = s.add("turn", Transpose(), y, s.const("order", np.array([0, 1, 3, 4, 2])))
    y = s.add("sum", Add(), y, s.add("square", Relu(), s.input("z", 1, 1, 1, 4, 4)))
    check_answers(s.network(y=y), opencl, builder)


def test_an_activation_behind_a_concatenation_joins_all_its_parts(opencl, builder):
    s = Sketch()
    x = s.input("x", 2, 4, 5, 6)
    a, b = s.conv("a", x, 8), s.conv("b", x, 16)
    c = s.conv("c", x, 8)
    c = s.add("turn", Transpose(), c, s.const("order", np.array([0, 1, 2, 3])))
    y = s.add("join", Concat(axis=1), a, b, c)
    y = s.add("relu", Relu(), s.add("scale", Multiply(), y, s.weights("m", 1, 32, 1, 1)))
    network = s.network(y=s.conv("last", y, 8, 1))
    graph = compiled(network)
    assert len(launching(graph)) == 4 + (1 if graph.nodes[0].name.endswith("reorder") else 0)
    assert {name for name in launching(graph) if "reorder" not in name} == {"a", "b", "c", "last"}
    check_answers(network, opencl, builder)


def test_parts_that_would_be_copied_are_computed_instead(opencl, builder):
    s = Sketch()
    x = s.input("x", 2, 8, 5, 6)
    half = s.node("half", Split(num_splits=2), s.conv("c", x, 8), s.const("axis", np.array(1)))
    shown = s.conv("shown", x, 4)
    y = s.add("join", Concat(axis=1), x, s.conv("a", x, 8), half.outputs[1], shown)
    y = s.add("sum", Add(), y, s.add("rest", Relu(), s.input("z", 2, 24, 5, 6)))
    network = s.network(y=s.conv("last", s.add("relu", Relu(), y), 8, 1), shown=shown)
    graph = compiled(network)
    assert graph.fates["join"].status == "OPTIMIZED_OUT"
    assert not {"sum", "relu"} & {node.name for node in graph.nodes}
    check_answers(network, opencl, builder)


def test_shuffled_pixels(opencl, builder):
    """As super-resolution networks end: convolution, DepthToSpace, PReLU."""
    s = Sketch()
    y = s.conv("conv", s.input("x", 1, 4, 5, 6), 12)
    op = DepthToSpace(mode=DepthMode.DEPTH_FIRST, block_size=2)
    y = s.add("prelu", PRelu(), s.add("shuffle", op, y), s.weights("p", 3))
    network = s.network(y=s.conv("last", y, 4))
    conv = next(node for node in compiled(network).nodes if node.name == "conv")
    assert conv.origins == ["conv", "prelu"]
    check_answers(network, opencl, builder)


def test_what_others_need_too_is_not_changed(opencl, builder):
    """Results of the network, several readers, parts, a broadcast, a value joined twice."""
    s = Sketch()
    x = s.input("x", 2, 4, 6, 6)
    a, b, c, d = (s.conv(name, x, 8) for name in "abcd")
    flat = s.const("flat", np.array([2, 8, 36]))
    seen = s.add("seen", Reshape(), a, flat)
    one = s.add("one", Relu(), seen)
    two = s.add("two", Relu(), s.add("shown", Reshape(), b, flat))
    halves = s.node("half", Split(num_splits=2), c, s.const("axis", np.array(1)))
    three = s.add("three", Relu(), halves.outputs[0])
    four = s.add("four", Relu(), s.add("twice", Concat(axis=1), d, d))
    network = s.network(
        one=one, seen=seen, two=two, b=b, three=three, half=halves.outputs[1], four=four
    )
    check_answers(network, opencl, builder)


def test_a_conversion_changes_the_type_of_what_lies_between(opencl, builder):
    s = Sketch()
    y = s.conv("conv", s.input("x", 2, 3, 4, 5), 8)
    y = s.add("rows", Reshape(), y, s.const("shape", np.array([2, 8, 20])))
    y = s.add("scaled", Multiply(), y, s.const("hundred", np.float32(100)))
    y = s.add("whole", Convert(destination_type=ElementType.i32), y)
    y = s.add("turn", Transpose(), y, s.const("order", np.array([0, 2, 1])))
    y = s.add("back", Convert(destination_type=ElementType.f32), y)
    network = s.network(y=s.add("half", Multiply(), y, s.const("h", np.float32(0.5))))
    conv = next(node for node in compiled(network).nodes if node.name == "conv")
    assert conv.origins == ["conv", "scaled", "whole", "back", "half"]
    # Sums in another order may end on the other side of an integer.
    check_answers(network, opencl, builder, atol=0.51)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_operands_before_a_reshape_mean_what_they_mean_behind_it(data):
    sizes = data.draw(st.lists(st.sampled_from([1, 1, 2, 3, 4, 6]), min_size=1, max_size=4))
    rest, new = int(np.prod(sizes)), []
    while rest > 1 or not new:
        new.append(data.draw(st.sampled_from([n for n in range(1, rest + 1) if rest % n == 0])))
        rest //= new[-1]
        if len(new) == 5:
            new.append(rest)
            break
    operand_shape = tuple(n if data.draw(st.booleans()) else 1 for n in new)
    found = _shape_before(tuple(sizes), tuple(new), operand_shape)
    operand = np.random.default_rng(0).standard_normal(operand_shape)
    assert found is not None
    repeated, before = found
    x = np.zeros(sizes)
    behind = x + np.broadcast_to(operand, repeated).reshape(before)
    np.testing.assert_array_equal(behind.reshape(new), x.reshape(new) + operand)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_views_between(opencl, builder, data):
    s = Sketch()
    y = s.conv("conv", s.input("x", 2, 4, 4, 6), 8)
    for number in range(data.draw(st.integers(1, 4))):
        shape = y.shape.static
        if data.draw(st.booleans()):
            order = np.array(data.draw(st.permutations(range(len(shape)))))
            y = s.add(f"turn{number}", Transpose(), y, s.const(f"order{number}", order))
        else:
            target = data.draw(st.sampled_from([(2, 8, 24), (16, 24), (2, 2, 4, 6, 4), (384,)]))
            shape = s.const(f"shape{number}", np.array(target))
            y = s.add(f"see{number}", Reshape(), y, shape)
        sizes = tuple(n if data.draw(st.booleans()) else 1 for n in y.shape.static)
        cut = data.draw(st.integers(0, len(sizes)))
        operand = s.weights(f"w{number}", *sizes[cut:])
        if data.draw(st.booleans()):
            operand = s.add(f"abs{number}", Relu(), s.input(f"in{number}", *sizes[cut:]))
        y = s.add(f"sum{number}", Add(), y, operand)
    check_answers(s.network(y=y), opencl, builder)
