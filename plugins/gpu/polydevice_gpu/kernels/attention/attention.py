"""Fused attention: scores, softmax and weighted sum in one launch, scores never in memory.

The softmax is taken while the keys pass by (Milakov and Gimelshein, "Online normalizer calculation
for softmax", 2018; Dao et al., "FlashAttention", 2022): whenever a larger score turns up, what was
summed so far shrinks by exp(old maximum - new maximum). Sums are in float whatever is stored.
"""

from __future__ import annotations

import math

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import ElementType
from polydevice.ops.attention import ScaledDotProductAttention
from polydevice.ops.op import Op
from polydevice.shape import happen_to_be_equal
from polydevice.symbolic_trace import gains
from polydevice_gpu.graph import GpuNode, Value
from polydevice_gpu.kernels.addressing import Groups, aligned_widths, step_along
from polydevice_gpu.kernels.convolution.convolution import vector_lanes
from polydevice_gpu.kernels.kernel import Kernel, Mode, SingleLaunch, kernel
from polydevice_gpu.kernels.launch import Launch, Scratch
from polydevice_gpu.kernels.reason import NO_LOCAL_MEMORY, NO_MODE, NO_UNIT, unless
from polydevice_gpu.kernels.source import Call
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.layout import Layout, broadcast, ordered, planar

_VALUE, _MASK, _SCALE, _SINK = 2, 3, 4, 5
"""Numbers of the optional inputs."""

LARGEST_HEAD = 512
"""Elements of a head that a work-item's own memory holds. Larger ones, as where channels attend to
each other, are left to products around a softmax: what takes any size computes every score anew for
each element of the result (32 queries of 3136 elements took minutes on two cores)."""


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


def declare(call: Call, lanes: int = 1, *, by_keys: bool = False) -> Heads:
    """Declare everything an attention reads, and its sizes.

    Args:
        call: the launch.
        lanes: width of the vectors in which inputs are read.
        by_keys: whether IN1 is read as vectors of keys, not of elements of a key.

    IN0_AT(batch, query, e), IN1_AT(batch, key, e), IN2_AT(batch, key, v) as usual, SCALE,
    SINK(batch, query), HAS_SINK, CAUSAL, MASKED(score, batch, query, key) and, for `lanes` above 1,
    the same for a vector of keys.
    """
    node = call.node
    op = node.operation(ScaledDotProductAttention)
    found, optional = heads(node), dict(enumerate(node.own_inputs))
    widths = (lanes,) if lanes > 1 else ()
    for role, layout, shape in zip(
        ("IN0", "IN1", "IN2"), found.inputs, found.shapes(), strict=True
    ):
        value = node.inputs[int(role[2])]
        groups = found.groups()
        read = [groups[i] for i in (0, 2, 1)] if by_keys and role == "IN1" else groups
        call.pointer(role, value)
        call.access(role, value.storage, call.aligned(layout, shape, read, widths))
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
    call.define(HAS_SINK=sink is not None, HAS_MASK=mask is not None)
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
    *_, across, along = key.placed.pitches
    return across == 1 and (not happen_to_be_equal(along, 1) or key.shape[-1] == 1)


class Attention(Kernel):
    """What all kernels have in common."""

    def output_layouts(self, node: GpuNode, target: Target) -> list[Layout]:
        """As the queries lie: heads taken apart by a view are joined by one."""
        query, out = node.inputs[0], node.output
        if query.rank != out.rank or query.placed.pitches[-1] != 1:
            return [planar(out.shape)]
        return [ordered(out.shape, query.placed.order(query.shape))]


