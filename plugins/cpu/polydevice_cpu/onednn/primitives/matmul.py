"""Matrix products, batched or not."""

from __future__ import annotations

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import engine
from polydevice_cpu.onednn.primitive import Primitive


def matmul(
    src: Descriptor,
    weights: Descriptor,
    bias: Descriptor | None,
    dst: Descriptor,
    attributes: Attributes,
) -> Primitive | None:
    """[…, M, K] x […, K, N]; batch sizes equal or 1; bias [1…, 1 or M, N]."""
    made = Primitive.create(
        "matmul",
        engine(),
        src,
        weights,
        bias,
        dst,
        attributes,
    )
    return made and made.given(src, dst, weights, bias)
