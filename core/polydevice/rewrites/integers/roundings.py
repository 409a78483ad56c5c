"""What is left out around roundings: what changes nothing, and of a sigmoid what changes little."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Port
from polydevice.ops.activation import Clamp, Relu, Sigmoid, Swish
from polydevice.ops.arithmetic import Multiply
from polydevice.ops.math import IsNaN
from polydevice.ops.quantize_linear import QuantizeLinear
from polydevice.ops.select import Select
from polydevice.rewrites.integers.quantised import Parameters, Quantised, quantised, quantiser
from polydevice.rewrites.pattern import Replacements

_STEP = 1
"""How far from the model's integers those of the one function may be."""


def round_once(network: Network) -> None:
    """Leave out what is quantised and dequantised before limits, and quantised the same behind.

    Rounding keeps the order of numbers, so that limits may come before it. ONNX Runtime's tools
    quantise so where zero points are 0: with a rounding less behind each of 14 convolutions a
    U-Net takes 2.0 instead of 2.7 ms.
    """
    users = network.consumers()
    for node in network.nodes():
        if not isinstance(node.op, (Relu, Clamp)) or len(users[node.inputs[0]]) > 1:
            continue
        value = quantised(node.inputs[0])
        if value is None or quantiser(value.integers.node) != value.parameters:
            continue
        readers = [quantiser(reader) for reader, _ in users[node.output]]
        if len(users[value.integers]) == 1 and set(readers) == {value.parameters}:
            node.inputs = [value.integers.node.inputs[0]]


def numbers_alone(network: Network) -> None:
    """Leave out what takes the place of NaN in quantised values: no integer is that.

    Attention that masks may leave out all keys is written so: a softmax of nothing is NaN.
    """
    replacements = Replacements()
    for node in network.nodes():
        if not isinstance(node.op, Select) or not isinstance(node.inputs[0].node.op, IsNaN):
            continue
        tested, value = node.inputs[0].node.inputs[0], node.inputs[2]
        if quantised(tested) is not None and value.shape == node.output.shape:
            replacements.put(node.output, value)
    replacements.apply(network)


def quantised_swish(network: Network) -> None:
    """Replace products of a value of integers and its quantised sigmoid by Swish.

    Of a function of 256 numbers all results can be looked at: it is replaced where what is
    quantised of each is at most one step away. In a YOLOX that ONNX Runtime's tools have
    quantised, rounding sigmoids takes a third of the time.
    """
    users = network.consumers()
    replacements = Replacements()
    for node in network.nodes():
        if not isinstance(node.op, Multiply) or node.output.element_type is not ElementType.f32:
            continue
        readers = [quantiser(reader) for reader, _ in users[node.output]]
        for value, gate in (node.inputs, reversed(node.inputs)):
            x = quantised(value)
            if x is not None and readers and _is_near(x, gate, readers):
                replacements.put_node(node, Swish(), [value])
                break
    replacements.apply(network)


def _is_near(x: Quantised, gate: Port, readers: list[Parameters | None]) -> bool:
    """Whether a port is the quantised sigmoid of `x`, and readers hardly see its rounding."""
    rounded = quantised(gate)
    if rounded is None or not isinstance(rounded.integers.node.op, QuantizeLinear):
        return False
    quantise = rounded.integers.node
    parameters, sigmoid = quantiser(quantise), quantise.inputs[0].node
    if parameters is None or not isinstance(sigmoid.op, Sigmoid):
        return False
    if quantised(sigmoid.inputs[0]) != x:
        return False
    numbers = (_levels(x.integers.element_type) - x.zero) * x.scale
    smooth = 1 / (1 + np.exp(-numbers))
    steps = (_quantised(smooth, parameters) - rounded.zero) * rounded.scale
    return all(
        reader is not None
        and np.abs(_quantised(numbers * smooth, reader) - _quantised(numbers * steps, reader)).max()
        <= _STEP
        for reader in readers
    )


def _levels(kind: ElementType) -> Array:
    """All integers of a type of 8 bits."""
    limits = np.iinfo(kind.dtype)
    return np.arange(limits.min, limits.max + 1, dtype=np.float64)


def _quantised(numbers: Array, parameters: Parameters) -> Array:
    """The integers that QuantizeLinear makes."""
    scale, zero, kind = parameters
    limits = np.iinfo(kind.dtype)
    result: Array = np.clip(np.rint(numbers / scale) + zero, limits.min, limits.max)
    return result
