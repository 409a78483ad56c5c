"""Fused attention: scores, softmax and weighted sum in one launch, scores never in memory.

The softmax is taken while the keys pass by (Milakov and Gimelshein, "Online normalizer calculation
for softmax", 2018; Dao et al., "FlashAttention", 2022): whenever a larger score turns up, what was
summed so far shrinks by exp(old maximum - new maximum). Sums are in float whatever is stored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polydevice.dtype import ElementType
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.convolution import vector_lanes
from polydevice_gpu.kernels.kernel import Kernel, Mode, kernel
from polydevice_gpu.kernels.source import Call, Groups, aligned_widths, step_along
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.kernels.types import compute_type
from polydevice_gpu.layout import Layout, broadcast, ordered, planar

_MASK, _SCALE, _SINK = 3, 4, 5
"""Numbers of the optional inputs."""


def is_fusible(op: ScaledDotProductAttention, inputs: Sequence[Value]) -> bool:
    """Whether the kernels here compute an attention: floats throughout, and no empty values."""
    query, key, value, *optional = inputs
    hidden = ElementType.boolean
    floats = all(
        compute_type(v.storage) == "float" or (i == 0 and v.element_type is hidden)
        for i, v in enumerate(optional)
        if not (i == 0 and op.causal)
    )
    return floats and all(
        v.elements and compute_type(v.storage) == "float" for v in (query, key, value)
    )


@dataclass(frozen=True)
class Heads:
    """Sizes of an attention, and where its inputs lie over the batch of the result.

    Attributes:
        batch: sizes of the batch axes of the result.
        queries, keys, size, values: L, S, E and V of the operation.
        inputs: layouts of query, key and value over the batch and their own matrices.
    """

    batch: tuple[int, ...]
    queries: int
    keys: int
    size: int
    values: int
    inputs: tuple[Layout, Layout, Layout]

    @property
    def batches(self) -> int:
        """Number of matrices."""
        return math.prod(self.batch)

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of query, key and value over the whole batch."""
        pairs = (self.queries, self.size), (self.keys, self.size), (self.keys, self.values)
        return tuple((*self.batch, *pair) for pair in pairs)

    def groups(self) -> Groups:
        """Return the axes behind the coordinates batch, row, column."""
        rank = len(self.batch)
        return [tuple(range(rank)), (rank,), (rank + 1,)]


def heads(node: GpuNode) -> Heads:
    """Describe an attention node."""
    q, k, v = node.inputs[:3]
    batch = node.output.shape[:-2]
    layouts = [broadcast(x.placed, x.shape, (*batch, *x.shape[-2:])) for x in (q, k, v)]
    return Heads(
        batch, q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1],
        (layouts[0], layouts[1], layouts[2]),
    )  # fmt: skip


def declare(call: Call, lanes: int = 1) -> Heads:
    """Declare everything an attention reads, and its sizes.

    IN0_AT(batch, query, e), IN1_AT(batch, key, e), IN2_AT(batch, key, v) as usual, SCALE,
    SINK(batch, query), HAS_SINK, CAUSAL, MASKED(score, batch, query, key) and, for `lanes` above 1,
    the same for a vector of keys.
    """
    node = call.node
    op, found, optional = node.op, heads(node), dict(enumerate(node.own_inputs))
    assert isinstance(op, ScaledDotProductAttention)
    widths = (lanes,) if lanes > 1 else ()
    turned = [0, 2, 1]  # IN1 is read as vectors of keys where they lie side by side
    for role, layout, shape in zip(
        ("IN0", "IN1", "IN2"), found.inputs, found.shapes(), strict=True
    ):
        value = node.inputs[int(role[2])]
        groups = found.groups()
        read = [groups[i] for i in turned] if role == "IN1" and keys_inside(node) else groups
        call.pointer(role, value)
        call.access(role, value.storage, aligned_widths(layout, shape, read, widths))
        call.index(role, value, layout, shape, groups)
    call.scalars(QUERIES=found.queries, KEYS=found.keys)
    call.define(SIZE=found.size, VALUES=found.values, CAUSAL=op.causal)
    if _SCALE in optional:
        scale = optional[_SCALE]
        call.operand("FACTOR", scale, scale.placed, scale.shape, [()])
        call.define(SCALE="FACTOR_LOAD(FACTOR_AT(0))")
    else:
        call.scalars(SCALE=1 / math.sqrt(found.size))
    mask = None if op.causal else optional.get(_MASK)
    if mask is not None and mask.constant is not None and not np.any(np.asarray(mask.constant)):
        mask = None if mask.element_type is not ElementType.boolean else mask
    _declare_mask(call, found, mask, lanes)
    sink = optional.get(_SINK)
    call.define(HAS_SINK=sink is not None)
    if sink is not None:
        shape = (*found.batch, found.queries, 1)
        layout = broadcast(sink.placed, sink.shape, shape)
        call.operand("LAST", sink, layout, shape, found.groups())
        call.define(**{"SINK(b, q)": "LAST_LOAD(LAST_AT(b, q, 0))"})
    return found


