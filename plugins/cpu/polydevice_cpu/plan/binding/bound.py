"""BoundPlan: a plan with one request's memory, ready to run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from weakref import WeakMethod

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.errors import (
    DeviceMemoryError,
    InferCancelledError,
    InferTimeoutError,
)
from polydevice_cpu.algorithms.by_machine.code import Code, CodeCall
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.engine import Memories, address_of, aligned
from polydevice_cpu.onednn.primitive import Primitive, execution_error
from polydevice_cpu.plan.binding.array_calls import call_of, compute_instead, tail_of
from polydevice_cpu.plan.binding.blocks import BlockCalls
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.giving_way import GivingWay
from polydevice_cpu.plan.binding.moving import MovingPlace, view_of
from polydevice_cpu.plan.binding.places import Places
from polydevice_cpu.plan.binding.stretches import Call, Together, is_recorded, stretches
from polydevice_cpu.plan.binding.strips import run_strips
from polydevice_cpu.plan.binding.workspace import Workspace
from polydevice_cpu.plan.plan import Plan
from polydevice_cpu.plan.step import (
    ArrayStep,
    ByMachine,
    CodeStep,
    PrimitiveStep,
    Step,
    Strips,
    TailStep,
)
from polydevice_cpu.plan.value import Kind, Storage, Value

BOUND_BYTES = 6_000
"""What binding takes for each step."""


class BoundPlan:
    """Every step of a plan as a prepared call on a request's own memory.

    Inputs and outputs may move (`set_input`, `set_output`); nothing else changes after it is made,
    and `run` allocates nothing of its own. The plans of a request, of which one runs at a time,
    share its workspace.
    """

    def __init__(
        self,
        plan: Plan,
        context: Context,
        workspace: Workspace,
        alone: Callable[[], Plan | None] | None = None,
    ) -> None:
        """Bind a plan to memory.

        Args:
            plan: the plan.
            context: the request's.
            workspace: what the request's plans share.
            alone: makes a plan that computes the same in one thread, if there is one.
        """
        self.plan = plan
        self._get_threads, self._set_threads = openmp.functions()
        primitives = [step for step in plan.steps if isinstance(step, PrimitiveStep)]
        parts = sum(len(step.primitives) for step in primitives)
        self.held_bytes = BOUND_BYTES * (len(plan.steps) - len(primitives) + parts)
        self._context = context
        self.tail_outputs: dict[int, Array] = {}
        """Results whose shape the data decided, by position, after a run."""
        self._arena = workspace.arena.at_least(plan.arena_bytes)
        self._arena_start = address_of(self._arena)
        self._scratchpad = workspace.scratchpad.at_least(plan.scratchpad_bytes)
        self._scratchpad_start = address_of(self._scratchpad)
        self._memories = Memories()
        self._inputs: dict[int, MovingPlace] = {}
        self._outputs: dict[int, MovingPlace] = {}
        self._homes: dict[int, Array] = {}
        self._strips, self._blocks = workspace.strips, workspace.blocks
        self._handles: dict[int, int] = {}
        self._scratchpads: dict[int, int] = {}
        self.computes_arrays = False
        """Whether NumPy computes a step."""
        self._calls: list[Call] = [self._bind(step) for step in plan.steps]
        counts = [step.primitive.threads for step in primitives]
        # NumPy's steps may multiply with oneDNN's code, too.
        self._first_threads = counts[0] if counts else context.compiled.settings.threads
        shared = [call.code.threads for call in self._calls if isinstance(call, CodeCall)]
        self._most_threads = max((*counts, *shared), default=1)
        self._changes_threads = len(set(counts)) > 1
        self._stretches: list[list[Call]] | None = None
        self._without: AbstractSet[int] = frozenset()
        self._is_compiled = False
        """Whether the code of every step is there, as it is after the first run."""
        self._lacks = plan.once
        """Numbers of steps to run once that have not run yet."""
        self.lacks_arrays = False
        """Whether inputs and outputs must be set again, since something was bound besides."""
        self.input_places: dict[int, Array] = {}
        """Where the request puts small inputs before it runs, by number."""
        self.places: Places | None = None
        """Memory of small inputs and outputs, where it runs within another plan."""
        self._giving_way: GivingWay[BoundPlan] | None = None
        is_whole = len(plan.whole_outputs) == len(plan.outputs)
        if alone is not None and is_whole and self._most_threads > 1:
            bind = WeakMethod(self._bind_alone)  # or its memory would wait for the next collection
            self._giving_way = GivingWay(
                len(plan.steps), lambda: made(alone, workspace) if (made := bind()) else None
            )

    def _bind_alone(
        self, make: Callable[[], Plan | None], workspace: Workspace
    ) -> BoundPlan | None:
        """Bind what computes the same in one thread."""
        try:
            plan = make()
            bound = None if plan is None else BoundPlan(plan, self._context, workspace)
            if bound is not None:
                bound._compile()  # or the first inference would be no measure
        except (DeviceMemoryError, InferCancelledError, InferTimeoutError):
            return None  # what was asked for is computed already
        if bound is not None:
            self.held_bytes += bound.held_bytes
            self.computes_arrays |= bound.computes_arrays
            self.lacks_arrays = True
        return bound

    # -- running ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all steps, each primitive with the number of threads that it was made for.

        Raises:
            InferenceError: a step fails.
            InferCancelledError: (or InferTimeoutError) the inference may not go on.
        """
        if self._giving_way is None or not self._is_compiled:
            self._run_together()
        else:
            self._giving_way.run(self._run_together)

    def _run_together(self) -> None:
        if self._most_threads > 1:
            openmp.keep_apart(self._most_threads)
        before = self._get_threads()
        if before == self._first_threads and not self._changes_threads:
            self._run()
            return
        self._set_threads(self._first_threads)
        try:
            self._run()
        finally:
            self._set_threads(before)

    def repeated(self, without: AbstractSet[int] = frozenset()) -> Call:
        """Return what runs the steps as `run` does, called by this thread within these bounds.

        Args:
            without: numbers of steps that are not to run.

        Where no number of threads is to be set, it asks for nothing that stays as it is, which is
        some 0.7 µs of an iteration.
        """
        self._compile()
        if without != self._without:
            self._stretches, self._without = None, without
        is_set = self._most_threads == 1 and self._get_threads() == self._first_threads
        return partial(self._run_all, current_bounds().check) if is_set else self.run

    def recorded(self, without: AbstractSet[int]) -> list[Call] | None:
        """Return the call of each step but some, if all are C functions that take one thread.

        Who calls them calls `go_on` where one returns anything but 0.
        """
        self._compile()
        if self._most_threads > 1:
            return None
        if self._lacks:
            with openmp.threads(self._first_threads):
                self._run_once()
        without = without | self.plan.once
        calls = [call for number, call in enumerate(self._calls) if number not in without]
        return calls if all(map(is_recorded, calls)) else None

    def _run(self) -> None:
        if self._is_compiled:
            self._run_all(current_bounds().check)
        else:
            self._run_first()

    def _compile(self) -> None:
        if not self._is_compiled:
            self.plan.compile()
            self._is_compiled = True

    def _run_first(self) -> None:
        """Run each step as soon as its code is there."""
        check, threads = current_bounds().check, self._first_threads
        lacks_code = not self.plan.is_compiled
        for step, call in zip(self.plan.steps, self._calls, strict=True):
            check()
            if isinstance(step, PrimitiveStep):
                for primitive in step.primitives if lacks_code else ():
                    if not primitive.is_compiled:
                        primitive.compile()
                if step.primitive.threads != threads:
                    threads = step.primitive.threads
                    self._set_threads(threads)
            status = call()
            if status:
                self.go_on(call, status)
        self._is_compiled, self._lacks = True, frozenset()

    def _run_once(self) -> None:
        """Run what depends on sizes alone, where all code was there before the first run."""
        for number in sorted(self._lacks):
            step, call = self.plan.steps[number], self._calls[number]
            if isinstance(step, PrimitiveStep):
                self._set_threads(step.primitive.threads)
            status = call()
            if status:
                self.go_on(call, status)
        self._set_threads(self._first_threads)
        self._lacks = frozenset()

    def _run_all(self, check: Call) -> None:
        if self._lacks:
            self._run_once()
        if self._stretches is None:
            self._stretches = self._in_stretches()
        for stretch in self._stretches:
            check()
            for call in stretch:
                status = call()
                if status:
                    self.go_on(call, status)

    def run_marked(self) -> list[int]:
        """Run as `run` does; return when the first step began and when each ended.

        The times are of `time.perf_counter_ns`; there is one more than steps.
        """
        self._compile()
        before = self._get_threads()
        try:
            return self._run_marked()
        finally:
            self._set_threads(before)

    def _run_marked(self) -> list[int]:
        now, check = time.perf_counter_ns, current_bounds().check
        marks = [now()]
        for step, call in zip(self.plan.steps, self._calls, strict=True):
            check()
            if isinstance(step, PrimitiveStep):
                self._set_threads(step.primitive.threads)
            status = call()
            marks.append(now())
            if status:
                self.go_on(call, status)
        return marks

    def _in_stretches(self) -> list[list[Call]]:
        """The calls, and between them those that change the number of threads."""
        run: list[Call] = []
        threads = self._first_threads
        for number, (step, call) in enumerate(zip(self.plan.steps, self._calls, strict=True)):
            if number in self._without or number in self.plan.once:
                continue
            if isinstance(step, PrimitiveStep) and step.primitive.threads != threads:
                threads = step.primitive.threads
                run.append(partial(self._set_threads, threads))
            run.append(call)
        return stretches(run)

    def go_on(self, call: Call, status: int) -> None:
        """Compute by NumPy what machine code has refused, and what was to follow in the same call.

        Raises:
            InferenceError: what the step reads is wrong, or oneDNN failed.
        """
        rest: Sequence[Call] = ()
        if isinstance(call, Together):
            call, status, rest = call.failed(status)
        step = self.plan.steps[self._calls.index(call)]
        if not isinstance(call, CodeCall) or not isinstance(step, ArrayStep):
            raise execution_error(f"{step.type} {step.name!r}", status)
        compute_instead(step, step.start(self._context), call)
        for other in rest:
            status = other()
            if status:
                self.go_on(other, status)

    # -- inputs and outputs -------------------------------------------------------------------

    def set_input(self, index: int, array: Array) -> None:
        """Read an input from this C-contiguous array from now on."""
        place = self._inputs.get(index)
        if place is not None:
            place.move(array)
        if self._giving_way is not None and self._giving_way.alone is not None:
            self._giving_way.alone.set_input(index, array)

    def set_output(self, index: int, array: Array) -> None:
        """Write an output to this C-contiguous array from now on."""
        place = self._outputs.get(index)
        if place is not None:
            place.move(array)
        if self._giving_way is not None and self._giving_way.alone is not None:
            self._giving_way.alone.set_output(index, array)

    # -- binding ------------------------------------------------------------------------------

    def _bind(self, step: Step) -> Call:
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
        calls = self._strips.calls(strips.pieces, constants, layouts, self._scratchpad_start)
        values = [step.arguments[index] for index in cut] + [value for _, value in whole]
        return partial(run_strips, strips, calls, self._addresses(values))

    def _addresses(self, values: Sequence[Value]) -> Sequence[int]:
        """Where values begin, kept up to date when an input or output moves.

        Numbers that stay are a tuple, which Python's garbage collector does not go through.
        """
        addresses, moving = self._beginnings(values)
        for position, value in moving:
            place = self._place(value.storage.root)
            place.addresses.append((addresses, position, value.offset_bytes))
        return addresses if moving else tuple(addresses)

    def _beginnings(self, values: Sequence[Value]) -> tuple[list[int], list[tuple[int, Value]]]:
        """Where values begin, and by number those of which only the offset is known as yet."""
        addresses, moving = [], []
        for number, value in enumerate(values):
            start = self._start(value.storage.root)
            addresses.append(value.offset_bytes + (start or 0))
            if start is None:
                moving.append((number, value))
        return addresses, moving

    def _bind_code(self, code: Code, values: Sequence[Value]) -> Call:
        addresses, moving = self._beginnings(values)
        call = code.bound(addresses)
        for number, value in moving:
            place = self._place(value.storage.root)
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
        start = self._start(storage)
        made = self._memories.at(value.descriptor, 0 if start is None else start + offset)
        if start is None:
            self._place(storage).memories.append((made, offset))
        return made

    def _start(self, storage: Storage) -> int | None:
        """The address of a storage; None while the caller has yet to provide it."""
        if storage.kind is Kind.ARENA:
            return self._arena_start + storage.offset_bytes
        if storage.kind is Kind.KEPT:
            home = self._home(storage)
            return None if home is None else address_of(home)
        return None if storage.array is None else storage.address

    def _bind_array_step(self, step: ArrayStep) -> Call:
        compute = step.start(self._context)
        code = compute.code(step.values) if isinstance(compute, ByMachine) else None
        if code is not None:
            return self._bind_code(code, step.values)
        self.computes_arrays = True
        inputs = self._arrays(step.inputs)
        outputs = self._arrays(step.outputs)
        stay = step.writes and not [
            value for value in step.values if self._home(value.storage) is None
        ]
        return call_of(step, compute, inputs, outputs, stay=stay)

    def _bind_tail(self, step: TailStep) -> Call:
        self.computes_arrays = True
        compute = step.start(self._context)
        return tail_of(step, compute, self._arrays(step.inputs), self.tail_outputs)

    def _arrays(self, values: Sequence[Value]) -> list[Array]:
        """NumPy views of the values, kept up to date when an input or output moves."""
        arrays: list[Array] = []
        for position, value in enumerate(values):
            home = self._home(value.storage)
            arrays.append(np.empty(0) if home is None else view_of(value, home))
            if home is None:

                def update(data: Array, position: int = position, value: Value = value) -> None:
                    arrays[position] = view_of(value, data)

                self._place(value.storage.root).views.append(update)
        return arrays

    def _home(self, storage: Storage) -> Array | None:
        """The bytes of a storage, or None while the caller has yet to provide them."""
        storage = storage.root
        key = id(storage)
        if key not in self._homes:
            if storage.kind is Kind.ARENA:
                start = storage.offset_bytes
                self._homes[key] = self._arena[start : start + storage.size_bytes]
            elif storage.kind is Kind.KEPT:
                self._homes[key] = self._allocated(storage.size_bytes)
            elif storage.array is not None:
                array = storage.array
                self._homes[key] = (
                    array if array.dtype.hasobject else array.reshape(-1).view(np.uint8)
                )
            else:
                return None
        return self._homes[key]

    def _allocated(self, size_bytes: int) -> Array:
        """Memory of the plan's own."""
        self.held_bytes += size_bytes
        return self._context.compiled.memory.allocated(
            size_bytes, "what depends on sizes alone", lambda: aligned(max(size_bytes, 1))
        )

    def _place(self, storage: Storage) -> MovingPlace:
        places = self._outputs if storage.kind is Kind.OUTPUT else self._inputs
        place = places.get(storage.index)
        if place is None:
            place = places[storage.index] = MovingPlace(self._memories)
        return place
