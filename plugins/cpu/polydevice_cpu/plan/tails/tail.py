"""Tail: the part of a network whose sizes only the data tells, run when they are known.

The nodes that make sizes unknown (NonZero, NonMaxSuppression, a Reshape to a computed shape…) run
one by one on arrays. Heavy operations that follow form networks of their own (see `segments`) with
these arrays as inputs, compiled for the sizes found; plans for sizes seen before are kept.

Where the network's inputs have open sizes, one tail serves all of them: what their sizes tell is
an array for what runs node by node, and computed once more in the networks of parts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.activation import Relu, Sigmoid
from polydevice.ops.broadcast import Tile
from polydevice.ops.concat import Concat
from polydevice.ops.control_flow import If
from polydevice.ops.convert import Convert
from polydevice.ops.gather import Gather, GatherElements, GatherND
from polydevice.ops.generate import OneHot, Range
from polydevice.ops.logical import LogicalNot
from polydevice.ops.nms import NonMaxSuppression
from polydevice.ops.op import Op
from polydevice.ops.pad import Pad, PadMode
from polydevice.ops.pointwise import BinaryPointwise
from polydevice.ops.reduce import Reduction
from polydevice.ops.reshape import Reshape, ShapeOf, Squeeze, Unsqueeze
from polydevice.ops.scatter import ScatterElementsUpdate, ScatterNDUpdate
from polydevice.ops.search import NonZero, Unique
from polydevice.ops.select import Select
from polydevice.ops.signal import CumSum
from polydevice.ops.softmax import LogSoftmax, SoftMax
from polydevice.ops.strings import (
    LabelEncoder,
    RegexFullMatch,
    StringConcat,
    StringNormalizer,
    StringSplit,
    TfIdfVectorizer,
)
from polydevice.ops.topk import TopK
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.workspace import Workspace
from polydevice_cpu.plan.step import Compute, Start, TailStep
from polydevice_cpu.plan.tails.opened import Asked, NotSharedError, Opened, by_sizes, take_shapes
from polydevice_cpu.plan.tails.pictures import channels_last, pictures_of, take_turned
from polydevice_cpu.plan.tails.repeating import Repeating, may_repeat
from polydevice_cpu.plan.tails.segments import Segment, segments
from polydevice_cpu.plan.tails.walk import Begin, Part, walk

if TYPE_CHECKING:
    from polydevice_cpu.plan.building.builder import PlanBuilder
    from polydevice_cpu.plan.compiled import CompiledNetwork


Making = tuple[type[Op], ...]
"""Operations of which results are handed out as they are."""

MAKING: Making = (
    *(If, BinaryPointwise, Concat, Convert, CumSum, Gather, GatherElements, GatherND, LabelEncoder),
    *(LogSoftmax, LogicalNot, NonMaxSuppression, NonZero, OneHot, Pad, Range, Reduction, Relu),
    *(RegexFullMatch, ScatterElementsUpdate, ScatterNDUpdate, Select, ShapeOf, Sigmoid, SoftMax),
    *(StringConcat, StringNormalizer, StringSplit, TfIdfVectorizer, Tile, TopK, Unique),
)
"""Operations whose results are arrays of their own, however they are computed."""

Compile = Callable[[Network, int], "CompiledNetwork"]
"""Compiles a part of a network, of so many that share what plans may take."""


class Tails:
    """The tails of a network, by what they consist of; for one thread at a time."""

    def __init__(self, compile_: Compile, *, are_shared: bool, is_limited: bool) -> None:
        """Begin with none.

        Args:
            compile_: compiles parts.
            are_shared: whether one may serve plans for other sizes.
            is_limited: whether somebody limits the memory, of which what is handed out as it is
                counts as the network's as long as somebody has it: bodies alone do that then.
        """
        self._compile, self._are_shared = compile_, are_shared
        self._making = (If,) if is_limited else MAKING
        self._made: dict[Hashable, Tail | None] = {}

    def step(self, builder: PlanBuilder, nodes: list[Node], network: Network | None) -> TailStep:
        """Return the step that runs `nodes`, the last ones of the builder's network.

        Args:
            builder: of the plan.
            nodes: the nodes.
            network: of open sizes, of which the builder's is a copy; None where it was let go of.
        """
        if self._are_shared and network is not None:
            opened = Opened(builder, network)
            tail = self._shared(builder, nodes, opened) if opened.is_alike else None
            if tail is not None and tail.suits(opened):
                return tail.step(builder, opened)
        return Tail.of_sizes(builder, nodes, self._compile, self._making).step(builder, None)

    def _shared(self, builder: PlanBuilder, nodes: list[Node], opened: Opened) -> Tail | None:
        # Which nodes, and what of their inputs sizes tell: all else comes with the arrays.
        key = tuple((opened.number(node), opened.told(node)) for node in nodes)
        if key not in self._made:
            try:
                self._made[key] = Tail.of_all_sizes(
                    builder, nodes, self._compile, self._making, opened
                )
            except NotSharedError:
                self._made[key] = None
        return self._made[key]

    def clear(self) -> None:
        """Forget all of them."""
        self._made.clear()


class Tail:
    """What runs the last nodes of a network.

    Attributes:
        start: see `TailStep`.
    """

    def __init__(
        self,
        start: Start,
        boundary: Sequence[Port],
        shapes: Sequence[Port],
        results: Sequence[int],
        new: frozenset[int],
        layers: tuple[str, ...],
        *,
        pictures: frozenset[Port],
        is_shared: bool,
    ) -> None:
        """Take over what it consists of.

        Args:
            start: see `TailStep`, as `new` and `layers`.
            boundary: what the nodes read of others.
            shapes: of which the shapes are told besides, as those of arrays with a size of 0 more.
            results: numbers of the network's results.
            new: those of them that nobody else has.
            layers: names of the nodes.
            pictures: those of the boundary that are given channels last.
            is_shared: whether the ports are those of the network of open sizes.
        """
        self.start = _once_for_each_request(self, start) if is_shared else start
        self._boundary, self._shapes = boundary, shapes
        self._results, self._new, self._layers = results, new, layers
        self._pictures, self._is_shared = pictures, is_shared

    def suits(self, opened: Opened) -> bool:
        """Whether the shapes that are told are known as a whole."""
        return all(opened.copy(port).desc.is_static for port in self._shapes)

    def step(self, builder: PlanBuilder, opened: Opened | None) -> TailStep:
        """Return the step of a plan."""
        values = []
        for port in self._boundary:
            given = port if opened is None else opened.copy(port)
            take = (
                partial(channels_last, builder) if port in self._pictures else builder.array_value
            )
            values.append(take(given))
        for port in self._shapes if opened is None else map(opened.copy, self._shapes):
            assert port.shape is not None
            values.append(builder.new_dense((0, *port.shape.static), np.dtype(np.uint8)))
        return TailStep(
            *("", "Tail", self.start, values, list(self._results), self._new),
            layers=self._layers,
            is_shared=self._is_shared,
        )

    @classmethod
    def of_sizes(
        cls, builder: PlanBuilder, nodes: list[Node], compile_: Compile, making: Making
    ) -> Tail:
        """Return the tail of the builder's network, for its sizes."""
        results, new = _results(builder, nodes, making)
        wanted = [builder.network.results[number].inputs[0] for number in results]
        late = {port for node in nodes for port in node.outputs}
        boundary = _read_from_outside(nodes, late, wanted)
        parts = _joined(segments(nodes, late))
        planned = sum(map(_may_be_planned, parts))
        pictures = pictures_of(nodes, boundary, wanted)

        def compiled(part: Segment, asked: Asked, gives: Sequence[Port]) -> CompiledNetwork:
            inputs = {port: f"input{number}" for number, port in enumerate(asked.read)}
            outputs = {port: f"output{number}" for number, port in enumerate(gives)}
            whole = builder.network
            made = whole.extract(part.nodes, inputs, outputs, name=whole.name)
            take_turned(made, asked.read, pictures)
            return compile_(made, planned)

        asked = [Asked(part.reads(), [], []) for part in parts]
        start = _in_turn(parts, asked, boundary, wanted, pictures, compiled)
        layers = tuple(node.name for node in nodes)
        about = results, new, layers
        return cls(start, boundary, [], *about, pictures=pictures, is_shared=False)

    @classmethod
    def of_all_sizes(
        cls,
        builder: PlanBuilder,
        nodes: list[Node],
        compile_: Compile,
        making: Making,
        opened: Opened,
    ) -> Tail:
        """Return the tail of the network of open sizes.

        Raises:
            NotSharedError: something is for the builder's sizes alone.
        """
        results, new = _results(builder, nodes, making)
        parts = _joined(segments(nodes, {port for node in nodes for port in node.outputs}))
        planned = sum(map(_may_be_planned, parts))
        for part in parts:  # cut by what sizes are known
            part.nodes = list(map(opened.of, part.nodes))
        own = list(map(opened.of, nodes))
        network = opened.network
        wanted = [network.results[number].inputs[0] for number in results]
        late = {port for node in own for port in node.outputs}
        boundary = _read_from_outside(own, late, wanted)
        pictures = pictures_of(own, boundary, wanted)
        asked, done = [], set[Port]()
        for part in parts:
            asked.append(by_sizes(part, late, opened))
            if not done.issuperset(port for port in asked[-1].read if port in late):
                raise NotSharedError
            done.update(part.outputs)

        def compiled(part: Segment, asked: Asked, gives: Sequence[Port]) -> CompiledNetwork:
            read = [*asked.read, *asked.shapes]
            inputs = {port: f"input{number}" for number, port in enumerate(read)}
            outputs = {port: f"output{number}" for number, port in enumerate(gives)}
            inner = opened.in_order({*asked.nodes, *part.nodes})
            made = network.extract(inner, inputs, outputs, name=network.name)
            take_shapes(made, len(asked.read))
            take_turned(made, asked.read, pictures)
            return compile_(made, planned)

        start = _in_turn(parts, asked, boundary, wanted, pictures, compiled)
        layers = tuple(node.name for node in nodes)
        about = _shapes(parts, asked), results, new, layers
        return cls(start, boundary, *about, pictures=pictures, is_shared=True)


