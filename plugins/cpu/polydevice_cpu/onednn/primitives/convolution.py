"""Convolution and deconvolution, 1D to 3D, grouped or not."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import FORWARD_INFERENCE, Algorithm, DataType
from polydevice_cpu.onednn.defects import TILES_OF_BLOCKS, leaves_out_rows
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import engine
from polydevice_cpu.onednn.primitive import Primitive


def convolution(
    src: Descriptor,
    weights: Descriptor,
    bias: Descriptor | None,
    dst: Descriptor,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    attributes: Attributes,
    *,
    algorithm: Algorithm = Algorithm.CONVOLUTION_DIRECT,
) -> Primitive | None:
    """Convolution of `src` [N, C, spatial…].

    `weights` are [O, C, kernel…], or [G, O/G, C/G, kernel…] with groups. `dilations` count from
    1 as everywhere in polydevice (oneDNN itself counts from 0).
    """
    made = _created(
        "convolution_forward",
        algorithm,
        (src, weights, bias, dst),
        (strides, dilations, pads_begin, pads_end),
        attributes,
    )
    return None if made is None or _is_wrong(made, strides, pads_begin) else made


_TILE_CHANNELS = 32
"""Numbers of 16 bits in a row of a tile."""


def _is_wrong(made: Primitive, strides: Sequence[int], pads_begin: Sequence[int]) -> bool:
    """Whether the code computes something else.

    Where so many pixels of a row as divide window and step fill rows of tiles, which the channels
    of one do not, oneDNN 3.2 takes the weights of others for them, as of 2x2 windows in steps of 2
    over 48 channels. Where planes or rows between windows are left out, as by 3x3 windows in steps
    of 4 and 1, threads write one another's rows, and with gaps in windows it writes beyond its
    memory. All others of 4,199 random convolutions were right.
    """
    by_tiles = made.implementation.startswith(TILES_OF_BLOCKS)
    if not by_tiles or made.src.data_type not in (DataType.BF16, DataType.F16):
        return False
    channels, *kernel = made.weights.shape[-1 - len(strides) :]
    if leaves_out_rows(kernel, strides):
        return True
    pixels = math.gcd(kernel[-1], strides[-1])
    row = channels * pixels
    are_whole = pixels > 1 and row % _TILE_CHANNELS == 0 and row > _TILE_CHANNELS
    return are_whole and channels % _TILE_CHANNELS != 0 and not pads_begin[-1]


def deconvolution(
    src: Descriptor,
    weights: Descriptor,
    bias: Descriptor | None,
    dst: Descriptor,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    attributes: Attributes,
) -> Primitive | None:
    """Transposed convolution; weights are [O, C, kernel…] or [G, O/G, C/G, kernel…] here too."""
    return _created(
        "deconvolution_forward",
        Algorithm.DECONVOLUTION_DIRECT,
        (src, weights, bias, dst),
        (strides, dilations, pads_begin, pads_end),
        attributes,
    )


def _created(
    name: str,
    algorithm: Algorithm,
    operands: tuple[Descriptor, Descriptor, Descriptor | None, Descriptor],
    geometry: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]],
    attributes: Attributes,
) -> Primitive | None:
    strides, dilations, pads_begin, pads_end = (tuple(sizes) for sizes in geometry)
    steps = tuple(size - 1 for size in dilations)
    made = Primitive.create(
        *(name, engine(), FORWARD_INFERENCE, algorithm, *operands),
        *(strides, steps, pads_begin, pads_end, attributes),
    )
    src, weights, bias, dst = operands
    return made and made.given(src, dst, weights, bias)
