"""Matrices: a MatMul node as a batch of plain matrix products."""

from __future__ import annotations

import math

from polydevice.dataclass import dataclass
from polydevice.ops.matmul import MatMul
from polydevice_gpu.graph import GpuNode
from polydevice_gpu.kernels.addressing import Groups
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.layout import Layout, broadcast


@dataclass(frozen=True)
class Matrices:
    """A matrix product as [batch…, M, K] times [batch…, K, N].

    Attributes:
        batch: sizes of the batch axes of the result.
        m, n, k: sizes of the matrices.
        a, b: layouts of the factors over (batch…, M, K) and (batch…, K, N).
        result: the axes of the result behind the coordinates batch, m, n.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Layout
    b: Layout
    result: Groups

    @property
    def batches(self) -> int:
        """Number of products."""
        return math.prod(self.batch)

    def groups(self) -> list[tuple[int, ...]]:
        """Return the axes of a factor behind the coordinates batch, row, column."""
        rank = len(self.batch)
        return [tuple(range(rank)), (rank,), (rank + 1,)]


def matrices(node: GpuNode) -> Matrices:
    """Describe a MatMul node."""
    op = node.operation(MatMul)
    a, b = node.inputs[0], node.inputs[1]
    shape_a, pitches_a = list(a.shape), list(a.placed.pitches)
    shape_b, pitches_b = list(b.shape), list(b.placed.pitches)
    if a.rank == 1:
        shape_a, pitches_a = [1, *shape_a], [0, *pitches_a]
    elif op.transpose_a:
        shape_a[-2:], pitches_a[-2:] = shape_a[:-3:-1], pitches_a[:-3:-1]
    if b.rank == 1:
        shape_b, pitches_b = [*shape_b, 1], [*pitches_b, 0]
    elif op.transpose_b:
        shape_b[-2:], pitches_b[-2:] = shape_b[:-3:-1], pitches_b[:-3:-1]
    has_m, has_n = a.rank > 1, b.rank > 1
    batch = node.output.shape[: node.output.rank - has_m - has_n]
    m, k, n = shape_a[-2], shape_a[-1], shape_b[-1]
    layout_a = broadcast(Layout(tuple(pitches_a), a.placed.offset), tuple(shape_a), (*batch, m, k))
    layout_b = broadcast(Layout(tuple(pitches_b), b.placed.offset), tuple(shape_b), (*batch, k, n))
    axis = len(batch)
    result: list[tuple[int, ...]] = [tuple(range(axis))]
    result.append((axis,) if has_m else ())
    result.append((axis + has_m,) if has_n else ())
    return Matrices(batch, m, n, k, layout_a, layout_b, result)


def is_float_pair(node: GpuNode) -> bool:
    """Whether both factors are computed in float."""
    return all(compute_type(value.storage) == "float" for value in node.inputs[:2])


def declare_factors(call: Call, shape: Matrices, lanes: int = 1) -> None:
    """Declare IN0_AT(batch, m, k) and IN1_AT(batch, k, n)."""
    for role, value, layout, sizes in (
        ("IN0", call.node.inputs[0], shape.a, (*shape.batch, shape.m, shape.k)),
        ("IN1", call.node.inputs[1], shape.b, (*shape.batch, shape.k, shape.n)),
    ):
        call.pointer(role, value)
        widths = (lanes,) if lanes > 1 and role == "IN1" else ()
        aligned = call.aligned(layout, sizes, shape.groups(), widths)
        call.access(role, value.storage, aligned)
        call.index(role, value, layout, sizes, shape.groups())
