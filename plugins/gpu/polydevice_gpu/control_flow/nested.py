"""What a loop or If is while it is compiled: the graphs of its bodies, and how they are tied to it.

Values of the body are named as its graph's inputs and outputs; those around it are numbers of the
layer's inputs and outputs.
"""

from __future__ import annotations

from dataclasses import field

from polydevice.dataclass import dataclass
from polydevice.ops.control_flow import Slicing
from polydevice_gpu.graph import GpuGraph

MANY = 1 << 62
"""Number of iterations of a loop that nothing but its condition ends."""


@dataclass(frozen=True)
class Given:
    """An input of the layer that the body reads: all of it, or one part in each iteration."""

    input: int
    parameter: str
    slicing: Slicing | None = None


@dataclass(frozen=True)
class Carried:
    """A result that the next iteration reads; `input` of the layer is what the first one reads."""

    input: int
    parameter: str
    result: str


@dataclass(frozen=True)
class Taken:
    """A result that is an output of the layer: the last one, or all joined along an axis.

    Attributes:
        output: of the layer.
        result: of the body.
        slicing: how parts are joined; None for the result of the last iteration.
        first: parameter that holds what the output is if the body never runs; "" if there is none.
    """

    output: int
    result: str
    slicing: Slicing | None = None
    first: str = ""


@dataclass
class LoopBody:
    """A TensorIterator or Loop that the device runs.

    Attributes:
        graph: of one iteration.
        count: number of iterations if no condition ends them; None when an input says it.
        starts: whether there is a first iteration; None when an input says it.
        condition: result that says whether another iteration follows; "" if always.
        counter: parameter that is the number of the iteration; "" if there is none.
        given: what every iteration reads, or its part of it.
        carried: what iterations pass on.
        taken: what the layer gives.
    """

    graph: GpuGraph
    count: int | None
    starts: bool | None
    condition: str = ""
    counter: str = ""
    given: list[Given] = field(default_factory=list)
    carried: list[Carried] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)

    kind = "loop"
    """What runs it, in reports."""

    @property
    def graphs(self) -> list[GpuGraph]:
        """The graph of the body."""
        return [self.graph]

    def __str__(self) -> str:
        """Say how it runs, for people."""
        reads = []
        if self.count is None:
            reads.append("their number")
        if self.starts is None:
            reads.append("whether it starts")
        if self.condition:
            reads.append("after each whether to go on")
        times = "" if self.count is None or self.count >= MANY else f" of {self.count} iterations"
        if self.condition and times:
            times = f" of at most {self.count} iterations"
        asks = f"; the host reads {', '.join(reads)}" if reads else ""
        return f"a loop{times}, values stay there{asks}"


@dataclass
class Branch:
    """A body of an If."""

    graph: GpuGraph
    given: list[Given] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)


@dataclass
class Branches:
    """An If that the device runs; a body that does not accept the inputs' sizes is None."""

    then: Branch | None
    otherwise: Branch | None

    kind = "if"
    """What runs it, in reports."""

    def __str__(self) -> str:
        """Say how it runs, for people."""
        return "the body that the condition chooses; the host reads that"

    @property
    def graphs(self) -> list[GpuGraph]:
        """The graphs of the bodies."""
        return [branch.graph for branch in (self.then, self.otherwise) if branch is not None]


Nested = LoopBody | Branches
