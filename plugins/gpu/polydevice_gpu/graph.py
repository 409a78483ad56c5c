"""GpuGraph: the network while it is compiled for a device.

The nodes keep the core's operations; what the graph adds is where values lie (`Layout`,
`Memory`), how they are stored (`Value.storage`), which kernel runs a node and which pointwise
operations it takes along (`GpuNode.epilogue`). All shapes are static.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from polydevice.dataclass import dataclass
from polydevice.dtype import Array, ElementType
from polydevice.ops.op import Op
from polydevice.shape import Shape
from polydevice.symbolic_size import is_formula
from polydevice_gpu.layout import Layout, planar
from polydevice_gpu.ops import Fragment, Fused

if TYPE_CHECKING:
    from polydevice_gpu.control_flow.nested import Nested
    from polydevice_gpu.kernels.kernel import Choice

O = TypeVar("O", bound=Op)  # noqa: E741 - an operation


class Place(enum.Enum):
    """Which memory a value lives in."""

    ARENA = "arena"
    """The request's arena; reused when the value is no longer needed."""
    WEIGHTS = "weights"
    """A constant, uploaded once per device and shared by all requests."""
    KEPT = "kept"
    """Zeros at first, then what launches leave there; each request has its own."""


@dataclass(eq=False)
class Memory:
    """A range of device memory that one or more values (views of one another) share.

    Attributes:
        place: which memory it is part of.
        elements: its size.
        storage: type of its elements.
        data: what it holds, for weights.
        row_tiles: columns of the matrix that it holds, whose rows lie in tiles (`in_row_tiles` in
            Call); 0 where layouts say where elements lie.
    """

    place: Place
    elements: int
    storage: ElementType
    data: Array | None = None
    name: str = ""
    row_tiles: int = 0

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.elements * self.storage.dtype.itemsize


@dataclass(frozen=True)
class Border:
    """Elements around a value that are not in its memory.

    Attributes:
        inside: for each axis the first coordinate that is in memory, and how many are.
        fill: what all others are.
    """

    inside: tuple[tuple[int, int], ...]
    fill: float


class Value:
    """What flows along an edge of the graph.

    Attributes:
        name: for messages and dumps.
        element_type: what the model says.
        kind: "tensor"; ONNX's containers, such as "sequence", exist on the host only.
        shape: static sizes.
        storage: the type that its elements have in device memory.
        layout: where the elements lie within `memory`; None until a pass decides.
        memory: None until a pass decides.
        constant: its elements, when they are known.
        producer: the node that computes it; None for inputs and constants.
        is_output: whether the caller reads it.
        on_host: whether it exists on the host only, because its size is not known beforehand.
        partial: its shape as far as it is known, of a value on the host.
        border: set where only a part of it is in memory; operands of pointwise operations may be
            such, see `read_borders`.
    """

    __slots__ = (
        "border", "constant", "element_type", "is_output", "kind", "layout", "memory", "name",
        "on_host", "partial", "producer", "shape", "storage",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        element_type: ElementType,
        shape: Iterable[int],
        *,
        storage: ElementType | None = None,
        constant: Array | None = None,
    ) -> None:
        self.name = name
        self.element_type = element_type
        self.kind = "tensor"
        self.shape = tuple(shape)
        self.storage = storage or element_type
        self.constant = constant
        self.layout: Layout | None = None
        self.memory: Memory | None = None
        self.producer: GpuNode | None = None
        self.is_output = False
        self.on_host = False
        self.partial: Shape | None = None
        self.border: Border | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def placed(self) -> Layout:
        """The layout; planar while no pass has decided otherwise."""
        return self.layout if self.layout is not None else planar(self.shape)

    @property
    def layout_name(self) -> str:
        """What reports call the way in which the elements lie."""
        tiled = self.memory is not None and self.memory.row_tiles
        return "row tiles" if tiled else self.placed.named(self.shape)

    def like(self, name: str) -> Value:
        """Return a new value of the same type, shape and storage."""
        return Value(name, self.element_type, self.shape, storage=self.storage)

    def __repr__(self) -> str:
        if self.on_host:
            return f"{self.name}: {self.element_type}[...] on the host"
        sizes = ",".join(map(str, self.shape))
        kind = str(self.storage)
        if self.storage is not self.element_type:
            kind = f"{self.element_type} as {self.storage}"
        where = "" if self.layout is None else f" {self.layout_name}"
        return f"{self.name}: {kind}[{sizes}]{where}"


