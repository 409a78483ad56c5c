"""Operations on single elements: eltwise, binary with broadcast, PReLU."""

from __future__ import annotations

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import FORWARD_INFERENCE, Algorithm
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import engine
from polydevice_cpu.onednn.primitive import Primitive


def eltwise(
    algorithm: Algorithm,
    src: Descriptor,
    dst: Descriptor,
    alpha: float,
    beta: float,
    attributes: Attributes,
) -> Primitive | None:
    """Apply f(src; alpha, beta)."""
    made = Primitive.create(
        "eltwise_forward",
        engine(),
        FORWARD_INFERENCE,
        algorithm,
        src,
        dst,
        alpha,
        beta,
        attributes,
    )
    return made and made.given(src, dst)


def binary(
    algorithm: Algorithm,
    src0: Descriptor,
    src1: Descriptor,
    dst: Descriptor,
    attributes: Attributes,
) -> Primitive | None:
    """Apply src0 <algorithm> src1; same rank, sizes equal or 1 (arguments SRC and SRC_1)."""
    made = Primitive.create("binary", engine(), algorithm, src0, src1, dst, attributes)
    return made and made.given(src0, dst)


def prelu(
    src: Descriptor, slope: Descriptor, dst: Descriptor, attributes: Attributes
) -> Primitive | None:
    """Apply src if src > 0 else slope * src; the slope (argument WEIGHTS) has sizes equal or 1."""
    made = Primitive.create(
        "prelu_forward",
        engine(),
        FORWARD_INFERENCE,
        src,
        slope,
        dst,
        attributes,
    )
    return made and made.given(src, dst, slope)
