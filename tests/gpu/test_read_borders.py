"""Sums with widened values need no launch for the border; OpenVINO is the judge."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.activation import PRelu, Relu, Sigmoid
from polydevice.ops.arithmetic import Add, Multiply
from polydevice.ops.concat import Concat
from polydevice.ops.convolution import ConvolutionBackpropData
from polydevice.ops.pad import Pad, PadMode
from polydevice.ops.pooling import MaxPool
from polydevice.ops.reshape import Reshape
from polydevice_gpu.compiler.settings import CompileSettings
from tests.gpu.graphs import (
    Sketch,
    SparingBuilder,
    check_answers,
    compiled,
    launching,
    loaded,
    openvino_answers,
    random_inputs,
)


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


def _pad(s: Sketch, x, begin, end, name="pad", fill=None, mode=PadMode.CONSTANT):
    inputs = [s.const(f"{name}/{n}", np.array(v)) for n, v in (("begin", begin), ("end", end))]
    if fill is not None:
        inputs.append(s.const(f"{name}/fill", np.float32(fill)))
    return s.add(name, Pad(pad_mode=mode), x, *inputs)


@pytest.mark.parametrize("channels", [8, 12, 6])
@pytest.mark.parametrize("fill", [None, -1.5])
def test_a_residual_sum_that_widens(opencl, builder, channels, fill):
    """As in BlazeFace; the border may end within a vector of channels."""
    s = Sketch()
    x = s.input("x", 2, 4, 8, 6)
    wide = s.add("first", Relu(), s.conv("a", x, channels))
    y = s.conv("b", wide, 16)
    padded = _pad(s, wide, (0, 0, 0, 0), (0, 16 - channels, 0, 0), fill=fill)
    y = s.add("last", Relu(), s.add("sum", Add(), y, padded))
    network = s.network(y=s.add("pool", MaxPool(kernel=(2, 2), strides=(2, 2)), y))
    assert {name for name in launching(compiled(network)) if "reorder" not in name} == {
        "a",
        "b",
        "pool",
    }
    check_answers(network, opencl, builder)


def test_a_border_of_nothing(opencl, builder):
    """As sizes are padded up to others that they happen to have."""
    s = Sketch()
    x = s.input("x", 2, 8, 8, 6)
    wide = s.add("first", Relu(), s.conv("a", x, 8))
    padded = _pad(s, wide, (0, 0, 0, 0), (0, 0, 0, 0), fill=1.0)
    network = s.network(y=s.add("sum", Add(), s.conv("b", wide, 8), padded))
    assert "pad" not in launching(compiled(network))
    check_answers(network, opencl, builder)


@pytest.mark.parametrize("border", [((1, 0, 0, 2), (0, 1, 3, 0)), ((0, 3, 2, 1), (0, 0, 0, 0))])
@pytest.mark.parametrize("planar", [True, False])
def test_every_axis_on_both_sides(opencl, builder, border, planar):
    s = Sketch()
    sizes = [2, 8, 5, 6]
    x = s.input("x", *sizes)
    x = s.add("first", Relu(), x) if planar else s.conv("first", x, 8)
    widened = [n + sum(ends) for n, *ends in zip(sizes, *border, strict=True)]
    other = s.input("other", *widened)
    other = s.add("sigmoid", Sigmoid(), other) if planar else s.conv("conv", other, widened[1])
    y = s.add("sum", Add(), _pad(s, x, *border, fill=0.25), other)
    y = s.add("prelu", PRelu(), y, s.weights("p", widened[1]))
    network = s.network(y=y, also=s.add("also", Relu(), x))
    assert "pad" not in launching(compiled(network))
    check_answers(network, opencl, builder)


@pytest.mark.parametrize("width", [5, 16, 37, 70])
@pytest.mark.parametrize("border", [(0, 3), (7, 0), (2, 20)], ids=str)
def test_rows_longer_than_vectors(opencl, builder, border, width):
    """What lies inside a border is read in vectors, wherever these begin."""
    s = Sketch()
    x = s.input("x", 2, 3, 5, width)
    first, last = border
    padded = _pad(s, x, (0, 1, 0, first), (0, 0, 2, last), fill=0.75)
    check_answers(s.network(y=s.add("y", Sigmoid(), padded)), opencl, builder)


def test_a_border_read_twice_and_by_a_transposed_convolution(opencl, builder):
    s = Sketch()
    x = s.conv("first", s.input("x", 1, 4, 4, 3), 8)
    up = ConvolutionBackpropData(
        strides=(2, 2), pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1)
    )
    wide = s.add("up", up, x, s.weights("w", 8, 12, 2, 2))
    pad = _pad(s, x, (0, 2, 2, 1), (0, 2, 2, 2))
    one = s.add("one", Add(), wide, pad)
    two = s.add("two", Multiply(), s.conv("conv", one, 12), pad)
    check_answers(s.network(two=two), opencl, builder)


@pytest.mark.parametrize("case", ["output", "mirror", "conv", "reshaped", "joined", "alone", "cut"])
def test_borders_that_must_be_in_memory(opencl, builder, case):
    s = Sketch()
    x = s.conv("first", s.input("x", 1, 4, 6, 5), 8)
    mode = PadMode.REFLECT if case == "mirror" else PadMode.CONSTANT
    begin = (0, -2, 0, 0) if case == "cut" else (0, 2, 0, 0)
    size = 8 + begin[1] + 2
    pad = _pad(s, x, begin, (0, 2, 0, 0), mode=mode)
    other = s.conv("other", x, size)
    outputs = {"y": s.add("sum", Add(), other, pad)}
    if case == "output":
        outputs["pad"] = pad
    if case == "conv":
        outputs["z"] = s.conv("second", pad, 4)
    if case == "reshaped":
        shape = s.const("shape", np.array([1, size, 30]))
        flat = s.add("rows", Reshape(), s.conv("third", x, size), shape)
        outputs["z"] = s.add("z", Add(), flat, s.add("seen", Reshape(), pad, shape))
    if case == "joined":
        outputs["z"] = s.add("join", Concat(axis=1), pad, other)
    if case == "alone":
        outputs = {"y": s.add("relu", Relu(), pad)}
    network = s.network(**outputs)
    pads = [node for node in compiled(network).nodes if isinstance(node.op, Pad)]
    assert pads
    if case in ("mirror", "cut"):
        assert not any(node.is_view for node in pads)
    else:  # a copy knows where the border is, and takes part in what is behind it
        assert all(node.is_view and node.output.border for node in pads)
        assert {"pad", "relu"} & set(launching(compiled(network)))
    check_answers(network, opencl, builder)


def test_behind_views_and_in_concatenations(opencl, builder):
    """A bordered operand keeps its sum behind a view; what it looks at may move into a Concat."""
    s = Sketch()
    x = s.input("x", 2, 4, 6, 5)
    a, b = s.conv("a", x, 8), s.conv("b", x, 8)
    joined = s.add("join", Concat(axis=1), a, b)
    flat = s.const("flat", np.array([2, 16, 30]))
    rows = s.add("rows", Reshape(), s.conv("c", joined, 16), flat)
    padded = _pad(
        s, s.add("seen", Reshape(), a, s.const("f", np.array([2, 8, 30]))), (0, 8, 0), (0, 0, 0)
    )
    sum_ = s.add("sum", Add(), rows, padded)
    plain = s.add(
        "plain", Add(), s.conv("d", joined, 16), _pad(s, a, (0, 0, 0, 0), (0, 8, 0, 0), "p")
    )
    check_answers(s.network(sum=sum_, plain=plain), opencl, builder)


def test_stored_as_half(opencl, builder):
    s = Sketch()
    wide = s.conv("a", s.input("x", 2, 4, 8, 6), 8)
    padded = _pad(s, wide, (0, 0, 0, 0), (0, 8, 0, 0), fill=0.5)
    network = s.network(y=s.conv("last", s.add("sum", Add(), s.conv("b", wide, 16), padded), 4))
    inputs = random_inputs(network)
    half = CompileSettings(floats=ElementType.f16)
    found = loaded(network, opencl, builder, settings=half).create_infer_request().infer(inputs)
    wanted = openvino_answers(network, inputs)["y"]
    # Half precision keeps 11 bits, through three layers.
    np.testing.assert_allclose(found["y"], wanted, 0.01, 0.01 * np.abs(wanted).max())
