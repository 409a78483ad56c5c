"""Calls of steps that NumPy computes.

They are functions of this module with arguments: what a closure has caught takes twice as many
objects, through all of which Python's garbage collector goes.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from functools import partial

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import InferenceError
from polydevice_cpu.algorithms.by_machine.code import AddressedCalls
from polydevice_cpu.plan.binding.stretches import Call
from polydevice_cpu.plan.step import ArrayStep, Compute, TailStep, outputs_of


def call_of(
    step: ArrayStep,
    compute: Compute,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    stay: bool,
) -> Call:
    """Return what computes a step.

    Args:
        step: which it is.
        compute: its function.
        inputs: what it reads.
        outputs: where the results go.
        stay: whether these arrays stay the same; else they are looked up at each call.
    """
    if step.writes and stay:
        return partial(compute, *inputs, *outputs)
    if step.writes:
        return partial(written, compute, inputs, outputs)
    store = _store_one if len(outputs) == 1 else _store
    return partial(store, compute, inputs, outputs, step)


def compute_instead(step: ArrayStep, compute: Compute, call: AddressedCalls) -> None:
    """Compute a step whose machine code has refused what it reads.

    Raises:
        InferenceError: says what is wrong with it, if something is.
    """
    arrays = []
    for value, address in zip(step.values, call.addresses(len(step.values)), strict=True):
        assert value.strides is not None
        item = value.dtype.itemsize
        steps = [step * item for step in value.strides]
        reach = sum((n - 1) * step for n, step in zip(value.shape, steps, strict=True))
        data = memoryview((ctypes.c_char * (max(reach, 0) + item)).from_address(address))
        arrays.append(np.ndarray(value.shape, value.dtype, data, 0, steps))
    with np.errstate(all="ignore"):  # infinities, NaN and quotients by 0 are values like others
        if step.writes:
            compute(*arrays)
        else:
            count = len(step.inputs)
            _store(compute, arrays[:count], arrays[count:], step)


def tail_of(
    step: TailStep, compute: Compute, inputs: Sequence[Array], found: dict[int, Array]
) -> Call:
    """Return what computes results of sizes that only the data tells, and puts them where asked."""
    results = [(index, index in step.new) for index in step.results]
    return partial(_find, results, compute, inputs, found)


def _find(
    results: Sequence[tuple[int, bool]],
    compute: Compute,
    inputs: Sequence[Array],
    found: dict[int, Array],
) -> None:
    for (index, is_new), result in zip(results, outputs_of(compute(*inputs)), strict=True):
        # What is passed on as it is lies in the arena, where later steps write; no objects do.
        if not is_new and result.base is not None and not result.dtype.hasobject:
            for array in inputs:
                if np.may_share_memory(result, array):
                    result = result.copy(order="C")
                    break
        found[index] = result


def written(compute: Compute, *arrays: Sequence[Array]) -> None:
    """Compute what a function writes itself, of arrays that may have become others."""
    compute(*itertools.chain(*arrays))


def _store_one(
    compute: Compute, inputs: Sequence[Array], outputs: Sequence[Array], step: ArrayStep
) -> None:
    result = compute(*inputs)
    if type(result) is not np.ndarray:
        (result,) = outputs_of(result)
    place = outputs[0]
    if result.shape != place.shape or result.dtype != place.dtype:
        raise _mismatch(place, result, step)
    np.copyto(place, result)


def _store(
    compute: Compute, inputs: Sequence[Array], outputs: Sequence[Array], step: ArrayStep
) -> None:
    for place, result in zip(outputs, outputs_of(compute(*inputs)), strict=True):
        if result.shape != place.shape or result.dtype != place.dtype:
            raise _mismatch(place, result, step)
        np.copyto(place, result)


def _mismatch(place: Array, result: Array, step: ArrayStep) -> InferenceError:
    what = f"{step.type} {step.name!r} computed"
    if result.shape != place.shape:
        shapes = list(result.shape), list(place.shape)
        return InferenceError(f"{what} shape {shapes[0]} where {shapes[1]} was inferred")
    return InferenceError(f"{what} {result.dtype} where {place.dtype} was inferred")
