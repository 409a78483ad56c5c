"""Code of oneDNN's that writes beyond its memory: for what it would compute, the next one is taken.

What is only wrong is found by trials; to try what writes elsewhere ends the process.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from typing import Any

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg, Query
from polydevice_cpu.onednn.descriptor import required

_CONVOLUTION, _GAPS, _PADS, _ATTRIBUTES = "convolution_forward", 8, slice(9, 11), 11
_TILES = b"jit:avx512_core_amx"


def passes_over(kind: str, description: c.c_void_p, arguments: Sequence[Any]) -> bool:
    """Move a description to the first code that keeps to its memory; return whether there is one.

    A convolution of bytes that have a zero point, with gaps in its windows and borders: where
    windows lie in the border on both sides, oneDNN 3.2's code with AMX tiles counts wrong how many
    there are for which it keeps what the zero point adds. Of 731 random ones with gaps, 8 ended the
    process and 3 wrote beyond the result; of 1,002 without, none.

    Args:
        kind: of primitive, as `Primitive.create` has it.
        description: let go of where there is none.
        arguments: that it was made with.
    """
    if kind != _CONVOLUTION or not _has_zeros_in_gaps(arguments):
        return True
    library, name = required(), c.c_char_p()
    while True:
        library.call("primitive_desc_query", description, Query.IMPL_INFO, 0, c.byref(name))
        if name.value != _TILES:
            return True
        if library.value("primitive_desc_next_impl", description):
            library.destroy("primitive_desc_destroy", description)
            return False


def _has_zeros_in_gaps(arguments: Sequence[Any]) -> bool:
    attributes = arguments[_ATTRIBUTES]
    assert isinstance(attributes, Attributes)
    return (
        any(arguments[_GAPS])
        and any(pad for pads in arguments[_PADS] for pad in pads)
        and any(
            each.argument is Arg.SRC and each.zero_point_mask is not None
            for each in attributes.quantisation
        )
    )