def _declare_mask(call: Call, found: Heads, mask: Value | None, lanes: int) -> None:
    """Define MASKED."""
    head = "MASKED(score, b, q, k)"
    vector = f"MASKED{lanes}(score, b, q, k)"
    if mask is None:
        call.define(**{head: "(score)"})
        if lanes > 1:
            call.define(**{vector: "(score)"})
        return
    shape = (*found.batch, found.queries, found.keys)
    layout = broadcast(mask.placed, mask.shape, shape)
    widths = (lanes,) if lanes > 1 else ()
    call.operand("MASK", mask, layout, shape, found.groups(), widths)
    one = "MASK_LOAD(MASK_AT(b, q, k))"
    hides = mask.element_type is ElementType.boolean
    call.define(**{head: f"({one} ? (score) : -INFINITY)" if hides else f"((score) + {one})"})
    if lanes == 1:
        return
    step = step_along(layout, shape, found.groups())
    if step == 0 or (mask.constant is not None and mask.elements == 1):
        many = f"({{}}{lanes})({one})"
    elif step == 1:
        many = f"MASK_LOAD{lanes}(MASK_AT(b, q, k))"
    else:
        each = ", ".join(f"MASK_LOAD(MASK_AT(b, q, (k) + {lane}))" for lane in range(lanes))
        many = f"({{}}{lanes})({each})"
    if hides:
        wide = f"convert_int{lanes}({many.format('uchar')}) != 0"
        far = f"(float{lanes})(-INFINITY)"
        call.define(**{vector: f"select({far}, (score), {wide})"})
    else:
        call.define(**{vector: f"((score) + {many.format('float')})"})


def keys_inside(node: GpuNode) -> bool:
    """Whether the keys of one element lie side by side: the transpose of how they are given."""
    key = node.inputs[1]
    return key.placed.pitches[-2] == 1 and (key.placed.pitches[-1] != 1 or key.shape[-1] == 1)


class Attention(Kernel):
    """What all kernels have in common."""

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """As the queries lie: heads taken apart by a view are joined by one."""
        query, out = node.inputs[0], node.output
        if query.rank != out.rank or query.placed.pitches[-1] != 1:
            return [planar(out.shape)]
        return [ordered(out.shape, query.placed.order(query.shape))]


