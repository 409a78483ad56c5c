"""Pending: a primitive held back until it is known what can be fused into it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.attributes import Binary, Eltwise, PostOp, Prelu
from polydevice_cpu.onednn.attributes import Sum as SumPostOp
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import Descriptor, is_open
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.plan.building import chain as chains
from polydevice_cpu.plan.building.decisions import Decisions, Unlike
from polydevice_cpu.plan.building.integers import Levels
from polydevice_cpu.plan.building.sight import AS_IS, Sight
from polydevice_cpu.plan.replacement import Fused, Replacement
from polydevice_cpu.plan.step import PrimitiveStep, Sum
from polydevice_cpu.plan.value import Value
from polydevice_cpu.proof.claim import Claim, Link
from polydevice_cpu.proof.proof import refusal

if TYPE_CHECKING:
    from polydevice.node import Node
    from polydevice_cpu.plan.building.builder import PlanBuilder

Make = Callable[[Sequence[PostOp], bool], "Primitive | None"]
"""(post-operations, with a bias?) → the primitive; None where oneDNN has no good one."""


@dataclass(frozen=True)
class Narrow:
    """How to make a primitive whose result is 8-bit integers.

    Attributes:
        make: (post-operations, with a bias?, type of the result) → the primitive, as for `Make`.
        own_links: what it computes by itself, where that reads integers then.
    """

    make: Callable[[Sequence[PostOp], bool, DataType], Primitive | None]
    own_links: Sequence[Link] = ()


@dataclass(frozen=True)
class Flow:
    """An argument computed by the network; reordered to the layout the primitive answers."""

    value: Value
    query: Query | None = None
    """None: the primitive takes the value's own layout."""


@dataclass(frozen=True)
class Packed:
    """An argument that is constant; packed into the layout the primitive answers."""

    array: Array
    query: Query | None = None
    """None: dense."""


@dataclass(frozen=True)
class Operand:
    """What a fused operation reads besides the result so far."""

    argument: Arg
    """SRC_1 for binary operations, WEIGHTS for PReLU."""
    source: Value | Array
    descriptor: Descriptor


@dataclass(frozen=True)
class Basis:
    """What a primitive on integers is compared with: the same in f32, and what follows it.

    Attributes:
        links: what the primitive does to its sums by itself.
        zero, window: see `Claim`.
    """

    primitive: Callable[[], Primitive]
    links: Sequence[Link]
    zero: int
    window: str


@dataclass(frozen=True)
class Extension:
    """What fusing a node changed, where it follows from the node and the network's constants.

    Attributes:
        key: of the decision.
        before: the post-operations until then.
        after: with the node's.
        operands: what the node's read, by position; constants.
        bias: what the primitive adds as its bias; None where it was no bias that was fused.
    """

    key: tuple[Hashable, ...]
    before: tuple[PostOp, ...]
    after: tuple[PostOp, ...]
    operands: Mapping[int, Operand]
    bias: Packed | None = None


