"""Convolutions that cut an image into patches, as vision transformers begin, are products."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.ops.arithmetic import Add
from polydevice.ops.convolution import Convolution
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape
from polydevice.ops.transpose import Transpose
from tests.gpu.graphs import Sketch, SparingBuilder, check_answers, compiled


@pytest.fixture(scope="module")
def builder(opencl):
    return SparingBuilder(opencl)


def _stem(shape, kernel, outputs=24, strides=None, pad=0):
    s = Sketch()
    x = s.input("x", *shape)
    op = Convolution(
        strides=strides or kernel, dilations=(1,) * len(kernel),
        pads_begin=(pad,) * len(kernel), pads_end=(pad,) * len(kernel),
    )  # fmt: skip
    y = s.add("stem", op, x, s.weights("w", outputs, shape[1], *kernel))
    y = s.add("biased", Add(), y, s.weights("b", 1, outputs, *[1] * len(kernel)))
    line = s.add("line", Reshape(), y, s.const("sizes", np.array([shape[0], outputs, -1])))
    return s.network(y=s.add("words", Transpose(), line, s.const("order", np.array([0, 2, 1]))))


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [((2, 3, 48, 32), (16, 16)), ((3, 3, 12, 20), (4, 4)), ((2, 5, 33), (11,)),
     ((1, 2, 4, 12, 15), (2, 4, 5))],
)  # fmt: skip
def test_patches_are_rows_of_a_product(shape, kernel, opencl, builder):
    network = _stem(shape, kernel)
    kinds = [type(node.op) for node in compiled(network, vector_width=8).nodes]
    assert MatMul in kinds and Convolution not in kinds
    check_answers(network, opencl, builder)


@pytest.mark.parametrize(
    "other",
    [{"strides": (8, 16)}, {"pad": 1}, {"shape": (2, 3, 50, 32)}, {"shape": (2, 16, 48, 32)}],
    ids=str,
)
def test_other_windows_stay(other):
    shape = other.pop("shape", (2, 3, 48, 32))
    kinds = [type(node.op) for node in compiled(_stem(shape, (16, 16), **other)).nodes]
    assert Convolution in kinds
