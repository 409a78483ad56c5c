"""Simulated quantisation."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.ops.quantize import FakeConvert, FakeQuantize
from polydevice_cpu.algorithms.precision import narrow, widen
from polydevice_cpu.implement import implements
from polydevice_cpu.ops.arithmetic import align
from polydevice_cpu.ops.convert import saturated


@implements(FakeQuantize)
def fake_quantize(
    op: FakeQuantize,
    x: Array,
    input_low: Array,
    input_high: Array,
    output_low: Array,
    output_high: Array,
) -> Array:
    """Round in the steps of the input range, then rescale to the output range."""
    limits = (input_low, input_high, output_low, output_high)
    data = widen(x)
    il, ih, ol, oh = (widen(align(x, limit, op.auto_broadcast)) for limit in limits)
    steps = data.dtype.type(op.levels - 1)
    level = np.rint((data - il) / (ih - il) * steps)
    y = level / steps * (oh - ol) + ol
    y = np.where(data <= np.minimum(il, ih), ol, y)
    return narrow(np.where(data > np.maximum(il, ih), oh, y), x.dtype)


@implements(FakeConvert)
def fake_convert(op: FakeConvert, x: Array, scale: Array, shift: Array | None = None) -> Array:
    """Go to float8 and back; numbers beyond its range become its largest."""
    wide, factor = widen(x), widen(scale)
    offset = widen(shift) if shift is not None else wide.dtype.type(0)
    rounded = saturated(wide * factor - offset, op.destination_type).astype(wide.dtype)
    return narrow((rounded + offset) / factor, x.dtype)
