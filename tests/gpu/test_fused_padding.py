"""Zeros around the data become padding of convolutions; OpenVINO is the judge."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.ops.activation import Relu
from polydevice.ops.convolution import Convolution, ConvolutionBackpropData, GroupConvolution
from polydevice.ops.pad import Pad, PadMode
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.transpose import Transpose
from polydevice.ops.window import PadType
from tests.gpu.graphs import Sketch, SparingBuilder, check_answers, compiled, launching


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


def _pad(s: Sketch, x, begin, end, name="pad", value=None, mode=PadMode.CONSTANT):
    ends = [s.const(f"{name}/{n}", np.array(v)) for n, v in (("begin", begin), ("end", end))]
    if value is not None:
        ends.append(s.const(f"{name}/value", np.float32(value)))
    return s.add(name, Pad(pad_mode=mode), x, *ends)


def _has_pad(network) -> bool:
    return any(isinstance(node.op, Pad) for node in compiled(network).nodes)


@pytest.mark.parametrize("value", [None, 0.0, -0.0])
def test_uneven_borders_add_to_what_the_convolution_pads(opencl, builder, value):
    s = Sketch()
    x = s.input("x", 1, 3, 5, 6)
    network = s.network(y=s.conv("conv", _pad(s, x, (0, 0, 1, 0), (0, 0, 2, 1), value=value), 4))
    (node,) = compiled(network).nodes
    assert (node.op.pads_begin, node.op.pads_end) == ((2, 1), (3, 2))
    check_answers(network, opencl, builder)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("same", [PadType.SAME_UPPER, PadType.SAME_LOWER, PadType.VALID])
def test_every_rank_and_automatic_padding(opencl, builder, rank, same):
    s = Sketch()
    x = s.input("x", 2, 4, *(5, 6, 7)[:rank])
    padded = _pad(s, x, (0, 0, *(1, 2, 0)[:rank]), (0, 0, *(2, 0, 1)[:rank]))
    op = Convolution(strides=(2,) * rank, auto_pad=same)
    one = s.add("one", op, padded, s.weights("w1", 6, 4, *(3,) * rank))
    grouped = GroupConvolution(strides=(1,) * rank, dilations=(2,) * rank)
    two = s.add("two", grouped, padded, s.weights("w2", 2, 2, 2, *(2,) * rank))
    network = s.network(one=one, two=two)
    assert not _has_pad(network)
    check_answers(network, opencl, builder)


def test_channels_last_and_a_convolution_of_one_axis_as_two(opencl, builder):
    s = Sketch()
    x = s.input("x", 2, 9, 10, 3)
    y = _pad(s, x, (0, 1, 2, 0), (0, 0, 1, 0))
    y = s.conv("a", s.add("turn", Transpose(), y, s.const("order", np.array([0, 3, 1, 2]))), 4)
    z = _pad(s, s.input("z", 2, 1, 12), (0, 0, 3), (0, 0, 4), "pad2")
    tall = s.add("tall", Unsqueeze(), z, s.const("axis", np.array([2])))
    line = s.add("line", Squeeze(), s.conv("b", tall, 4, 1), s.const("axis2", np.array([2])))
    seen = s.add("seen", Reshape(), z, s.const("shape", np.array([2, 1, 1, 19])))
    turned = s.const("turned", np.array([0, 2, 1, 3]))
    other = s.conv("c", s.add("again", Transpose(), seen, turned), 4, 3)
    network = s.network(y=y, line=s.add("relu", Relu(), line), other=other)
    assert not _has_pad(network)
    check_answers(network, opencl, builder)


def test_borders_that_no_convolution_can_make(opencl, builder):
    """Not zero, not constant, of channels, negative, read by others, or an output."""
    s = Sketch()
    x = s.input("x", 1, 3, 6, 6)
    edge = (0, 0, 1, 1)
    joined = _pad(s, x, edge, edge, "joined")
    shown = _pad(s, x, edge, edge, "shown")
    rows = s.add("rows", Reshape(), joined, s.const("rows/shape", np.array([1, 3, 64])))
    turned = s.const("order", np.array([0, 2, 1, 3]))
    strange = s.add("strange", Transpose(), _pad(s, x, edge, edge, "strange/pad"), turned)
    back = ConvolutionBackpropData(
        strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=(1, 1)
    )
    network = s.network(
        a=s.conv("a", _pad(s, x, edge, edge, "one", 1.0), 4),
        b=s.conv("b", _pad(s, x, edge, edge, "mirror", mode=PadMode.REFLECT), 4),
        c=s.conv("c", _pad(s, x, (0, 1, 0, 0), (0, 0, 0, 0), "channels"), 4),
        d=s.conv("d", _pad(s, x, (0, 0, -1, 1), edge, "cut"), 4),
        e=s.conv("e", joined, 4),
        rows=s.add("relu", Relu(), rows),
        f=s.conv("f", shown, 4),
        shown=shown,
        g=s.conv("g", strange, 4),
        h=s.add("h", back, _pad(s, x, edge, edge, "transposed"), s.weights("w", 3, 4, 2, 2)),
    )
    launched = launching(compiled(network))
    wanted = ["one", "mirror", "channels", "cut", "joined", "shown", "strange/pad", "transposed"]
    assert set(wanted) <= set(launched)
    check_answers(network, opencl, builder)
