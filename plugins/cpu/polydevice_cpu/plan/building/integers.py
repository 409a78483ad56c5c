"""Integers: an f32 value that is held as 8-bit integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from polydevice.dtype import Array
from polydevice_cpu.onednn.constants import DataType
from polydevice_cpu.plan.value import Value

if TYPE_CHECKING:
    from polydevice_cpu.plan.building.pending import Pending


@dataclass(frozen=True)
class Integers:
    """The value (integers - zero) * scale; it comes into being when something reads it.

    Attributes:
        start: makes the primitive that computes it, into which its reader may be fused; None where
            oneDNN has none. Each reader gets its own: what they share are the integers.
    """

    value: Value
    scale: float
    zero: int
    start: Callable[[], Pending | None]

    def floats(self, array: Array) -> tuple[Array, ...]:
        """Return what such an array of integers stands for, in f32."""
        return ((array.astype(np.float32) - np.float32(self.zero)) * np.float32(self.scale),)


@dataclass(frozen=True)
class Levels:
    """That a chain of post-operations ends with rounding to integers and scaling them back.

    Attributes:
        scale, zero: of the integers in `data_type`.
        tail: how many post-operations come after the rounding.
    """

    RANGES: ClassVar = ((-128, 127), (0, 255))

    scale: float
    zero: int
    data_type: DataType
    tail: int

    @classmethod
    def of(cls, scale: float, zero: int, signed: bool, tail: int) -> Levels:
        """The levels in the type in which the zero point is 0, if there is one."""
        if signed and zero == -128:
            return cls(scale, 0, DataType.U8, tail)
        if not signed and zero == 128:
            return cls(scale, 0, DataType.S8, tail)
        return cls(scale, zero, DataType.S8 if signed else DataType.U8, tail)