def _results(
    builder: PlanBuilder, nodes: Sequence[Node], making: Making
) -> tuple[list[int], frozenset[int]]:
    """Numbers of the results that a tail computes, and of those that nobody else has."""
    results = [
        (number, result.inputs[0])
        for number, result in enumerate(builder.network.results)
        if builder.is_late(result.inputs[0])
    ]
    wanted = [port for _, port in results]
    own = _own(nodes, wanted, making)
    new = frozenset(number for number, port in results if port in own)
    return [number for number, _ in results], new


def _own(nodes: Sequence[Node], wanted: Sequence[Port], making: Making) -> set[Port]:
    """Which results are arrays of their own: made so, and no other result may look at them."""
    producers = {port: node for node in nodes for port in node.outputs}
    found = [_seen(port, producers, making) for port in wanted]
    counts = Counter(port for each in found for port in each)
    return {
        port
        for port, each in zip(wanted, found, strict=True)
        if None not in each and all(counts[made] == 1 for made in each)
    }


def _seen(port: Port, producers: Mapping[Port, Node], making: Making) -> set[Port | None]:
    """Which arrays that operations made a value may be or look at; None for those of others."""
    found: set[Port | None] = set()
    left, known = [port], {port}
    while left:
        port = left.pop()
        node = producers.get(port)
        if node is None:
            found.add(None)
        elif isinstance(node.op, making) and not _is_same(node):
            found.add(port)
        else:
            is_as_large = isinstance(node.op, _RESHAPING)
            found.update([] if is_as_large else [None])
            read = [each for each in node.inputs[: 1 if is_as_large else None] if each not in known]
            left += read
            known.update(read)
    return found


