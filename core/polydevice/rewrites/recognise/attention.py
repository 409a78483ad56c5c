"""Two matrix products around a softmax are one ScaledDotProductAttention.

The pattern is known by its structure: MatMul(Q, K) → scale, mask, casts and reshapes that keep the
last two axes, in any order that means the same → SoftMax over the last axis → MatMul with V. A
scale of Q or K before the product is taken along, and so is a mask that is added or that selects.
"""

from __future__ import annotations

import math
from dataclasses import field

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.emitter import Emitter
from polydevice.network import Network, namer
from polydevice.node import Node, Port
from polydevice.ops.arithmetic import Add, Divide, Multiply
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.convert import Convert
from polydevice.ops.matmul import MatMul
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.softmax import SoftMax
from polydevice.rewrites.facts import Declined, array_of, count_of, is_known, rank_of, shape_of
from polydevice.rewrites.pattern import Users, scalar
from polydevice.rewrites.wishes import Wishes

_RESHAPES = (Reshape, Squeeze, Unsqueeze)
_FAR = -1e4
"""What a mask puts in place of hidden scores must be below this: exp() of the distance is 0."""
_VANISHING = -1e30
"""Added to a score, this is all that is left of it in float."""


@dataclass
class _Pattern:
    """What was found around a softmax.

    Attributes:
        last: the product with the values.
        softmax: the softmax.
        first: the product of queries and keys.
        nodes: everything between and the scales before, that goes away.
        scale: what scores are multiplied with.
        mask: what is added to the scores; None for nothing.
        hides: whether `mask` is boolean instead.
        fill: what hidden scores become.
        masked: shape of the scores where the mask is applied.
    """

    last: Node
    softmax: Node
    first: Node
    nodes: list[Node] = field(default_factory=list)
    scale: float = 1.0
    mask: Port | None = None
    hides: bool = False
    fill: float = 0.0
    masked: tuple[int, ...] = ()


def recognise_attention(network: Network, wishes: Wishes) -> int:
    """Put attention that a device wants in the place of its steps; return how many."""
    when = wishes.recognise.get(ScaledDotProductAttention)
    if when is None:
        return 0
    users, unique = network.consumers(), namer(network)
    replaced: dict[Port, Port] = {}
    for node in network.nodes():
        if type(node.op) is not SoftMax or wishes.leave(node):
            continue
        build = Emitter("", evaluate=network.evaluate)
        try:
            pattern = _find(node, users)
            made = None if pattern is None else _made(build, pattern, users)
        except Declined:
            continue
        if pattern is None or made is None or not when(made):
            continue
        if any(map(wishes.leave, (pattern.first, pattern.last, *pattern.nodes))):
            continue
        replaced[pattern.last.output] = build.emitted[-1].output
        build.name_nodes([build.emitted[-1].output], unique, old=pattern.last)
    network.replace(replaced)
    return len(replaced)


# -- finding --------------------------------------------------------------------------------------


def _find(softmax: Node, users: Users) -> _Pattern | None:
    """Return the attention around a softmax over the last axis; None when it is something else."""
    assert isinstance(softmax.op, SoftMax)
    if softmax.op.axis not in (-1, rank_of(softmax.output) - 1):
        return None
    after: list[Node] = []
    last = _only_reader(softmax.output, users)
    while last is not None and _passes_on(last):
        after.append(last)
        last = _only_reader(last.output, users)
    if last is None or not _multiplies(last) or not isinstance(last.op, MatMul):
        return None
    weights = after[-1].output if after else softmax.output
    if last.inputs[0] is not weights or last.inputs[1] is weights or last.op.transpose_a:
        return None
    found = _Pattern(last, softmax, last, [*after, softmax])
    first = _walk_back(found, softmax.inputs[0], users)
    if first is None:
        return None
    found.first = first
    return found if _fits(found) else None


