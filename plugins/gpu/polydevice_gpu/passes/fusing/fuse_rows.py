"""fuse_rows: sums of rows and the pointwise operations around them become one launch.

A normalisation whose steps are rounded one by one is none that is recognised: a mean, a difference,
its square, another mean and a quotient were five launches, each of which reads what the one before
wrote. Processors walk through a row three times instead, and keep nothing but its two means.

    in a Conformer, 23 rows of 80, on Intel's runtime: five launches of 28 us in all, one of 6
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from polydevice.dataclass import dataclass
from polydevice.ops.reduce import ReduceMean, ReduceSum
from polydevice.shape import are_same, is_one, normalize_axis
from polydevice.symbolic_size import is_symbolic
from polydevice_gpu.graph import GpuGraph, GpuNode, Value
from polydevice_gpu.kernels.pointwise.fragment import is_vectorizable
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import IN_VECTORS, compute_type
from polydevice_gpu.ops import INTEGER_PRODUCTS, Fragment, Fused
from polydevice_gpu.passes.fusing.fuse_pointwise import (
    ARGUMENT_LIMIT,
    STEP_LIMIT,
    bytes_of_arguments,
    without_repetition,
)
from polydevice_gpu.passes.fusing.requantise import shortened
from polydevice_gpu.row_ops import Gathering, RowSteps
from polydevice_gpu.views import integers

LEAST_TERMS, MOST_TERMS = 8, 4096
"""Of a row: one is a vector at least, and a work-item sums it up."""

MOST_OF_FEW = 1 << 14
"""Elements of rows that are fewer than cores: more are cut into parts by other kernels."""


_Users = dict[Value, list[GpuNode]]


@dataclass(frozen=True)
class _Expression:
    """What is computed of an element: a fragment, and the values that it reads."""

    fragment: Fragment
    values: Sequence[Value]


def fuse_rows(graph: GpuGraph, target: Target) -> None:
    """Fuse what reads sums of rows with these, on processors."""
    if target.is_throughput:
        return  # where lanes share the sums of a row
    users = graph.users()
    places = {node: place for place, node in enumerate(graph.nodes)}
    quantised = any(isinstance(node.op, INTEGER_PRODUCTS) for node in graph.nodes)
    taken: set[GpuNode] = set()
    made: dict[GpuNode, GpuNode] = {}
    for node in graph.nodes:
        if node in taken or _axis(node) is None or not _is_worth_it(node, target):
            continue
        members = _whole(_members(node, users, places, taken), users)
        members = [*_makers(members, users, taken), *members]
        fused = _fused(members, shorten=quantised) if members else None
        if fused is not None:
            taken.update(members)
            made[members[-1]] = fused
    graph.nodes = [made.get(node, node) for node in graph.nodes if node not in taken - made.keys()]


def _axis(node: GpuNode) -> int | None:
    """The axis along which a node sums up floats, or takes their mean, if it stays with size 1."""
    if not isinstance(node.op, (ReduceMean, ReduceSum)) or node.is_opaque or not node.op.keep_dims:
        return None
    x, axes = node.inputs[0], node.inputs[1]
    if (
        axes.constant is None
        or axes.elements != 1
        or x.constant is not None
        or x.border is not None
    ):
        return None
    axis = normalize_axis(integers(node, 1)[0], x.rank)
    kinds = compute_type(x.storage), compute_type(node.output.storage)
    is_right = kinds[0] == "float" and kinds[1] in IN_VECTORS and not is_one(x.shape[axis])
    return axis if is_right else None


def _is_worth_it(node: GpuNode, target: Target) -> bool:
    """Whether rows are vectors of one length, and enough for all cores, as far as that is known."""
    axis = _axis(node)
    assert axis is not None
    terms = node.inputs[0].shape[axis]
    if is_symbolic(terms) or not LEAST_TERMS <= terms <= MOST_TERMS:
        return False
    rows = node.output.elements
    enough = target.sizes_vary or rows >= target.compute_units or rows * terms <= MOST_OF_FEW
    return bool(enough)


def _members(
    first: GpuNode, users: _Users, places: dict[GpuNode, int], taken: AbstractSet[GpuNode]
) -> list[GpuNode]:
    """Return what can be computed along with a sum, in order; each reads one before it."""
    shape, axis = first.inputs[0].shape, _axis(first)
    members, waiting = [first], {*users.get(first.output, ())}
    while waiting:
        node = min(waiting, key=places.__getitem__)
        waiting.remove(node)
        is_sum = _axis(node) == axis and are_same(node.inputs[0].shape, shape)
        if node not in taken and (is_sum or _walks(node, shape)):
            members.append(node)
            waiting.update(users.get(node.output, ()))
    return members


def _walks(node: GpuNode, shape: Sequence[int]) -> bool:
    """Whether a node computes elements of rows of a shape, in vectors."""
    return (
        isinstance(node.op, Fused)
        and not node.is_opaque
        and are_same(node.output.shape, shape)
        and is_vectorizable(node.op.fragment)
        and all(value.border is None for value in node.inputs)
        and compute_type(node.output.storage) == compute_type(node.op.fragment.element_type)
    )


def _whole(members: list[GpuNode], users: _Users) -> list[GpuNode]:
    """Return the most of these nodes of which others read the last one's result alone.

    What reads that result, and what else a node waits for, is then no matter: nothing that is
    computed on the way is needed elsewhere.
    """
    for count in range(len(members), 1, -1):
        kept = set(members[:count])
        seen = [
            node
            for node in members[:count]
            if node.output.is_output or any(user not in kept for user in users.get(node.output, ()))
        ]
        if seen == [members[count - 1]] and isinstance(seen[0].op, Fused):
            return members[:count]
    return []


def _makers(members: list[GpuNode], users: _Users, taken: AbstractSet[GpuNode]) -> list[GpuNode]:
    """Return what computes elements that these nodes alone read, in order."""
    if not members:
        return []
    shape, makers = members[-1].output.shape, list[GpuNode]()
    waiting = [value for node in members for value in node.inputs]
    while waiting:
        value = waiting.pop()
        maker, inside = value.producer, {*members, *makers}
        if maker is None or maker in inside or maker in taken or value.is_output:
            continue
        if not _walks(maker, shape):
            continue
        if all(user in inside for user in users[value]):
            makers.insert(0, maker)
            waiting += maker.inputs
    return makers


def _fused(members: Sequence[GpuNode], *, shorten: bool) -> GpuNode | None:
    """Return one node in the place of these; None where it would be too large."""
    known: dict[Value, _Expression] = {}
    sums: list[tuple[GpuNode, _Expression, Fragment, list[Value]]] = []
    for node in members:
        if isinstance(node.op, Fused):
            made = _put_together(_Expression(node.op.fragment, node.inputs), known)
            known[node.output] = _short(made) if shorten else made
        else:
            x = node.inputs[0]
            terms = known.get(x, _Expression(Fragment((x.storage,)), [x]))
            made_of = node.epilogue or Fragment((node.output.storage,))
            sums.append((node, terms, made_of, node.extra_inputs))
    last = known[members[-1].output]
    fragments = [
        last.fragment,
        *(each for _, terms, made, _ in sums for each in (terms.fragment, made)),
    ]
    rows = {node.output for node, *_ in sums}
    read = [*last.values, *(v for _, terms, _, extras in sums for v in (*terms.values, *extras))]
    inputs = [value for value in dict.fromkeys(read) if value not in rows]
    if any(len(each.steps) > STEP_LIMIT for each in fragments):
        return None
    if bytes_of_arguments(inputs) > ARGUMENT_LIMIT:
        return None
    values = [*inputs, *(node.output for node, *_ in sums)]
    numbers = {value: number for number, value in enumerate(values)}

    def numbered(values: Sequence[Value]) -> tuple[int, ...]:
        return tuple(numbers[value] for value in values)

    gatherings = tuple(
        Gathering(
            terms.fragment, numbered(terms.values), made, numbered(extras),
            is_mean=type(node.op) is ReduceMean,
        )
        for node, terms, made, extras in sums
    )  # fmt: skip
    axis = next(axis for axis in map(_axis, members) if axis is not None)
    op = RowSteps(axis, gatherings, last.fragment, numbered(last.values))
    origins = dict.fromkeys(origin for node in members for origin in node.origins)
    return GpuNode(members[-1].name, op, inputs, [members[-1].output], origins)


def _put_together(made: _Expression, known: dict[Value, _Expression]) -> _Expression:
    """Return an expression that reads nothing that others compute."""
    fragment, values = made.fragment, list(made.values)
    for value in dict.fromkeys(made.values):
        if value in known:
            positions = [number for number, each in enumerate(values) if each is value]
            fragment = fragment.reading(known[value].fragment, positions)
            values = [each for each in values if each is not value] + [*known[value].values]
    fragment = without_repetition(fragment, values, 0)
    return _Expression(fragment, values)


def _short(made: _Expression) -> _Expression:
    return _Expression(*shortened(made.fragment, made.values))
