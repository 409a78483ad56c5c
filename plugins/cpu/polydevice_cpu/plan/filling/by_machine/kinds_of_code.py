"""Which of oneDNN's code is followed, whether it is for AVX-512 or for AVX2."""

from __future__ import annotations

from polydevice_cpu.onednn.primitive import Primitive

BY_LINES, OF_ONE_ELEMENT, OF_BLOCKS = "brgconv", "brgconv_1x1", "jit"
DEPTHWISE, PRODUCT, POOL_OF_BYTES = "brdgmm_dw", "brg", "jit_int"

_INSTRUCTIONS = "avx512_core", "avx2"


def kind_of_code(given: Primitive) -> str:
    """Return the name of a primitive's code; nothing where it is for other instructions."""
    name, _, instructions = given.implementation.partition(":")
    return name if instructions in _INSTRUCTIONS else ""
