"""Bags: a loop that reduces rows of a table, a slice of indices each time, computed at once.

So PyTorch exports EmbeddingBag. Slices begin and end where the loop's would, and what it would not
compute, as an index that the table does not have, is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.network import Network
from polydevice.node import Port
from polydevice.ops.control_flow import Loop, Slicing
from polydevice.ops.gather import Gather
from polydevice.ops.op import Op
from polydevice.ops.reduce import ReduceMax, ReduceMean, ReduceMin, ReduceSum, Reduction
from polydevice.ops.reshape import Reshape, Unsqueeze
from polydevice.ops.slice import Slice

_UFUNCS: dict[type[Op], np.ufunc] = {
    ReduceSum: np.add,
    ReduceMean: np.add,
    ReduceMax: np.maximum,
    ReduceMin: np.minimum,
}

_Source = Callable[[Sequence[Array]], Array]
"""Returns a value that is the same in all iterations from the loop's inputs."""


@dataclass(frozen=True)
class Bags:
    """What such a loop computes.

    Attributes:
        table: rows.
        indices: of rows.
        starts: where each iteration's indices begin.
        ends: where they end.
        reduction: what becomes of the rows.
    """

    table: _Source
    indices: _Source
    starts: _Source
    ends: _Source
    reduction: type[Op]

    def compute(self, count: int, inputs: Sequence[Array]) -> Array | None:
        """Return a row for each of so many iterations; None where the loop is to run."""
        table, indices = self.table(inputs), self.indices(inputs).reshape(-1)
        starts, ends = self.starts(inputs)[:count], self.ends(inputs)[:count]
        if not 0 < min(len(starts), len(ends)) == count or table.dtype.kind != "f":
            return None
        first, behind = (_within(each, indices.size) for each in (starts, ends))
        lengths = np.maximum(behind - first, 0)
        kept = np.flatnonzero(lengths)
        if len(kept) < count and self.reduction not in (ReduceSum, ReduceMean):
            return None  # of no rows these are 0, as in PyTorch and ONNX Runtime
        if table.itemsize < np.dtype(np.float32).itemsize:
            return None  # of narrow ones the sum is wider
        first, behind, lengths = first[kept], behind[kept], lengths[kept]
        if np.array_equal(behind[:-1], first[1:]):
            rows = indices[first[0] : behind[-1]] if kept.size else indices[:0]
        else:
            places = np.arange(int(lengths.sum()))
            rows = indices.take(places + (behind - lengths.cumsum()).repeat(lengths))
        if int(rows.min(initial=0)) < -len(table) or int(rows.max(initial=-1)) >= len(table):
            return None
        needed = rows.size * table[:1].nbytes
        current_bounds().admit(needed, f"{rows.size} rows that a loop reduces")
        result = np.zeros((count, *table.shape[1:]), table.dtype)
        if kept.size:
            ufunc, behind = _UFUNCS[self.reduction], lengths.cumsum()
            result[kept] = ufunc.reduceat(table.take(rows, axis=0), behind - lengths, axis=0)
        if self.reduction is ReduceMean and kept.size:
            result[kept] /= lengths.astype(table.dtype).reshape(-1, *(1,) * (table.ndim - 1))
        return result


def _within(places: Array, size: int) -> Array:
    """Where a slice of so many elements begins or ends; negative numbers count from the end."""
    places = places.astype(np.int64)
    return np.asarray(np.where(places < 0, places + size, places).clip(0, size))


def bags_of(op: Op) -> Bags | None:
    """Return what a loop computes, if it reduces rows that a slice of indices names."""
    if not isinstance(op, Loop) or not isinstance(op.body, Network) or len(op.body_outputs) != 1:
        return None
    body, tie = op.body, op.body_outputs[0]
    if tie.slicing != Slicing(0, part_size=1) or op.current_iteration is None:
        return None
    if any(each.slicing is not None for each in op.body_inputs) or not _never_ends(op, body):
        return None
    reduced = _reshaped(body.results[tie.result].inputs[0])
    reduction = reduced.node.op
    if type(reduction) not in _UFUNCS or not _along_first(reduced):
        return None
    assert isinstance(reduction, Reduction)
    if reduction.keep_dims is not (reduced is body.results[tie.result].inputs[0]):
        return None
    gathered = reduced.node.inputs[0]
    if not _is_plain_gather(gathered) or not isinstance(gathered.node.inputs[1].node.op, Slice):
        return None
    indices, *slicing = gathered.node.inputs[1].node.inputs
    ends = [_gathered(op, body, each) for each in slicing[:2]]
    sources = [_source(op, body, each) for each in (gathered.node.inputs[0], indices)]
    sources += [None if each is None else _source(op, body, each) for each in ends]
    if len(slicing) < 2 or not _is_plain_slice(slicing[2:], indices) or None in sources:
        return None
    table, rows, starts, behind = (each for each in sources if each is not None)
    return Bags(table, rows, starts, behind, type(reduction))


def _never_ends(op: Loop, body: Network) -> bool:
    """Whether only the number of iterations ends the loop."""
    condition = op.execution_condition
    value = None if condition is None else body.results[condition].inputs[0].node.constant
    return condition is None or (value is not None and bool(value.all()))


def _reshaped(port: Port) -> Port:
    """What is given a first axis of size 1 here, if anything is; else the same."""
    is_unsqueezed = isinstance(port.node.op, Unsqueeze) and _is_number(port.node.inputs[1], 0)
    return port.node.inputs[0] if is_unsqueezed else port


def _along_first(port: Port) -> bool:
    """Whether a reduction takes the first axis alone."""
    return len(port.node.inputs) == 2 and _is_number(port.node.inputs[1], 0)


def _is_number(port: Port, number: int) -> bool:
    value = port.node.constant
    return value is not None and value.size == 1 and int(value.reshape(-1)[0]) == number


def _is_plain_gather(port: Port) -> bool:
    """Whether whole rows are taken."""
    op = port.node.op
    return isinstance(op, Gather) and op.batch_dims == 0 and _is_number(port.node.inputs[2], 0)


def _is_plain_slice(rest: Sequence[Port], indices: Port) -> bool:
    """Whether elements that follow each other are taken from a list."""
    steps, axes = (rest[0], rest[1]) if len(rest) == 2 else (rest[0] if rest else None, None)
    is_list = indices.desc.rank == 1
    return (
        is_list
        and (steps is None or _is_number(steps, 1))
        and (axes is None or _is_number(axes, 0))
    )


def _gathered(op: Loop, body: Network, port: Port) -> Port | None:
    """The list of which an iteration takes the element of its number."""
    while isinstance(port.node.op, (Unsqueeze, Reshape)):
        port = port.node.inputs[0]
    assert op.current_iteration is not None
    counter = body.parameters[op.current_iteration].output
    if not _is_plain_gather(port) or port.node.inputs[0].desc.rank != 1:
        return None
    index = port.node.inputs[1]
    while isinstance(index.node.op, (Unsqueeze, Reshape)):
        index = index.node.inputs[0]
    return port.node.inputs[0] if index is counter else None


def _source(op: Loop, body: Network, port: Port) -> _Source | None:
    """What returns a constant, or an input that no iteration changes."""
    known = port.node.constant
    if known is not None:
        return lambda _: known
    carried = {edge.parameter for edge in op.back_edges}
    for tie in op.body_inputs:
        if body.parameters[tie.parameter].output is port and tie.parameter not in carried:
            number = tie.input
            return lambda inputs: inputs[number]
    return None
