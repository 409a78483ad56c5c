"""Code of oneDNN's that writes beyond its memory: for what it would compute, the next one is taken.

What is only wrong is found by trials; to try what writes elsewhere ends the process.
"""

from __future__ import annotations

import ctypes as c
from collections.abc import Sequence
from typing import Any

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import required

_CONVOLUTION, _SRC, _WEIGHTS, _STEPS, _GAPS = "convolution_forward", 3, 4, 7, 8
_PADS, _ATTRIBUTES = slice(9, 11), 11
_TILES, TILES_OF_BLOCKS = "jit:avx512_core_amx", "brgconv:avx512_core_amx"


def passes_over(kind: str, description: c.c_void_p, arguments: Sequence[Any]) -> bool:
    """Move a description to the first code that keeps to its memory; return whether there is one.

    Of oneDNN 3.2, code with AMX tiles does not for some convolutions of bytes:

    * Those that have a zero point, with gaps in windows and borders: where windows lie in the
      border on both sides, it counts wrong how many there are for which it keeps what the zero
      point adds. Of 731 random ones with gaps, 8 ended the process and 3 wrote beyond the result;
      of 1,002 without, none.
    * Those that leave out rows or planes between windows, as 1x3 windows in steps of 2: it keeps
      too little room for the lines that it copies (oneDNN's pull request 5494 says why).

    Args:
        kind: of primitive, as `Primitive.create` has it.
        description: let go of where there is none.
        arguments: that it was made with.
    """
    if kind != _CONVOLUTION or arguments[_SRC].data_type not in (DataType.U8, DataType.S8):
        return True
    codes = [_TILES] if _has_zeros_in_gaps(arguments) else []
    if leaves_out_rows(arguments[_WEIGHTS].shape, arguments[_STEPS]):
        codes.append(TILES_OF_BLOCKS)
    if not codes:
        return True
    library, name = required(), c.c_char_p()
    while True:
        library.call("primitive_desc_query", description, Query.IMPL_INFO, 0, c.byref(name))
        assert name.value is not None
        if not name.value.decode().startswith(tuple(codes)):
            return True
        if library.value("primitive_desc_next_impl", description):
            library.destroy("primitive_desc_destroy", description)
            return False


def leaves_out_rows(weights: Sequence[int], steps: Sequence[int]) -> bool:
    """Whether windows of weights of this shape leave out rows or planes between them."""
    window = weights[-len(steps) : -1]
    return any(size < step for size, step in zip(window, steps[:-1], strict=True))


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
