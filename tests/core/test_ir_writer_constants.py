"""Constants and quantised numbers that the IR writer writes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from polydevice.dtype import ElementType
from polydevice.errors import PolydeviceError, UnsupportedOperationError
from polydevice.network import Network
from polydevice.node import Node, constant
from polydevice.ops.arithmetic import Add
from polydevice.ops.convert import Convert
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.readers.ir import read_ir
from polydevice.shape import Shape
from polydevice.writers.ir import ir_bytes

from .round_trip import by_openvino, of_constants


@pytest.mark.parametrize("kind", ElementType)
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (0, 2)])
def test_constants_of_every_type_come_back_the_same(kind, shape, rng):
    if kind is ElementType.dynamic:
        with pytest.raises(PolydeviceError, match="dynamic"):
            constant("c", np.zeros(shape), kind)
        return
    if kind is ElementType.string:
        value = np.array([f"ö{i}" * i for i in range(int(np.prod(shape)))], object).reshape(shape)
    elif kind is ElementType.u1:
        value = rng.integers(0, 2, shape).astype(np.uint8)
    else:
        value = np.asarray(rng.integers(-2 if kind.is_signed else 0, 2, shape)).astype(kind.dtype)
    network = of_constants((value, kind))
    foreign = {"i2", "c64", "c128", "f8e4m3fnuz", "f8e5m2fnuz"}
    if kind.value in foreign:
        with pytest.raises(UnsupportedOperationError, match=f"no element type {kind}"):
            ir_bytes(network)
        return
    topology, weights = ir_bytes(network)
    back = read_ir(topology, weights).node("c0").constant
    assert back.dtype == value.dtype
    assert back.tobytes() == value.tobytes() or (back == value).all()


@pytest.mark.parametrize(
    ("kind", "values"),
    [("u1", [1, 0, 0, 1, 1, 1, 0, 1, 1]), ("u2", [0, 1, 2, 3, 3]), ("u4", [0, 9, 15, 7, 8]),
     ("i4", [-8, 7, -1, 0, 3]), ("f4e2m1", [0.5, -6, 3]), ("bf16", [1.5, -2.0]),
     ("f8e4m3", [1.5, -2.0]), ("f16", [1.5, -2.0]), ("boolean", [1, 0, 1])],
)  # fmt: skip
def test_openvino_reads_the_same_elements(kind, values):
    element_type = ElementType(kind)
    array = np.array(values, np.float32).astype(element_type.dtype)
    c = Node("c", Constant(array, element_type))
    wide = Node("wide", Convert(ElementType.f32), [c.output])
    network = Network("m", [], [Node("y", Result(), [wide.output])])
    (answer,) = by_openvino(*ir_bytes(network), [])
    assert answer.tolist() == values


def test_equal_constants_are_stored_once():
    a = np.arange(1000, dtype=np.float32)
    network = of_constants(
        (a, ElementType.f32), (a.copy(), ElementType.f32), (a + 1, ElementType.f32)
    )
    _, weights = ir_bytes(network)
    assert len(weights) == 4032 + 4000  # the second one is aligned to 64 bytes
    same_bytes = of_constants((a, ElementType.f32), (a.view(np.int32), ElementType.i32))
    topology, weights = ir_bytes(same_bytes)
    assert len(weights) == 4000
    assert read_ir(topology, weights).node("c1").constant.dtype == np.int32


def test_constants_that_are_views_are_written_in_order():
    a = np.arange(12, dtype=np.int32).reshape(3, 4)
    for view in (a.T, a[::2, ::-1], np.broadcast_to(a[:1], (3, 4))):
        topology, weights = ir_bytes(of_constants((view, ElementType.i32)))
        np.testing.assert_array_equal(read_ir(topology, weights).node("c0").constant, view)


@pytest.mark.parametrize("kind", ["u8", "i8", "u16", "i16"])
@pytest.mark.parametrize("per_axis", [False, True])
@pytest.mark.parametrize("zero", [False, True])
def test_linear_quantisation_is_written(kind, per_axis, zero, rng):
    """ONNX's formulas, worked out with NumPy, are what OpenVINO makes of the file."""
    element_type = ElementType(kind)
    count = 3 if per_axis else 1
    scales = rng.uniform(0.01, 0.1, count).astype(np.float32)
    zeros = rng.integers(0, 9, count).astype(element_type.dtype)
    x = rng.uniform(-20, 20, (2, 3, 5)).astype(np.float32)
    source = Node("x", Parameter(ElementType.f32, Shape([2, 3, 5])))
    scale = constant("scale", scales if per_axis else scales[0])
    points = [constant("zero", zeros if per_axis else zeros[0]).output] if zero else []
    narrow = Node(
        "quantize",
        QuantizeLinear(axis=1, destination_type=element_type),
        [source.output, scale.output, *points],
    )
    wide = Node("dequantize", DequantizeLinear(axis=1), [narrow.output, scale.output, *points])
    results = [Node(f"{n.name}/r", Result(), [n.output]) for n in (narrow, wide)]
    integers, floats = by_openvino(*ir_bytes(Network("m", [source], results)), [x])
    along = (1, count, 1)
    shift = zeros.reshape(along).astype(np.float32) if zero else np.float32(0)
    limits = np.iinfo(element_type.dtype)
    expected = np.clip(np.round(x / scales.reshape(along)) + shift, limits.min, limits.max)
    # A quotient halfway between two integers may round to either, since OpenVINO multiplies.
    assert np.abs(integers.astype(np.float64) - expected).max() <= 1
    assert (integers == expected).mean() > 0.9
    back = (integers.astype(np.float32) - shift) * scales.reshape(along)
    np.testing.assert_allclose(floats, back, rtol=1e-5, atol=1e-5)


