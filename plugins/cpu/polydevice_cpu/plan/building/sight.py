"""Sight: how a primitive sees the tensors of the network it reads and writes.

`argument` says which tensor is meant: Arg.SRC, Arg.DST and so on. What is fused into a primitive
lies as its result does, Arg.DST.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.plan.value import Value


class Sight:
    """As they are in the network."""

    def in_network(self, layout: Descriptor, argument: int) -> Descriptor:
        """The network's layout of what the primitive sees in this one."""
        return layout

    def seen(self, layout: Descriptor, argument: int) -> Descriptor | None:
        """What the primitive sees of a tensor in this layout; None where it cannot."""
        return layout

    def value(self, value: Value, argument: int) -> Value:
        """What the primitive sees of a value that it can see: the same bytes."""
        seen = self.seen(value.descriptor, argument)
        assert seen is not None
        return value if seen is value.descriptor else value.seen_as(seen)

    @property
    def sees_channels(self) -> bool:
        """Whether the second axis is what it is in the network."""
        return True

    @property
    def copies(self) -> int:
        """How often one number per channel has to be given."""
        return 1

    def repeats(self, shape: Sequence[int]) -> bool:
        """Whether an operand of these sizes has to be given several times, as a constant can."""
        return False

    def constant(self, array: Array) -> Array:
        """What the primitive is given of a constant operand."""
        return array


class Turned(Sight):
    """The last two axes exchanged; see `Value.turned`."""

    def in_network(self, layout: Descriptor, argument: int) -> Descriptor:
        """Turning twice gives the same layout."""
        return layout.turned()

    def seen(self, layout: Descriptor, argument: int) -> Descriptor:
        """Every operand can be turned."""
        return layout.turned()


class Rows(Sight):
    """Channels-last tensors as row-major ones of other axes, for the same bytes."""

    def __init__(
        self, source: tuple[Descriptor, Descriptor], result: tuple[Descriptor, Descriptor]
    ) -> None:
        """Take source and result, each in the network and as it is seen."""
        self._pairs = {int(Arg.SRC): source, int(Arg.DST): result}

    def in_network(self, layout: Descriptor, argument: int) -> Descriptor:
        """Source and result are the only tensors it sees; they may look alike."""
        return Descriptor.channels_last(self._pairs[argument][0].shape, layout.data_type)

    def seen(self, layout: Descriptor, argument: int) -> Descriptor | None:
        """What lies as the source or result does, and single numbers."""
        network, seen = self._pairs[argument]
        # Not by strides: those of axes of size 1 may differ.
        if layout == Descriptor.channels_last(network.shape, layout.data_type):
            return Descriptor.dense(seen.shape, layout.data_type)
        if layout.shape.count(1) == len(layout.shape):
            return Descriptor.dense((1,) * len(seen.shape), layout.data_type)
        return None

    @property
    def sees_channels(self) -> bool:
        """They are part of the last axis."""
        return False

    @property
    def copies(self) -> int:
        """The last axis holds the channels of so many neighbours."""
        network, seen = self._pairs[Arg.DST]
        return seen.shape[-1] // network.shape[1]


