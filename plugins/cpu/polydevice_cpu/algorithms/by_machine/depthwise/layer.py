"""Layers of depthwise convolutions on bfloat16, as calls of machine code."""

from __future__ import annotations

import struct
from array import array
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import PARTS_AT_ONCE, Code, has_avx512, may_share
from polydevice_cpu.algorithms.by_machine.depthwise.kernel import (
    AT,
    HIGHEST,
    LANES,
    Form,
    kernel,
    most_at_once,
)
from polydevice_cpu.algorithms.by_machine.windows.following import OF_POWERS, Function, Link

BLOCK = 2 * LANES
RING_BYTES = 40 << 10
"""The most for lines of the source, in the processor's first cache."""

_ORDER = struct.unpack("<8q", struct.pack("<32H", *[n // 2 + n % 2 * LANES for n in range(BLOCK)]))
"""Where channels are when those with odd numbers are behind the others."""

Shape = tuple[int, ...]


class Layer(NamedTuple):
    """A depthwise convolution of pictures whose channels lie next to each other.

    Attributes:
        source, result: [N, C, H, W].
        window, steps, pads: rows and columns: of a window, between two windows, and how far the
            first one reaches over the beginning.
        links: functions that follow, and two numbers of each.
    """

    source: Shape
    result: Shape
    window: Shape
    steps: Shape
    pads: Shape
    links: tuple[Link, ...] = ()


def is_there() -> bool:
    """Whether the processor has bfloat16, and this process may run machine code."""
    return has_avx512("avx512bw", "avx512_bf16")


def is_known(layer: Layer) -> bool:
    """Whether there is code for such windows: small ones, of which each has a part of the picture.

    What lies before or behind the picture is written as zeros, up to where the window ends.
    """
    axes = zip(
        *(layer.window, layer.steps, layer.pads, layer.source[2:], layer.result[2:]), strict=True
    )
    return max(layer.window) <= HIGHEST and all(
        pad < size and 0 <= (count - 1) * step < length + pad
        for size, step, pad, length, count in axes
    )


def packed(values: Array) -> Array:
    """Return numbers of channels, [C, …], in the order in which they are read: by blocks of 32.

    The even ones of a block come first; where the last one has 16 or fewer, they stay in order.
    """
    channels, taps = values.shape[0], values.size // values.shape[0]
    blocks = -(-channels // BLOCK)
    whole = np.zeros((blocks * BLOCK, taps), np.float32)
    whole[:channels] = values.reshape(channels, taps)
    split: Array = whole.reshape(blocks, LANES, 2, taps).transpose(0, 3, 2, 1).copy()
    if 0 < channels % BLOCK <= LANES:
        split[-1] = whole[-BLOCK:].reshape(2, LANES, taps).transpose(2, 0, 1)
    return split


def prepared(layer: Layer, threads: int = 1) -> tuple[Any, bytes] | None:
    """Return a function and what it is told, but for addresses: of source, weights, bias, result.

    Weights and bias are `packed`. None where this process has no such code.

    Args:
        layer: what to compute.
        threads: how many share the work, of which each takes a part at a time.
    """
    (pictures, channels, height, width), (_, _, high, wide) = layer.source, layer.result
    left = channels % BLOCK
    columns, at_once = _cut(layer)
    tall, broad = layer.window
    form = Form(tall, broad, layer.steps[1], at_once, channels > LANES, 0 < left <= LANES)
    function = _function(form, tuple(link[0] for link in layer.links))
    if function is None:
        return None
    blocks, across = -(-channels // BLOCK), -(-wide // columns)
    rows = _rows(layer, blocks * across * pictures, threads)
    items = blocks * across * -(-high // rows) * pictures
    each = items if threads == 1 else -(-items // (threads * PARTS_AT_ONCE))
    pixel = 2 * channels
    read = (columns - 1) * layer.steps[1] + layer.window[1]
    line = 4 * BLOCK * read
    last = columns - at_once
    numbers = (
        *(0, 0, 0, 0, items, each, 0, blocks, across, -(-high // rows), columns, rows),
        *(wide - columns, high - rows, layer.steps[1], layer.steps[0], layer.pads[1]),
        *(layer.pads[0], pixel, width * pixel, height * width * pixel),
        *(wide * pixel, high * wide * pixel, 4 * BLOCK * layer.window[0] * layer.window[1]),
        *(height, width, read, line, line * layer.window[0] + 192, -(-columns // at_once)),
        *(4 * BLOCK * last * layer.steps[1], last * pixel, (1 << (left or BLOCK)) - 1),
    )
    pairs = [(1.0, 0.0), (0.0, 0.0), *(link[1:] for link in layer.links)]
    floats = [number for pair in pairs for number in pair]
    text = array("q", numbers).tobytes() + struct.pack(f"<{len(floats)}f", *floats)
    odd = 8 * (len(numbers) + 1)
    text = text[:odd] + struct.pack("<I", 0xFFFF0000) + text[odd + 4 :]
    return function, text + array("q", (*OF_POWERS, *_ORDER)).tobytes()


def code(layer: Layer, threads: int = 1) -> Code:
    """Return code that is told where the source, weights, bias and result are, all as `prepared`.

    Args:
        layer: what to compute.
        threads: how many may share the work.
    """
    found = prepared(layer, threads if may_share() else 1)
    assert found is not None  # `is_there`
    items, each = struct.unpack_from("@2q", found[1], 8 * AT["items"])
    return Code.of([found]) if items == each else Code.together(found, AT["taken"], threads)


def _cut(layer: Layer) -> tuple[int, int]:
    """How many columns are computed before the next rows, and how many at once.

    The ring of lines stays small, and the least is computed twice.
    """
    high, wide = layer.window
    all_ = layer.result[3]
    most = max((RING_BYTES // (4 * BLOCK * high) - wide) // layer.steps[1] + 1, 1)
    columns = -(-all_ // -(-all_ // most))

    def cost(width: int) -> float:
        products = width * high * wide * 2
        return -(-columns // width) * (products / 2 + 2 * high * (wide + 2) + 4 * width + 8)

    widths = range(1, min(most_at_once(wide), columns) + 1)
    return columns, min(widths, key=lambda width: (cost(width), -width))


def _rows(layer: Layer, parts: int, threads: int) -> int:
    """How many rows are computed before the next block of channels."""
    high = layer.result[2]
    bands = 1 if threads == 1 else min(-(-threads * PARTS_AT_ONCE // parts), max(high // 8, 1))
    return -(-high // bands)


@lru_cache(maxsize=128)
def _function(form: Form, chain: tuple[Function, ...]) -> object | None:
    return function_of(kernel(form, chain))
