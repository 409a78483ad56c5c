"""Steps that our own machine code computes instead of oneDNN's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polydevice.symbolic_size import number_of
from polydevice_cpu.algorithms.by_machine.code import Code, may_share
from polydevice_cpu.algorithms.by_machine.functions import Activation
from polydevice_cpu.algorithms.by_machine.instructions import ADD, DIVIDE, MAX, MIN, MUL, SUB
from polydevice_cpu.algorithms.by_machine.reductions import layer_norm
from polydevice_cpu.algorithms.by_machine.rows import chain as chains
from polydevice_cpu.algorithms.by_machine.rows import elementwise, product
from polydevice_cpu.algorithms.by_machine.small import Form
from polydevice_cpu.algorithms.by_machine.windows.following import is_unlike_onednn
from polydevice_cpu.onednn.attributes import Binary, Eltwise, PostOp, Sum
from polydevice_cpu.onednn.constants import Algorithm, Arg
from polydevice_cpu.plan.building.chain import is_quicker_apart
from polydevice_cpu.plan.post_ops import link_of
from polydevice_cpu.plan.step import BY_ROWS, CodeStep, PrimitiveStep, Step
from polydevice_cpu.plan.value import Value

_PRODUCT = "brg:avx512_core"
"""oneDNN's code in whose order numbers are added."""

_BY_TERMS = ("AB16a64b", "aBC16b64c")
_PACKED = (*_BY_TERMS, "BA16a64b", "aCB16b64c")
_TERMS = 16
"""How it packs matrices, by 64 columns of so many terms."""

MOST_PARTS = 8
"""That are joined; each is a call."""

_INSTRUCTIONS = {
    Algorithm.BINARY_ADD: ADD,
    Algorithm.BINARY_SUB: SUB,
    Algorithm.BINARY_MUL: MUL,
    Algorithm.BINARY_DIV: DIVIDE,
    Algorithm.BINARY_MAX: MAX,
    Algorithm.BINARY_MIN: MIN,
}
_ACTIVATIONS = {
    Algorithm.TANH: Activation("tanh", 0, 0),
    Algorithm.SQUARE: Activation("square", 0, 0),
    Algorithm.ABS: Activation("abs", 0, 0),
    Algorithm.SQRT: Activation("sqrt", 0, 0),
    Algorithm.EXP: Activation("exp", 0, 0),
    Algorithm.ROUND: Activation("round", 0, 0),
}
_KINDS = {np.dtype(np.float32): "f", np.dtype(np.uint8): "u", np.dtype(np.int8): "s"}
_WORD_BYTES = 4


_UNLIKE_ONEDNN = (Algorithm.TANH, Algorithm.EXP)
"""What is not the same to the bit as oneDNN's, of `_ACTIVATIONS`."""


def by_machine(step: Step, *, as_onednn: bool = False, is_alone: bool = False) -> Step:
    """Return what machine code computes no slower than oneDNN's; for other steps, the step itself.

    Args:
        step: of a plan.
        as_onednn: whether it has to be the same to the bit as oneDNN's.
        is_alone: whether it has to be what several threads compute.
    """
    if not isinstance(step, PrimitiveStep) or step.strips or step.blocks:
        return step
    if as_onednn and (step.primitive.epsilon or not is_as_onednn(step.primitive.chain or ())):
        return step
    make = _MAKERS.get(step.primitive.kind)
    if make is None:
        return step
    is_whole = step.primitive.threads == 1 and not is_alone
    return make(step, elementwise.are_no_slower if is_whole else elementwise.are_few) or step


def is_as_onednn(chain: Sequence[PostOp]) -> bool:
    """Whether code of these functions gives the same bits as oneDNN's."""
    functions = [each for each in chain if isinstance(each, Eltwise)]
    links = [link for link in map(link_of, functions) if link is not None]
    are_links = not any(is_unlike_onednn(link[0]) for link in links)
    return are_links and all(each.algorithm not in _UNLIKE_ONEDNN for each in functions)


def _pointwise(step: PrimitiveStep, may_be: elementwise.MayBe) -> CodeStep | None:
    """What computes each number by itself; None where there is no code for it."""
    chain = own_chain(step)
    if chain is None:
        return None
    steps, operands = chain
    source, result = step.arguments[Arg.SRC], step.arguments[Arg.DST]
    threads = 1
    if are_shared(step.primitive.chain or ()):
        threads, may_be = step.primitive.threads, elementwise.are_no_slower
    kinds = _kinds(source, operands, result)
    if kinds is None or (kinds[1] != "f" and chains.HELD in steps):
        return None
    forms = _forms([source, *operands, result])
    if forms is None:
        return None
    told = elementwise.in_parts(steps, in_order(forms), threads, may_be, kinds)
    code = None if told is None else Code.shared(told, threads)
    return None if code is None else _code_step(step, code, [source, *operands])


