"""Max and average pooling, 1D to 3D."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import FORWARD_INFERENCE, Algorithm
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import engine
from polydevice_cpu.onednn.primitive import Primitive


def pooling(
    algorithm: Algorithm,
    src: Descriptor,
    dst: Descriptor,
    strides: Sequence[int],
    kernel: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    attributes: Attributes,
) -> Primitive | None:
    """Pooling of [N, C, spatial…]; `algorithm` is one of ``Algorithm.POOLING_*``."""
    made = Primitive.create(
        "pooling_forward",
        engine(),
        FORWARD_INFERENCE,
        algorithm,
        src,
        dst,
        tuple(strides),
        tuple(kernel),
        tuple(d - 1 for d in dilations),
        tuple(pads_begin),
        tuple(pads_end),
        attributes,
    )
    return made and made.given(src, dst)
