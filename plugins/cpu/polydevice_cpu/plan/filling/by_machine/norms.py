"""Rows that are normalised, by machine code for as many as there are.

It takes 0.5 to 1 of the time that oneDNN's code takes, and stays; oneDNN would have a primitive for
each number of rows, or several in strips.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from polydevice_cpu.algorithms.by_machine.code import PARTS, Code, may_share
from polydevice_cpu.algorithms.by_machine.reductions import layer_norm
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor, is_open, row_major, same_steps
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive

FEW_NUMBERS = 1 << 16
"""Fewer are not shared: they take some 15 us, and to begin and to end takes threads 3."""

_SRC, _DST, _FLAGS, _ATTRIBUTES = 2, 3, 6, 7

_Sizes = Callable[[object], Any]


@dataclass(frozen=True)
class NormsByMachine:
    """How machine code computes a primitive.

    Attributes:
        inputs: what it reads, by index on execution, in the order in which code is told of it.
        layout: of rows, and of results.
        epsilon: what is added to variances.
        affine: whether there are a scale and a shift.
        threads: how many share the rows.
    """

    inputs: Sequence[int]
    layout: Descriptor
    epsilon: float
    affine: bool
    threads: int

    def code(self, sizes: _Sizes) -> Code | None:
        """Return the code for some sizes (of layouts: shape and strides); None without any."""
        shape, strides = sizes(self.layout)
        if not same_steps(shape, strides, row_major(shape)):
            return None
        *outer, length = shape
        rows = math.prod(outer)
        parts = 1
        if self.threads > 1 and rows >= self.threads and rows * length >= FEW_NUMBERS:
            parts = self.threads * PARTS
        ends = [rows * number // parts for number in range(parts)] + [rows]
        told = [
            layer_norm.prepared(end - begin, length, self.epsilon, affine=self.affine, begin=begin)
            for begin, end in itertools.pairwise(ends)
        ]
        found = [each for each in told if each is not None]
        if len(found) < parts:
            return None
        return Code.of(found) if parts == 1 else Code.shared(found, self.threads)


def norms_by_machine(given: Primitive) -> NormsByMachine | None:
    """Return how machine code computes a primitive; None where it does for no sizes."""
    if not isinstance(given, SymbolicPrimitive) or given.kind != "layer_normalization":
        return None
    source, result, flags, attributes = (
        given.arguments[place] for place in (_SRC, _DST, _FLAGS, _ATTRIBUTES)
    )
    assert isinstance(attributes, Attributes)
    if not (is_open(source) and is_open(result)) or attributes.post_ops or attributes.quantisation:
        return None
    if given.epsilon is None or not (given.threads == 1 or may_share()):
        return None
    inputs = (Arg.SRC, Arg.SCALE, Arg.SHIFT) if flags else (Arg.SRC,)
    return NormsByMachine(
        *(tuple(map(int, inputs)), source, given.epsilon, bool(flags), given.threads)
    )
