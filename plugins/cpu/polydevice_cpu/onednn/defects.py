"""Convolutions for which code of oneDNN 3.2's is wrong: for these, the next code is taken.

What is only wrong is found by trials of each class, too; to try what writes beyond its memory may
end the process. All of it was found by random convolutions, each by every code that oneDNN offers
and in a process of its own.
"""

from __future__ import annotations

import ctypes as c
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import required

_TRANSPOSED = "deconvolution_forward"
_KINDS = "convolution_forward", _TRANSPOSED
_BYTES = DataType.U8, DataType.S8
_ROW_BYTES = 64
"""A row of a tile."""
_SUSPECTS = "amx", "bf16", "vnni"
"""What the names of all code that is wrong for something have."""
_TILES, _TILES_OF_POINTS = "jit:avx512_core_amx", "jit_1x1:avx512_core_amx"
_TRANSPOSED_OF_BYTES, _BLOCKS = "jit_deconvolution:", "brgconv:"
_TILES_OF_BLOCKS, _BLOCKS_OF_HALVES = "brgconv:avx512_core_amx", "brgconv:avx512_core_bf16"


@dataclass(frozen=True)
class Form:
    """What decides whether code is wrong for a convolution.

    Attributes:
        source: type of its numbers.
        channels: of a window.
        sizes, results: of source and result, along each axis of the window.
        window, steps, gaps: along each of these axes; gaps count from 1.
        begin, end: how far a border reaches beyond the source.
        has_zero: whether a zero point is subtracted from the source.
        is_transposed: it is a transposed convolution.
    """

    source: DataType
    channels: int
    sizes: tuple[int, ...]
    results: tuple[int, ...]
    window: tuple[int, ...]
    steps: tuple[int, ...]
    gaps: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    has_zero: bool = False
    is_transposed: bool = False

    @classmethod
    def of(cls, kind: str, arguments: Sequence[Any]) -> Form:
        """The form of a primitive of this kind, as `Primitive.create` has it."""
        src, weights, _, dst, steps, gaps, begin, end, attributes = arguments[3:]
        assert isinstance(attributes, Attributes)
        axes = len(steps)
        return cls(
            src.data_type,
            weights.shape[-1 - axes],
            src.shape[-axes:],
            dst.shape[-axes:],
            weights.shape[-axes:],
            tuple(steps),
            tuple(gap + 1 for gap in gaps),
            tuple(begin),
            tuple(end),
            any(
                each.argument is Arg.SRC and each.zero_point_mask is not None
                for each in attributes.quantisation
            ),
            kind == _TRANSPOSED,
        )

    @property
    def reaches(self) -> list[int]:
        """How far each window reaches beyond its first number."""
        return [(size - 1) * gap for size, gap in zip(self.window, self.gaps, strict=True)]

    @property
    def leaves_out_rows(self) -> bool:
        """Whether there are rows or planes between windows, as of 1x3 ones in steps of 2."""
        return any(
            size < step for size, step in zip(self.window[:-1], self.steps[:-1], strict=True)
        )

    @property
    def has_windows_in_border(self) -> bool:
        """Whether a window may read nothing but border along an axis."""
        steps, begin = self.steps, list(self.begin)
        if self.is_transposed:  # code for steps of 1 computes it as a plain convolution
            steps = (1,) * len(steps)
            begin = [reach - each for reach, each in zip(self.reaches, begin, strict=True)]
        axes = (self.sizes, self.results, self.window, steps, self.gaps, begin, self.reaches)
        return any(
            start > reach or (result - 1) * step - start >= size or (window > 1 and size < gap)
            for size, result, window, step, gap, start, reach in zip(*axes, strict=True)
        )

    @property
    def has_plain_borders(self) -> bool:
        """Whether none of up to two axes has gaps, the last has a border, and none reaches two."""
        return (
            len(self.sizes) < 3
            and max(self.gaps) == 1
            and (self.begin[-1] > 0 or self.end[-1] > 0)
            and all(
                before + max(behind, 0) < size
                for before, behind, size in zip(self.begin, self.end, self.window, strict=True)
            )
        )

    @property
    def takes_pixels_for_channels(self) -> bool:
        """Whether neighbours of a row fill rows of tiles that the channels of one do not."""
        channels = _ROW_BYTES // (1 if self.source in _BYTES else 2)
        pixels = math.gcd(self.window[-1], self.steps[-1])
        row = self.channels * pixels
        are_whole = pixels > 1 and row % channels == 0 and row > channels
        return are_whole and self.channels % channels != 0 and not self.begin[-1]


def is_wrong(code: str, form: Form) -> bool:
    """Whether oneDNN's code of this name is wrong for a convolution.

    Where that is not said, thousands of random ones of each kind of numbers were right:

    * ``jit:avx512_core_amx`` of bytes with a zero point counts wrong how many windows there are for
      which it keeps what the zero point adds, where they reach two borders, where the last axis has
      none but another one does, and with gaps or over three axes in more ways: of 3,953 such, 63
      wrote beyond the result or ended the process and 25 were wrong; of 3,216 others, none.
    * ``jit_1x1:avx512_core_amx`` of bytes and 64 channels and more writes beyond the result where
      its pixels are computed by 9 to 16 in three turns, as 6x6: 122 of 122, and none of 8,182 of
      fewer channels, for which there often is no other code with tiles.
    * ``jit_deconvolution:avx512_core_vnni`` is wrong where results are behind all windows or
      between their rows (23 of 308), and with AMX, too, at times.
    * ``brgconv:avx512_core_vnni`` with a zero point was wrong once where windows reach two borders.
    * ``brgconv:avx512_core_amx`` ends the process where a window reads nothing but border. Where
      rows are left out it keeps too little room for the lines that it copies (oneDNN's pull request
      5494 says why), and for 16 bits threads write one another's rows; ``…_bf16`` writes beyond the
      result there. Where pixels are taken for channels it multiplies by weights of others.
    """
    name = code.rpartition("+")[2]  # what a transposed one is computed by
    of_bytes = form.source in _BYTES
    if name.startswith(_TILES_OF_POINTS):
        return of_bytes and form.channels >= _ROW_BYTES
    if name.startswith(_TRANSPOSED_OF_BYTES):
        return of_bytes and (min(form.end) < 0 or form.leaves_out_rows)
    if name.startswith(_TILES) or (name.startswith(_BLOCKS) and name.endswith("vnni")):
        has_border = any(each > 0 for each in (*form.begin, *form.end))
        return of_bytes and form.has_zero and has_border and not form.has_plain_borders
    if name.startswith(_TILES_OF_BLOCKS):
        if form.has_windows_in_border:
            return True
        return not form.is_transposed and (form.leaves_out_rows or form.takes_pixels_for_channels)
    return name.startswith(_BLOCKS_OF_HALVES) and form.leaves_out_rows


def passes_over(kind: str, description: c.c_void_p, arguments: Sequence[Any]) -> bool:
    """Move a description to the first code that is not wrong; return whether there is one.

    Args:
        kind: of primitive, as `Primitive.create` has it.
        description: let go of where there is none.
        arguments: that it was made with.
    """
    if kind not in _KINDS:
        return True
    library, name = required(), c.c_char_p()
    while True:
        library.call("primitive_desc_query", description, Query.IMPL_INFO, 0, c.byref(name))
        assert name.value is not None
        code = name.value.decode()
        if not any(each in code for each in _SUSPECTS):
            return True
        if not is_wrong(code, Form.of(kind, arguments)):
            return True
        if library.value("primitive_desc_next_impl", description):
            library.destroy("primitive_desc_destroy", description)
            return False
