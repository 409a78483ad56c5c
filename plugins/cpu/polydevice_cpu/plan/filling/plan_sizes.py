"""PlanSizes: what a plan that was made with symbolic sizes needs of other sizes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from ctypes import c_void_p
from typing import Any

from polydevice.symbolic_size import Number, UntraceableError, is_formula, is_symbolic
from polydevice_cpu.onednn.attributes import Attributes, Binary, Eltwise, PostOp
from polydevice_cpu.onednn.descriptor import Descriptor, SymbolicDescriptor
from polydevice_cpu.onednn.primitive import Primitive, SymbolicPrimitive
from polydevice_cpu.plan.filling.blocks import Blocks, may_be_in_blocks, products
from polydevice_cpu.plan.filling.by_machine import matrices
from polydevice_cpu.plan.filling.by_machine.chains import inputs_of
from polydevice_cpu.plan.filling.by_machine.integers import is_of_bytes, pool_of_bytes, read_of
from polydevice_cpu.plan.filling.by_machine.matrices import ProductByMachine, product_by_machine
from polydevice_cpu.plan.filling.by_machine.moves import MovesByMachine, moves_by_machine
from polydevice_cpu.plan.filling.by_machine.norms import NormsByMachine, norms_by_machine
from polydevice_cpu.plan.filling.by_machine.pointwise import (
    PointwiseByMachine,
    pointwise_by_machine,
)
from polydevice_cpu.plan.filling.by_machine.positions import (
    AtPositions,
    PositionsByMachine,
    at_positions,
)
from polydevice_cpu.plan.filling.by_machine.suitable_windows import (
    may_be_by_machine,
    stays_by_machine,
)
from polydevice_cpu.plan.filling.by_machine.windows import WindowsByMachine
from polydevice_cpu.plan.filling.captured import serves_all_sizes
from polydevice_cpu.plan.filling.needs import Known
from polydevice_cpu.plan.filling.strips import StripCutter, treats_positions_alike
from polydevice_cpu.plan.filling.with_numpy.choices import ByNumPy, by_numpy
from polydevice_cpu.plan.filling.with_numpy.means import may_be_a_mean
from polydevice_cpu.plan.plan import PlanParts
from polydevice_cpu.plan.step import ArrayStep, PrimitiveStep, Step, TailStep
from polydevice_cpu.plan.value import Kind, Storage, UnpackedValue, Value
from polydevice_cpu.proof.claim import NotedClaim

_Numbers = PointwiseByMachine | MovesByMachine | NormsByMachine


def _serves_all_sizes(step: Step) -> bool:
    """Whether what runs a step that is no primitive's is the same for all sizes."""
    if isinstance(step, TailStep):
        return step.is_shared
    return isinstance(step, ArrayStep) and serves_all_sizes(step.start)