def are_shared(chain: Sequence[PostOp]) -> bool:
    """Whether threads share numbers of which oneDNN's code takes longer for these functions."""
    return may_share() and any(map(is_quicker_apart, chain))


def own_chain(step: PrimitiveStep) -> tuple[list[chains.Step], list[Value]] | None:
    """Return what a pointwise primitive does to numbers of its source, and reads for that."""
    chain = _chain(step, 0)
    if chain is None:
        return None
    steps, operands = chain
    if operands and _is_nothing(steps[0], operands[0], step.arguments[Arg.SRC]):
        return steps[1:], operands[1:]  # how a function of the source is spelled
    return steps, operands


def in_order(forms: Sequence[Form]) -> list[Form]:
    """Return the same with axes in the order in which the last one, the result, lies in memory."""
    _, strides = forms[-1]
    if any(len(own) != len(strides) for _, own in forms):
        return list(forms)
    return turned(forms, order_of(forms[-1]))


def order_of(form: Form) -> list[int]:
    """Return the axes, the outermost first, as they lie now: any order is right for any size."""
    _, strides = form
    return sorted(range(len(strides)), key=lambda axis: -number_of(strides[axis]))


def turned(forms: Sequence[Form], order: Sequence[int]) -> list[Form]:
    """Return the same with axes in this order."""
    return [
        (tuple(sizes[axis] for axis in order), tuple(own[axis] for axis in order))
        for sizes, own in forms
    ]


def _is_nothing(step: chains.Step, operand: Value, source: Value) -> bool:
    """Whether a first step leaves every number as it is."""
    if step == MUL:
        number = operand.storage.array
        is_single = number is not None and number.dtype == np.float32 and number.size == 1
        return is_single and bool(np.all(number == 1))
    return step == MAX and operand is source


def _kinds(source: Value, operands: Sequence[Value], result: Value) -> elementwise.Kinds | None:
    """What a source and a result are of; None where there is no code for it."""
    if any(value.dtype != np.float32 for value in operands):
        return None
    kinds = _KINDS.get(source.dtype), _KINDS.get(result.dtype)
    return None if kinds[0] is None or kinds[1] is None else (kinds[0], kinds[1])


def _joining(step: PrimitiveStep, may_be: elementwise.MayBe) -> CodeStep | None:
    """What joins a few parts; None where there is no code for it."""
    inputs = [value for index, value in sorted(step.arguments.items()) if index != Arg.DST]
    values = [*inputs, step.arguments[Arg.DST]]
    axis = joined_axis(values)
    if axis is None:
        return None
    if may_be is elementwise.are_no_slower:
        may_be = elementwise.joins_no_slower
    code = joining(values, axis, may_be)
    return None if code is None else _code_step(step, code, inputs)


def joined_axis(values: Sequence[Value]) -> int | None:
    """Return the axis along which parts and their result, the last one, differ; None if none do."""
    sizes = zip(*(value.shape for value in values), strict=True)
    return next((n for n, each in enumerate(sizes) if len({*each}) > 1), None)


def joining(
    values: Sequence[Value],
    axis: int,
    may_be: elementwise.MayBe = elementwise.joins_no_slower,
    then: tuple[Sequence[chains.Step], int] = ((), 0),
) -> Code | None:
    """Return code that joins a few parts; None where there is none.

    Args:
        values: the parts and the result.
        axis: along which.
        may_be: whether so many numbers may be joined, in so many rows.
        then: what is done to each number, and how many operands of one number that reads.
    """
    forms = _words(values)
    if forms is None or len(forms) > MOST_PARTS + 1:
        return None
    order = order_of(forms[-1])
    told = elementwise.joined(order.index(axis), turned(forms, order), may_be, *then)
    return None if told is None else Code.of(told)


def _normalised(step: PrimitiveStep, may_be: elementwise.MayBe) -> CodeStep | None:
    """What normalises rows; None where there is no code for it."""
    code = normalising(step) if may_be is elementwise.are_no_slower else None
    if code is None:
        return None
    inputs = [step.arguments[place] for place in ROWS_READ if place in step.arguments]
    return _code_step(step, code, inputs)


ROWS_READ = Arg.SRC, Arg.SCALE, Arg.SHIFT
"""What rows are normalised from, in the order in which code is told of it."""


def normalising(step: PrimitiveStep, steps: Sequence[chains.Step] = ()) -> Code | None:
    """Return code that normalises rows as a step does, and what is done to each number then."""
    source, result = step.arguments[Arg.SRC], step.arguments[Arg.DST]
    epsilon = step.primitive.epsilon
    if epsilon is None or not source.shape or not (source.is_dense and result.is_dense):
        return None
    if any(value.dtype != np.float32 for value in step.values):
        return None
    length, affine = source.shape[-1], Arg.SCALE in step.arguments
    rows = source.elements // max(length, 1)
    told = layer_norm.prepared(rows, length, epsilon, steps, affine=affine)
    return None if told is None else Code.of([told])


