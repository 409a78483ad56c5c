"""Attention whose scores are larger than the caches, as one step.

Scores, their shares and what is mixed by them are three steps, each of which goes through memory
of all scores; together they are computed some rows at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.algorithms.by_machine.attention import heads as by_machine
from polydevice_cpu.algorithms.by_machine.attention.heads import Heads
from polydevice_cpu.algorithms.by_machine.code import Code, has_avx512, may_share
from polydevice_cpu.algorithms.by_machine.matrices import Seen
from polydevice_cpu.algorithms.by_machine.matrix_code import Function
from polydevice_cpu.algorithms.by_machine.rows import shares
from polydevice_cpu.onednn.attributes import Binary
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.post_ops import product_link
from polydevice_cpu.plan.step import ArrayStep, ByMachine, CodeStep, Compute, PrimitiveStep, Step
from polydevice_cpu.plan.value import Kind, Storage, Value

LEAST_BYTES = 3 << 20
"""Of scores: of fewer all stay in the second cache, from one step to the next."""

LEAST_ROWS, LEAST_TERMS = 48, 8

_RANK = 4


@dataclass(frozen=True)
class SharesOfRows:
    """Starts what makes shares of numbers [before, length, behind]: see `shares.softmax`.

    Attributes:
        threads: how many may share the work.
        logarithm: whether the logarithms are wanted.
    """

    threads: int
    logarithm: bool

    def __call__(self, _: Context) -> Compute:
        """Return what computes it."""
        return ByMachine(self._compute, self._prepare, may_refuse=False)

    def _compute(self, x: Array, y: Array) -> tuple[()]:
        shares.softmax(x, y, logarithm=self.logarithm)
        return ()

    def _prepare(self, values: Sequence[Value]) -> Code | None:
        shape = values[0].shape
        return None if 0 in shape else shares.code(shape, self.threads, logarithm=self.logarithm)


class _Attention(NamedTuple):
    """Three steps that are one."""

    scores: PrimitiveStep
    shares: ArrayStep
    mixed: PrimitiveStep


def joined_attention(steps: Sequence[Step], outputs: Sequence[Value | None]) -> list[Step]:
    """Return steps of which those that are attention of many scores are one each.

    Nobody else may read scores or shares. All plans for the same sizes have the same: answers are
    those of three steps but for roundings.
    """
    if not has_avx512():
        return list(steps)
    touched: Counter[Storage] = Counter()
    for step in steps:
        touched.update({value.storage.root for value in step.values})
    touched.update(value.storage.root for value in outputs if value is not None)
    written = {value.storage.root: step for step in steps for value in _written(step)}
    instead: dict[int, Step | None] = {}
    for step in steps:
        found = _found(step, written, touched)
        made = None if found is None else _made(found)
        if found is not None and made is not None:
            instead |= {id(found.scores): None, id(found.shares): None, id(step): made}
    kept = (instead.get(id(step), step) for step in steps)
    return [step for step in kept if step is not None]


def _is_product(step: Step | None) -> TypeGuard[PrimitiveStep]:
    return (
        isinstance(step, PrimitiveStep)
        and step.primitive.kind == "matmul"
        and not (step.strips or step.blocks)
        and Arg.BIAS not in step.arguments
    )


def _written(step: Step) -> list[Value]:
    """What a product, or a step on arrays, writes."""
    if _is_product(step):
        return [step.arguments[Arg.DST]]
    return step.outputs if isinstance(step, ArrayStep) else []


def _found(
    step: Step, written: dict[Storage, Step], touched: Counter[Storage]
) -> _Attention | None:
    """The attention of which a step is the end; None of another step."""
    if not _is_product(step) or step.primitive.chain != ():
        return None
    read = step.arguments[Arg.SRC].storage.root
    middle = written.get(read)
    if not isinstance(middle, ArrayStep) or not isinstance(middle.start, SharesOfRows):
        return None
    given = middle.inputs[0].storage.root
    first = written.get(given)
    if not _is_product(first):
        return None
    between = [read, given]
    if any(each.kind is not Kind.ARENA or touched[each] != 2 for each in between):
        return None
    return _Attention(first, middle, step)


def _made(found: _Attention) -> Step | None:
    """One step; None where there is no code for it, or it is not worth it."""
    scores, middle, mixed = found
    assert isinstance(middle.start, SharesOfRows)
    before, length, behind = middle.inputs[0].shape
    first, result = scores.arguments[Arg.DST], mixed.arguments[Arg.DST]
    read = mixed.arguments[Arg.SRC]
    is_of_rows = behind == 1 and not middle.start.logarithm and first.shape == read.shape
    if first.shape[:-1] != result.shape[:-1]:  # some would be computed again and again
        return None
    if not is_of_rows or first.shape[-1] != length or not (first.is_dense and read.is_dense):
        return None
    chain = scores.primitive.chain
    if chain is None or 4 * before * length < LEAST_BYTES:
        return None
    functions: list[tuple[Function, Seen | tuple[float, float]]] = []
    operands = []
    for number, post_op in enumerate(chain, 1):
        link = product_link(post_op)
        if link is None:
            return None
        function, constants = link
        if isinstance(post_op, Binary):
            operands.append(scores.arguments[Arg.ATTR_POST_OP * number | Arg.SRC_1])
            seen = _seen(operands[-1])
            if seen is None:
                return None
            functions.append((function, seen))
        else:
            functions.append((function, constants))
    values = [scores.arguments[Arg.SRC], scores.arguments[Arg.WEIGHTS]]
    values.append(mixed.arguments[Arg.WEIGHTS])
    heads = _heads([*values, result], functions)
    threads = scores.primitive.threads
    if heads is None or (threads > 1 and not may_share()):
        return None
    code = by_machine.code_of(heads, threads)
    if code is None:
        return None
    storage = Storage(Kind.ARENA, 4 * by_machine.room_numbers(heads, threads))
    room = Value(storage, (storage.size_bytes // 4,), np.dtype(np.float32), (1,))
    layers = [each for step in found for each in step.layers or (step.name,)]
    types = "+".join(step.type for step in found)
    inputs = [*values, *operands]
    return CodeStep(mixed.name, types, code, inputs, [result, room], tuple(layers))


def _heads(
    values: Sequence[Value], functions: Sequence[tuple[Function, Seen | tuple[float, float]]]
) -> Heads | None:
    """What there is to compute; None where values lie otherwise than code reads them."""
    seen = [_seen(value) for value in values]
    if None in seen:
        return None
    queries, keys, mixed, result = (each for each in seen if each is not None)
    rows, positions = queries.shape[2], keys.shape[3]
    is_long = min(rows, positions) >= LEAST_ROWS and min(queries.shape[3], mixed.shape[3]) >= (
        LEAST_TERMS
    )
    if not is_long or mixed.strides[3] != 1 or result.strides[3] != 1:
        return None
    return Heads(queries, keys, mixed, result, tuple(functions))


def _seen(value: Value) -> Seen | None:
    """A value as matrices along two axes; None of one in blocks, or of other numbers."""
    more = _RANK - len(value.shape)
    if value.strides is None or more < 0 or value.dtype != np.float32 or 0 in value.shape:
        return None
    return Seen((1,) * more + value.shape, (0,) * more + value.strides)
