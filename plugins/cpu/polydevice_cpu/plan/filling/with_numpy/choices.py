"""Which primitives NumPy computes for some sizes, as it has no code to generate for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import (
    Descriptor,
    SymbolicDescriptor,
    is_strided,
    same_steps,
)
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.plan.filling.with_numpy.copies import copying, joining, repeating
from polydevice_cpu.plan.filling.with_numpy.pairs import FUNCTIONS, pairing
from polydevice_cpu.plan.step import Compute
from polydevice_cpu.plan.value import Value

_Choose = Callable[[Sequence[Value], Value, int], "Compute | None"]


@dataclass(frozen=True)
class ByNumPy:
    """How NumPy computes a primitive.

    Attributes:
        layouts: what the primitive reads, by index on execution, and in the end what it writes.
        choose: returns the function of values, or None where it takes too long.
        threads: how many would share the work.
    """

    layouts: Sequence[tuple[int, Descriptor]]
    choose: _Choose
    threads: int

    def compute(
        self, values: Mapping[int, Value], sizes: Callable[[object], Any]
    ) -> Compute | None:
        """Return the function of what is read and written; None where oneDNN computes it.

        Args:
            values: arguments by index on execution.
            sizes: returns the numbers of a layout (shape and strides).
        """
        for index, layout in self.layouts:
            shape, steps = layout.shape, layout.strides
            if isinstance(layout, SymbolicDescriptor):
                shape, steps = sizes(layout)
            value = values[index]
            if value.shape != shape or steps is None or value.strides is None:
                return None  # the primitive sees it otherwise
            if value.strides != steps and not same_steps(shape, steps, value.strides):
                return None
        read = [values[index] for index, _ in self.layouts[:-1]]
        return self.choose(read, values[Arg.DST], self.threads)


def by_numpy(given: Primitive) -> ByNumPy | None:
    """Return how NumPy computes a primitive; None where it does for no sizes."""
    if not isinstance(given, SymbolicPrimitive) or given.name not in _KINDS:
        return None
    found = _KINDS[given.name](given)
    attributes = given.arguments[-1]
    assert isinstance(attributes, Attributes)
    if found is None or attributes.post_ops or attributes.quantisation:
        return None
    arguments, choose = found
    layouts = [(index, each) for index, each in arguments if is_strided(each)]
    types = {layout.data_type for _, layout in layouts}
    if len(layouts) < len(arguments) or len(types) > 1:
        return None
    if given.name == "binary" and types != {DataType.F32}:
        return None
    return ByNumPy(layouts, choose, given.threads)


_Found = tuple[Sequence[tuple[int, object]], _Choose]


def _reorder(given: SymbolicPrimitive) -> _Found:
    source, _, target, *_ = given.arguments
    layouts = (Arg.SRC, source), (Arg.DST, target)
    return layouts, lambda read, target, threads: copying(read[0], target, threads)


def _binary(given: SymbolicPrimitive) -> _Found | None:
    _, algorithm, first, second, target, _ = given.arguments
    assert isinstance(algorithm, int)
    if algorithm not in FUNCTIONS:
        return None
    layouts = (Arg.SRC, first), (Arg.SRC_1, second), (Arg.DST, target)
    return layouts, lambda read, target, threads: pairing(
        algorithm, read[0], read[1], target, threads
    )


def _concat(given: SymbolicPrimitive) -> _Found:
    _, target, _, axis, sources, _ = given.arguments
    assert isinstance(axis, int)
    assert isinstance(sources, tuple)
    read = [(Arg.MULTIPLE_SRC + number, each) for number, each in enumerate(sources)]
    layouts = *read, (Arg.DST, target)
    return layouts, lambda read, target, threads: joining(axis, read, target, threads)


def _resampling(given: SymbolicPrimitive) -> _Found | None:
    _, _, algorithm, _, source, target, _ = given.arguments
    if algorithm != Algorithm.RESAMPLING_NEAREST:
        return None
    layouts = (Arg.SRC, source), (Arg.DST, given.answers.get((Query.DST, 0), target))
    return layouts, lambda read, target, threads: repeating(read[0], target, threads)


_KINDS: dict[str, Callable[[SymbolicPrimitive], _Found | None]] = {
    "reorder": _reorder,
    "binary": _binary,
    "concat": _concat,
    "resampling_forward": _resampling,
}