class GpuNode:
    """One operation with the pointwise operations fused into it.

    Attributes:
        name: unique in the graph.
        op: an operation of the core, or `Fused`.
        inputs: the operation's own inputs, then the epilogue's further inputs.
        outputs: the results; an epilogue applies to the first.
        epilogue: pointwise operations applied to the result before it is stored; its input 0 is
            the result, its others are the last of `inputs`.
        origins: names of the model's layers that it computes.
        choice: the kernel and mode that run it.
        is_view: whether its output is another look at its first input's memory.
        on_host: whether the host computes it.
        is_late: whether a network of the device's own computes it, once its sizes are known.
        nested: the bodies of a loop or If that the device runs.
    """

    __slots__ = (
        "choice", "epilogue", "inputs", "is_late", "is_view", "name", "nested", "on_host", "op",
        "origins", "outputs", "result_type",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        op: Op,
        inputs: Iterable[Value],
        outputs: Iterable[Value],
        origins: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.op = op
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.origins = list(origins)
        self.epilogue: Fragment | None = None
        self.choice: Choice | None = None
        self.is_view = False
        self.on_host = False
        self.is_late = False
        self.nested: Nested | None = None
        self.result_type = self.outputs[0].element_type if self.outputs else ElementType.f32
        """Type of the operation's own result, before the epilogue."""
        for value in self.outputs:
            value.producer = self

    def with_values(self, inputs: list[Value], outputs: list[Value]) -> GpuNode:
        """Return a copy that reads and computes other values; these name no producer yet."""
        made = GpuNode.__new__(GpuNode)  # attribute by attribute: half the time of a loop
        made.name, made.op, made.inputs, made.outputs = self.name, self.op, inputs, outputs
        made.origins, made.epilogue, made.choice = self.origins, self.epilogue, self.choice
        made.is_view, made.on_host, made.is_late = self.is_view, self.on_host, self.is_late
        made.nested, made.result_type = self.nested, self.result_type
        return made

    def stand_for_itself(self) -> None:
        """Say no more that its kernel stands in for another one."""
        if self.choice is not None and self.choice.stands_for:
            self.choice = replace(self.choice, stands_for="")

    def operation(self, kind: type[O]) -> O:
        """Return the operation, which is one of this kind.

        Raises:
            TypeError: it is another one; kernels and views are registered for theirs.
        """
        op = self.op
        if not isinstance(op, kind):
            raise TypeError(f"{self.name} is {self.op.type}, not {kind.__name__}")
        return op

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    @property
    def is_opaque(self) -> bool:
        """Whether no kernel computes it, so that nothing joins it.

        What it reads and gives lies planar, each value alone in its memory.
        """
        return self.on_host or self.nested is not None

    @property
    def own_inputs(self) -> list[Value]:
        """The inputs of the operation itself."""
        extra = len(self.epilogue.inputs) - 1 if self.epilogue else 0
        return self.inputs[: len(self.inputs) - extra]

    @property
    def extra_inputs(self) -> list[Value]:
        """The inputs that only the epilogue reads."""
        return self.inputs[len(self.own_inputs) :]

    def __repr__(self) -> str:
        def names(values: list[Value]) -> str:
            return ", ".join(v.name for v in values)

        op = str(self.op.fragment) if isinstance(self.op, Fused) else self.op.type
        text = f"{op}({names(self.own_inputs)})"
        if self.epilogue:
            text += f" -> {self.epilogue} with ({names(self.extra_inputs)})"
        marks = [mark for mark, on in (("view", self.is_view), ("host", self.on_host)) if on]
        if self.nested is not None:
            marks.append("with bodies")
        if self.choice is not None:
            marks.append(str(self.choice))
        return f"{self.outputs!r} = {text}" + (f"  # {', '.join(marks)}" if marks else "")


@dataclass(frozen=True)
class Fate:
    """What became of a layer of the model.

    Attributes:
        status: EXECUTED or OPTIMIZED_OUT.
        node: name of the graph node that does its work; "" when nothing has to be done.
        reason: one clause for people.
    """

    status: str
    node: str
    reason: str


@dataclass
class GpuGraph:
    """Nodes in execution order, with named inputs and outputs."""

    name: str
    inputs: dict[str, Value] = field(default_factory=dict)
    outputs: dict[str, Value] = field(default_factory=dict)
    nodes: list[GpuNode] = field(default_factory=list)
    fates: dict[str, Fate] = field(default_factory=dict)
    """Layer of the model → what became of it."""
    types: dict[str, str] = field(default_factory=dict)
    """Layer of the model → type of its operation."""
    loose: AbstractSet[str] = frozenset()
    """Outputs that may be views of others, of inputs or constants, in any layout."""
    side_by_side: bool = False
    """Whether launches may become one, in which those that do not wait run side by side."""

    def users(self) -> dict[Value, list[GpuNode]]:
        """Map every value to the nodes that read it, once per reading."""
        found: dict[Value, list[GpuNode]] = {}
        for node in self.nodes:
            for value in node.inputs:
                found.setdefault(value, []).append(node)
        return found

    def replace(self, old: Value, new: Value) -> None:
        """Make every reader of `old` read `new`; an output of the graph stays one."""
        for node in self.nodes:
            if any(value is old for value in node.inputs):
                node.inputs = [new if value is old else value for value in node.inputs]
        for name, value in self.outputs.items():
            if value is old:
                self.outputs[name] = new
                new.is_output = True

    def remove(self, node: GpuNode, status: str, host: str, reason: str) -> None:
        """Take a node out and note what became of the layers it stood for."""
        self.nodes.remove(node)
        for origin in node.origins:
            self.fates[origin] = Fate(status, host, reason)

    def insert_before(self, node: GpuNode, new: GpuNode) -> None:
        """Insert a node right before another."""
        self.nodes.insert(self.nodes.index(node), new)

    def sort(self) -> None:
        """Order the nodes so that producers precede consumers, otherwise keeping the order."""
        order: list[GpuNode] = []
        done: set[GpuNode] = set()
        for root in self.nodes:
            stack = [(root, 0)]
            while stack:
                node, position = stack.pop()
                if node in done:
                    continue
                if position < len(node.inputs):
                    stack.append((node, position + 1))
                    producer = node.inputs[position].producer
                    if producer is not None and producer not in done:
                        stack.append((producer, 0))
                else:
                    done.add(node)
                    order.append(node)
        alive = set(self.nodes)
        self.nodes = [node for node in order if node in alive]

    def text(self) -> str:
        """Write the graph as text, one node a line."""
        lines = [f"input {name} = {value}" for name, value in self.inputs.items()]
        lines += [repr(node) for node in self.nodes]
        lines += [f"output {name} = {value.name}" for name, value in self.outputs.items()]
        return "\n".join(lines)


def constant_value(name: str, array: Any, element_type: ElementType | None = None) -> Value:
    """Make a constant value from an array."""
    data = np.asarray(array)
    kind = element_type or (ElementType.i64 if is_formula(data) else ElementType.of(data.dtype))
    return Value(name, kind, data.shape, constant=data)
