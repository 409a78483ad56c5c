"""A choice between two values."""

from __future__ import annotations

from polydevice.ops.select import Select
from polydevice_gpu.kernels.pointwise.expression import declare

declare(Select, "x != 0 ? y : z", any_type=True, scalar=True)
