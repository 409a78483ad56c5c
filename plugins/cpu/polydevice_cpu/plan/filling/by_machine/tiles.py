"""Convolutions and products of bytes in AMX tiles, which machine code for all sizes computes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import cast
from weakref import WeakValueDictionary

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_size import Number
from polydevice_cpu.algorithms.by_machine.amx.instructions import has_tiles_of_bytes
from polydevice_cpu.algorithms.by_machine.amx.kernel import Form
from polydevice_cpu.algorithms.by_machine.amx.layer import (
    Matrices,
    Weights,
    code_of_pictures,
    packed,
)
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.algorithms.by_machine.windows.covers import Windows
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.onednn.primitive import SymbolicPrimitive
from polydevice_cpu.plan.filling.by_machine.integers import Prepared, is_depthwise
from polydevice_cpu.plan.filling.folded import fold_of
from polydevice_cpu.plan.filling.recipe import ValueForm

_CONVOLUTION, _PRODUCT = "convolution_forward", "matmul"
_WEIGHTS_AT = {_CONVOLUTION: 4, _PRODUCT: 2}
_GEOMETRY = slice(7, 11)

_known: WeakValueDictionary[object, Weights] = WeakValueDictionary()
_lock = threading.Lock()


def may_be_in_tiles(given: SymbolicPrimitive) -> bool:
    """Whether AMX tiles may compute a primitive of bytes, as far as sizes do not decide."""
    if given.name not in _WEIGHTS_AT or not has_tiles_of_bytes():
        return False
    weights = given.arguments[_WEIGHTS_AT[given.name]]
    assert isinstance(weights, Descriptor)
    if given.name == _PRODUCT:
        return all(type(size) is int for size in weights.shape) and weights.shape[:-2] == (1,) * (
            len(weights.shape) - 2
        )
    geometry = cast("Sequence[tuple[Number, ...]]", given.arguments[_GEOMETRY])
    if is_depthwise(given) or len(weights.shape) != len(geometry[0]) + 2:
        return False
    return fold_of(given) is not None and all(
        type(size) is int for sizes in (weights.shape, *geometry[:3]) for size in sizes
    )


def matrices_of(given: SymbolicPrimitive, found: Prepared, form: ValueForm) -> Matrices | None:
    """Return what is the same for all sizes; None where tiles do not compute it.

    Args:
        given: the primitive.
        found: what is the same, whichever code computes it.
        form: of its weights.
    """
    array = form.given.storage.array
    if not may_be_in_tiles(given) or array is None or array.dtype != np.int8 or not form.is_packed:
        return None
    layout = given.arguments[_WEIGHTS_AT[given.name]]
    assert isinstance(layout, Descriptor)
    gap = 0
    if given.name == _PRODUCT:
        weights = array.reshape(1, 1, *layout.shape[-2:])
    else:
        weights = np.moveaxis(array.reshape(layout.shape), (0, 1), (-1, -2))
        _, gaps, *_ = cast("Sequence[tuple[int, ...]]", given.arguments[_GEOMETRY])
        fold = fold_of(given)
        if fold is None:
            return None
        gap = gaps[-1] if fold.axes == 1 else fold.each(gaps, 0)[-1]
        *window, channels, results = weights.shape
        window = [1, *window] if fold.axes == 1 else [*fold.each(window, 1)]
        weights = weights.reshape(*window, channels, results)
    functions, integers = found.functions, found.functions.integers
    assert integers is not None
    code = Form(False, False, functions.has_bias, integers._replace(rest=0), functions.chain)
    return Matrices(shared_weights(array, weights, gap), found.constants(None), code)


def shared_weights(array: Array, weights: Array, gap: int = 0) -> Weights:
    """Return weights as code reads them, once for all that have the same.

    Args:
        array: what they are a view of.
        weights: see `packed`.
        gap: likewise.
    """
    key = address_of(array), array.shape, array.strides, weights.shape, gap
    with _lock:
        known = _known.get(key)
        if known is None or known.source() is None:
            known = _known[key] = packed(weights, gap, array)
        return known


def code_in_tiles(
    given: Matrices,
    source: Sequence[Number],
    result: Sequence[Number],
    windows: Windows,
    threads: int,
) -> Code | None:
    """Return code for pictures or lines; None where there is none for these sizes.

    Args:
        given: what is the same for all sizes.
        source: [N, C, H, W], or [N, C, W], whose channels lie next to each other.
        result: likewise.
        windows: where they lie; of lines, along the first axis.
        threads: how many share the work.
    """
    if len(source) == 3:
        (batch, channels, wide), (_, results, length) = source, result
        source, result = (batch, channels, 1, wide), (batch, results, 1, length)
        sizes, steps, gaps, pads, *_ = windows
        windows = windows._replace(sizes=sizes[::-1], steps=steps[::-1])
        windows = windows._replace(gaps=gaps[::-1], pads=pads[::-1])
    return code_of_pictures(given, source, result, windows, threads)
