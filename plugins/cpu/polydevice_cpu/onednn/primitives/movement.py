"""Moving data: reorder (layout and element type), concatenation, resampling."""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import FORWARD_INFERENCE, Algorithm
from polydevice_cpu.onednn.descriptor import Descriptor, required
from polydevice_cpu.onednn.engine import engine
from polydevice_cpu.onednn.primitive import Primitive


def reorder(src: Descriptor, dst: Descriptor, attributes: Attributes) -> Primitive | None:
    """Copy between layouts and element types, with scales and zero points where asked."""
    description = required().create_if_supported(
        "reorder_primitive_desc_create",
        src.handle,
        engine(),
        dst.handle,
        engine(),
        attributes.handle,
    )
    return None if description is None else Primitive(description, "reorder")


def concat(
    dst: Descriptor | None, axis: int, sources: Sequence[Descriptor], attributes: Attributes
) -> Primitive | None:
    """Join along an axis; arguments ``MULTIPLE_SRC + k``. `dst` None: oneDNN chooses the layout."""
    handles = (c.c_void_p * len(sources))(*[s.handle.value for s in sources])
    return Primitive.create(
        "concat", dst.handle if dst else None, len(sources), axis, handles, attributes.handle
    )


def resampling(
    src: Descriptor, dst: Descriptor, attributes: Attributes, *, linear: bool
) -> Primitive | None:
    """Resize the spatial sizes to the destination's, half-pixel centres, nearest or linear."""
    return Primitive.create(
        "resampling_forward",
        FORWARD_INFERENCE,
        Algorithm.RESAMPLING_LINEAR if linear else Algorithm.RESAMPLING_NEAREST,
        None,
        src.handle,
        dst.handle,
        attributes.handle,
    )
