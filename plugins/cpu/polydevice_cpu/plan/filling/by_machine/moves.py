"""What puts numbers elsewhere as they are, by machine code for as many as there are.

oneDNN takes 0.12 to 0.3 ms to choose, generate and bind code for a size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from polydevice.symbolic_size import number_of
from polydevice_cpu.algorithms.by_machine.code import Code, Told
from polydevice_cpu.algorithms.by_machine.rows import elementwise
from polydevice_cpu.algorithms.by_machine.small import Form
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Algorithm, Arg, DataType, Query
from polydevice_cpu.onednn.descriptor import Descriptor, is_strided
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.plan.filling.by_machine.pointwise import forms_of, may_be
from polydevice_cpu.plan.instead_of_primitives import MOST_PARTS

MOST_CALLS = 8
"""That repeat numbers: one for each line that is written of one that is read."""

_ITEM = 4

_Sizes = Callable[[object], Any]
_Prepare = Callable[[Sequence[Form], Sequence[int], elementwise.MayBe], "Sequence[Told] | None"]
"""Of how layouts lie, the order of their axes, and how many numbers may be moved."""


@dataclass(frozen=True)
class MovesByMachine:
    """How machine code moves what a primitive does.

    Attributes:
        inputs: what it reads, by index on execution.
        layouts: of these, and of the result.
        prepare: returns the code of how they lie.
        threads: how many would share the work.
    """

    inputs: Sequence[int]
    layouts: Sequence[Descriptor]
    prepare: _Prepare
    threads: int

    def code(self, sizes: _Sizes) -> Code | None:
        """Return the code for some sizes (of layouts: shape and strides); None without any."""
        told = self.prepare(*forms_of(self.layouts, sizes), partial(may_be, self.threads))
        return None if told is None else Code.of(told)


def moves_by_machine(given: Primitive) -> MovesByMachine | None:
    """Return how machine code moves numbers; None where it does for no sizes."""
    if not isinstance(given, SymbolicPrimitive) or given.name not in _KINDS:
        return None
    attributes = given.arguments[-1]
    assert isinstance(attributes, Attributes)
    found = _KINDS[given.name](given)
    if found is None or attributes.post_ops or attributes.quantisation:
        return None
    inputs, layouts, prepare = found
    if not all(isinstance(each, Descriptor) and is_strided(each) for each in layouts):
        return None
    if any(each.data_type is not DataType.F32 for each in layouts):
        return None
    return MovesByMachine(inputs, layouts, prepare, given.threads)


_Found = tuple[Sequence[int], Sequence[Any], _Prepare]


def _reorder(given: SymbolicPrimitive) -> _Found:
    source, _, target, *_ = given.arguments
    return [int(Arg.SRC)], [source, target], _copied


def _copied(
    forms: Sequence[Form], _: Sequence[int], may_be: elementwise.MayBe
) -> Sequence[Told] | None:
    """Return code that copies rows; NumPy does as well where none are of both."""
    source, target = forms
    if not source[0] or any(steps[-1] != _ITEM for _, steps in forms):
        return None
    told = elementwise.copied(source, target, _ITEM, may_be)
    return None if told is None else [told]


def _concat(given: SymbolicPrimitive) -> _Found | None:
    _, target, _, axis, sources, _ = given.arguments
    assert isinstance(axis, int)
    assert isinstance(sources, tuple)
    if len(sources) > MOST_PARTS:
        return None
    inputs = [Arg.MULTIPLE_SRC + number for number in range(len(sources))]
    return inputs, [*sources, target], partial(_joined, axis)


def _joined(
    axis: int, forms: Sequence[Form], order: Sequence[int], may_be: elementwise.MayBe
) -> Sequence[Told] | None:
    return elementwise.joined(order.index(axis), forms, may_be)


def _resampling(given: SymbolicPrimitive) -> _Found | None:
    _, _, algorithm, _, source, target, _ = given.arguments
    if algorithm != Algorithm.RESAMPLING_NEAREST:
        return None
    return [int(Arg.SRC)], [source, given.answers.get((Query.DST, 0), target)], _repeated


def _repeated(
    forms: Sequence[Form], _: Sequence[int], may_be: elementwise.MayBe
) -> Sequence[Told] | None:
    """Return code that repeats pixels whole numbers of times; None for others.

    oneDNN takes the nearest pixel by the distance of centres, which is the same.
    """
    (few, steps), (many, places) = forms
    times = [number_of(n) // max(number_of(each), 1) for n, each in zip(many, few, strict=True)]
    if any(n != each * count for n, each, count in zip(many, few, times, strict=True)):
        return None
    repeated = [axis for axis, count in enumerate(times) if count > 1]
    if not repeated or times[-1] > 1 or 0 in times:
        return None
    *apart, last = repeated
    if math.prod(times[axis] for axis in apart) > MOST_CALLS:
        return None
    read, written = _Axes(), _Axes()
    for axis, count in enumerate(times):
        read.append(few[axis], steps[axis])
        written.append(few[axis], places[axis] * count)
        if axis == last:
            read.append(1, 0)
            written.append(count, places[axis])
    told = []
    for moved in itertools.product(*(range(times[axis]) for axis in apart)):
        begin = sum(places[axis] * each for axis, each in zip(apart, moved, strict=True))
        made = elementwise.copied(read.form, written.form, _ITEM, may_be, begin)
        if made is None:
            return None
        told.append(made)
    return told


class _Axes:
    """Sizes and steps of axes, the outermost first."""

    def __init__(self) -> None:
        self.form: Form = ((), ())

    def append(self, size: int, step: int) -> None:
        """Put another one inside."""
        sizes, steps = self.form
        self.form = (*sizes, size), (*steps, step)


_KINDS: dict[str, Callable[[SymbolicPrimitive], _Found | None]] = {
    "reorder": _reorder,
    "concat": _concat,
    "resampling_forward": _resampling,
}