def test_a_scale_for_each_of_no_channels_is_written():
    x = Node("x", Parameter(ElementType.u8, Shape([2, 0, 5])))
    scales = constant("s", np.zeros(0, np.float32)), constant("z", np.zeros(0, np.uint8))
    wide = Node("d", DequantizeLinear(axis=1), [n.output for n in (x, *scales)])
    network = Network("m", [x], [Node("r", Result(), [wide.output])])
    (result,) = read_ir(*ir_bytes(network)).results
    assert result.inputs[0].shape == Shape([2, 0, 5])


@pytest.mark.parametrize("kind", [ElementType.u8, ElementType.i4])
def test_blockwise_quantisation_is_written_as_arithmetic(kind, rng):
    """A scale per block of a row, the last of which may be short; OpenVINO computes the rest."""
    limits = ml_dtypes.iinfo(kind.dtype)
    held = rng.integers(limits.min, limits.max, (3, 10), endpoint=True)
    for block in (5, 4):
        blocks = -(-10 // block)
        scales = rng.uniform(0.5, 2, (3, blocks)).astype(np.float32)
        zeros = rng.integers(0, 7, (3, blocks))
        x = Node("x", Parameter(ElementType.f32, Shape([3, 10])))
        inputs = [constant("w", held.astype(kind.dtype), kind), constant("s", scales),
                  constant("z", zeros.astype(kind.dtype), kind)]  # fmt: skip
        wide = Node("d", DequantizeLinear(axis=1, block_size=block), [n.output for n in inputs])
        y = Node("y", Add(), [x.output, wide.output])
        network = Network("m", [x], [Node("r", Result(), [y.output])])
        given = rng.normal(size=(3, 10)).astype(np.float32)
        spread = [np.repeat(array, block, 1)[:, :10] for array in (scales, zeros)]
        (found,) = by_openvino(*ir_bytes(network), [given])
        np.testing.assert_allclose(found, given + (held - spread[1]) * spread[0], 1e-5, 1e-5)


def test_blocks_of_unknown_sizes_are_refused():
    x = Node("x", Parameter(ElementType.f32, Shape([2, None])))
    scale = Node("s", Parameter(ElementType.f32, Shape([2, None])))
    op = QuantizeLinear(axis=1, block_size=4, destination_type=ElementType.u8)
    node = Node("q", op, [x.output, scale.output])
    with pytest.raises(UnsupportedOperationError, match="QuantizeLinear: 1 node, first 'q'"):
        ir_bytes(Network("m", [x, scale], [Node("y", Result(), [node.output])]))


def test_bfloat16_values_are_exact():
    value = np.array([1, 1.0078125, -3.0], ml_dtypes.bfloat16)
    topology, weights = ir_bytes(of_constants((value, ElementType.bf16)))
    assert (read_ir(topology, weights).node("c0").constant == value).all()
