"""Quantisation with limits."""

from __future__ import annotations

from polydevice.dtype import ElementType
from polydevice.ops import quantize
from polydevice_gpu.kernels.pointwise.expression import declare


def _fake_quantize(op: quantize.FakeQuantize, _: list[ElementType]) -> str:
    steps = f"{op.levels - 1}"
    inner = f"rint((x - y) / (z - y) * {steps}) / {steps} * (v - w) + w"
    return f"WHERE(x <= fmin(y, z), w, WHERE(x > fmax(y, z), v, {inner}))"


declare(quantize.FakeQuantize, _fake_quantize)