class PlanSizes:
    """Collects the sizes that things of a plan are made with.

    Attributes:
        wanted: tuples of sizes, whatever a thing needs.
        places: thing, by identity → which of them are its own. Layouts and primitives that are the
            same for all sizes share a place, as those of a network's blocks do.
        fixed: identities of constants that are the same for all sizes.
        relied_on: identities of layouts that values have, or are brought into, and not constants
            alone, which are packed into whatever layout is chosen.
        alike_everywhere: places of primitives that treat every position alike.
        in_place: places of primitives that write what they read.
        means: places of primitives that may be means over all positions.
        by_numpy: place of a primitive → how NumPy computes it, for some sizes.
        in_blocks: places of convolutions that may be computed in blocks.
        windows_by_machine: place of a convolution or pool that there is machine code for → what it
            reads, by index on execution.
        with_code: places of all primitives that there may be machine code for.
        staying: those of them that are computed so in plans that run often, too.
        asked: those of which that depends on the sizes.
        products_by_machine: place → how machine code computes a product.
        numbers_by_machine: place → how machine code computes or moves each number by itself, or
            normalises rows.
        at_positions: place → how machine code computes what treats every position alike.
        products: how many all steps compute, for the sizes that there are.
        strips: what makes primitives for some of the positions.
        blocks: the same, of convolutions with larger windows.
        windows: the same, of convolutions and pools by machine code.
        positions: the same, of what machine code computes at all positions.
        is_alone: whether one thread has to compute what several do in another plan.
        varying: places of sizes that are formulas.
        known: primitives that plans use.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self.wanted: list[Any] = []
        self.places: dict[int, int] = {}
        self.fixed: set[int] = set()
        self.relied_on: set[int] = set()
        self.alike_everywhere: set[int] = set()
        self.means: set[int] = set()
        self.by_numpy: dict[int, ByNumPy] = {}
        self.in_blocks: set[int] = set()
        self.windows_by_machine: dict[int, Sequence[int]] = {}
        self.with_code: set[int] = set()
        self.staying: set[int] = set()
        self.asked: set[int] = set()
        self.products_by_machine: dict[int, ProductByMachine] = {}
        self.numbers_by_machine: dict[int, _Numbers] = {}
        self.at_positions: dict[int, AtPositions] = {}
        self.products = 0
        self.is_alone = False
        self.in_place: set[int] = set()
        self.strips = StripCutter(self.relied_on, self.in_place)
        self.blocks = Blocks(self.relied_on)
        self.windows = WindowsByMachine()
        self.positions = PositionsByMachine()
        self.varying: set[int] = set()
        self.known = Known(self.places, self.varying)
        self._kept: list[object] = []
        self._alike: dict[Hashable, int] = {}

    def visit(self, parts: PlanParts) -> None:
        """Collect what a plan is made of.

        Raises:
            UntraceableError: a step is for these sizes alone.
        """
        self.is_alone = parts.is_alone
        for step in parts.steps:
            self._step(step)
        for output in parts.outputs:
            if output is not None:
                self._value(output)
        for desc in parts.inputs():
            self._note(desc, tuple(desc.shape or ()))

    def _note(self, thing: object, sizes: Number | tuple[Any, ...]) -> bool:
        """Note the sizes of a thing; False where they are already."""
        if id(thing) in self.places:
            return False
        place = self.places[id(thing)] = len(self.wanted)
        if _has_formulas(sizes):
            self.varying.add(place)
        self.wanted.append(sizes)
        self._kept.append(thing)  # or another thing might get its identity
        return True

    def _share(self, thing: object, what: Hashable) -> None:
        """Give a thing that was noted the place of one that is the same, if there is one."""
        own = self.places[id(thing)]
        place = self.places[id(thing)] = self._alike.setdefault(what, own)
        if place != own:
            self.wanted[own] = ()

    def _step(self, step: Step) -> None:
        if isinstance(step, PrimitiveStep):
            self._primitive(step.primitive)
            if isinstance(step.primitive, SymbolicPrimitive) and _is_in_place(step):
                self.in_place.add(self.places[id(step.primitive)])
            self.products += products(step.primitive)
        elif not _serves_all_sizes(step):
            raise UntraceableError(f"{step.type} {step.name!r} is made for its sizes")
        for value in step.values:
            self._value(value)

    def _value(self, value: Value) -> None:
        sizes = (value.shape, value.strides, value.offset_bytes)
        if self._note(value, sizes):
            array = value.storage.array
            if array is not None and not isinstance(value, UnpackedValue):
                known = not is_formula(array) and not _has_formulas(sizes)
                self.fixed.update([id(value)] * known)
            self._storage(value.storage)
            own = value.own_descriptor
            if own is not None:
                self._descriptor(own)
                if not isinstance(value, UnpackedValue):
                    self.relied_on.add(id(own))

    def _storage(self, storage: Storage) -> None:
        if storage.kind is Kind.OBJECTS:
            raise UntraceableError("values are no numbers")
        array = storage.array
        if array is not None and is_formula(array):
            self._note(storage, tuple(array.reshape(-1).tolist()))
        else:
            self._note(storage, storage.size_bytes)
        if storage.shared is not None:
            self._storage(storage.shared)

    def _descriptor(self, descriptor: Descriptor) -> None:
        if not isinstance(descriptor, SymbolicDescriptor):
            return
        if self._note(descriptor, (descriptor.shape, descriptor.strides)):
            source = descriptor.source
            if isinstance(source, SymbolicDescriptor):
                self._descriptor(source)
            elif isinstance(source, tuple):
                assert isinstance(source[0], SymbolicPrimitive)
                self._primitive(source[0].latest)
                return
            else:
                sizes = _named((descriptor.shape, descriptor.strides))
                self._share(descriptor, (sizes, descriptor.data_type, source))

    def _primitive(self, primitive: Primitive) -> None:
        if not isinstance(primitive, SymbolicPrimitive):
            return
        if not self._note(primitive, tuple(map(_sizes_of, primitive.arguments))):
            return
        for argument in primitive.arguments:
            if isinstance(argument, Attributes):
                for operand in argument.operands:
                    self._descriptor(operand)
            for each in argument if isinstance(argument, tuple) else (argument,):
                if isinstance(each, Descriptor):
                    self._descriptor(each)
                    self.relied_on.add(id(each))
        for known in (primitive.layouts, primitive.opaque, primitive.answers):
            for descriptor in known.values():
                self._descriptor(descriptor)
        for claim in primitive.claims:
            self._claim(claim)
        self._share(primitive, self._described(primitive))
        self._note_kind(primitive)

    def _note_kind(self, primitive: SymbolicPrimitive) -> None:
        place = self.places[id(primitive)]
        if treats_positions_alike(primitive):
            self.alike_everywhere.add(place)
            form = self.strips.form(primitive, place)
            if form.apart is not None:
                self._note(form, form.apart)
                found = at_positions(primitive, self.places[id(form)], is_alone=self.is_alone)
                if found is not None:
                    self.at_positions[place] = found
        elif may_be_in_blocks(primitive):
            self.in_blocks.add(place)
        if (product := product_by_machine(primitive)) is not None:
            self.products_by_machine[place] = product
        numbers = self._numbers(primitive)
        if numbers is not None:
            self.numbers_by_machine[place] = numbers
        if may_be_by_machine(primitive):
            of_bytes = is_of_bytes(primitive) or pool_of_bytes(primitive) is not None
            read = read_of if of_bytes else inputs_of
            self.windows_by_machine[place] = read(primitive)
            sizes = self.windows.sizes(primitive, place)
            if sizes is not None:
                self._note(sizes, sizes.numbers)
        self._note_code(primitive, place)
        way = by_numpy(primitive)
        if way is not None:
            self.by_numpy[place] = way
        if may_be_a_mean(primitive):
            self.means.add(place)

    def _numbers(self, primitive: SymbolicPrimitive) -> _Numbers | None:
        """How machine code computes each number or row; None where it does for no sizes."""
        pointwise = pointwise_by_machine(primitive)
        is_own = pointwise is not None and pointwise.stays and not pointwise.is_shared
        if is_own and self.is_alone:
            return None  # several threads are oneDNN's
        return pointwise or moves_by_machine(primitive) or norms_by_machine(primitive)

    def _note_code(self, primitive: SymbolicPrimitive, place: int) -> None:
        """Note whether there may be machine code for a primitive, and whether it stays."""
        is_product = place in self.products_by_machine
        is_window = place in self.windows_by_machine
        if (
            is_product
            or is_window
            or place in self.at_positions
            or place in self.numbers_by_machine
        ):
            self.with_code.add(place)
        numbers = self.numbers_by_machine.get(place)
        if isinstance(numbers, NormsByMachine):
            self.staying.add(place)
        if isinstance(numbers, PointwiseByMachine) and numbers.stays:
            self.staying.add(place)
        if is_product and matrices.stays_by_machine(primitive):
            self.staying.add(place)
        if is_window and stays_by_machine(primitive):
            self.staying.add(place)
        if (at := self.at_positions.get(place)) is not None and at.stays:
            self.staying.add(place)
        if place in self.at_positions or (is_window and is_of_bytes(primitive)):
            self.asked.add(place)

    def _described(self, primitive: SymbolicPrimitive) -> Hashable:
        """Everything that a primitive is made of, and what was relied on."""
        arguments = tuple(map(self._argument, primitive.arguments))
        answers = tuple((place, self._layout(each)) for place, each in primitive.answers.items())
        known = (*primitive.layouts.items(), *primitive.opaque.items())
        layouts = tuple((place, self._layout(each)) for place, each in known)
        claims = tuple(map(self._claimed, primitive.claims))
        return primitive.name, primitive.threads, arguments, answers, layouts, claims

    def _argument(self, argument: object) -> Hashable:
        if isinstance(argument, Attributes):
            return tuple(map(self._function, argument.post_ops)), argument.quantisation
        if isinstance(argument, Descriptor):
            return self._layout(argument)
        if isinstance(argument, tuple):
            return tuple(map(self._argument, argument))
        if isinstance(argument, float):
            return argument.hex()  # by bits: 0 and -0 are equal
        return id(argument) if isinstance(argument, c_void_p) else _named(argument)

    def _function(self, post_op: PostOp) -> Hashable:
        if isinstance(post_op, Binary):
            return post_op.algorithm, self._layout(post_op.operand)
        if isinstance(post_op, Eltwise):
            return post_op.algorithm, float(post_op.alpha).hex(), float(post_op.beta).hex()
        return post_op

    def _layout(self, descriptor: Descriptor) -> Hashable:
        """A layout of which primitives with the same have the same; one that it chose by itself."""
        if not isinstance(descriptor, SymbolicDescriptor):
            return id(descriptor) if descriptor.key is None else descriptor.key
        if isinstance(descriptor.source, tuple):
            return _named(descriptor.shape), descriptor.layout, descriptor.data_type
        return self.places[id(descriptor)]

    def _claimed(self, claim: NotedClaim) -> Hashable:
        links = tuple(
            (
                self._function(link.post_op),
                link.argument,
                None if link.memory is None else self._layout(link.memory),
                _named(link.shape),
            )
            for link in claim.links
        )
        base = claim.base
        made = base if base is None else self.places.get(id(base), base.number)
        return made, links, claim.zero, claim.window, _named(claim.named)

    def _claim(self, claim: NotedClaim) -> None:
        self._note(claim, (*(link.shape for link in claim.links), claim.named))
        if claim.base is not None:
            self._primitive(claim.base)
        for link in claim.links:
            for descriptor in link.descriptors:
                self._descriptor(descriptor)


def _is_in_place(step: PrimitiveStep) -> bool:
    """Whether what a step writes lies where something lay that it reads."""
    roots = [(index in step.outputs, value.storage.root) for index, value in step.arguments.items()]
    written = [root for is_written, root in roots if is_written]
    return any(root is each for is_written, root in roots if not is_written for each in written)


def _has_formulas(sizes: Any) -> bool:
    if isinstance(sizes, tuple):
        return any(map(_has_formulas, sizes))
    return is_symbolic(sizes)


def _named(sizes: Any) -> Hashable:
    """Sizes by the names of their formulas."""
    if isinstance(sizes, tuple):
        return tuple(map(_named, sizes))
    return f"={sizes.name}" if is_symbolic(sizes) else sizes


def _sizes_of(argument: object) -> tuple[Number, ...] | None:
    """An argument of a primitive that is a tuple of sizes; None for others."""
    if isinstance(argument, tuple) and not any(isinstance(each, Descriptor) for each in argument):
        return argument
    return None