_RESHAPING = (Reshape, Squeeze, Unsqueeze)
"""Operations whose results are their first inputs, in another shape."""


def _is_same(node: Node) -> bool:
    """Whether a conversion has nothing to convert, as u1 is of the bytes of u8.

    Or whether a padding may have: one that repeats what there is.
    """
    if isinstance(node.op, Pad):
        return node.op.pad_mode is not PadMode.CONSTANT
    types = {port.element_type.dtype for port in (*node.inputs, *node.outputs)}
    return isinstance(node.op, Convert) and len(types) == 1


def _once_for_each_request(tail: Tail, start: Start) -> Start:
    """Let all plans of a request that have the same tail share what it keeps."""

    def known(context: Context) -> Compute:
        made = context.tails.get(tail)
        if made is None:
            made = context.tails[tail] = start(context)
        return made

    return known


def _shapes(parts: Sequence[Segment], asked: Sequence[Asked]) -> list[Port]:
    """Of what the shapes are told to parts that may be planned."""
    pairs = zip(parts, asked, strict=True)
    return list(
        dict.fromkeys(x for part, each in pairs if _may_be_planned(part) for x in each.shapes)
    )


def _may_be_planned(part: Segment) -> bool:
    """Whether a part may have plans: always, or for sizes that come back."""
    return part.is_planned or (not part.is_first and may_repeat(part.nodes))


