"""Quantisation with limits."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.ops import quantize
from polydevice_gpu.kernels.pointwise.expression import declare, literal
from polydevice_gpu.ops import SubtractProduct, ToByte, ToWhole
from polydevice_gpu.rounded_ops import ShortErf


def _fake_quantize(op: quantize.FakeQuantize, _: list[ElementType]) -> str:
    steps = f"{op.levels - 1}"
    inner = f"rint((x - y) / (z - y) * {steps}) / {steps} * (v - w) + w"
    return f"WHERE(x <= fmin(y, z), w, WHERE(x > fmax(y, z), v, {inner}))"


declare(quantize.FakeQuantize, _fake_quantize)

declare(SubtractProduct, "x - y * INTS(z)", any_type=True)

declare(ShortErf, "SHORT_ERF(x)")  # include/short_erf.cl

# Added to what lies within 2^22 around 0, this leaves the nearest whole number in the lower bits.
_LARGE = 1.5 * 2**23


def _in_lower_bits(op: ToWhole | ToByte, _: list[ElementType]) -> str:
    low, high = literal(op.low), literal(op.high)
    if not op.by_256:
        return f"fmin(fmax(x, (F)({low})), (F)({high})) + (F)({literal(_LARGE)})"
    # Limits of 0 and 1 come with the addition before, for nothing.
    whole = f"fma(SATURATE(x), (F)(256.0f), (F)({literal(_LARGE + op.low)}))"
    return f"fmin({whole}, (F)({literal(_LARGE + op.high)}))"


declare(ToWhole, lambda op, kinds: f"({_in_lower_bits(op, kinds)}) - (F)({literal(_LARGE)})")
declare(ToByte, _in_lower_bits)  # see `expression`, which takes the lower bits
