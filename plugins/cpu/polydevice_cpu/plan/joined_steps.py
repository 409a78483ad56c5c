"""Steps that machine code computes together with what is done to each of their results then."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.plan.instead_of_primitives import (
    ROWS_READ,
    Following,
    following,
    joining,
    normalising,
)
from polydevice_cpu.plan.step import BY_ROWS, CodeStep, PrimitiveStep, Step
from polydevice_cpu.plan.value import Kind, Storage, Value


def joined_steps(steps: Sequence[Step], outputs: Sequence[Value | None]) -> list[Step]:
    """Return steps of which some are two: normalised or joined values that are rounded then.

    The value between two must not be read elsewhere. Only for plans of one's own: what takes the
    place of another one's step has to give the same bits.
    """
    touched: Counter[Storage] = Counter()
    for step in steps:
        touched.update({value.storage.root for value in step.values})
    touched.update(value.storage.root for value in outputs if value is not None)
    found: list[Step] = []
    for step in steps:
        made = _together(found[-1], step, touched) if found else None
        if made is None:
            found.append(step)
        else:
            found[-1] = made
    return found


def _together(first: Step, second: Step, touched: Counter[Storage]) -> CodeStep | None:
    """What computes both; None where there is no code for it."""
    if not (isinstance(first, PrimitiveStep) and isinstance(second, PrimitiveStep)):
        return None
    made = {"layer_normalization": _normalised, "concat": _joined}.get(first.primitive.kind)
    if made is None or second.primitive.kind not in ("binary", "eltwise"):
        return None
    if any(step.strips or step.blocks or step.primitive.threads > 1 for step in (first, second)):
        return None
    between, read = first.arguments[Arg.DST], second.arguments[Arg.SRC]
    storage, result = between.storage.root, second.arguments[Arg.DST]
    if read.storage.root is not storage or storage.kind is not Kind.ARENA or touched[storage] != 2:
        return None
    if not (between.has_no_gaps and read.has_no_gaps) or read.strides != result.strides:
        return None
    if between.elements != read.elements or between.strides is None:
        return None
    then = following(second)
    return None if then is None else made(first, second, then)


def _normalised(first: PrimitiveStep, second: PrimitiveStep, then: Following) -> CodeStep | None:
    result = second.arguments[Arg.DST]
    code = normalising(first, then.steps)
    if code is None:
        return None
    inputs = [first.arguments[place] for place in ROWS_READ if place in first.arguments]
    return _step(first, second, CodeStep("", "", code, [*inputs, *then.operands], [result]))


def _joined(first: PrimitiveStep, second: PrimitiveStep, then: Following) -> CodeStep | None:
    between, result = first.arguments[Arg.DST], second.arguments[Arg.DST]
    inputs = [value for index, value in sorted(first.arguments.items()) if index != Arg.DST]
    code = joining([*inputs, between], then=then)  # numbers lie alike in both
    if code is None:
        return None
    return _step(first, second, CodeStep("", "", code, [*inputs, *then.operands], [result]))


def _step(first: PrimitiveStep, second: PrimitiveStep, made: CodeStep) -> CodeStep:
    """The step with names of both."""
    made.name, made.type = second.name, f"{first.type}+{second.type}"
    layers = [each for step in (first, second) for each in step.layers or (step.name,)]
    made.layers, made.implementation = tuple(layers), BY_ROWS
    return made
