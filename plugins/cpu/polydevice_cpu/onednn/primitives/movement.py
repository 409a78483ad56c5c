"""Moving data: reorder (layout and element type), concatenation, resampling."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import FORWARD_INFERENCE, Algorithm
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import engine
from polydevice_cpu.onednn.primitive import Primitive


def reorder(src: Descriptor, dst: Descriptor, attributes: Attributes) -> Primitive | None:
    """Copy between layouts and element types, with scales and zero points where asked."""
    return Primitive.create("reorder", src, engine(), dst, engine(), attributes)


def concat(
    dst: Descriptor | None, axis: int, sources: Sequence[Descriptor], attributes: Attributes
) -> Primitive | None:
    """Join along an axis; arguments ``MULTIPLE_SRC + k``. `dst` None: oneDNN chooses the layout."""
    return Primitive.create("concat", engine(), dst, len(sources), axis, tuple(sources), attributes)


def resampling(
    src: Descriptor, dst: Descriptor, attributes: Attributes, *, linear: bool
) -> Primitive | None:
    """Resize the spatial sizes to the destination's, half-pixel centres, nearest or linear."""
    made = Primitive.create(
        "resampling_forward",
        engine(),
        FORWARD_INFERENCE,
        Algorithm.RESAMPLING_LINEAR if linear else Algorithm.RESAMPLING_NEAREST,
        None,
        src,
        dst,
        attributes,
    )
    return made and made.given(src, dst)
