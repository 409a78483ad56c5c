"""Binder: steps of a plan as calls on one request's memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from polydevice.dtype import Array
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import Descriptor
from polydevice_cpu.onednn.engine import Memories, address_of, aligned
from polydevice_cpu.onednn.primitive import Primitive
from polydevice_cpu.plan.binding.array_calls import call_of, tail_of
from polydevice_cpu.plan.binding.blocks import BlockCalls
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.moving import NOWHERE, MovingPlace, view_of
from polydevice_cpu.plan.binding.stretches import Call
from polydevice_cpu.plan.binding.strips import StripCall, run_strips
from polydevice_cpu.plan.binding.workspace import Workspace
from polydevice_cpu.plan.plan import Plan
from polydevice_cpu.plan.step import (
    ArrayStep,
    ByMachine,
    CodeStep,
    Piece,
    PrimitiveStep,
    Step,
    Strips,
    TailStep,
)
from polydevice_cpu.plan.value import Kind, Storage, Value


class Binder:
    """Binds the steps of one plan; inputs and outputs may move afterwards.

    Attributes:
        inputs, outputs: what follows them, by number.
        context: of the request.
        arena: bytes for intermediate values.
        tail_outputs: results whose shape the data decided, by position, after a run.
        computes_arrays: whether NumPy computes a step.
        held_bytes: memory of the plan's own.
    """

    def __init__(self, plan: Plan, context: Context, workspace: Workspace) -> None:
        """Take memory for a plan.

        Raises:
            DeviceMemoryError: it is more than the network may use.
        """
        self.context = context
        self.tail_outputs: dict[int, Array] = {}
        self.arena = workspace.arena.at_least(plan.arena_bytes)
        self._arena_start = address_of(self.arena)
        self._scratchpad = workspace.scratchpad.at_least(plan.scratchpad_bytes)
        self._scratchpad_start = address_of(self._scratchpad)
        self._memories = Memories()
        self.inputs: dict[int, MovingPlace] = {}
        self.outputs: dict[int, MovingPlace] = {}
        self._homes: dict[int, Array] = {}
        self._strips, self._blocks = workspace.strips, workspace.blocks
        self._handles: dict[int, int] = {}
        self._scratchpads: dict[int, int] = {}
        self.computes_arrays = False
        self.held_bytes = 0

    def bind(self, step: Step) -> Call:
        """Return the call of a step."""
        if isinstance(step, CodeStep):
            return self._bind_code(step.code, step.values)
        if isinstance(step, PrimitiveStep):
            return self._bind_primitive(step)
        if isinstance(step, TailStep):
            return self._bind_tail(step)
        return self._bind_array_step(step)

    def _bind_primitive(self, step: PrimitiveStep) -> Call:
        if step.strips:
            return self._bind_strips(step, step.strips)
        if step.blocks:
            return self._bind_blocks(step)
        primitive = step.primitive
        handles = [x for at, value in step.arguments.items() for x in (at, self._memory(value))]
        return primitive.call(handles + self._scratchpad_of(primitive), self._memories)

    def _scratchpad_of(self, primitive: Primitive) -> list[int]:
        """The beginning of the scratchpad as an argument of a primitive, if it needs any."""
        size = primitive.scratchpad_bytes
        if not size:
            return []
        known = self._scratchpads.get(size)
        if known is None:
            known = self._memories.at(primitive.scratchpad, self._scratchpad_start)
            self._scratchpads[size] = known
        return [Arg.SCRATCHPAD, known]

    def _bind_strips(self, step: PrimitiveStep, strips: Strips) -> Call:
        cut = strips.pieces[0].layouts
        constants: list[int] = []
        whole: list[tuple[int, Value]] = []
        for index, value in step.arguments.items():
            if index in cut:
                continue
            if value.storage.kind is Kind.CONSTANT:
                constants += index, value.constant_memory.handle
            else:
                whole.append((index, value))
        layouts = [(index, value.descriptor) for index, value in whole]
        calls = self.strip_calls(strips.pieces, constants, layouts)
        values = [step.arguments[index] for index in cut] + [value for _, value in whole]
        return partial(run_strips, strips, calls, self._addresses(values))

    def strip_calls(
        self,
        pieces: Sequence[Piece],
        constants: Sequence[int],
        whole: Sequence[tuple[int, Descriptor]],
    ) -> Sequence[StripCall]:
        """Return the calls of pieces; see `StripCalls.calls`."""
        return self._strips.calls(pieces, constants, whole, self._scratchpad_start)

    def _addresses(self, values: Sequence[Value]) -> Sequence[int]:
        """Where values begin, kept up to date when an input or output moves.

        Numbers that stay are a tuple, which Python's garbage collector does not go through.
        """
        addresses, moving = self._beginnings(values)
        for position, value in moving:
            place = self.place(value.storage.root)
            place.addresses.append((addresses, position, value.offset_bytes))
        return addresses if moving else tuple(addresses)

    def _beginnings(self, values: Sequence[Value]) -> tuple[list[int], list[tuple[int, Value]]]:
        """Where values begin, and by number those of which only the offset is known as yet."""
        addresses, moving = [], []
        for number, value in enumerate(values):
            start = self.start(value.storage.root)
            addresses.append(value.offset_bytes + (start or 0))
            if start is None:
                moving.append((number, value))
        return addresses, moving

    def _bind_code(self, code: Code, values: Sequence[Value]) -> Call:
        addresses, moving = self._beginnings(values)
        call = code.bound(addresses)
        for number, value in moving:
            place = self.place(value.storage.root)
            for position, behind in call.places(number):
                place.addresses.append((call.numbers, position, value.offset_bytes + behind))
        return call

    def _bind_blocks(self, step: PrimitiveStep) -> Call:
        sides = Arg.SRC, Arg.DST, *step.blocks[0].operands
        arrays = self._arrays([step.arguments[index] for index in sides])
        zero = step.arguments.get(Arg.ATTR_ZERO_POINTS | Arg.SRC)
        others = [(index, each) for index, each in step.arguments.items() if index not in sides]
        shared = [x for index, each in others for x in (index, self._memory(each))]
        are_constants = all(each.storage.root.kind is Kind.CONSTANT for _, each in others)
        calls = self._blocks if are_constants else BlockCalls()
        zeros = [] if zero is None else self._arrays([zero])
        return calls.bind(step, arrays, shared, self._scratchpad, zeros)

    def _memory(self, value: Value) -> int:
        """The handle of a value's memory object."""
        known = self._handles.get(id(value))
        if known is None:
            known = self._handles[id(value)] = self._new_memory(value)
        return known

    def _new_memory(self, value: Value) -> int:
        storage, offset = value.storage.root, value.offset_bytes
        if storage.kind is Kind.CONSTANT:
            return value.constant_memory.handle
        start = self.start(storage)
        made = self._memories.at(value.descriptor, 0 if start is None else start + offset)
        if start is None:
            self.place(storage).memories.append((made, offset))
        return made

    def start(self, storage: Storage) -> int | None:
        """The address of a storage; None while the caller has yet to provide it."""
        if storage.kind is Kind.ARENA:
            return self._arena_start + storage.offset_bytes
        if storage.kind is Kind.KEPT:
            home = self.home(storage)
            return None if home is None else address_of(home)
        return None if storage.array is None else storage.address

    def _bind_array_step(self, step: ArrayStep) -> Call:
        compute = step.start(self.context)
        code = compute.code(step.values) if isinstance(compute, ByMachine) else None
        if code is not None:
            return self._bind_code(code, step.values)
        self.computes_arrays = True
        inputs = self._arrays(step.inputs)
        outputs = self._arrays(step.outputs)
        stay = step.writes and not [
            value for value in step.values if self.home(value.storage) is None
        ]
        return call_of(step, compute, inputs, outputs, stay=stay)

    def _bind_tail(self, step: TailStep) -> Call:
        self.computes_arrays = True
        compute = step.start(self.context)
        return tail_of(step, compute, self._arrays(step.inputs), self.tail_outputs)

    def _arrays(self, values: Sequence[Value]) -> list[Array]:
        """NumPy views of the values, kept up to date when an input or output moves."""
        arrays: list[Array] = []
        for position, value in enumerate(values):
            home = self.home(value.storage)
            arrays.append(NOWHERE if home is None else view_of(value, home))
            if home is None:

                def update(
                    data: Array | None, position: int = position, value: Value = value
                ) -> None:
                    arrays[position] = NOWHERE if data is None else view_of(value, data)

                self.place(value.storage.root).views.append(update)
        return arrays

    def home(self, storage: Storage) -> Array | None:
        """The bytes of a storage, or None while the caller has yet to provide them."""
        storage = storage.root
        key = id(storage)
        if key not in self._homes:
            if storage.kind is Kind.ARENA:
                start = storage.offset_bytes
                self._homes[key] = self.arena[start : start + storage.size_bytes]
            elif storage.kind is Kind.KEPT:
                self._homes[key] = self._allocated(storage.size_bytes)
            elif storage.array is not None:
                self._homes[key] = storage.data
            else:
                return None
        return self._homes[key]

    def _allocated(self, size_bytes: int) -> Array:
        """Memory of the plan's own."""
        self.held_bytes += size_bytes
        return self.context.compiled.memory.allocated(
            size_bytes, "what depends on sizes alone", lambda: aligned(max(size_bytes, 1))
        )

    def place(self, storage: Storage) -> MovingPlace:
        """Return what follows the input or output whose bytes a storage is."""
        return self.place_of(storage.kind, storage.index)

    def place_of(self, kind: Kind, index: int) -> MovingPlace:
        """Return what follows an input or output."""
        places = self.outputs if kind is Kind.OUTPUT else self.inputs
        place = places.get(index)
        if place is None:
            place = places[index] = MovingPlace(self._memories)
        return place