class Pending:
    """A heavy or pointwise primitive whose followers may still become its post-operations.

    It is emitted when something else reads its result. Until then `extend` offers it the next
    node; it is fused where oneDNN offers it and `polydevice_cpu.proof` finds it right. What was
    decided for other sizes is assumed, and then asked once, when it is emitted.
    """

    def __init__(
        self,
        node: Node,
        make: Make,
        arguments: dict[int, Flow | Packed],
        primitive: Primitive | None,
        decisions: Decisions,
        *,
        dst: Descriptor | None = None,
        assumed: Sequence[Hashable] = (),
        bias_shape: tuple[int, ...] | None = None,
        own_links: Sequence[Link] = (),
        own_post_ops: int = 0,
        sight: Sight = AS_IS,
        window: str = "",
        basis: Basis | None = None,
        narrow: Narrow | None = None,
        by_rows: bool = False,
        replacement: Replacement | None = None,
    ) -> None:
        """Hold back a primitive.

        Args:
            node: what it computes; replaced by each node that is fused.
            make: makes it again with post-operations.
            arguments: what it reads, by oneDNN's argument index.
            primitive: as it is without post-operations; None where it is assumed that there is
                one.
            decisions: of the network.
            dst: layout of the result, where there is no primitive yet.
            assumed: what has been relied on so far.
            bias_shape: shape of what could be added as its bias, one size per dimension of the
                result; None if it takes no bias.
            own_links: what a pointwise primitive computes from its first source by itself.
            own_post_ops: how many post-operations `make` puts before those it is given.
            sight: how the primitive sees what it reads and writes. `make` and `Packed` arguments
                are for what it sees, everything else is as in the network.
            window: kernel, strides and so on, where fused code may be right for one only.
            basis: of a primitive on integers.
            narrow: makes it with a result of 8-bit integers.
            by_rows: its code goes through short rows of channels, see `is_slow_in_rows`.
            replacement: what takes the primitive's place in the end.
        """
        self.node = node
        self.types, self.layers = [node.type], [node.name]
        self._make = make
        self._arguments = dict(arguments)
        self._post_ops: list[PostOp] = []
        self._operands: dict[int, Operand] = {}
        self._bias_shape = bias_shape
        self._plain_primitive = primitive
        self._decisions = decisions
        self._assumed = list(assumed)
        self._own_links = list(own_links)
        self._own_post_ops = own_post_ops
        self.refused: dict[str, str] = {}
        self._sight, self._window = sight, window
        self._basis, self._narrow = basis, narrow
        self._by_rows = by_rows
        self._replacement = replacement
        self._primitive = primitive
        self._origin = node.name
        layout = primitive.dst if primitive is not None else dst
        assert layout is not None
        self._layout = layout
        self._threads = openmp.thread_count() if primitive is None else primitive.threads
        self.levels: Levels | None = None
        """What the result was rounded to, by the function that was fused last."""
        self.latest: Extension | None = None
        """What the node that was fused last changed."""

    @property
    def dst(self) -> Descriptor:
        """Layout of the result."""
        return self._sight.in_network(self._layout, Arg.DST)

    @property
    def is_inexact(self) -> bool:
        """Whether last bits of its numbers follow from an order of sums, or from polynomials."""
        weights, results = self._arguments.get(Arg.WEIGHTS), self._bias_shape
        are_sums = weights is not None and results is not None and _adds_up(weights, results)
        return self._narrow is not None or chains.is_inexact(self._post_ops, are_sums)

    def extend(
        self, node: Node, post_ops: Sequence[PostOp], operands: dict[int, Operand] | None = None
    ) -> bool:
        """Try to fuse `node`; `operands` are what `post_ops` read, by position."""
        combined, start = chains.joined(self._post_ops, post_ops)
        if self._own_post_ops + len(combined) > chains.POST_OPS_LIMIT:
            return False
        if self._by_rows and any(chains.is_slow_in_rows(post_op) for post_op in post_ops):
            return False
        if Arg.WEIGHTS in self._arguments and any(map(chains.is_quicker_apart, post_ops)):
            return False
        for operand in (operands or {}).values():
            if isinstance(operand.source, Value) and self._sight.repeats(operand.descriptor.shape):
                return False
        key = self._key(node, combined, bias=Arg.BIAS in self._arguments)
        accepted, primitive = self._decided(key, node, combined, bias=Arg.BIAS in self._arguments)
        if not accepted:
            return False
        added = {start + k: v for k, v in (operands or {}).items()}
        extension = Extension(key, tuple(self._post_ops), tuple(combined), added)
        self._operands.update(added)
        self._post_ops = combined
        self._accept(node, primitive)
        if not any(isinstance(operand.source, Value) for operand in added.values()):
            self.latest = extension
        return True

    def extend_again(self, node: Node, extension: Extension) -> bool:
        """Fuse a node as for other sizes; False where that does not follow for these."""
        bias, dst, chain = extension.bias, self.dst, extension.after
        key = (self._origin, self.node.name, node.name, *extension.key[3:])
        if key != extension.key or node.outputs[0].shape != dst.shape:
            return False  # what is given makes the result larger, say
        if any(isinstance(op, Binary) and is_open(op.operand) for op in self._post_ops):
            return False  # formulas that happen to give the sizes of before
        if tuple(self._post_ops) != extension.before or self._decisions.assumed(key) is not True:
            return False
        if bias is not None and not self._takes_bias(bias.array):
            return False
        if extension.operands and key != self._key(node, chain, bias=Arg.BIAS in self._arguments):
            return False
        self._assumed.append(key)
        if bias is not None:
            self._arguments[Arg.BIAS] = bias
        self._operands.update(extension.operands)
        self._post_ops = list(chain)
        self._accept(node, None)
        self.latest = extension
        return True

    def quantise(self, node: Node, post_ops: Sequence[PostOp], data_type: DataType,
                 operands: Mapping[int, Operand]) -> bool:  # fmt: skip
        """Try to fuse `node`, which rounds what `post_ops` make to 8-bit integers; see `extend`."""
        narrow, before = self._narrow, (self._make, self._own_links)
        if narrow is None:
            return False
        self._make = lambda chain, bias: narrow.make(chain, bias, data_type)
        self._own_links = list(narrow.own_links)
        combined, start = chains.joined(self._post_ops, post_ops)
        few = self._own_post_ops + len(combined) <= chains.POST_OPS_LIMIT
        bias = Arg.BIAS in self._arguments
        primitive = self._proved(node, combined, bias=bias) if few else None
        if primitive is None:
            self._make, self._own_links = before
            return False
        self._operands.update({start + k: v for k, v in operands.items()})
        self._post_ops = combined
        self._accept(node, primitive)
        self._narrow = None
        return True

    def round(self) -> bool:
        """Try to end with the integers of `levels` instead of what is made of them."""
        levels, narrow = self.levels, self._narrow
        if levels is None or narrow is None:
            return False
        before = (self._make, self._own_links)
        chain = self._post_ops[: len(self._post_ops) - levels.tail]
        if levels.zero:
            chain.append(Eltwise(Algorithm.LINEAR, 1.0, levels.zero))
        self._make = lambda post_ops, bias: narrow.make(post_ops, bias, levels.data_type)
        self._own_links = list(narrow.own_links)
        primitive = self._proved(self.node, chain, bias=Arg.BIAS in self._arguments)
        if primitive is None:
            self._make, self._own_links = before
            return False
        self._operands = {k: v for k, v in self._operands.items() if k < len(chain)}
        self._post_ops, self._primitive, self._layout = chain, primitive, primitive.dst
        self._narrow = self.levels = None
        return True

    def add_bias(self, node: Node, bias: Array) -> bool:
        """Try to fuse the addition of a constant per channel, as the primitive's bias."""
        if not self._takes_bias(bias):
            return False
        key = self._key(node, [], bias=True)
        accepted, primitive = self._decided(key, node, [], bias=True)
        if not accepted:
            return False
        packed = self._arguments[Arg.BIAS] = Packed(bias)
        self._accept(node, primitive)
        self.latest = Extension(key, (), (), {}, packed)
        return True

    def _takes_bias(self, bias: Array) -> bool:
        taken = bool(self._post_ops) or Arg.BIAS in self._arguments
        return not taken and bias.shape == self._bias_shape

    def _key(self, node: Node, post_ops: Sequence[PostOp], *, bias: bool) -> tuple[Hashable, ...]:
        """What a decision is known by: everything that oneDNN's answer depends on but sizes."""
        chain = tuple(chains.described(post_op, self.dst.shape) for post_op in post_ops)
        return (self._origin, self.node.name, node.name, bias, chain)

    def _decided(
        self, key: tuple[Hashable, ...], node: Node, post_ops: Sequence[PostOp], *, bias: bool
    ) -> tuple[bool, Primitive | None]:
        """Whether a node is fused, and the primitive that does it, where it had to be asked for."""
        before = self._decisions.assumed(key)
        if before is not None:
            accepted = before is True
            if accepted:
                self._assumed.append(key)
            return accepted, None
        primitive = self._proved(node, post_ops, bias=bias)
        if primitive is None and node.name in self.refused:
            self._decisions.vary([key])  # another size may be right
        else:
            self._decisions.note(key, primitive is not None)
        return primitive is not None, primitive

    def _plain(self) -> Primitive:
        """The primitive without post-operations.

        Raises:
            Unlike: there is none.
        """
        if self._plain_primitive is None:
            with openmp.threads(self._threads):
                self._plain_primitive = self._make([], False)
            if self._plain_primitive is None:
                raise Unlike(self._assumed)
        return self._plain_primitive

    def _final(self) -> Primitive:
        """The primitive that runs.

        Raises:
            Unlike: it is not what was assumed.
        """
        if self._primitive is not None:
            return self._primitive
        bias = Arg.BIAS in self._arguments
        if not self._post_ops and not bias and not self._own_links:
            made: Primitive | None = self._plain()
        else:
            made = self._proved(self.node, self._post_ops, bias=bias)
        if made is None or made.dst != self._layout:
            raise Unlike(self._assumed)
        self._primitive = made
        return made

    def _proved(self, node: Node, post_ops: Sequence[PostOp], *, bias: bool) -> Primitive | None:
        """The primitive with these post-operations; None without one that is right."""
        chain = self._seen_chain(post_ops)
        if chain is None:
            return None
        post_ops = chain
        with openmp.threads(self._threads):  # what reads the result may be worth another number
            primitive = self._make(post_ops, bias)
        if primitive is None:
            return None
        basis = self._basis
        links = [*(self._own_links if basis is None else basis.links)]
        rank = len(primitive.dst.shape)
        if bias:
            memory = Descriptor.dense(primitive.bias_shape)
            links.append(Link.bias(memory, rank))
        for position, post_op in enumerate(post_ops):
            argument = Arg.ATTR_POST_OP * (self._own_post_ops + position + 1)
            links.append(Link.of(post_op, argument, primitive.dst.shape))
        if basis is not None:
            claim = Claim(primitive, basis.primitive, links, basis.zero, basis.window)
        else:
            base = None if self._own_links else self._plain
            claim = Claim(primitive, base, links, window=self._window)
        reason = refusal(claim)
        if reason:
            self.refused[node.name] = reason
        return None if reason else primitive

    def _seen_chain(self, post_ops: Sequence[PostOp]) -> list[PostOp] | None:
        """Post-operations on what the primitive sees; None where it cannot see an operand."""
        chain: list[PostOp] = []
        for post_op in post_ops:
            if isinstance(post_op, Binary):
                operand = self._sight.seen(post_op.operand, Arg.DST)
                if operand is None:
                    return None
                chain.append(Binary(post_op.algorithm, operand))
            elif isinstance(post_op, Prelu) and not self._sight.sees_channels:
                return None
            else:
                chain.append(post_op)
        return chain

    def _accept(self, node: Node, primitive: Primitive | None) -> None:
        self._primitive = primitive
        if primitive is not None:
            self._layout = primitive.dst
        self.levels = self.latest = None
        self.types.append(node.type)
        self.layers.append(node.name)
        self.node = node

    def emit(self, builder: PlanBuilder) -> Value:
        """Append the step to the plan and return the result's value.

        Raises:
            Unlike: the primitive is not what was assumed.
        """
        primitive = self._final()
        name, types, layers = self.node.name, "+".join(self.types), tuple(self.layers)
        for layer, reason in self.refused.items():
            builder.refuse(layer, reason)
        if self._replacement is not None:
            given = self._arguments.get(Arg.BIAS)
            bias = given.array.reshape(-1) if isinstance(given, Packed) else None
            chain = tuple(self._post_ops)
            fused = Fused(name, types, layers, chain, bias, self._operands)
            other = self._replacement(builder, fused)
            if other is not None:
                return other
        arguments: dict[int, Value] = {}
        for index, argument in self._arguments.items():
            want = None if argument.query is None else primitive.descriptor(argument.query)
            if isinstance(argument, Packed):
                array = argument.array
                if index == Arg.BIAS:
                    array = array.reshape(-1)
                    if self._sight.copies > 1:
                        array = np.tile(array, self._sight.copies)
                    array = array.reshape(primitive.bias_shape)
                arguments[index] = builder.packed(array, want)
            elif index >= Arg.ATTR_SCALES:  # one number, which is seen as it is
                arguments[index] = argument.value
            elif want is None:
                arguments[index] = self._sight.value(argument.value, index)
            else:
                want = self._sight.in_network(want, index)
                value = builder.in_layout(argument.value, want)
                arguments[index] = self._sight.value(value, index)
        sums = []
        for position, operand in self._operands.items():
            index = Arg.ATTR_POST_OP * (self._own_post_ops + position + 1) | operand.argument
            arguments[index] = self._read(builder, operand)
            if isinstance(operand.source, Value) and self._adds_all(position):
                sums.append(Sum(index, partial(self._with_sum, position)))
        result = builder.new(self.dst)
        arguments[Arg.DST] = self._sight.value(result, Arg.DST)
        builder.emit(PrimitiveStep(name, types, primitive, arguments, (Arg.DST,), sums, layers))
        return result

    def _read(self, builder: PlanBuilder, operand: Operand) -> Value:
        """What the primitive sees of an operand."""
        if isinstance(operand.source, Value):
            value = builder.in_layout(operand.source, operand.descriptor)
            return self._sight.value(value, Arg.DST)
        array = self._sight.constant(operand.source)
        if array is not operand.source:
            return builder.packed(array, self._sight.seen(operand.descriptor, Arg.DST))
        value = builder.packed(array, operand.descriptor)
        is_slope = operand.argument is Arg.WEIGHTS  # one axis, which stays
        return value if is_slope else self._sight.value(value, Arg.DST)

    def _adds_all(self, position: int) -> bool:
        """Whether a post-operation adds a tensor of the result's size."""
        post_op = self._post_ops[position]
        return (
            isinstance(post_op, Binary)
            and post_op.algorithm == Algorithm.BINARY_ADD
            and self._own_post_ops == 0
            and post_op.operand == self.dst
        )

    def _with_sum(self, position: int) -> Primitive | None:
        """The primitive that adds what the destination holds instead of an operand."""
        post_ops = [*self._post_ops]
        post_ops[position] = SumPostOp()
        return self._proved(self.node, post_ops, bias=Arg.BIAS in self._arguments)


def _adds_up(weights: Flow | Packed, results: tuple[int, ...]) -> bool:
    """Whether a product adds several numbers up for each of its results along an axis."""
    if isinstance(weights, Packed):
        return weights.array.size > math.prod(results)
    return weights.value.shape[-2] != 1
