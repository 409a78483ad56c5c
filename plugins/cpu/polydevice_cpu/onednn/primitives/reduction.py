"""Reduction along any axes."""

from __future__ import annotations

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Algorithm
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import engine
from polydevice_cpu.onednn.primitive import Primitive


def reduction(
    algorithm: Algorithm, src: Descriptor, dst: Descriptor, attributes: Attributes
) -> Primitive | None:
    """Reduce, by an ``Algorithm.REDUCTION_*``, the dimensions whose destination size is 1."""
    made = Primitive.create("reduction", engine(), algorithm, src, dst, 0.0, 0.0, attributes)
    return made and made.given(src, dst)
