"""The steps a plan consists of; one that is bound to a request's memory is a plain call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from polydevice.dtype import Array
from polydevice_cpu.algorithms.by_machine.code import Code, Told
from polydevice_cpu.algorithms.by_machine.functions import Activation
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import ALIGNMENT_BYTES
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.value import Value

MACHINE_CODE = "polydevice:code"
"""What counters call steps of our own machine code."""

BY_ROWS = "polydevice:rows"
"""The same where it takes the place of a primitive."""

IN_TILES = "polydevice:amx"
"""The same where bytes are multiplied in AMX tiles."""

MACHINE_CODE_OF_ANY = "polydevice:x86-64"
"""The same of code that needs no AVX-512."""


Compute = Callable[..., Array | Sequence[Array]]
"""``f(*inputs)`` returns the output or a sequence of them; it never writes its inputs."""


@dataclass(frozen=True)
class ByMachine:
    """A `Compute` that machine code alone is, which runs with primitives beside it in one call.

    Attributes:
        compute: what calls it.
        prepare: returns the code of inputs and outputs, one call or several, which is told the
            addresses of all of them; None where `compute` is called. So it is where code
            refuses what it reads, by returning something else than 0.
        may_refuse: whether it does.
    """

    compute: Compute
    prepare: Callable[[Sequence[Value]], Told | Code | None]
    may_refuse: bool = True

    def code(self, values: Sequence[Value]) -> Code | None:
        """Return the code of inputs and outputs; None where `compute` is called."""
        told = self.prepare(values)
        return told if told is None or isinstance(told, Code) else Code.of([told])

    def __call__(self, *arrays: Array) -> Array | Sequence[Array]:
        """Compute."""
        return self.compute(*arrays)


def outputs_of(computed: Array | Sequence[Array]) -> Sequence[Array]:
    """Return what a `Compute` returned as a sequence."""
    return computed if isinstance(computed, (tuple, list)) else (computed,)


Start = Callable[[Context], Compute]
"""Makes the function for one request, which may keep something in its context."""


@dataclass(frozen=True)
class Sum:
    """An operand that a primitive adds and that could lie in the destination already.

    Attributes:
        argument: execution argument of the operand.
        make: returns the primitive that adds the destination's former content instead.
    """

    argument: int
    make: Callable[[], Primitive | None]


@dataclass(frozen=True, eq=False)
class Piece:
    """A primitive that computes so many positions of a step.

    Attributes:
        weights: how they are packed; None where there are none.
        layouts: of the arguments that have all positions, by index; the others are one for all.
        position_bytes: what a position takes in each of them.
    """

    primitive: Primitive
    length: int
    layouts: Mapping[int, Descriptor]
    position_bytes: tuple[int, ...]
    weights: Descriptor | None


class Strips(NamedTuple):
    """What computes a step piece by piece. Positions follow each other in memory.

    Attributes:
        pieces: what computes each strip.
        cuts: the first position of each, and how many it has.
    """

    pieces: tuple[Piece, ...]
    cuts: tuple[tuple[int, int], ...]


class Block(NamedTuple):
    """A primitive that computes a part of a picture, from a copy of what it reads.

    Attributes:
        read: the part of the source.
        place: where it lies in what the primitive reads; around it are zeros, of bytes the zero
            point.
        write: the part of the result, and of what else is read of its size.
        operands: how a copy of that lies, by index on execution.
        sums: whether the primitive reads what the result has held.
    """

    primitive: Primitive
    read: tuple[slice, ...]
    place: tuple[slice, ...]
    write: tuple[slice, ...]
    operands: Mapping[int, Descriptor]
    sums: bool


@dataclass
class PrimitiveStep:
    """Execute a oneDNN primitive, or several for some positions each.

    Attributes:
        name: the node's (the last one's, where several were fused).
        type: what the counters show as the layer's type.
        arguments: oneDNN's argument index → value.
        outputs: the arguments among them that are written.
        sums: operands that might be added in place.
        strips: what computes it, if not `primitive` at once, which is that of the first strip then.
        blocks: the same, of blocks.
    """

    name: str
    type: str
    primitive: Primitive
    arguments: dict[int, Value]
    outputs: tuple[int, ...]
    sums: Sequence[Sum] = ()
    layers: tuple[str, ...] = ()
    """Names of the nodes that were fused, in order; empty for one node or none."""
    strips: Strips | None = None
    blocks: tuple[Block, ...] = ()

    @property
    def primitives(self) -> Sequence[Primitive]:
        """What is executed."""
        if self.blocks:
            return [block.primitive for block in self.blocks]
        pieces = self.strips.pieces if self.strips else ()
        return [piece.primitive for piece in pieces] or [self.primitive]

    @property
    def scratchpad_bytes(self) -> int:
        """What it takes of a request's scratchpad: the primitives' own use, and copies."""
        if self.strips:
            return max(piece.primitive.scratchpad_bytes for piece in self.strips.pieces)
        if self.blocks:
            copied = max(sum(self.copied(block)) for block in self.blocks)
            return copied + max(block.primitive.scratchpad_bytes for block in self.blocks)
        return self.primitive.scratchpad_bytes

    @staticmethod
    def copied(block: Block) -> list[int]:
        """Bytes of a block's source, its result and operands, in whole cache lines."""
        made = block.primitive
        return [
            -(-layout.size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            for layout in (made.src, made.dst, *block.operands.values())
        ]

    @property
    def implementation(self) -> str:
        """Name of the code that runs."""
        return self.primitive.implementation

    @property
    def values(self) -> list[Value]:
        """Everything the step touches."""
        return list(self.arguments.values())


@dataclass
class ArrayStep:
    """Compute with NumPy and store the results in the outputs' places.

    Attributes:
        writes: whether the function takes the outputs' arrays too, behind the inputs, and writes
            them itself; else what it returns is copied there.
        draws: whether its numbers are random, so that it runs in every inference.
    """

    name: str
    type: str
    start: Start
    inputs: list[Value]
    outputs: list[Value]
    implementation: str = "numpy"
    writes: bool = False
    layers: tuple[str, ...] = ()
    draws: bool = False
    function: Activation | None = None

    @property
    def values(self) -> list[Value]:
        """Everything the step touches."""
        return [*self.inputs, *self.outputs]


@dataclass
class TailStep:
    """Run what depends on sizes that only the data tells; see `tails.tail`.

    Attributes:
        inputs: values of the boundary, dense.
        start: makes f(*arrays of the boundary) → arrays of the results listed in `results`.
        results: positions among the network's results.
        new: those among them that nobody else has.
    """

    name: str
    type: str
    start: Start
    inputs: list[Value]
    results: list[int]
    new: frozenset[int] = frozenset()
    implementation: str = "dynamic"
    layers: tuple[str, ...] = ()
    """Names of the nodes."""
    is_shared: bool = False
    """Whether it serves plans for other sizes as well."""

    @property
    def values(self) -> list[Value]:
        """Everything the step touches."""
        return self.inputs


@dataclass
class CodeStep:
    """Compute by machine code that is the same for all sizes.

    Attributes:
        code: is told addresses of the inputs, then of the outputs.
    """

    name: str
    type: str
    code: Code
    inputs: list[Value]
    outputs: list[Value]
    layers: tuple[str, ...] = ()
    implementation: str = MACHINE_CODE

    @property
    def values(self) -> list[Value]:
        """Everything the step touches."""
        return [*self.inputs, *self.outputs]


Step = PrimitiveStep | ArrayStep | CodeStep | TailStep


def name_of(step: Step, index: int) -> str:
    """Return what a step is called: like a layer, or by its type and number."""
    return step.name or f"{step.type}_{index}"
