"""Ways in which the inputs and the result of one operation may lie in device memory.

Each is made with layers that the GPU plugin turns into views (Transpose, Slice, Reverse) or into
memory that is computed in place (Concat), so that a kernel meets every pitch and offset it can
meet in a real network. Around an input that is a part of something larger lies NaN, or the largest
integer: what is read beside the input shows in the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from polydevice.dtype import Array, ElementType
from polydevice.network import Network
from polydevice.node import Node, Port
from polydevice.ops.concat import Concat
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.ops.math import Abs
from polydevice.ops.reverse import Reverse
from polydevice.ops.slice import Slice
from polydevice.ops.transpose import Transpose
from polydevice.shape import Shape
from polydevice.testing.op_case import OpCase


@dataclass
class Trial:
    """A case in an arrangement: its network, what goes in, and what must come out.

    Attributes:
        case: the case.
        arrangement: the arrangement's name.
        network: the operation is its node "op"; its results are ``output0``….
        given: name of an input → array.
        beside: what lies before and after the first result in ``output0``, if anything does.
        axis: along which axis.
    """

    case: OpCase
    arrangement: str
    network: Network
    given: dict[str, Array]
    beside: tuple[Array, Array] | None
    axis: int

    @property
    def elements(self) -> int:
        """How many elements all inputs have."""
        return sum(np.asarray(array).size for array in self.case.inputs)

    def answers(self) -> dict[str, Array]:
        """Return name of a result → the right answer, from the case's oracle."""
        found = {f"output{i}": answer for i, answer in enumerate(self.case.answers())}
        if self.beside is not None:
            first, last = self.beside
            found["output0"] = np.concatenate([first, found["output0"], last], self.axis)
        return found


class Builder:
    """Builds the network of a trial."""

    def __init__(self, case: OpCase, rng: np.random.Generator) -> None:
        self.case, self.rng = case, rng
        self.parameters: list[Node] = []
        self.given: dict[str, Array] = {}

    def constant(self, name: str, *values: int) -> Port:
        return Node(name, Constant(np.array(values, np.int64), ElementType.i64)).output

    def parameter(self, name: str, array: Array, kind: ElementType) -> Port:
        node = Node(name, Parameter(kind, Shape(array.shape)))
        self.parameters.append(node)
        self.given[name] = np.array(array, order="C")
        return node.output

    def input(self, index: int, array: Array) -> Port:
        return self.parameter(f"input{index}", array, self.case.element_type(index))

    def whole(self, index: int, array: Array) -> Port:
        """As the caller gives it: planar."""
        return self.input(index, array)

    def channels_last(self, index: int, array: Array) -> Port:
        """Axis 1 innermost; of a matrix, columns."""
        if array.ndim < 2:
            return self.input(index, array)
        order = [0, *range(2, array.ndim), 1] if array.ndim > 2 else [1, 0]
        return self._turned(index, self.input(index, array.transpose(order)), order)

    def part(self, index: int, array: Array) -> Port:
        """A part of something larger: an offset, and pitches wider than the sizes."""
        if not array.ndim:
            return self.input(index, array)
        return self._cut(index, *self._surrounded(array), array)

    def part_channels_last(self, index: int, array: Array) -> Port:
        """Both."""
        if array.ndim < 2:
            return self.part(index, array)
        order = [0, *range(2, array.ndim), 1] if array.ndim > 2 else [1, 0]
        inside = array.transpose(order)
        return self._turned(index, self._cut(index, *self._surrounded(inside), inside), order)

    def backwards(self, index: int, array: Array) -> Port:
        """Negative pitches."""
        if not array.ndim:
            return self.input(index, array)
        source = self.input(index, np.flip(array))
        axes = self.constant(f"axes{index}", *range(array.ndim))
        return Node(f"reverse{index}", Reverse(), [source, axes]).output

    def _turned(self, index: int, source: Port, order: list[int]) -> Port:
        back = self.constant(f"order{index}", *np.argsort(order))
        return Node(f"transpose{index}", Transpose(), [source, back]).output

    def _surrounded(self, array: Array) -> tuple[Array, list[int]]:
        before = [int(n) for n in self.rng.integers(0, 4, array.ndim)]
        after = [int(n) for n in self.rng.integers(0, 3, array.ndim)]
        before[-1] += 1
        sizes = [b + n + a for b, n, a in zip(before, array.shape, after, strict=True)]
        if array.dtype.kind in "iu":
            surroundings = np.iinfo(array.dtype).max
        else:
            surroundings = np.nan if array.dtype.kind == "f" else True
        larger = np.full(sizes, surroundings, array.dtype)
        larger[tuple(slice(b, b + n) for b, n in zip(before, array.shape, strict=True))] = array
        return larger, before

    def _cut(self, index: int, larger: Array, before: list[int], array: Array) -> Port:
        limits = [
            self.constant(f"start{index}", *before),
            self.constant(f"stop{index}", *np.add(before, array.shape)),
            self.constant(f"step{index}", *[1] * array.ndim),
        ]
        return Node(f"slice{index}", Slice(), [self.input(index, larger), *limits]).output

    def between(self, result: Port, axis: int) -> tuple[Port, tuple[Array, Array], list[Port]]:
        """Join the result with values on both sides of it.

        Returns the whole, what the values are, and what reads them as well, so that they are
        computed before the operation, which then must not touch them.
        """
        sizes = list(result.desc.shape.static)
        kind = result.desc.element_type
        beside, values, readers = [], [], []
        for name, size in (("before", 3), ("after", 2)):
            sizes[axis] = size
            values.append(self.rng.integers(1, 9, sizes).astype(kind.dtype))
            port = self.parameter(name, values[-1], kind)
            if kind is not ElementType.boolean:
                port = Node(f"{name}/same", Abs(), [port]).output
                readers.append(Node(f"{name}/read", Abs(), [port]).output)
            beside.append(port)
        whole = Node("whole", Concat(axis=axis), [beside[0], result, beside[1]])
        return whole.output, (values[0], values[1]), readers


