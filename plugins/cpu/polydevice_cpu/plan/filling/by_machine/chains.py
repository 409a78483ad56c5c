"""What follows a convolution in the same step, as machine code computes it."""

from __future__ import annotations

import numpy as np

from polydevice.dtype import Array
from polydevice.symbolic_size import Number, is_symbolic
from polydevice_cpu.algorithms.by_machine.windows.following import (
    LONGEST,
    UNLIKE_ONEDNN,
    Function,
    Link,
)
from polydevice_cpu.onednn.attributes import Attributes, Binary, PostOp, Prelu, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType
from polydevice_cpu.onednn.descriptor import Descriptor, is_strided
from polydevice_cpu.onednn.primitive import Argument, SymbolicPrimitive
from polydevice_cpu.plan.filling.recipe import ValueForm
from polydevice_cpu.plan.post_ops import link_of

ONE_SLOPE_PER_CHANNEL, _SUMS = Prelu(2), (Sum(), Sum(1.0, DataType.F32))


def chain_of(
    attributes: Attributes, result: Argument, *, as_onednn: bool = False
) -> tuple[Link, ...] | None:
    """What follows; None where there is no code for it.

    Args:
        attributes: of a primitive.
        result: the layout of what it computes.
        as_onednn: whether it has to be the same to the bit as oneDNN's.
    """
    made = [_link(each, result) for each in attributes.post_ops]
    found = tuple(each for each in made if each is not None)
    functions = [function for function, *_ in found]
    if as_onednn and not set(functions).isdisjoint(UNLIKE_ONEDNN):
        return None
    are_single = all(functions.count(each) < 2 for each in (Function.PRELU, Function.ADD))
    return found if are_single and len(found) == len(made) <= LONGEST else None


def _link(post_op: PostOp, result: Argument) -> Link | None:
    if post_op == ONE_SLOPE_PER_CHANNEL:
        return Function.PRELU, 0.0, 0.0
    if post_op in _SUMS:
        return Function.SUM, 0.0, 0.0
    if isinstance(post_op, Binary) and post_op.algorithm == Algorithm.BINARY_ADD:
        return (Function.ADD, 0.0, 0.0) if lies_as(post_op.operand, result) else None
    return link_of(post_op)


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


def inputs_of(given: SymbolicPrimitive) -> tuple[int, int]:
    """Return what a primitive that `may_be_by_machine` reads: its source, and what is added.

    By index on execution; the source once more where there is nothing to add.
    """
    attributes = next(each for each in given.arguments if isinstance(each, Attributes))
    for number, post_op in enumerate(attributes.post_ops):
        if isinstance(post_op, Binary):
            return Arg.SRC, Arg.ATTR_POST_OP * (number + 1) | Arg.SRC_1
    return Arg.SRC, Arg.SRC


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
