"""Logic: what is not 0 is true."""

from __future__ import annotations

from polydevice.ops import logical
from polydevice_gpu.kernels.pointwise.expression import declare

for _op, _text in {
    logical.LogicalAnd: "x != 0 && y != 0",
    logical.LogicalOr: "x != 0 || y != 0",
    logical.LogicalXor: "(x != 0) != (y != 0)",
    logical.Xor: "(x != 0) != (y != 0)",
    logical.LogicalNot: "x == 0",
}.items():
    declare(_op, _text, any_type=True, scalar=True)