@dataclass(frozen=True)
class Arrangement:
    """How inputs lie, and along which axis the first result lies between other values.

    Attributes:
        name: for messages.
        place: gives an input its place.
        axis: None where the result lies alone; taken modulo the rank.
    """

    name: str
    place: Callable[[Builder, int, Array], Port]
    axis: int | None = None

    def trial(self, case: OpCase, rng: np.random.Generator) -> Trial:
        """Arrange a case."""
        builder = Builder(case, rng)
        inputs = []
        for index, array in enumerate(map(np.asarray, case.inputs)):
            kind = case.element_type(index)
            if case.is_constant(index):
                inputs.append(Node(f"input{index}", Constant(array, kind)).output)
            else:
                inputs.append(self.place(builder, index, array))
        ports = list(Node("op", case.op, inputs).outputs)
        beside, axis, readers = None, 0, []
        rank = len(ports[0].desc.shape or ()) if ports[0].desc.is_static else 0
        if self.axis is not None and rank:
            axis = self.axis % rank
            ports[0], beside, readers = builder.between(ports[0], axis)
        named = [(f"read{i}", port) for i, port in enumerate(readers)]
        named += [(f"output{i}", port) for i, port in enumerate(ports)]
        results = [Node(name, Result(output_name=name), [port]) for name, port in named]
        network = Network(case.op.type, builder.parameters, results)
        return Trial(case, self.name, network, builder.given, beside, axis)


ARRANGEMENTS = (
    Arrangement("planar", Builder.whole),
    Arrangement("channels last", Builder.channels_last),
    Arrangement("a part, into a part along axis 1", Builder.part, 1),
    Arrangement("a part with channels last, into a part along the last axis",
                Builder.part_channels_last, -1),
    Arrangement("backwards, into a part along axis 0", Builder.backwards, 0),
)  # fmt: skip