def _product(step: PrimitiveStep, _may_be: elementwise.MayBe) -> CodeStep | None:
    """What multiplies matrices; None where there is no code for it."""
    chain = _chain(step, 1)
    if chain is None or step.primitive.implementation != _PRODUCT:
        return None
    if any(value.dtype != np.float32 for value in step.values):
        return None
    steps, operands = chain
    source, weights = (step.arguments[index] for index in (Arg.SRC, Arg.WEIGHTS))
    if Arg.BIAS in step.arguments:
        steps, operands = [ADD, *steps], [step.arguments[Arg.BIAS], *operands]
    inputs = [source, weights, *operands]
    forms = _forms([source, *operands, step.arguments[Arg.DST]])
    lying = _weights(weights)
    if forms is None or lying is None:
        return None
    told = product.prepared(forms[0], lying, forms[1:-1], forms[-1], steps)
    return None if told is None else _code_step(step, Code.of(told), inputs)


def _weights(value: Value) -> product.Weights | None:
    """How a matrix lies; None where it is otherwise than code reads it."""
    forms = _forms([value])
    if forms is not None:
        return product.Weights(forms[0])
    *outer, terms, columns = value.shape
    layout, row = value.descriptor.layout, 4 * product.PART
    if any(size != 1 for size in outer) or layout not in _PACKED:
        return None
    is_by_terms = layout in _BY_TERMS
    if is_by_terms and columns > product.PART and terms > _TERMS:
        return None
    strides = (*[0] * len(outer), row, 4)
    return product.Weights((value.shape, strides), -(-terms // _TERMS) * _TERMS * row)


def _chain(step: PrimitiveStep, first: int) -> tuple[list[chains.Step], list[Value]] | None:
    """What a primitive does to each number, and what it reads for that; None without code.

    Args:
        step: of the primitive.
        first: the number of its first post-operation; 0 for what it does itself.
    """
    steps: list[chains.Step] = []
    operands = []
    chain = step.primitive.chain
    if chain is None:
        return None
    for number, post_op in enumerate(chain, first):
        made = step_of(post_op)
        if made is None:
            return None
        steps.append(made)
        if isinstance(post_op, Binary):
            operands.append(step.arguments[Arg.ATTR_POST_OP * number | Arg.SRC_1])
    return steps, operands


def _code_step(step: PrimitiveStep, code: Code, inputs: list[Value]) -> CodeStep:
    result = step.arguments[Arg.DST]
    return CodeStep(step.name, step.type, code, inputs, [result], step.layers, BY_ROWS)


def _forms(values: Sequence[Value]) -> list[Form] | None:
    """How values lie; None where it is in blocks."""
    found = []
    for value in values:
        if value.strides is None:
            return None
        found.append((value.shape, tuple(step * value.dtype.itemsize for step in value.strides)))
    return found


def _words(values: Sequence[Value]) -> list[Form] | None:
    """How values lie that are copied, in words of 4 bytes; None where there is no code for it."""
    forms = _forms(values)
    if forms is None or len({value.dtype for value in values}) > 1:
        return None
    if values[0].dtype == np.float32:
        return forms
    if values[0].dtype not in _KINDS:
        return None
    found = []
    for sizes, steps in forms:
        if not sizes or steps[-1] != 1 or sizes[-1] % _WORD_BYTES:
            return None
        sizes = (*sizes[:-1], sizes[-1] // _WORD_BYTES)
        found.append((sizes, (*steps[:-1], _WORD_BYTES)))
    return found


def step_of(post_op: PostOp) -> chains.Step | None:
    """Return what machine code does for a function; None where there is no code."""
    if isinstance(post_op, Binary):
        return _INSTRUCTIONS.get(post_op.algorithm)
    if isinstance(post_op, Sum):
        return chains.HELD if post_op.scale == 1 else None
    if isinstance(post_op, Eltwise) and post_op.algorithm in _ACTIVATIONS:
        return _ACTIVATIONS[post_op.algorithm]
    return link_of(post_op)


def _copied(step: PrimitiveStep, may_be: elementwise.MayBe) -> CodeStep | None:
    """What puts numbers into another order; None where there is no code for it."""
    if step.arguments.keys() != {Arg.SRC, Arg.DST}:  # it is scaled, or moved
        return None
    source, target = step.arguments[Arg.SRC], step.arguments[Arg.DST]
    if source.shape != target.shape:
        return None
    if source.dtype == target.dtype:
        words = _words([source, target])
        if words is None:
            return None
        told = elementwise.copied(words[0], words[1], _WORD_BYTES, may_be)
    else:
        forms, kinds = _forms([source, target]), _kinds(source, [], target)
        if forms is None or kinds is None:
            return None
        told = elementwise.prepared([], forms, may_be, kinds)
    return None if told is None else _code_step(step, Code.of([told]), [source])


_MAKERS = {
    "reorder": _copied,
    "binary": _pointwise,
    "eltwise": _pointwise,
    "concat": _joining,
    "matmul": _product,
    "layer_normalization": _normalised,
}
