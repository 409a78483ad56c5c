"""Quantised networks as networks of integers: values that are integers times a scale stay so.

The common form is ONNX's: ``DequantizeLinear(integers)`` is a value of which the integers are held,
``QuantizeLinear`` makes them. `hold_integers` brings other spellings into it where that changes
nothing but the order of roundings, and makes products of integers of products of such values.

Where a quantised value is a function of 256 numbers, roundings on the way to it may be left
out (`round_in_the_end`).

A FakeQuantize whose zero point is odd rounds a value half-way between two steps to the other one
than the QuantizeLinear that it becomes: both round to even, but count from different ends.
"""

from __future__ import annotations

from polydevice.network import Network
from polydevice.network.kept_layers import KeptLayers
from polydevice.ops.quantize import FakeQuantize
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.dynamic import dynamic_products
from polydevice.rewrites.integers.dynamic_range import recognise_dynamic_ranges
from polydevice.rewrites.integers.fake_quantize import split_fake_quantize
from polydevice.rewrites.integers.in_floats import products_in_floats
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice.rewrites.integers.movement import raise_quantize, sink_dequantize
from polydevice.rewrites.integers.products import integer_products
from polydevice.rewrites.integers.quantised import NARROW
from polydevice.rewrites.integers.rounding.inner import Exact, round_in_the_end
from polydevice.rewrites.integers.rounding.needless import numbers_alone, round_once
from polydevice.rewrites.integers.unsigned import unsigned_integers
from polydevice.rewrites.integers.written_out import put_together
from polydevice.rewrites.wishes import When, always, never, nowhere


def hold_integers(
    network: Network, *, exact: Exact = nowhere, wide: bool = False, takes: When = always
) -> int:
    """Rewrite a network in place so that quantised products are computed on integers.

    Products of layers that are kept in f32 stay in floating point.

    Args:
        network: the network.
        exact: see `Wishes`.
        wide: likewise.
        takes: likewise.

    Returns:
        How many there are that were none before.
    """
    if not _may_be_quantised(network):
        return 0
    before = _products(network)
    kept = KeptLayers.of(network)
    _spell(network)  # before results of the network alone keep bytes with a sign
    unsigned_integers(network)
    round_in_the_end(network, exact)
    raise_quantize(network)
    sink_dequantize(network)
    integer_products(network, kept, wide=wide, takes=takes)
    recognise_dynamic_ranges(network)
    dynamic_products(network, wide=wide)
    return _products(network) - before


def round_in_floats(network: Network, *, exact: Exact = nowhere) -> None:
    """Rewrite a quantised network in place that is to be computed in f32: with less roundings."""
    if not _may_be_quantised(network):
        return
    _spell(network)
    round_in_the_end(network, exact)
    integer_products(network, KeptLayers.of(network), takes=never)
    recognise_dynamic_ranges(network)
    dynamic_products(network, wide=True)
    products_in_floats(network)


def _spell(network: Network) -> None:
    """Bring quantisation into ONNX's form, and leave out what changes nothing."""
    put_together(network)
    split_fake_quantize(network)
    numbers_alone(network)
    round_once(network)


def _may_be_quantised(network: Network) -> bool:
    """Whether something is rounded to few levels, or there are integers of 8 bits.

    Without them nothing here applies; to find that out takes a tenth of looking for each.
    """
    return any(
        isinstance(node.op, (FakeQuantize, QuantizeLinear, DequantizeLinear))
        or any(port.element_type in NARROW for port in node.outputs)
        for node in network.nodes()
    )


def _products(network: Network) -> int:
    return sum(isinstance(node.op, IntegerProduct) for node in network.nodes())
