"""What follows a convolution in the same step, as machine code computes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_size import Number, is_symbolic
from polydevice_cpu.algorithms.by_machine.windows.following import (
    LONGEST_ROUNDED,
    Function,
    Link,
    is_unlike_onednn,
)
from polydevice_cpu.onednn.attributes import Attributes, Binary, PostOp, Prelu, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor, is_strided
from polydevice_cpu.onednn.primitive import Argument, SymbolicPrimitive
from polydevice_cpu.plan.filling.recipe import ValueForm
from polydevice_cpu.plan.post_ops import OF_ONE_NUMBER, OF_TENSORS, link_of

_RESULT_AT = {"convolution_forward": 6, "deconvolution_forward": 6, "matmul": 4}
"""Which argument of a primitive is the layout of its result."""

ONE_SLOPE_PER_CHANNEL, _SUMS = Prelu(2), (Sum(), Sum(1.0, DataType.F32))


def chain_of(
    attributes: Attributes,
    result: Argument,
    constants: Mapping[int, Array | None] | None = None,
    *,
    as_onednn: bool = False,
) -> tuple[Link, ...] | None:
    """What follows; None where there is no code for it.

    Args:
        attributes: of a primitive.
        result: the layout of what it computes.
        constants: the numbers of constants, by index on execution; None while none are known.
        as_onednn: whether it has to be the same to the bit as oneDNN's.
    """
    made = [
        _number_link(each, operand_of(number), constants) if _is_one(each) else _link(each, result)
        for number, each in enumerate(attributes.post_ops)
    ]
    found = tuple(each for each in made if each is not None)
    functions = [function for function, *_ in found]
    if as_onednn and any(map(is_unlike_onednn, functions)):
        return None
    return found if len(found) == len(made) <= LONGEST_ROUNDED else None


def _link(post_op: PostOp, result: Argument) -> Link | None:
    if post_op == ONE_SLOPE_PER_CHANNEL:
        return Function.PRELU, 0.0, 0.0
    if post_op in _SUMS:
        return Function.SUM, 0.0, 0.0
    if is_by_channel(post_op, result):
        return _BY_CHANNEL[post_op.algorithm], 0.0, 0.0
    if isinstance(post_op, Binary) and post_op.algorithm in OF_TENSORS:
        lies_so = lies_as(post_op.operand, result)
        return (OF_TENSORS[post_op.algorithm], 0.0, 0.0) if lies_so else None
    return link_of(post_op)


_BY_CHANNEL = {Algorithm.BINARY_ADD: Function.SHIFT, Algorithm.BINARY_MUL: Function.SCALE}


def is_by_channel(post_op: PostOp, result: Argument) -> TypeGuard[Binary]:
    """Return whether it adds one number to each channel, or multiplies it by one.

    Channels are what lies next to each other; the second axis where layouts do not tell.
    """
    if not isinstance(post_op, Binary) or post_op.algorithm not in _BY_CHANNEL:
        return False
    operand = post_op.operand
    if not isinstance(result, Descriptor) or operand.data_type is not DataType.F32:
        return False
    axis = 1
    for place, (size, step) in enumerate(zip(result.shape, result.strides or (), strict=False)):
        if is_known(size, step) and step == 1 < size:
            axis = place
    if len(operand.shape) != len(result.shape) or not is_known(*operand.shape, result.shape[axis]):
        return False
    sizes = [1] * len(result.shape)
    sizes[axis] = result.shape[axis]
    return [*operand.shape] == sizes


def _is_one(post_op: PostOp) -> TypeGuard[Binary]:
    """Whether it has an operand that is one number for all sizes."""
    if not isinstance(post_op, Binary) or not is_known(*post_op.operand.shape):
        return False
    return math.prod(post_op.operand.shape) == 1


def _number_link(
    post_op: Binary, index: int, constants: Mapping[int, Array | None] | None
) -> Link | None:
    """What follows of one number, which is 1 while none is known; None where it is no constant."""
    number = np.ones(1) if constants is None else constants.get(index)
    if number is None or post_op.algorithm not in OF_ONE_NUMBER:
        return None
    return OF_ONE_NUMBER[post_op.algorithm](float(number[0]))


def operand_of(number: int, argument: Arg = Arg.SRC_1) -> int:
    """Return the index on execution of what a post-operation reads."""
    return Arg.ATTR_POST_OP * (number + 1) | argument


def lies_as(layout: Descriptor, result: Argument, *, of_any_type: bool = False) -> bool:
    """Return whether a layout is that of the result for all sizes, and of its or of any type."""
    if not isinstance(result, Descriptor) or not (is_strided(layout) and is_strided(result)):
        return False
    if layout.data_type != result.data_type and not of_any_type:
        return False
    assert layout.strides is not None
    assert result.strides is not None
    pairs = zip((*layout.shape, *layout.strides), (*result.shape, *result.strides), strict=False)
    alike = all(one is other or (is_known(one, other) and one == other) for one, other in pairs)
    return alike and len(layout.shape) == len(result.shape)


def is_known(*sizes: Number) -> bool:
    """Whether none of these sizes is a formula."""
    return not any(map(is_symbolic, sizes))


def inputs_of(given: SymbolicPrimitive) -> tuple[int, ...]:
    """Return what a primitive that `may_be_by_machine` reads: its source, and what is added.

    By index on execution; the source once more where there is nothing to add.
    """
    attributes = next(each for each in given.arguments if isinstance(each, Attributes))
    result = given.arguments[_RESULT_AT.get(given.name, 0)]
    others = tuple(
        operand_of(number)
        for number, post_op in enumerate(attributes.post_ops)
        if isinstance(post_op, Binary) and not (_is_one(post_op) or is_by_channel(post_op, result))
    )
    return (Arg.SRC, *others) if others else (Arg.SRC, Arg.SRC)


def by_channel_of(attributes: Attributes, result: Argument) -> list[int]:
    """Return the indices on execution of what has a number for each channel, in turn."""
    found = []
    for number, post_op in enumerate(attributes.post_ops):
        if post_op == ONE_SLOPE_PER_CHANNEL:
            found.append(operand_of(number, Arg.WEIGHTS))
        elif not _is_one(post_op) and is_by_channel(post_op, result):
            found.append(operand_of(number))
    return found


def rows_of(
    indices: Sequence[int], constants: Mapping[int, Array | None], channels: int
) -> Array | None:
    """Return the numbers of channels, [what follows, channels]; None where some are no such."""
    rows = [constants.get(index) for index in indices]
    found = [row for row in rows if row is not None and row.size == channels]
    return np.stack(found) if len(found) == len(rows) else None


def numbers_of(form: ValueForm) -> Array | None:
    """Return the numbers of a constant that is the same for all sizes; None of others.

    Those that lie otherwise than oneDNN reads them are others.
    """
    value, array = form.given, form.given.storage.array
    if form.place >= 0 or array is None or value.offset_bytes:
        return None
    if value.dtype != np.float32 or not value.is_dense or not array.flags.c_contiguous:
        return None
    return array.reshape(-1).view(np.float32)
