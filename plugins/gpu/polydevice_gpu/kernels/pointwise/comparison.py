"""Comparisons."""

from __future__ import annotations

from polydevice.ops import comparison
from polydevice_gpu.kernels.pointwise.expression import declare

for _op, _text in {
    comparison.Equal: "x == y",
    comparison.NotEqual: "x != y",
    comparison.Less: "x < y",
    comparison.LessEqual: "x <= y",
    comparison.Greater: "x > y",
    comparison.GreaterEqual: "x >= y",
}.items():
    declare(_op, _text, any_type=True, scalar=True)
