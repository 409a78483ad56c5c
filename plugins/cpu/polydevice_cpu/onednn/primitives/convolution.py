"""Convolution and deconvolution, 1D to 3D, grouped or not."""

from __future__ import annotations

from collections.abc import Sequence

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import FORWARD_INFERENCE, Algorithm
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
    return _created(
        "convolution_forward",
        algorithm,
        (src, weights, bias, dst),
        (strides, dilations, pads_begin, pads_end),
        attributes,
    )


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
