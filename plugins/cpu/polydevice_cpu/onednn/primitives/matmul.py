"""Matrix products: batched matmul and inner product (fully connected)."""

from __future__ import annotations

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import FORWARD_INFERENCE
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.primitive import Primitive


def matmul(
    src: Descriptor,
    weights: Descriptor,
    bias: Descriptor | None,
    dst: Descriptor,
    attributes: Attributes,
) -> Primitive | None:
    """[…, M, K] x […, K, N]; batch sizes equal or 1; bias [1…, 1 or M, N]."""
    return Primitive.create(
        "matmul",
        src.handle,
        weights.handle,
        bias.handle if bias else None,
        dst.handle,
        attributes.handle,
    )


def inner_product(
    src: Descriptor,
    weights: Descriptor,
    bias: Descriptor | None,
    dst: Descriptor,
    attributes: Attributes,
) -> Primitive | None:
    """[M, K] or [M, C, spatial…] with weights [N, K] or [N, C, spatial…]; bias [N]; dst [M, N]."""
    return Primitive.create(
        "inner_product_forward",
        FORWARD_INFERENCE,
        src.handle,
        weights.handle,
        bias.handle if bias else None,
        dst.handle,
        attributes.handle,
    )
