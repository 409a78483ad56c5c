"""Forms of weights that only move elements: rounding before and after gives the same bits."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.ops.convolution import Convolution, ConvolutionBackpropData
from polydevice.ops.matmul import MatMul
from polydevice.processor.halves import as_halves
from polydevice_gpu.kernels.kernel import Choice, kernels_of
from polydevice_gpu.kernels.launch import Weights
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.runtime.weights import WeightStore
from polydevice_gpu.tuning.candidates import launches_of, takes
from tests.gpu.graphs import Sketch, compiled
from tests.gpu.test_copies_ahead import HOPPER

CPU = Target(vector_width=8)
TARGETS = {"processor": CPU, "matrix units": HOPPER}


PADS = dict.fromkeys(("pads_begin", "pads_end"), (0, 0))


def weights(s, *shape):
    return s.const("w", np.ones(shape, np.float16))


def networks():
    """Products and convolutions whose sizes fit tiles, and which do not; either way round."""
    for rows, terms, columns in ((128, 256, 192), (7, 72, 50), (3, 64, 96)):
        for turned in (False, True):
            s = Sketch()
            x = s.input("x", rows, terms, kind=ElementType.f16)
            shape = (columns, terms) if turned else (terms, columns)
            yield s.network(y=s.add("y", MatMul(transpose_b=turned), x, weights(s, *shape)))
    for channels, out, kernel in ((64, 128, 3), (64, 64, 1), (5, 12, 3)):
        s = Sketch()
        x = s.input("x", 1, channels, 9, 11, kind=ElementType.f16)
        op = Convolution(**dict.fromkeys(("strides", "dilations"), (1, 1)), **PADS)
        yield s.network(y=s.add("y", op, x, weights(s, out, channels, kernel, kernel)))
    s = Sketch()
    x = s.input("x", 1, 6, 5, 7, kind=ElementType.f16)
    op = ConvolutionBackpropData(strides=(2, 2), dilations=(1, 1), **PADS)
    yield s.network(y=s.add("y", op, x, weights(s, 6, 10, 2, 2)))


def forms(target):
    """Every form in which some kernel and mode wants the weights of the networks."""
    found: dict[tuple[int, str], Weights] = {}
    for number, network in enumerate(networks()):
        for node in compiled(network, **dataclasses.asdict(target)).nodes:
            if node.choice is None:
                continue
            for kernel in kernels_of(type(node.op)):
                for mode in range(len(kernel.modes)):
                    choice = Choice(kernel, mode)
                    if not takes(node, choice, target):
                        continue
                    for launch in launches_of(choice, node, target):
                        for argument in launch.arguments:
                            if isinstance(argument, Weights):
                                found[number, argument.form] = argument
    return list(found.values())


@pytest.mark.parametrize("name", TARGETS)
def test_rounding_first_changes_nothing(name):
    random = np.random.default_rng(8)
    moving = [form for form in forms(TARGETS[name]) if form.only_moves]
    assert len({form.form for form in moving}) >= 8
    for form in moving:
        shape = np.shape(form.value.constant)
        array = random.standard_normal(shape).astype(np.float32)
        array.flat[:4] = -0.0, np.inf, 65519.99, 1e-8
        after, first = as_halves(form.make(array)), form.make(as_halves(array))
        assert first.dtype == np.float16
        assert after.shape == first.shape
        bits = [np.ascontiguousarray(each).view(np.uint16) for each in (after, first)]
        np.testing.assert_array_equal(*bits, err_msg=form.form)
        moved = np.sort(after[after != 0], axis=None)
        np.testing.assert_array_equal(moved, np.sort(as_halves(array)[as_halves(array) != 0], None))


@pytest.mark.parametrize("name", TARGETS)
def test_device_memory_has_what_rounding_last_gives(name, opencl):
    random = np.random.default_rng(9)
    store = WeightStore(opencl)
    found = [form for form in forms(TARGETS[name]) if form.storage is ElementType.f16]
    assert any(form.only_moves for form in found)
    with opencl.queue() as queue:
        for form in found:
            array = random.standard_normal(np.shape(form.value.constant)).astype(np.float32)
            expected = np.ascontiguousarray(form.make(array)).astype(np.float16)
            held = np.empty(expected.shape, np.float16)
            queue.download(store.buffer(array, form.storage, form), held)
            np.testing.assert_array_equal(held, expected, err_msg=form.form)
