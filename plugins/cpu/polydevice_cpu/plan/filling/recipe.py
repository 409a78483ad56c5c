"""Recipe: what a template's plan consists of, by numbers, so that others are filled in at once."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.shape import Shape
from polydevice.symbolic_size import is_formula
from polydevice.tensor import TensorDesc
from polydevice_cpu.onednn.constants import Arg, Query
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor
from polydevice_cpu.onednn.primitive import SymbolicPrimitive
from polydevice_cpu.plan.filling.sizes_alone import of_sizes_alone
from polydevice_cpu.plan.plan import PlanParts
from polydevice_cpu.plan.step import ArrayStep, PrimitiveStep, TailStep
from polydevice_cpu.plan.value import Kind, Storage, UnpackedValue, Value

Packing = Callable[[Array, Descriptor], Value]
"""Returns a constant in a layout."""


class StorageForm(NamedTuple):
    """How a storage is made.

    Attributes:
        given: that of the template; it stays where `place` is -1.
        place: of its size, or of its numbers where it has an array of formulas.
        shared: the number of the storage that it shares; -1 for none.
        dtype: of what lies in it.
    """

    given: Storage
    place: int
    shared: int
    dtype: np.dtype[Any]


class ValueForm(NamedTuple):
    """How a value is made.

    Attributes:
        given: that of the template; it stays where `place` is -1.
        place: of its sizes.
        storage: the number of its storage.
        layout: what tells its layout, where its strides do not.
        is_packed: whether it is a constant that is packed into that layout.
    """

    given: Value
    place: int
    storage: int
    layout: Descriptor | None
    is_packed: bool


class StepForm(NamedTuple):
    """How a step is made.

    Attributes:
        given: that of the template.
        place: of its primitive; -1 where it has none, or one for all sizes.
        arguments: of a primitive: index on execution → number of the value.
        weights: the place of the layout in which its weights are packed, if it chooses that; or -1.
        inputs, outputs: of others: numbers of values.
    """

    given: PrimitiveStep | ArrayStep | TailStep
    place: int
    arguments: Mapping[int, int]
    weights: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class Recipe:
    """The steps of a template's plan, and what they and its outputs have in common.

    Attributes:
        storages, values, steps: how they are made.
        arena: numbers of the storages that need a place in the arena; how long they live is the
            same for all sizes, and noted.
        outputs: numbers of values; -1 for one of a size that the data tells.
        once: numbers of the steps that depend on sizes alone.
        kept: numbers of the storages that these write, and others read.
    """

    def __init__(self, parts: PlanParts, places: Mapping[int, int], fixed: Container[int]) -> None:
        """Number what a plan consists of.

        Args:
            parts: the plan's, settled.
            places: thing, by identity → where its sizes are.
            fixed: identities of constants that are the same for all sizes.
        """
        self._places, self._fixed = places, fixed
        self._numbers: dict[int, int] = {}
        self._packed: dict[int, tuple[Descriptor, Value]] = {}
        self.storages: list[StorageForm] = []
        self.values: list[ValueForm] = []
        self.steps: list[StepForm] = []
        for number, step in enumerate(parts.steps):
            assert isinstance(step, (PrimitiveStep, ArrayStep, TailStep))
            self.steps.append(self._step(step))
            for value in step.values:
                value.storage.root.touch(number)
        self.outputs = [-1 if each is None else self._value(each) for each in parts.outputs]
        self.arena = [
            number
            for number, (given, _, shared, _) in enumerate(self.storages)
            if given.kind is Kind.ARENA and shared < 0 and given.first >= 0
        ]
        self.once, kept = of_sizes_alone(parts.steps)
        self.kept = [number for number in self.arena if id(self.storages[number].given) in kept]

    def packed(self, form: ValueForm, layout: Descriptor, packing: Packing) -> Value:
        """Return a constant in a layout, which is kept until another one is asked for."""
        known = self._packed.get(form.place)
        if known is None or known[0] is not layout:
            array = form.given.storage.array
            assert array is not None
            known = self._packed[form.place] = layout, packing(array, layout)
        return known[1]

    def _step(self, step: PrimitiveStep | ArrayStep | TailStep) -> StepForm:
        if isinstance(step, TailStep):
            return StepForm(step, -1, {}, -1, tuple(map(self._value, step.inputs)), ())
        if isinstance(step, ArrayStep):
            inputs, outputs = (
                tuple(map(self._value, side)) for side in (step.inputs, step.outputs)
            )
            return StepForm(step, -1, {}, -1, inputs, outputs)
        arguments = {index: self._value(each) for index, each in step.arguments.items()}
        made = step.primitive
        place = self._places[id(made)] if isinstance(made, SymbolicPrimitive) else -1
        return StepForm(step, place, arguments, self._weights(step), (), ())

    def _weights(self, step: PrimitiveStep) -> int:
        weights = step.arguments.get(Arg.WEIGHTS)
        layout = None if weights is None else weights.own_descriptor
        if not isinstance(layout, SymbolicDescriptor) or not isinstance(layout.source, tuple):
            return -1
        primitive, *asked = layout.source
        assert isinstance(primitive, SymbolicPrimitive)
        is_own = primitive.latest is step.primitive and asked == [Query.WEIGHTS, 0]
        return self._places[id(layout)] if is_own else -1

    def _value(self, value: Value) -> int:
        known = self._numbers.get(id(value))
        if known is None:
            form = self._value_form(value)
            known = self._numbers[id(value)] = len(self.values)
            self.values.append(form)
        return known

    def _value_form(self, value: Value) -> ValueForm:
        if id(value) in self._fixed:
            return ValueForm(value, -1, -1, None, False)
        layout, has_array = value.own_descriptor, value.storage.array is not None
        is_packed = isinstance(value, UnpackedValue) and layout is not None and has_array
        if layout is not None and value.strides is not None and _follows(layout) and not is_packed:
            layout = None
        place = self._places[id(value)]
        return ValueForm(value, place, self._storage(value.storage, value.dtype), layout, is_packed)

    def _storage(self, storage: Storage, dtype: np.dtype[Any]) -> int:
        known = self._numbers.get(id(storage))
        if known is None:
            shared = -1 if storage.shared is None else self._storage(storage.shared, dtype)
            stays = storage.array is not None and not is_formula(storage.array)
            place = -1 if stays else self._places[id(storage)]
            known = self._numbers[id(storage)] = len(self.storages)
            self.storages.append(StorageForm(storage, place, shared, dtype))
        return known


def _follows(layout: Descriptor) -> bool:
    """Whether a layout is told by its strides, so that it is made where oneDNN is given it."""
    return isinstance(layout, SymbolicDescriptor) and layout.source is None


def described(inputs: Sequence[TensorDesc], shapes: Sequence[Any]) -> list[TensorDesc]:
    """Return inputs with these shapes."""
    pairs = zip(inputs, shapes, strict=True)
    return [replace(desc, shape=Shape(shape)) for desc, shape in pairs]
