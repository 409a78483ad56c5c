"""fuse_attention: two matrix products around a softmax become one ScaledDotProductAttention.

The pattern is known by its structure: MatMul(Q, K) → scale, mask, casts and reshapes that keep the
last two axes, in any order that means the same → SoftMax over the last axis → MatMul with V. A
scale of Q or K before the product is taken along, and so is a mask that is added or that selects.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.ops.arithmetic import Add, Divide, Multiply
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.convert import Convert
from polydevice.ops.matmul import MatMul
from polydevice.ops.op import Op
from polydevice.ops.reshape import Reshape, Squeeze, Unsqueeze
from polydevice.ops.select import Select
from polydevice.ops.softmax import SoftMax
from polydevice.ops.transpose import Transpose
from polydevice_gpu.graph import GpuGraph, GpuNode, Value, constant_value
from polydevice_gpu.kernels.attention.attention import is_fusible
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.ops import Fused, single

Users = dict[Value, list[GpuNode]]

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

    last: GpuNode
    softmax: GpuNode
    first: GpuNode
    nodes: list[GpuNode] = field(default_factory=list)
    scale: float = 1.0
    mask: Value | None = None
    hides: bool = False
    fill: float = 0.0
    masked: tuple[int, ...] = ()


def fuse_attention(graph: GpuGraph, target: Target) -> None:
    """Fuse every attention; runs before pointwise operations join the products."""
    del target  # all devices gain
    users = graph.users()
    for node in list(graph.nodes):
        if type(node.op) is SoftMax and not node.on_host and node.inputs:
            pattern = _find(node, users)
            if pattern is not None and _replace(graph, pattern):
                users = graph.users()
    graph.sort()


# -- finding --------------------------------------------------------------------------------------


def _find(softmax: GpuNode, users: Users) -> _Pattern | None:
    """Return the attention around a softmax over the last axis; None when it is something else."""
    assert isinstance(softmax.op, SoftMax)
    if softmax.op.axis not in (-1, softmax.output.rank - 1):
        return None
    after: list[GpuNode] = []
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
    scores, result = found.first.output.shape, found.last.output.shape
    if min(len(v.shape) for n in (found.first, found.last) for v in n.inputs[:2]) < 2:
        return False
    batch = scores[:-2]
    equal = all(v.shape[:-2] == batch for v in (*found.first.inputs[:2], found.last.inputs[1]))
    plain = found.masked[:-2] == batch and result[:-2] == batch
    return scores[-2] == result[-2] and (plain or equal)


def _only_reader(value: Value, users: Users) -> GpuNode | None:
    readers = users.get(value, [])
    alone = len(readers) == 1 and not value.is_output and not readers[0].on_host
    return readers[0] if alone else None


def _multiplies(node: GpuNode) -> bool:
    return isinstance(node.op, MatMul) and not node.on_host


def _step(node: GpuNode | None) -> Op | None:
    """Return the operation of a node that is one pointwise operation."""
    if node is None or not isinstance(node.op, Fused) or len(node.op.fragment.steps) != 1:
        return None
    return node.op.fragment.steps[0].op


def _passes_on(node: GpuNode) -> bool:
    """Whether a node hands scores on as they are, apart from batch axes and float types."""
    if isinstance(_step(node), Convert):
        kinds = (node.inputs[0].element_type, node.output.element_type)
        return all(kind in (ElementType.f16, ElementType.f32) for kind in kinds)
    if not isinstance(node.op, _RESHAPES) or node.on_host or node.output.rank < 2:
        return False
    return node.inputs[0].shape[-2:] == node.output.shape[-2:]


def _walk_back(found: _Pattern, value: Value, users: Users) -> GpuNode | None:
    """Collect what happens between the first product and the softmax; return the product."""
    found.masked = value.shape
    while True:
        node = value.producer
        if node is None or node.on_host or _only_reader(value, users) is None:
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


def _scores_of(found: _Pattern, node: GpuNode) -> Value | None:
    """Note the mask or scale that a node applies; return the scores it applies them to."""
    op = _step(node)
    factor = _scaling(node)
    if factor is not None:
        found.scale *= factor[1]
        return factor[0]
    if found.mask is not None or found.scale != 1:
        return None  # a mask that is scaled, or two of them
    shape = node.output.shape
    if isinstance(op, Add) and len(node.inputs) == 2:
        a, b = node.inputs
        scores, mask = (a, b) if _comes_from_product(a) else (b, a)
        found.mask = mask
    elif isinstance(op, Select) and len(node.inputs) == 3:
        condition, scores, fill = node.inputs
        if fill.constant is None or fill.elements != 1:
            return None
        found.mask, found.hides = condition, True
        found.fill = float(np.asarray(fill.constant).reshape(-1)[0])
        if found.fill > _FAR:
            return None
    else:
        return None
    found.masked = shape
    return scores if scores.shape == shape and found.mask is not scores else None


def _comes_from_product(value: Value) -> bool:
    """Whether scaling and handing on lead back to a matrix product."""
    node = value.producer
    while node is not None and not _multiplies(node):
        factor = _scaling(node)
        if factor is not None:
            node = factor[0].producer
        elif _passes_on(node):
            node = node.inputs[0].producer
        else:
            return False
    return node is not None


def _scaling(node: GpuNode) -> tuple[Value, float] | None:
    """Return what is scaled and the factor, for a product or quotient with one number."""
    op = _step(node)
    if not isinstance(op, (Multiply, Divide)) or len(node.inputs) != 2:
        return None
    a, b = node.inputs
    if isinstance(op, Multiply) and a.constant is not None:
        a, b = b, a
    if b.constant is None or b.elements != 1 or a.shape != node.output.shape:
        return None
    number = float(np.asarray(b.constant).reshape(-1)[0])
    if not np.isfinite(number) or not number:
        return None
    return a, number if isinstance(op, Multiply) else 1 / number


# -- replacing ------------------------------------------------------------------------------------


def _replace(graph: GpuGraph, found: _Pattern) -> bool:
    """Put one node in the place of the pattern; False when kernels do not take it."""
    users = graph.users()
    made: list[GpuNode] = []
    first, last = found.first, found.last
    assert isinstance(first.op, MatMul)
    assert isinstance(last.op, MatMul)
    query = _unscaled(found, first.inputs[0], users)
    key = _unscaled(found, first.inputs[1], users)
    inputs = [
        _turned(query, first.op.transpose_a, made),
        _turned(key, not first.op.transpose_b, made),
        _turned(last.inputs[1], last.op.transpose_b, made),
    ]
    batch = found.masked[:-2]
    if batch != first.output.shape[:-2]:
        inputs = [_reshaped(value, (*batch, *value.shape[-2:]), made) for value in inputs]
    mask = _mask(found, made)
    scale = constant_value(f"{last.name}/scale", np.asarray(found.scale, np.float32))
    result = last.output
    shape = (*batch, *result.shape[-2:])
    op = ScaledDotProductAttention()
    if mask is not None and _is_causal(mask, found.masked):
        op, mask = ScaledDotProductAttention(causal=True), None
    inputs.append(mask or constant_value(f"{last.name}/mask", np.zeros((), np.float32)))
    inputs.append(scale)
    if not is_fusible(op, inputs) or (mask is not None and mask.rank > len(shape)):
        return False
    origins = [*last.origins, *(o for n in (first, *found.nodes) for o in n.origins)]
    output = result
    if result.shape != shape:
        output = Value(f"{last.name}/heads", result.element_type, shape, storage=result.storage)
    node = GpuNode(last.name, op, inputs, [output], dict.fromkeys(origins))
    node.result_type = last.result_type
    made.append(node)
    if output is not result:
        pattern = constant_value(f"{last.name}/shape", np.asarray(result.shape, np.int64))
        back = GpuNode(
            f"{last.name}/join", Reshape(special_zero=False), [output, pattern], [result]
        )
        made.append(back)
    _swap(graph, found, made)
    return True


def _swap(graph: GpuGraph, found: _Pattern, made: list[GpuNode]) -> None:
    place = graph.nodes.index(found.last)
    graph.nodes[place : place + 1] = made
    for node in dict.fromkeys((found.first, *found.nodes)):
        graph.nodes.remove(node)


def _unscaled(found: _Pattern, value: Value, users: Users) -> Value:
    """Take a scale of queries or keys along, when nobody else reads what it gives."""
    node = value.producer
    factor = None if node is None or node.on_host else _scaling(node)
    if node is None or factor is None or len(users.get(value, [])) != 1 or value.is_output:
        return value
    if value.element_type is not factor[0].element_type:
        return value
    found.scale *= factor[1]
    found.nodes.append(node)
    return factor[0]


def _turned(value: Value, swap: bool, made: list[GpuNode]) -> Value:
    """Swap the last two axes; a view."""
    if not swap:
        return value
    order = [*range(value.rank - 2), value.rank - 1, value.rank - 2]
    shape = tuple(value.shape[axis] for axis in order)
    name = f"{value.name}/turned{len(made)}"
    turned = Value(name, value.element_type, shape, storage=value.storage)
    axes = constant_value(f"{name}/order", np.asarray(order, np.int64))
    made.append(GpuNode(name, Transpose(), [value, axes], [turned]))
    return turned


def _reshaped(value: Value, shape: tuple[int, ...], made: list[GpuNode]) -> Value:
    name = f"{value.name}/heads{len(made)}"
    result = Value(name, value.element_type, shape, storage=value.storage)
    pattern = constant_value(f"{name}/shape", np.asarray(shape, np.int64))
    made.append(GpuNode(name, Reshape(special_zero=False), [value, pattern], [result]))
    return result


def _mask(found: _Pattern, made: list[GpuNode]) -> Value | None:
    """Return the mask as an operand of the attention: boolean, or added; None for none."""
    mask = found.mask
    if mask is None or not found.hides:
        return mask
    if np.isneginf(found.fill):
        return mask
    # Scores that are all hidden become equal, not undefined: add a number instead of hiding, and
    # one so far away that nothing of the scores is left.
    fill = min(found.fill, _VANISHING)
    name = f"{mask.name}/added{len(made)}"
    if mask.constant is not None:
        added: Array = np.where(np.asarray(mask.constant) != 0, 0, fill).astype(np.float32)
        return constant_value(name, added)
    zero, far = (constant_value(f"{name}/{v}", np.float32(v)) for v in (0.0, fill))
    kinds = [v.storage for v in (mask, zero, far)]
    result = Value(name, ElementType.f32, mask.shape)
    node = GpuNode(
        name, Fused(single(Select(), kinds, result.storage)), [mask, zero, far], [result]
    )
    node.result_type = result.storage
    made.append(node)
    return result


def _is_causal(mask: Value, shape: tuple[int, ...]) -> bool:
    """Whether a constant mask hides exactly the keys after each query, and changes nothing else."""
    if mask.constant is None or mask.shape[-2:] != shape[-2:] or mask.elements == 1:
        return False
    array = np.asarray(mask.constant)
    later = np.triu(np.ones(shape[-2:], bool), 1)
    if mask.element_type is ElementType.boolean:
        return bool((array != later).all())
    hidden = array.astype(np.float32) <= _FAR
    return bool((hidden == later).all() and (array[..., ~later] == 0).all())
