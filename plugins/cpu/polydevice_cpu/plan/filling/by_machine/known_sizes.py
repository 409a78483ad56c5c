"""Steps of known sizes that multiply bytes in AMX tiles, by code of our own instead of oneDNN's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from polydevice_cpu.algorithms.by_machine.amx.layer import code_at_positions
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import channels_last_strides, same_steps
from polydevice_cpu.onednn.primitive import SymbolicPrimitive
from polydevice_cpu.plan.filling.by_machine.integers import (
    has_code_of_bytes,
    is_of_bytes,
    prepared,
    read_of,
)
from polydevice_cpu.plan.filling.by_machine.tiles import (
    code_in_tiles,
    matrices_of,
    may_be_in_tiles,
)
from polydevice_cpu.plan.filling.folded import fold_of
from polydevice_cpu.plan.filling.recipe import ValueForm
from polydevice_cpu.plan.step import IN_TILES, CodeStep, PrimitiveStep
from polydevice_cpu.plan.value import Value

LEAST = 1 << 18
"""Fewer products are left to what computes few numbers: they take some microseconds."""

_PRODUCT = "matmul"
_GEOMETRY = slice(7, 11)


def in_tiles_of(step: PrimitiveStep) -> CodeStep | None:
    """Return what computes a step in tiles; None where these do not."""
    asked = step.primitive.made_of
    if asked is None:
        return None
    given = SymbolicPrimitive(step.primitive, *asked)
    given.given(step.primitive.src, step.primitive.dst)
    if not is_of_bytes(given) or not may_be_in_tiles(given):
        return None
    if not has_code_of_bytes(given, in_tiles=True):
        return None
    forms, numbers = [], {}
    for number, (at, value) in enumerate(step.arguments.items()):
        numbers[at] = number
        forms.append(ValueForm(value, -1, -1, None, at == Arg.WEIGHTS))
    code = _code(given, numbers, forms)
    if code is None:
        return None
    read = [step.arguments[at] for at in read_of(given)]
    written = [step.arguments[Arg.DST]]
    return CodeStep(step.name, step.type, code, read, written, step.layers, IN_TILES)


def _code(
    given: SymbolicPrimitive,
    numbers: Mapping[int, int],
    forms: Sequence[ValueForm],
) -> Code | None:
    source, result = (forms[numbers[at]].given for at in (Arg.SRC, Arg.DST))
    weights = forms[numbers[Arg.WEIGHTS]]
    array = weights.given.storage.array
    assert array is not None
    is_product = given.name == _PRODUCT
    results = result.shape[-1 if is_product else 1]
    if math.prod(result.shape) * (array.size // results) < LEAST:
        return None
    found = prepared(given, numbers, forms)
    if found is None or not all(
        _lies_as_read(value, is_product=is_product) for value in (source, result)
    ):
        return None
    matrices = matrices_of(given, found, weights)
    if matrices is None:
        return None
    if is_product:
        return code_at_positions(matrices, math.prod(source.shape[:-1]), given.threads)
    steps, gaps, pads, behind = cast("Sequence[tuple[int, ...]]", given.arguments[_GEOMETRY])
    window = array.shape[2:]
    if {*window, *steps} == {1} and {*pads, *behind} == {0}:
        positions = source.shape[0] * math.prod(source.shape[2:])
        return code_at_positions(matrices, positions, given.threads)
    fold = fold_of(given)
    if fold is None:
        return None
    windows = fold.windows(window, (steps, gaps, pads), is_own=False)
    shapes = source.shape, result.shape
    if fold.axes == 3:
        shapes = fold.shape(source.shape), fold.shape(result.shape)
    return code_in_tiles(matrices, *shapes, windows, given.threads)


def _lies_as_read(value: Value, *, is_product: bool) -> bool:
    """Whether channels lie next to each other, and all without gaps."""
    if is_product:
        return value.is_dense
    last = channels_last_strides(value.shape)
    return value.strides is not None and same_steps(value.shape, value.strides, last)
