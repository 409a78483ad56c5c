"""Quantisation with limits."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.ops import quantize
from polydevice_gpu.kernels.pointwise.expression import declare
from polydevice_gpu.ops import ToByte, ToWhole


def _fake_quantize(op: quantize.FakeQuantize, _: list[ElementType]) -> str:
    steps = f"{op.levels - 1}"
    inner = f"rint((x - y) / (z - y) * {steps}) / {steps} * (v - w) + w"
    return f"WHERE(x <= fmin(y, z), w, WHERE(x > fmax(y, z), v, {inner}))"


declare(quantize.FakeQuantize, _fake_quantize)

# Added to what lies within 2^22 around 0, this leaves the nearest whole number in the lower bits.
_LARGE = "(F)(0x1.8p23f)"
_WITHIN = "fmin(fmax(x, (F)({low})), (F)({high}))"
declare(ToWhole, f"({_WITHIN} + {_LARGE}) - {_LARGE}")
declare(ToByte, f"{_WITHIN} + {_LARGE}")  # see `expression`, which takes the lower bits
