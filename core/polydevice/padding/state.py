"""What is known of values while a network is proved: State of one, Step for one operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from enum import Enum
from typing import TypeVar

from polydevice.dataclass import dataclass
from polydevice.dtype import Array
from polydevice.node import Node
from polydevice.ops.op import Op
from polydevice.padding.labels import Factors, Label, Labels, Sizes, fixed, label_of, symbols_of


class Kind(Enum):
    """What a value depends on."""

    FIXED = "neither what is given nor how much"
    SIZES = "the sizes of the inputs alone"
    DATA = "the inputs, element by element"


@dataclass(frozen=True)
class State:
    """What is known of one value.

    Attributes:
        kind: what it depends on.
        labels: of its axes.
        zeros: axes along which what is padding is 0.
    """

    kind: Kind
    labels: Labels
    zeros: frozenset[int] = frozenset()

    @property
    def is_padded(self) -> bool:
        """Whether some axis has padding."""
        return any(symbols_of(label) for label in self.labels)


@dataclass(frozen=True)
class Guard:
    """A value that an operation would mix with padding, and what to put there instead.

    Attributes:
        node: name of the operation.
        index: which of its inputs.
        axis: of that input.
        rank: number of axes of that input.
        symbol: the padded size.
        fill: what the padding becomes.
        means: whether the operation divides by the number of elements along the axis.
    """

    node: str
    index: int
    axis: int
    rank: int
    symbol: str
    fill: float | bool
    means: bool = False


class UnprovableError(Exception):
    """Padding may change what an operation computes; says why, without naming the operation."""


@dataclass
class Step:
    """One operation, with what is known of its inputs.

    Attributes:
        nodes: the operation in each of the networks that are tried.
        inputs: what is known of its inputs.
        known: padded sizes.
        guarded: sizes that operations may be guarded against; others must not be mixed.
        titles: padded size → how messages call it.
        guards: what it asks for.
    """

    nodes: Sequence[Node]
    inputs: list[State]
    known: Factors
    guarded: frozenset[str]
    titles: dict[str, str]
    guards: list[Guard] = field(default_factory=list)

    @property
    def op(self) -> Op:
        """The operation."""
        return self.nodes[0].op

    def value(self, index: int) -> Array | None:
        """Return the value of an input that is always the same; None for any other."""
        if index >= len(self.inputs) or self.inputs[index].kind is not Kind.FIXED:
            return None
        return self.nodes[0].inputs[index].desc.constant

    def ints(self, index: int, what: str) -> list[int]:
        """Return the elements of an input that has to be always the same.

        Raises:
            UnprovableError: it may differ.
        """
        found = self.value(index)
        if found is None:
            raise UnprovableError(f"its {what} depend on the inputs or their sizes")
        return [int(each) for each in found.reshape(-1)]

    def sizes(self, axis: int, output: int = 0) -> Sizes:
        """Return the sizes of an axis of a result in the networks that are tried.

        Raises:
            UnprovableError: they depend on what is given.
        """
        shapes = [node.outputs[output].desc.shape for node in self.nodes]
        known = [shape.static for shape in shapes if shape is not None and shape.is_static]
        if len(known) < len(shapes):
            raise UnprovableError("the size of its result depends on the inputs")
        return tuple(shape[axis] for shape in known)

    def rank(self, output: int = 0) -> int:
        """Return the number of axes of a result."""
        return len(self.nodes[0].outputs[output].shape or ())

    def found(self, axis: int, output: int = 0) -> Label:
        """Return the label of an axis of a result that is a number or one padded size.

        Raises:
            UnprovableError: its size follows the inputs' in another way.
        """
        label = label_of(self.sizes(axis, output), self.known)
        if label is None:
            raise UnprovableError(
                f"the size of axis {axis} of its result follows those of the inputs in a way that "
                "is not understood"
            )
        return label

    def refuse(self, label: Label, axis: int, doing: str) -> None:
        """Raise UnprovableError if an axis is padded.

        Args:
            label: of the axis.
            axis: its number.
            doing: what the operation does there, such as "adds up elements".
        """
        for symbol in symbols_of(label)[:1]:
            raise UnprovableError(
                f"it {doing} along its axis {axis}, which has {self.titles[symbol]}"
            )

    def hide(
        self, index: int, axis: int, fill: float | bool, doing: str, *, means: bool = False
    ) -> None:
        """Ask for a guard where an axis of an input is padded.

        Args:
            index: number of the input.
            axis: its axis.
            fill: what padding there has to be for the result to be right.
            doing: as in `refuse`.
            means: as in `Guard`.

        Raises:
            UnprovableError: no guard is possible.
        """
        label = self.inputs[index].labels[axis]
        if not symbols_of(label):
            return
        symbol = label[0]
        if len(label) != 1 or not isinstance(symbol, str) or symbol not in self.guarded:
            self.refuse(label, axis, doing)
        if fill == 0 and not means and axis in self.inputs[index].zeros:
            return
        rank = len(self.inputs[index].labels)
        self.guards.append(Guard(self.nodes[0].name, index, axis, rank, str(symbol), fill, means))

    def only_first(self, others: Sequence[int] | None = None) -> None:
        """Raise UnprovableError if another input than the first has padding.

        Args:
            others: which; None for all of them.
        """
        for index in range(1, len(self.inputs)) if others is None else others:
            if index < len(self.inputs) and self.inputs[index].kind is not Kind.FIXED:
                raise UnprovableError(f"its input {index} depends on the inputs or their sizes")

    def kept(self, mixed: Sequence[int], doing: str, output: int = 0) -> Labels:
        """Return the labels of a result of the first input's rank that mixes some axes alone.

        Args:
            mixed: the axes, which must not be padded.
            doing: as in `refuse`.
            output: number of the result.
        """
        labels = self.inputs[0].labels
        for axis in mixed:
            self.refuse(labels[axis], axis, doing)
        return tuple(
            fixed(self.sizes(axis, output)[0]) if axis in mixed else label
            for axis, label in enumerate(labels)
        )


Rule = Callable[[Step], "list[State]"]
R = TypeVar("R", bound=Rule)


def data(*labels: Labels) -> list[State]:
    """Return what is known of results with these labels."""
    return [State(Kind.DATA, each) for each in labels]