class Runs(Sight):
    """Tensors with few channels next to each other as rows of many pixels, for the same bytes.

    A constant with one number per channel is given once for every pixel of a row.
    """

    def __init__(self, layout: Descriptor, axis: int, copies: int) -> None:
        """Take the network's layout, the axis of the channels, and how many pixels are a row."""
        self._layout, self._axis, self._copies = layout, axis, copies
        self._run = layout.shape[axis] * copies

    def in_network(self, layout: Descriptor, argument: int) -> Descriptor:
        """Source and result lie alike."""
        return self._layout

    def seen(self, layout: Descriptor, argument: int) -> Descriptor | None:
        """What lies as the source does, one number for all or for each channel."""
        number = layout.data_type
        if layout == self._layout:
            return Descriptor.dense((math.prod(layout.shape) // self._run, self._run), number)
        if number is not self._layout.data_type:
            return None
        if self.repeats(layout.shape):
            return Descriptor.dense((1, self._run), number)
        return Descriptor.dense((1, 1), number) if math.prod(layout.shape) == 1 else None

    @property
    def sees_channels(self) -> bool:
        """They are part of the last axis."""
        return False

    def repeats(self, shape: Sequence[int]) -> bool:
        """Where it has one number for each channel."""
        return math.prod(shape) == shape[self._axis] == self._layout.shape[self._axis]

    def constant(self, array: Array) -> Array:
        """One number for each pixel and channel of a row."""
        return np.tile(array.reshape(1, -1), self._copies) if self.repeats(array.shape) else array


class Merged(Sight):
    """Channels-last tensors of one or three axes as channels-last ones of two: the same bytes."""

    def __init__(self, source: Sequence[int], result: Sequence[int], *, into_batch: bool) -> None:
        """Take the sizes in the network.

        Args:
            source: what is read.
            result: what is written.
            into_batch: the first of three axes counts as batch; else the last two are one.
        """
        self._shapes = {int(Arg.SRC): tuple(source), int(Arg.DST): tuple(result)}
        self._into_batch = into_batch

    def sizes(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The sizes that the primitive sees."""
        if len(shape) == 3:
            batch, channels, length = shape
            return (batch, channels, 1, length)
        batch, channels, depth, rows, columns = shape
        if self._into_batch:
            return (batch * depth, channels, rows, columns)
        return (batch, channels, depth, rows * columns)

    def in_network(self, layout: Descriptor, argument: int) -> Descriptor:
        """Source and result are the only tensors it sees; they may look alike."""
        return Descriptor.channels_last(self._shapes[argument], layout.data_type)

    def seen(self, layout: Descriptor, argument: int) -> Descriptor | None:
        """What lies as the source or result does, and one number for all or for each channel."""
        network = self._shapes[argument]
        if layout == Descriptor.channels_last(network, layout.data_type):
            return Descriptor.channels_last(self.sizes(network), layout.data_type)
        if all(size == 1 for axis, size in enumerate(layout.shape) if axis != 1):
            return Descriptor.dense((1, layout.shape[1], 1, 1), layout.data_type)
        return None


class Flat(Sight):
    """Row-major tensors [..., M, K] as matrices of all their rows, for the same bytes."""

    def __init__(self, source: Sequence[int], result: Sequence[int]) -> None:
        """Take the sizes in the network of what is read and what is written."""
        self._shapes = {int(Arg.SRC): tuple(source), int(Arg.DST): tuple(result)}

    @staticmethod
    def sizes(shape: Sequence[int]) -> tuple[int, int]:
        """The sizes that the primitive sees."""
        return math.prod(shape[:-1]), shape[-1]

    def in_network(self, layout: Descriptor, argument: int) -> Descriptor:
        """Source and result are the only tensors it sees; they may look alike."""
        return Descriptor.dense(self._shapes[argument], layout.data_type)

    def seen(self, layout: Descriptor, argument: int) -> Descriptor | None:
        """What lies as the source or result does, and one row or number for all."""
        network = self._shapes[argument]
        if layout == Descriptor.dense(network, layout.data_type):
            return Descriptor.dense(self.sizes(network), layout.data_type)
        if all(size == 1 for size in layout.shape[:-1]):
            return Descriptor.dense((1, layout.shape[-1]), layout.data_type)
        return None

    @property
    def sees_channels(self) -> bool:
        """The second axis is the last one."""
        return False


class Positions(Flat):
    """Row-major tensors [..., M, K] as images of one row of M pixels and K channels, channels last.

    A convolution with windows of one element is a product of matrices then.
    """

    def seen(self, layout: Descriptor, argument: int) -> Descriptor | None:
        """What lies as the source or result does, and one number for all or for each channel."""
        flat = super().seen(layout, argument)
        return None if flat is None else self.image(flat)

    @staticmethod
    def image(flat: Descriptor) -> Descriptor:
        """A matrix as the primitive sees it."""
        rows, columns = flat.shape
        return Descriptor.channels_last((1, columns, 1, rows), flat.data_type)

    @property
    def sees_channels(self) -> bool:
        """The second axis is the network's last one."""
        return False


AS_IS = Sight()
TURNED = Turned()