def _fits(found: _Pattern) -> bool:
    """Whether products and mask have the shapes of an attention, after reshapes of batch axes."""
    scores, result = shape_of(found.first.output), shape_of(found.last.output)
    if min(rank_of(v) for n in (found.first, found.last) for v in n.inputs[:2]) < 2:
        return False
    batch = scores[:-2]
    equal = all(shape_of(v)[:-2] == batch for v in (*found.first.inputs[:2], found.last.inputs[1]))
    plain = found.masked[:-2] == batch and result[:-2] == batch
    return scores[-2] == result[-2] and (plain or equal)


def _only_reader(value: Port, users: Users) -> Node | None:
    readers = users.get(value, [])
    return readers[0][0] if len(readers) == 1 else None


def _multiplies(node: Node) -> bool:
    return isinstance(node.op, MatMul)


def _passes_on(node: Node) -> bool:
    """Whether a node hands scores on as they are, apart from batch axes and float types."""
    if isinstance(node.op, Convert):
        kinds = (node.inputs[0].element_type, node.output.element_type)
        return all(kind in (ElementType.f16, ElementType.f32) for kind in kinds)
    if not isinstance(node.op, _RESHAPES) or rank_of(node.output) < 2:
        return False
    return shape_of(node.inputs[0])[-2:] == shape_of(node.output)[-2:]


def _walk_back(found: _Pattern, value: Port, users: Users) -> Node | None:
    """Collect what happens between the first product and the softmax; return the product."""
    found.masked = shape_of(value)
    while True:
        node = value.node
        if _only_reader(value, users) is None:
            return None
        if _multiplies(node):
            return node
        found.nodes.append(node)
        if _passes_on(node):
            value = node.inputs[0]
            continue
        before = _scores_of(found, node)
        if before is None:
            return None
        value = before


def _scores_of(found: _Pattern, node: Node) -> Port | None:
    """Note the mask or scale that a node applies; return the scores it applies them to."""
    op = node.op
    factor = _scaling(node)
    if factor is not None:
        found.scale *= factor[1]
        return factor[0]
    if found.mask is not None or found.scale != 1:
        return None  # a mask that is scaled, or two of them
    shape = shape_of(node.outputs[0])
    if isinstance(op, Add) and len(node.inputs) == 2:
        a, b = node.inputs
        scores, mask = (a, b) if _comes_from_product(a) else (b, a)
        found.mask = mask
    elif isinstance(op, Select) and len(node.inputs) == 3:
        condition, scores, fill = node.inputs
        number = scalar(fill)
        if number is None:
            return None
        found.mask, found.hides, found.fill = condition, True, number
        if found.fill > _FAR:
            return None
    else:
        return None
    found.masked = shape
    return scores if shape_of(scores) == shape and found.mask is not scores else None


def _comes_from_product(value: Port) -> bool:
    """Whether scaling and handing on lead back to a matrix product."""
    node = value.node
    while not _multiplies(node):
        factor = _scaling(node)
        if factor is not None:
            node = factor[0].node
        elif _passes_on(node):
            node = node.inputs[0].node
        else:
            return False
    return True


def _scaling(node: Node) -> tuple[Port, float] | None:
    """Return what is scaled and the factor, for a product or quotient with one number."""
    op = node.op
    if not isinstance(op, (Multiply, Divide)) or len(node.inputs) != 2:
        return None
    a, b = node.inputs
    if isinstance(op, Multiply) and scalar(a) is not None:
        a, b = b, a
    number = scalar(b)
    if number is None or not np.isfinite(number) or not number:
        return None
    if shape_of(a) != shape_of(node.output):
        return None
    return a, number if isinstance(op, Multiply) else 1 / number


# -- replacing ------------------------------------------------------------------------------------


