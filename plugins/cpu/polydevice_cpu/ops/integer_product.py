"""IntegerProduct."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.rewrites.integers.integer_product import IntegerProduct
from polydevice_cpu.implement import implements, run


@implements(IntegerProduct)
def integer_product(
    op: IntegerProduct,
    x: Array,
    w: Array,
    scale: Array,
    zero: Array,
    factor: Array,
    *rest: Array,
) -> Array:
    """Multiply in f32, in which sums below 2^24 are exact, and scale."""
    wide = x.astype(np.float32) - zero.astype(np.float32).reshape(())
    (sums,) = run(op.product, [wide, w.astype(np.float32), *rest])
    result: Array = sums * (scale * factor.reshape(()))
    return result