@kernel(ScaledDotProductAttention)
class AttentionTiled(Attention):
    """A work-group computes BM queries of one head; keys and values pass through local memory."""

    modes = (
        {"BM": 64, "BN": 32, "TX": 16, "TY": 8},
        {"BM": 32, "BN": 32, "TX": 16, "TY": 8},
        {"BM": 16, "BN": 32, "TX": 16, "TY": 4},
        {"BM": 8, "BN": 32, "TX": 32, "TY": 2},
    )

    def supports(self, node: GpuNode, target: Target) -> bool:
        """Real local memory, enough of it for one tile of the smallest kind."""
        return any(self.mode_supports(node, mode, target) for mode in self.modes)

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The tiles fit local memory and the group fits the device."""
        bytes_needed = 4 * sum(_tile_floats(heads(node), mode))
        return (
            bytes_needed <= target.local_memory_bytes
            and mode["TX"] * mode["TY"] <= target.max_work_group_size
        )

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The largest tile that the queries fill, while every processor has one."""
        found = heads(node)

        def cost(index: int) -> float:
            mode = self.modes[index]
            if not self.mode_supports(node, mode, target):
                return math.inf
            groups = found.batches * -(-found.queries // mode["BM"])
            waves = max(1.0, groups / (2 * target.compute_units))
            # Loading a strip of keys and values costs as much as four rows of queries.
            return waves * (mode["BM"] + 4) * mode["BN"] / (mode["TX"] * mode["TY"])

        return min(range(len(self.modes)), key=cost)

    def describe(self, call: Call, mode: Mode) -> None:
        """Tiles of queries by heads."""
        found = declare(call)
        call.define(**mode)
        roles = ("Q_TILE", "KV_TILE", "P_TILE", "PART")
        for role, elements in zip(roles, _tile_floats(found, mode), strict=True):
            call.local(role, "float", elements)
        call.result(found.groups())
        threads = mode["TX"] * mode["TY"]
        tiles = -(-found.queries // mode["BM"])
        call.dispatch((tiles * threads, found.batches), (threads, 1))


def _tile_floats(found: Heads, mode: Mode) -> tuple[int, int, int, int]:
    """Return the floats of local memory for queries, keys or values, weights, partial maxima."""
    rows, columns = mode["BM"], mode["BN"]
    strip = max(columns * (found.size + 1), columns * found.values)
    return rows * (found.size + 1), strip, rows * (columns + 1), rows * (mode["TX"] + 1)


@kernel(ScaledDotProductAttention)
class AttentionRows(Attention):
    """One work-item computes ROWS queries of one head, in vectors of LANES keys and values."""

    modes = tuple({"LANES": n, "ROWS": r} for n in (4, 8, 16) for r in (1, 2, 4, 8))

    def supports(self, node: GpuNode, target: Target) -> bool:
        """Whatever a work-item's own memory holds."""
        found = heads(node)
        return found.size <= 512 and found.values <= 512

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Values by rows; keys by columns, unless few queries make turning them a waste."""
        found = heads(node)
        _, key, value, *_ = node.inputs
        wanted = {}
        if value.placed.pitches[-1] != 1:
            wanted[2] = planar(value.shape)
        inside = key.placed.pitches[-2] == 1
        if found.queries > 2 and not inside:
            *others, row, column = range(key.rank)
            wanted[1] = ordered(key.shape, (*others, column, row))
        elif not inside and key.placed.pitches[-1] != 1:
            wanted[1] = planar(key.shape)
        return wanted

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The device's vectors; as many rows as there are, up to eight."""
        found = heads(node)
        lanes = vector_lanes(target)
        while lanes > 4 and found.values <= lanes // 2:
            lanes //= 2
        rows = max(r for r in (1, 2, 4, 8) if r <= max(found.queries, 1))
        while rows > 1 and found.batches * -(-found.queries // rows) < 2 * target.compute_units:
            rows //= 2
        return list(self.modes).index({"LANES": lanes, "ROWS": rows})

    def describe(self, call: Call, mode: Mode) -> None:
        """Rows of queries by heads."""
        lanes = mode["LANES"]
        found = declare(call, lanes)
        call.define(KEYS_INSIDE=keys_inside(call.node), **mode)
        tiles = -(-found.queries // mode["ROWS"])
        call.scalars(TILES=tiles)
        call.result(found.groups(), (lanes,))
        together = call.target.scalar_lanes
        call.dispatch((tiles, found.batches), (min(together, 32), 1))


@kernel(ScaledDotProductAttention)
class AttentionRef(Attention):
    """One work-item computes one element of the result."""

    def describe(self, call: Call, mode: Mode) -> None:
        """Every score anew, for any size of head."""
        found = declare(call)
        call.result(found.groups())
        call.dispatch((found.values, found.queries, found.batches))
