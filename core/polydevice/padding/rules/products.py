"""Rules for matrix products and attention."""

from __future__ import annotations

from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.matmul import Einsum, MatMul, parse_equation
from polydevice.padding.labels import Label, Labels, symbols_of
from polydevice.padding.rules import rule
from polydevice.padding.rules.pointwise import broadcast
from polydevice.padding.state import State, Step, UnprovableError, data


@rule(MatMul)
def _matmul(step: Step) -> list[State]:
    op = step.nodes[0].operation(MatMul)
    a, b = (each.labels for each in step.inputs)
    transposed = op.transpose_a and len(a) > 1, op.transpose_b and len(b) > 1
    inner_a = len(a) - 2 if transposed[0] else len(a) - 1
    inner_b = 0 if len(b) == 1 else len(b) - 1 if transposed[1] else len(b) - 2
    if a[inner_a] != b[inner_b]:
        raise UnprovableError("it adds up elements along axes that need not be of one size")
    for index, axis in enumerate((inner_a, inner_b)):
        step.hide(index, axis, 0.0, "adds up elements")
    outer: list[Label] = []
    if len(a) > 1:
        outer.append(a[-1] if transposed[0] else a[-2])
    if len(b) > 1:
        outer.append(b[-2] if transposed[1] else b[-1])
    return data((*broadcast([a[:-2], b[:-2], ()]), *outer))


@rule(ScaledDotProductAttention)
def _attention(step: Step) -> list[State]:
    op = step.nodes[0].operation(ScaledDotProductAttention)
    query, key, value = (each.labels for each in step.inputs[:3])
    step.refuse(query[-1], len(query) - 1, "adds up elements")
    if op.causal and query[-2] == key[-2]:
        # A query sees no padding, whose weight 0 must not meet infinity.
        step.hide(2, len(value) - 2, 0.0, "adds up elements")
    elif symbols_of(key[-2]):
        raise UnprovableError(
            f"it is attention over its axis {len(key) - 2}, which has "
            f"{step.titles[symbols_of(key[-2])[0]]}, without a mask that follows the sizes"
        )
    batch: list[Labels] = [query[:-2], key[:-2], value[:-2]]
    if len(step.inputs) > 3 and not op.causal:
        batch.append(step.inputs[3].labels[:-2])
    for index in (4, 5):
        step.only_first([index])
    return data((*broadcast(batch), query[-2], value[-1]))


@rule(Einsum)
def _einsum(step: Step) -> list[State]:
    op = step.nodes[0].operation(Einsum)
    terms, output = parse_equation(op.equation, len(step.inputs))
    if "." in "".join([*terms, output]):
        raise UnprovableError("its equation has an ellipsis")
    found: dict[str, Label] = {}
    for term, state in zip(terms, step.inputs, strict=True):
        for letter, label in zip(term, state.labels, strict=True):
            if label and found.setdefault(letter, label) != label:
                raise UnprovableError(f"it joins axes {letter} that need not be of one size")
    for index, term in enumerate(terms):
        for axis, letter in enumerate(term):
            if letter not in output:
                step.hide(index, axis, 0.0, "adds up elements")
    return data(tuple(found.get(letter, ()) for letter in output))
