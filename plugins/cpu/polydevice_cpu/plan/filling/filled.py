"""Filled: a template's plan with numbers in the place of formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from polydevice_cpu.algorithms.by_machine.amx.layer import is_in_tiles
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.ahead import Ahead
from polydevice_cpu.onednn.attributes import Attributes
from polydevice_cpu.onednn.constants import Arg, DataType, Tag
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor
from polydevice_cpu.onednn.primitive import Argument, Primitive, SymbolicPrimitive
from polydevice_cpu.plan.filling.by_machine.integers import is_of_bytes
from polydevice_cpu.plan.filling.by_machine.positions import FOR_NOW_US, STAYING_US, AtPositions
from polydevice_cpu.plan.filling.cut import SIDES
from polydevice_cpu.plan.filling.needs import Known, Numbers
from polydevice_cpu.plan.filling.parts import is_alike
from polydevice_cpu.plan.filling.plan_sizes import PlanSizes
from polydevice_cpu.plan.filling.recipe import (
    Packing,
    Recipe,
    StepForm,
    StorageForm,
    ValueForm,
    described,
)
from polydevice_cpu.plan.filling.sizes_alone import may_be_kept
from polydevice_cpu.plan.filling.strips import StripCut
from polydevice_cpu.plan.filling.with_numpy.means import is_a_mean, mean
from polydevice_cpu.plan.plan import Plan, PlanParts
from polydevice_cpu.plan.step import (
    IN_TILES,
    MACHINE_CODE,
    ArrayStep,
    Block,
    CodeStep,
    Compute,
    PrimitiveStep,
    Start,
    Step,
    Strips,
    TailStep,
)
from polydevice_cpu.plan.value import Kind, Storage, Value
from polydevice_cpu.proof.claim import NotedClaim
from polydevice_cpu.proof.proof import refusal


class UnfitError(Exception):
    """oneDNN answers otherwise for these sizes."""


class Filled:
    """Copies a plan, with numbers in the place of formulas; what has none is shared.

    Attributes:
        storages: those that are made, by number.
        strips: what computes primitives in strips, by their places.
        blocks: what computes primitives in blocks, by their places.
        is_for_now: whether something is computed otherwise than in a plan that runs often.
    """

    def __init__(
        self,
        numbers: Numbers,
        found: PlanSizes,
        recipe: Recipe,
        packing: Packing,
        codes: Ahead,
        *,
        may_be_in_strips: bool,
        kept: Mapping[int, Storage] | None = None,
        placed: Mapping[int, int] | None = None,
        known: Known | None = None,
    ) -> None:
        """Fill in nothing yet.

        Args:
            numbers: all sizes, or those that the steps need that are made.
            found: what they are the sizes of.
            recipe: what the plan consists of.
            packing: returns a constant in a layout.
            codes: is told of primitives.
            may_be_in_strips: whether something may be computed otherwise than in a plan that runs
                often.
            kept: storages that are there, by number.
            placed: places in the arena of those that have one already.
            known: primitives that are there; those of the template's latest plans if not given.
        """
        self._numbers = numbers
        self._found = found
        self._known = found.known if known is None else known
        self._recipe = recipe
        self._places = found.places
        self._packing = packing
        self._ahead = codes
        self._threads = 0
        self._descriptors: dict[int, Descriptor] = {}
        self._primitives: dict[int, Primitive] = {}
        self._values: list[Value | None] = [None] * len(recipe.values)
        known_storages, count = kept or {}, len(recipe.storages)
        self.storages: list[Storage | None] = list(map(known_storages.get, range(count)))
        self._placed = placed
        self._alike_everywhere = found.alike_everywhere if may_be_in_strips else ()
        self._may_be_in_blocks = found.in_blocks if may_be_in_strips else ()
        self._with_code = found.with_code if may_be_in_strips else found.staying
        self._at_positions = found.at_positions
        self._may_be_for_now = may_be_in_strips
        self._codes: dict[int, Code | None] = {}
        self._are_means: dict[int, bool] = {}
        self._means = found.means if may_be_in_strips else ()
        self._arrays = found.by_numpy if may_be_in_strips else {}
        self.is_for_now = False
        self.strips: dict[int, Strips] = {}
        self.blocks: dict[int, tuple[Block, ...]] = {}

    def plan(self, parts: PlanParts) -> Plan:
        """Return the whole plan.

        Raises:
            UnfitError: oneDNN answers otherwise for these sizes.
        """
        recipe, once, arena = self._recipe, self._recipe.once, self._recipe.arena
        storages = list(map(self.storage, range(len(recipe.storages))))
        kept = [storages[number] for number in recipe.kept]
        if not may_be_kept(kept):
            once = frozenset()
        elif kept:
            arena = [number for number in arena if number not in recipe.kept]
            for storage in kept:
                storage.kind = Kind.KEPT
        steps = list(map(self.step, recipe.steps))
        outputs = [None if number < 0 else self.value(number) for number in recipe.outputs]
        given = parts.inputs()
        inputs = partial(described, given, [self._sizes(desc) for desc in given])
        places = [storages[number] for number in arena]
        made = steps, outputs, inputs, parts.refused, parts.origins, places, once
        return Plan(PlanParts(*made, parts.is_alone))

    def _sizes(self, thing: object) -> Any:
        return self._numbers[self._places[id(thing)]]

    def step(self, form: StepForm) -> Step:
        """Return a step.

        Raises:
            UnfitError: oneDNN answers otherwise for these sizes.
        """
        step, place, arguments, weights, inputs, outputs = form
        if isinstance(step, TailStep):
            return replace(step, inputs=[self.value(number) for number in inputs])
        if isinstance(step, ArrayStep):
            read, written = ([self.value(number) for number in each] for each in (inputs, outputs))
            start, code = step.start, step.implementation
            return ArrayStep(
                *(step.name, step.type, start, read, written, code),
                *(step.writes, step.layers, step.draws),
            )
        if self.has_code(place):
            by_machine = self.by_machine(form)
            if by_machine is not None:
                return by_machine
        if weights >= 0 and place in self._alike_everywhere:
            primitive = self._primitive(step.primitive)
            if (strips := self.strips.get(place)) and (packed := strips.pieces[0].weights):
                self._descriptors[weights] = packed
        values = self._values
        made = {index: values[number] or self.value(number) for index, number in arguments.items()}
        if place < 0:
            filled = PrimitiveStep(step.name, step.type, step.primitive, made, step.outputs)
            filled.layers = step.layers
            self._ahead.add(step.primitive)
            return filled
        if self.may_be_by_numpy(place):
            compute = self.by_numpy(step.primitive, place, made)
            if compute is not None:
                read = [value for index, value in made.items() if index != Arg.DST]
                return self._array_step(step, partial(_ready, compute), read, made[Arg.DST])
        primitive = self._primitive(step.primitive)
        filled = PrimitiveStep(step.name, step.type, primitive, made, step.outputs)
        filled.layers, filled.strips = step.layers, self.strips.get(place)
        filled.blocks = self.blocks.get(place, ())
        return filled

    def _array_step(
        self,
        given: PrimitiveStep,
        start: Start,
        read: list[Value],
        target: Value,
    ) -> ArrayStep:
        """A step that computes, without oneDNN, what a primitive would."""
        self.is_for_now = True
        name, type_ = given.name, given.type
        return ArrayStep(name, type_, start, read, [target], "numpy", True, given.layers)

    def value(self, number: int) -> Value:
        """Return a value by its number."""
        made = self._values[number]
        if made is None:
            made = self._values[number] = self._made_value(self._recipe.values[number])
        return made

    def _made_value(self, form: ValueForm) -> Value:
        given, place, storage, layout, is_packed = form
        if place < 0:
            return given
        shape, strides, offset_bytes = self._numbers[place]
        descriptor = None if layout is None else self._descriptor(layout)
        if descriptor is not None:
            if is_packed:
                return self._recipe.packed(form, descriptor, self._packing)
            if strides is None:
                strides = descriptor.strides
        return Value(
            self.storage(storage),
            shape,
            given.dtype,
            strides,
            offset_bytes=offset_bytes,
            descriptor=descriptor,
        )

    def storage(self, number: int) -> Storage:
        """Return a storage by its number."""
        made = self.storages[number]
        if made is None:
            made = self.storages[number] = self._made_storage(self._recipe.storages[number])
            if self._placed is not None:
                made.offset_bytes = self._placed.get(number, 0)
        return made

    def _made_storage(self, form: StorageForm) -> Storage:
        given, place, shared, dtype = form
        if place < 0:
            return given
        if given.array is not None:
            numbers = np.array(self._numbers[place], dtype).reshape(given.array.shape)
            return Storage(given.kind, numbers.nbytes, array=numbers)
        made = Storage(given.kind, self._numbers[place], index=given.index)
        made.first, made.last = given.first, given.last
        if shared >= 0:
            made.share(self.storage(shared))
        return made

    def _descriptor(self, given: Descriptor) -> Descriptor:
        if not isinstance(given, SymbolicDescriptor):
            return given
        place = self._places[id(given)]
        made = self._descriptors.get(place)
        if made is None:
            made = self._descriptors[place] = self._made_descriptor(given)
        return made

    def _made_descriptor(self, given: SymbolicDescriptor) -> Descriptor:
        shape, strides = self._sizes(given)
        source = given.source
        if isinstance(source, Tag):
            return Descriptor.tagged(shape, source, given.data_type)
        if isinstance(source, SymbolicDescriptor):
            return self._descriptor(source).turned()
        if source is not None:
            primitive, query, index = source
            assert isinstance(primitive, SymbolicPrimitive)
            latest = primitive.latest
            place = self._places.get(id(latest), -1)
            if not self._is_mean(latest, place):
                return self._primitive(latest).descriptor(query, index)
        return Descriptor.strided(shape, strides, given.data_type)

    def _primitive(self, given: Primitive) -> Primitive:
        if not isinstance(given, SymbolicPrimitive):
            return given
        place = self._places[id(given)]
        made = self._primitives.get(place)
        if made is None:
            known, numbers = self._known, self._numbers
            if place in self._alike_everywhere:  # of which none is known that could be in strips
                made = self._in_strips(given, place) or known.get(given, numbers)
            else:
                made = known.get(given, numbers) or self._in_blocks(given, place)
            if made is None:
                made = self._made_primitive(given)
                known.keep(given, numbers, made)
                self._ahead.add(made)
            self._primitives[place] = made
        return made

    def _whole(self, given: Primitive) -> Primitive:
        """A primitive for all positions, with which another one is compared."""
        return self._made_primitive(given) if isinstance(given, SymbolicPrimitive) else given

    def _set_threads(self, given: SymbolicPrimitive) -> None:
        """Ask oneDNN with the number of threads that a primitive runs with."""
        if self._threads != given.threads:
            self._threads = given.threads
            openmp.functions()[1](given.threads)

    def has_code(self, place: int) -> bool:
        """Whether there may be machine code for all sizes of a primitive."""
        return place in self._with_code or place in self._found.asked

    def may_be_by_numpy(self, place: int) -> bool:
        """Whether NumPy may compute a primitive."""
        return place in self._means or place in self._arrays

    def may_be_in_strips(self, place: int) -> bool:
        """Whether a primitive treats every position alike."""
        return place in self._alike_everywhere

    def cut(self, given: SymbolicPrimitive, place: int) -> StripCut | None:
        """Return how a primitive is cut that `may_be_in_strips`; None where it is not."""
        return self._found.strips.cut(given, place, self._sizes)

    def _is_mean(self, given: Primitive, place: int) -> bool:
        """Whether it is a mean over all positions that NumPy computes."""
        if place not in self._means:
            return False
        known = self._are_means.get(place)
        if known is None:
            assert isinstance(given, SymbolicPrimitive)
            known = is_a_mean(self._sizes(given), *self._sizes(given.src))
            self._are_means[place] = known
        return known

    def by_numpy(self, given: Primitive, place: int, values: Mapping[int, Value]) -> Compute | None:
        """The function that NumPy computes it with; None where oneDNN does."""
        if place in self._means:
            return mean if self._is_mean(given, place) else None
        return self._arrays[place].compute(values, self._sizes)

    def by_machine(self, form: StepForm) -> CodeStep | None:
        """The step with machine code for all sizes; None where oneDNN computes it."""
        step, place, numbers, *_ = form
        found = self._found
        assert isinstance(step, PrimitiveStep)
        if place in self._at_positions:
            at = self._at_positions[place]
            inputs, code = at.inputs, self._code_at_positions(step.primitive, at, numbers)
        elif place in found.products_by_machine:
            inputs, code = found.products_by_machine[place].inputs, self._code_of_product(place)
        elif (alone := found.numbers_by_machine.get(place)) is not None:
            inputs, code = alone.inputs, alone.code(self._sizes)
        else:
            inputs = found.windows_by_machine[place]
            code = self._code_of_windows(step.primitive, place, numbers)
        if code is None:
            return None
        kind = IN_TILES if is_in_tiles(code) else MACHINE_CODE
        self.is_for_now |= place not in found.staying and kind != IN_TILES
        read = [self.value(numbers[index]) for index in inputs]
        written = [self.value(numbers[Arg.DST])]
        return CodeStep(step.name, step.type, code, read, written, step.layers, kind)

    def _code_at_positions(
        self, given: Primitive, at: AtPositions, numbers: Mapping[int, int]
    ) -> Code | None:
        (positions, apart), others_us = self._numbers[at.sizes], self._most_us(given)
        most_us = at.most_us(others_us, is_for_now=self._may_be_for_now)
        if apart or most_us is None:
            return None
        assert isinstance(given, SymbolicPrimitive)
        forms, packing = self._recipe.values, self._packing
        return self._found.positions.code(given, positions, numbers, forms, packing, most_us)

    def _most_us(self, given: Primitive) -> float | None:
        """How much longer than oneDNN's code such may take of which it is asked for all sizes."""
        if self._may_be_for_now:
            return FOR_NOW_US
        is_one = is_of_bytes(given) or not (given.threads > 1 or self._found.is_alone)
        return STAYING_US if is_one else None

    def _code_of_product(self, place: int) -> Code | None:
        if place not in self._codes:
            self._codes[place] = self._found.products_by_machine[place].code(self._sizes)
        return self._codes[place]

    def _code_of_windows(
        self, given: Primitive, place: int, numbers: Mapping[int, int]
    ) -> Code | None:
        if self._is_mean(given, place):
            return None
        assert isinstance(given, SymbolicPrimitive)
        sides = self.value(numbers[Arg.SRC]), self.value(numbers[Arg.DST])
        forms, most_us = self._recipe.values, self._most_us(given)
        if most_us is None and place in self._found.asked:
            return None
        return self._found.windows.code(
            given, place, sides, numbers, forms, self._sizes, self._packing, most_us or 0.0
        )

    def _in_strips(self, given: SymbolicPrimitive, place: int) -> Primitive | None:
        """The primitive of the first strip; None where it is made at once."""
        self._set_threads(given)
        strips = self._found.strips.of(given, place, self._sizes)
        if strips is None:
            return None
        self.strips[place] = strips
        self.is_for_now = True
        for piece in strips.pieces:
            if not piece.primitive.is_compiled:
                self._ahead.add(piece.primitive)
        return strips.pieces[0].primitive

    def _in_blocks(self, given: SymbolicPrimitive, place: int) -> Primitive | None:
        """The primitive of the first block; None where it is made at once."""
        if place not in self._may_be_in_blocks:
            return None
        self._set_threads(given)
        blocks = self._found.blocks.of(given, place, self._sizes, self._found.products)
        if not blocks:
            return None
        self.blocks[place] = blocks
        self.is_for_now = True
        for block in blocks:
            if not block.primitive.is_compiled:
                self._ahead.add(block.primitive)
        return blocks[0].primitive

    def _made_primitive(self, given: SymbolicPrimitive) -> Primitive:
        arguments = [
            self._argument(argument) if sizes is None else sizes
            for argument, sizes in zip(given.arguments, self._sizes(given), strict=True)
        ]
        self._set_threads(given)
        made = Primitive.create(given.name, *arguments)
        if made is None or not self._is_as_good(made, given, arguments):
            raise UnfitError
        number = self._descriptor
        made.note(
            {place: number(layout) for place, layout in given.layouts.items()},
            {place: number(layout) for place, layout in given.opaque.items()},
        )
        for place, answer in given.answers.items():
            self._check(made.descriptor(*place), answer)
        if not made.is_proved and any(self._refusal(made, each) for each in given.claims):
            raise UnfitError
        return made

    def _argument(self, given: Argument) -> Argument:
        if isinstance(given, Attributes):
            return given.of_numbers(self._descriptor)
        if isinstance(given, Descriptor):
            return self._descriptor(given)
        if isinstance(given, tuple):
            return tuple(  # type: ignore[return-value]
                self._descriptor(each) if isinstance(each, Descriptor) else each for each in given
            )
        return given

    def _check(self, got: Descriptor, answer: Descriptor) -> None:
        """See that a layout is what was relied on; of what it chose, the order in memory."""
        if isinstance(answer, SymbolicDescriptor) and answer.source is None:
            if got != self._descriptor(answer):
                raise UnfitError
        elif id(answer) in self._found.relied_on and (
            got.layout != answer.layout or got.data_type is not answer.data_type
        ):
            raise UnfitError

    def _is_as_good(
        self, made: Primitive, given: SymbolicPrimitive, arguments: Sequence[Argument]
    ) -> bool:
        """Whether it has the code that was expected, or for a convolution what oneDNN likes best.

        Layouts of heavy primitives are chosen for their code, and some code is refused.
        """
        if not given.has_weights:
            return given.is_reference or not made.is_reference
        if is_alike(made, given):
            return True
        if given.kind != "convolution":
            return False
        free = [*arguments]
        for place in SIDES:
            side = arguments[place]
            if not isinstance(side, Descriptor) or side.data_type is not DataType.F32:
                return False
            free[place] = Descriptor.any(side.shape)
        best = Primitive.create(given.name, *free)
        return (
            best is not None
            and best.implementation == made.implementation
            and made.implementation.startswith(("jit:", "brg"))
        )

    def _refusal(self, made: Primitive, claim: NotedClaim) -> str:
        return refusal(claim.of(made, self._sizes(claim), self._descriptor, self._whole))


def _ready(compute: Compute, _: object) -> Compute:
    """A function that is the same for all requests."""
    return compute