def _joined(parts: list[Segment]) -> list[Segment]:
    """Join neighbours that are not planned: they run node by node."""
    joined: list[Segment] = []
    for part in parts:
        if joined and not (_may_be_planned(joined[-1]) or _may_be_planned(part)):
            joined[-1].nodes.extend(part.nodes)
        else:
            joined.append(part)
    return joined


def _in_turn(
    parts: Sequence[Segment],
    asked: Sequence[Asked],
    boundary: Sequence[Port],
    wanted: Sequence[Port],
    pictures: Collection[Port],
    compiled: Callable[[Segment, Asked, Sequence[Port]], CompiledNetwork],
) -> Start:
    """Run parts one after the other, each as a plan of its own or node by node.

    Args:
        parts: they.
        asked: what each needs as a network.
        boundary: what arrays are given of; behind them are arrays that tell shapes.
        wanted: what is returned.
        pictures: what networks of parts are given with their channels as the last axis.
        compiled: makes a part a network that gives some ports.
    """
    walked = [list(dict.fromkeys(part.reads())) for part in parts]
    steps: list[Node | Part] = []
    for number, part in enumerate(parts):
        if not _may_be_planned(part):
            steps += part.nodes
            continue
        own = asked[number]
        later = {port for ports_read in walked[number + 1 :] for port in ports_read}
        later.update(port for each in asked[number + 1 :] for port in each.read)
        gives = [port for port in part.outputs if port in later or port in wanted]
        reads: list[Hashable] = [] if part.is_planned else [*walked[number]]
        by_nodes = None if part.is_planned else walk(part.nodes, walked[number], gives)
        begin = _planned(compiled(part, own, gives), by_nodes, len(reads))
        reads += [(port, "turned") if port in pictures else port for port in own.read]
        reads += [(port, "shape") for port in own.shapes]
        steps.append(Part(begin, reads, gives))
    given = [*boundary, *((port, "shape") for port in _shapes(parts, asked))]
    return walk(steps, given, wanted, {port: (port, "turned") for port in pictures})


def _planned(compiled: CompiledNetwork, by_nodes: Start | None, walked: int) -> Begin:
    """A part by its plans, or node by node until sizes repeat, which reads the first arrays."""

    def begin(context: Context, workspace: Workspace) -> Compute:
        plans = compiled.request_plans(context, workspace)
        if by_nodes is not None:
            return Repeating(by_nodes(context), plans, walked)
        return lambda *arrays: plans.infer(arrays)

    return begin


def _read_from_outside(nodes: Sequence[Node], own: set[Port], wanted: Sequence[Port]) -> list[Port]:
    """The ports that `nodes` read, or that are wanted, and that none of them computes."""
    read = [port for node in nodes for port in node.inputs]
    return list(
        dict.fromkeys(
            port for port in (*read, *wanted) if port not in own and port.desc.constant is None
        )
    )