def _made(build: Emitter, found: _Pattern, users: Users) -> Node | None:
    """Emit one attention, and the views around it; return it, None where the mask does not fit."""
    first, last = found.first, found.last
    assert isinstance(first.op, MatMul)
    assert isinstance(last.op, MatMul)
    query = _unscaled(found, first.inputs[0], users)
    key = _unscaled(found, first.inputs[1], users)
    build.name = last.name
    nodes = dict.fromkeys((last, first, *found.nodes))
    build.origins = tuple(dict.fromkeys(layer for node in nodes for layer in node.layers))
    inputs = [
        _turned(build, query, first.op.transpose_a),
        _turned(build, key, not first.op.transpose_b),
        _turned(build, last.inputs[1], last.op.transpose_b),
    ]
    if any(port.element_type is not last.output.element_type for port in inputs):
        return None
    batch = found.masked[:-2]
    if batch != shape_of(first.output)[:-2]:
        inputs = [build.reshape(port, (*batch, *shape_of(port)[-2:])) for port in inputs]
    mask, op = _mask(build, found, query), ScaledDotProductAttention()
    if mask is not None and _is_causal(mask, found.masked):
        op, mask = ScaledDotProductAttention(causal=True), None
    if mask is not None and rank_of(mask) > len(batch) + 2:
        return None
    if mask is not None:
        inputs.append(mask)
    usual = 1 / math.sqrt(max(shape_of(inputs[0])[-1], 1))
    if not math.isclose(found.scale, usual, rel_tol=1e-6):
        zero = [] if mask is not None else [build.like(0.0, query)]
        inputs += [*zero, build.like(found.scale, query)]
    made = build.emit(op, *inputs)
    build.reshape(made, shape_of(last.output))
    return made.node


def _unscaled(found: _Pattern, value: Port, users: Users) -> Port:
    """Take a scale of queries or keys along, when nobody else reads what it gives."""
    node = value.node
    factor = _scaling(node)
    if factor is None or _only_reader(value, users) is None:
        return value
    if value.element_type is not factor[0].element_type:
        return value
    found.scale *= factor[1]
    found.nodes.append(node)
    return factor[0]


def _turned(build: Emitter, port: Port, swap: bool) -> Port:
    """Swap the last two axes; a view."""
    *batch, rows, columns = range(rank_of(port))
    return build.transpose(port, [*batch, columns, rows]) if swap else port


def _mask(build: Emitter, found: _Pattern, query: Port) -> Port | None:
    """Return the mask as an operand of the attention: boolean, or added; None for none."""
    mask = found.mask
    if mask is None:
        return None
    if not found.hides:
        return _of_type(build, mask, query.element_type)
    if np.isneginf(found.fill) or (is_known(mask) and array_of(mask).any(axis=-1).all()):
        return mask
    # Scores that are all hidden become equal, not undefined: add a number instead of hiding, and
    # one so far away that nothing of the scores is left.
    if query.element_type is not ElementType.f32:
        raise Declined(f"{query.element_type} holds no number that far away")
    zero, far = build.like(0.0, query), build.like(min(found.fill, _VANISHING), query)
    if is_known(mask):
        return build.value(np.where(array_of(mask) != 0, array_of(zero), array_of(far)))
    return build.emit(Select(), mask, zero, far)


def _of_type(build: Emitter, mask: Port, kind: ElementType) -> Port:
    """Return a mask in another type; what is far below all scores stays so, and finite."""
    if mask.element_type is kind:
        return mask
    array, least = array_of(mask), float(np.finfo(kind.dtype).min)
    if (array < least).all(axis=-1).any():
        raise Declined(f"scores that are all hidden differ by more than {kind} tells apart")
    return build.value(np.where(np.isneginf(array), array, np.maximum(array, least)), kind)


def _is_causal(mask: Port, shape: tuple[int, ...]) -> bool:
    """Whether a constant mask hides exactly the keys after each query, and changes nothing else."""
    if not is_known(mask) or shape_of(mask)[-2:] != shape[-2:] or count_of(mask) == 1:
        return False
    array = array_of(mask)
    later = np.triu(np.ones(shape[-2:], bool), 1)
    if mask.element_type is ElementType.boolean:
        return bool((array != later).all())
    hidden = array.astype(np.float32) <= _FAR
    return bool((hidden == later).all() and (array[..., ~later] == 0).all())
