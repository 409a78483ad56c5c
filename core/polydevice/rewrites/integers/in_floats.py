"""products_in_floats: products of what was quantised at run time, of numbers of f32."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network
from polydevice.node import Port
from polydevice.ops.arithmetic import Multiply, Subtract
from polydevice.ops.convert import Convert
from polydevice.ops.quantize_linear import DequantizeLinear, QuantizeLinear
from polydevice.rewrites.integers.integer_product import IntegerProduct, check_same
from polydevice.rewrites.pattern import Replacements


def products_in_floats(network: Network) -> None:
    """Replace products of integers, for a device that multiplies floats as fast.

    What was quantised with the scale that sums are multiplied by is dequantised before, once for
    all products of it, so that these have nothing to do behind their sums.
    """
    replacements = Replacements()
    values: dict[tuple[Port, ...], Port] = {}
    for node in network.nodes():
        if not isinstance(node.op, IntegerProduct):
            continue
        x, weights, scale, zero, factor, *rest = node.inputs
        whole = weights.node.constant
        assert whole is not None
        build = Emitter(node.name, origins=node.layers)
        point = _point(x, zero, factor)
        key = (x, zero) if point is None else (x, factor, point)
        if key not in values:
            if point is None:
                values[key] = _less(build, x, zero)
            else:
                values[key] = build.emit(DequantizeLinear(), x, factor, point)
        w = build.value(whole.astype(np.float32))
        made = build.emit(node.op.product, values[key], w, *rest)
        if point is None:
            made = build.emit(Multiply(), made, build.reshape(factor, ()))
        made = build.replacement(node, Multiply(), made, scale)
        check_same(made, node.output)
        replacements.put(node.output, made)
    replacements.apply(network)


def _point(x: Port, zero: Port, factor: Port) -> Port | None:
    """The zero point of integers that a factor was the scale of; None for others."""
    node = x.node
    if not isinstance(node.op, QuantizeLinear) or len(node.inputs) < 3:
        return None
    _, scale, point = node.inputs
    converted = zero.node.inputs[0] if isinstance(zero.node.op, Convert) else None
    return point if scale is factor and converted is point else None


def _less(build: Emitter, x: Port, zero: Port) -> Port:
    """Integers less a zero point."""
    value = build.convert(x, ElementType.f32)
    known = zero.node.constant
    if known is None:
        return build.emit(
            Subtract(), value, build.convert(build.reshape(zero, ()), ElementType.f32)
        )
    return build.emit(Subtract(), value, known.astype(np.float32)) if known.any() else value
