"""Softmax, layer normalisation, local response normalisation."""

from __future__ import annotations

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import (
    FORWARD_INFERENCE,
    USE_SCALE,
    USE_SHIFT,
    Algorithm,
)
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import engine
from polydevice_cpu.onednn.primitive import Primitive


def softmax(
    src: Descriptor,
    dst: Descriptor,
    axis: int,
    attributes: Attributes,
    *,
    logarithm: bool = False,
) -> Primitive | None:
    """Softmax (or its logarithm) along one axis."""
    made = Primitive.create(
        "softmax_forward",
        engine(),
        FORWARD_INFERENCE,
        Algorithm.SOFTMAX_LOG if logarithm else Algorithm.SOFTMAX_ACCURATE,
        src,
        dst,
        axis,
        attributes,
    )
    return made and made.given(src, dst)


def layer_normalization(
    src: Descriptor, dst: Descriptor, epsilon: float, attributes: Attributes, *, affine: bool
) -> Primitive | None:
    """Normalise the last dimension; with `affine`, arguments SCALE and SHIFT [C] in f32."""
    made = Primitive.create(
        "layer_normalization_forward",
        engine(),
        FORWARD_INFERENCE,
        src,
        dst,
        None,
        epsilon,
        USE_SCALE | USE_SHIFT if affine else 0,
        attributes,
    )
    if made is not None:
        made.epsilon = epsilon
    return made and made.given(src, dst)


def lrn(
    src: Descriptor,
    dst: Descriptor,
    size: int,
    alpha: float,
    beta: float,
    k: float,
    attributes: Attributes,
    *,
    across_channels: bool,
) -> Primitive | None:
    """Local response normalisation over `size` neighbours."""
    made = Primitive.create(
        "lrn_forward",
        engine(),
        FORWARD_INFERENCE,
        Algorithm.LRN_ACROSS_CHANNELS if across_channels else Algorithm.LRN_WITHIN_CHANNEL,
        src,
        dst,
        size,
        alpha,
        beta,
        k,
        attributes,
    )
    return made and made.given(src, dst)