@kernel(ScaledDotProductAttention)
class AttentionMma(Attention, SingleLaunch):
    """A work-group computes BM queries of one head on matrix units; scores stay in registers."""

    writes_tiles = True

    modes = tuple(
        {"BM": rows, "BN": keys, "TALL": tall, "ALONG": along}
        for rows, keys, tall, along in (
            *((64, 32, 1, 1), (64, 64, 1, 1), (32, 32, 1, 1), (32, 64, 1, 1), (16, 32, 1, 1)),
            *((16, 64, 1, 1), (128, 32, 2, 1), (128, 64, 2, 1), (64, 32, 2, 1)),
            *((16, 16, 1, 4), (32, 16, 2, 4)),
        )
    )

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Matrix units, half data in pieces of 8 elements, heads of multiples of 16."""
        found = heads(node)
        half = all(value.storage is ElementType.f16 for value in node.inputs[:3])
        sixteens = not (found.size % 16 or found.values % 16)
        return unless(
            (target.matrix_unit, NO_UNIT),
            (half, "its values are not stored as half"),
            (sixteens, f"heads of {found.size} and {found.values} are no multiples of 16"),
            (any(self.mode_supports(node, mode, target) for mode in self.modes), NO_MODE),
        )

    def yields(self, node: GpuNode, target: Target) -> str:
        """Few queries: units take 16 at once, and the keys are not split here."""
        queries = heads(node).queries
        return unless((queries >= 16, f"{queries} queries leave matrix units idle"))

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Elements side by side; a part of a product of all heads is read where it lies."""
        return {
            number: planar(value.shape)
            for number, value in enumerate(node.inputs[:3])
            if not self.accepts_layout(node, number, value.placed, target)
        }

    def accepts_layout(self, node: GpuNode, index: int, layout: Layout, target: Target) -> bool:
        """Pieces of 8 elements, every one aligned."""
        if index > _VALUE:
            return True
        shape = node.inputs[index].shape
        axes: Groups = [(axis,) for axis in range(len(shape))]
        return aligned_widths(layout, shape, axes, (8,))[8]

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """Two strips of keys and values, or one and the queries, fit local memory."""
        found = heads(node)
        row, value_row = 2 * found.size + 16, 2 * found.values + 16
        stage, queries = mode["BN"] * (row + value_row), mode["BM"] * row
        share = mode["BM"] * 4 * (found.values + 10) if mode["ALONG"] > 1 else 0
        needed = max(stage + max(stage, queries), share) * mode["ALONG"]
        return needed <= target.local_memory_bytes

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The first that fits; few queries in all share processors by their keys.

        On an H200 32 keys at once, with which more groups share a processor, took 38 us where 64
        took 44 (384 heads of 197 tokens), and 64 queries as long as 32 or 128, or less. 12 heads
        took 5.1 us with 64 queries a group, as a stage of one launch, and 4.1 with four warps for
        16 (128 tokens), or 6.8 and 5.7 with four for 32 (197 tokens).
        """
        found = heads(node)

        def groups(mode: Mode) -> int:
            return found.batches * -(-found.queries // mode["BM"])

        fitting = [n for n, mode in enumerate(self.modes) if self.mode_supports(node, mode, target)]
        shared = [n for n in fitting if self.modes[n]["ALONG"] > 1]
        if groups(self.modes[fitting[0]]) >= target.compute_units or not shared:
            return fitting[0]
        return next(
            (n for n in shared if groups(self.modes[n]) <= target.compute_units), shared[-1]
        )

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Tiles of queries by heads."""
        found = declare(call)
        call.result(found.groups(), (2, 8))
        call.define(**mode)
        tiles = -(-found.queries // mode["BM"])
        threads = 2 * mode["BM"] // mode["TALL"] * mode["ALONG"]
        call.dispatch((tiles * threads, found.batches), (threads, 1))


_THREADS = 128
_SPLITS = (1, 4, 16)


@kernel(ScaledDotProductAttention)
class AttentionTiled(Attention):
    """A work-group computes BM queries of one head; keys and values pass through local memory.

    Where queries are few the keys are cut into parts for several groups, and joined afterwards.
    """

    modes = tuple(
        {"BM": rows, "BN": 32, "SPLIT": split} for rows in (64, 32, 16, 8) for split in _SPLITS
    )

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Real local memory, enough of it for one tile of the smallest kind."""
        fits = any(self.mode_supports(node, mode, target) for mode in self.modes)
        return unless((target.local_memory_bytes, NO_LOCAL_MEMORY), (fits, NO_MODE))

    def mode_supports(self, node: GpuNode, mode: Mode, target: Target) -> bool:
        """The tiles fit local memory, the group fits the device, every part has two strips."""
        found = heads(node)
        strips = -(-found.keys // mode["BN"])
        return (
            _local_bytes(found, mode) <= target.local_memory_bytes
            and target.max_work_group_size >= _THREADS
            and (mode["SPLIT"] == 1 or strips >= 2 * mode["SPLIT"])
        )

    def default_mode(self, node: GpuNode, target: Target) -> int:
        """The mode with the least expected time."""
        found = heads(node)

        def cost(index: int) -> float:
            mode = self.modes[index]
            if not self.mode_supports(node, mode, target):
                return math.inf
            split = mode["SPLIT"]
            groups = found.batches * -(-found.queries // mode["BM"]) * split
            strips = -(-found.keys // (mode["BN"] * split))
            # Fetching a strip costs as much as 24 queries; two groups share a processor; starting
            # costs two strips, joining parts another launch.
            rounds = max(1.0, groups / (2 * target.compute_units))
            return rounds * (strips + 2) * (mode["BM"] + 24) + (100 if split > 1 else 0)

        return min(range(len(self.modes)), key=cost)

    def general_mode(self, mode: int) -> int:
        """The same without parts, which need some strips each."""
        return mode - mode % len(_SPLITS)

    def launches(self, node: GpuNode, mode: Mode, target: Target) -> list[Launch]:
        """Return the attention, and the joining of its parts if the keys are split."""
        call = Call(self.name, self.source, node, target)
        found = declare(call, 4)
        split = mode["SPLIT"]
        parts = None
        if split > 1:
            size = split * found.batches * found.queries * (found.values + 2)
            parts = Scratch(size, ElementType.f32)
            call.buffer("PARTS", parts, "float", written=True)
            call.scalars(BATCHES=found.batches)
        else:
            call.result(found.groups(), (4,))
        for letter, value, size in zip("QKV", node.inputs, (0, 0, 1), strict=False):
            count = found.values if size else found.size
            wide = value.placed.pitches[-1] == 1 and count % 4 == 0
            call.define(**{f"WIDE_{letter}": wide})
        call.define(**mode)
        tiles = -(-found.queries // mode["BM"])
        call.dispatch((tiles * _THREADS, found.batches, split), (_THREADS, 1, 1))
        made = [call.launch()]
        if parts is not None:
            join = Call("attention_join", "attention/attention_join.cl", node, target)
            join.buffer("PARTS", parts, "float")
            join.define(SPLIT=split)
            join.scalars(VALUES=found.values, QUERIES=found.queries, BATCHES=found.batches)
            join.result(found.groups())
            join.dispatch((found.values, found.queries, found.batches), (32, 1, 1))
            made.append(join.launch())
        return made


def _local_bytes(found: Heads, mode: Mode) -> int:
    """Return the local memory of a group: queries, a strip of keys or values, weights, maxima."""
    rows, columns = mode["BM"], mode["BN"]
    pitch = 4 * (-(-found.size // 4) | 1)
    strip = columns * max(pitch, 4 * -(-found.values // 4))
    return 4 * (rows * pitch + strip + rows * (columns + 4) + rows * 17)


@kernel(ScaledDotProductAttention)
class AttentionRows(Attention, SingleLaunch):
    """One work-item computes ROWS queries of one head, in vectors of LANES keys and values."""

    modes = tuple({"LANES": n, "ROWS": r} for n in (4, 8, 16) for r in (1, 2, 4, 8))

    def refuses(self, node: GpuNode, target: Target) -> str:
        """Whatever a work-item's own memory holds."""
        found = heads(node)
        fits = max(found.size, found.values) <= LARGEST_HEAD
        return unless((fits, f"its heads exceed {LARGEST_HEAD}"))

    def input_layouts(self, node: GpuNode, target: Target) -> dict[int, Layout]:
        """Values by rows; keys by columns, unless few queries make turning them a waste."""
        found = heads(node)
        _, key, value, *_ = node.inputs
        wanted = {}
        if value.placed.pitches[-1] != 1:
            wanted[2] = planar(value.shape)
        inside = key.placed.pitches[-2] == 1
        few = gains(lambda: bool(found.queries <= 2))
        if not few and not inside:
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

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Rows of queries by heads."""
        lanes = mode["LANES"]
        inside = keys_inside(call.node)
        found = declare(call, lanes, by_keys=inside)
        call.define(KEYS_INSIDE=inside, **mode)
        tiles = -(-found.queries // mode["ROWS"])
        call.scalars(TILES=tiles)
        call.result(found.groups(), (lanes,))
        together = call.target.scalar_lanes
        call.dispatch((tiles, found.batches), (min(together, 32), 1))


@kernel(ScaledDotProductAttention)
class AttentionRef(Attention, SingleLaunch):
    """One work-item computes one element of the result."""

    def describe(self, call: Call, op: Op, mode: Mode) -> None:
        """Every score anew, for any size of head."""
        found = declare(call)
        call.result(found.groups())
        call.dispatch((found.values, found.queries, found.batches))
