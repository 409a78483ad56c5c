"""Whole numbers of 16 bits stay floats between what rounds to them and what scales them again.

What is computed on between them runs in vectors so, and in one fragment: on PoCL a product with
GELU and such roundings behind it took 25 times as long as without.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.node import Port
from polydevice.ops.activation import Clamp
from polydevice.ops.arithmetic import Add
from polydevice.ops.convert import Convert
from polydevice.ops.math import Round
from polydevice.ops.quantize_linear import DequantizeLinear
from polydevice.rewrites.decompose.quantize_linear import dequantised

_OF_16_BITS = (ElementType.u16, ElementType.i16)
"""Those of which there are no products of integers, so that nothing reads them as such."""


def are_floats_before(op: DequantizeLinear, inputs: Sequence[Port]) -> bool:
    """Whether integers of 16 bits were made of whole f32 numbers within their limits."""
    x = inputs[0]
    if op.block_size or not isinstance(x.node.op, Convert) or x.element_type not in _OF_16_BITS:
        return False
    clamped = x.node.inputs[0]
    if not isinstance(clamped.node.op, Clamp) or clamped.element_type is not ElementType.f32:
        return False
    whole = clamped.node.inputs[0]
    if isinstance(whole.node.op, Add):
        whole, zero = whole.node.inputs
        number = zero.node.constant
        if number is None or (number != np.rint(number)).any():
            return False
    return isinstance(whole.node.op, Round)


def dequantise_floats(build: Emitter, op: DequantizeLinear, inputs: Sequence[Port]) -> list[Port]:
    """Scale these instead."""
    return [dequantised(build, op, inputs[0].node.inputs[0], inputs)]
