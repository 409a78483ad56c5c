"""Loops on the device: the body's plan runs once per iteration, values stay in device memory.

Carried values lie in two buffers that take turns: the body is bound twice, each time with the other
one to read. The host only counts, unless a value that the device computes says how to go on.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from collections.abc import Set as AbstractSet

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array, ElementType
from polydevice.errors import InferenceError
from polydevice.shape import normalize_axis
from polydevice_gpu import cl
from polydevice_gpu.control_flow.copies import PartCopy, copy_step, located, memory_like
from polydevice_gpu.control_flow.nested import MANY, Given, LoopBody, Taken
from polydevice_gpu.control_flow.sums import Sums
from polydevice_gpu.graph import GpuGraph, GpuNode, Memory, Place, Value
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.runtime.bound_steps import BoundSteps, OnHost
from polydevice_gpu.runtime.layer_times import Times
from polydevice_gpu.runtime.plan import NestedStep, Plan, Step

ITERATION_LIMIT = 1 << 24
"""Iterations after which a loop counts as endless."""

CompileBody = Callable[[GpuGraph, AbstractSet[Memory]], Plan]
"""Compiles the graph of a body; memory in the set lies outside of its arena."""


class LoopStep(NestedStep):
    """A loop in a plan.

    Attributes:
        body: what was found out about it.
        plan: of one iteration.
        blocks: memory of the body's arena.
        turns: the two pieces of memory of each carried value.
        shared: memory of the body → outer memory that it stands for in all iterations.
        starts: copies before the first iteration.
        parts: copies before each iteration.
        joins: copies after each iteration.
        ends: copies after the last iteration, for an even and an odd number of them.
        most: number of iterations for which there are parts.
    """

    def __init__(
        self, node: GpuNode, body: LoopBody, compile_body: CompileBody, target: Target
    ) -> None:
        self.node, self.body = node, body
        self._target = target
        self.starts: list[Step] = []
        self.memory = []
        self.most = MANY
        self.shared = dict(self._share(each) for each in body.given if each.slicing is None)
        self.turns = [self._take_turns(index) for index in range(len(body.carried))]
        self.parts = [self._part(each) for each in body.given if each.slicing is not None]
        self.joins = [self._join(each) for each in body.taken if self._is_joined(each)]
        self.ends = [
            [self._end(each, odd) for each in body.taken if each.slicing is None]
            for odd in (False, True)
        ]
        self.copies = [*self.starts, *self.ends[0], *self.ends[1]]
        self.copies += [part.step for part in (*self.parts, *self.joins)]
        graph = body.graph
        carried = [graph.inputs[each.parameter].memory for each in body.carried]
        carried += [graph.outputs[each.result].memory for each in body.carried]
        outside = {memory for memory in carried if memory is not None}
        self.plan = compile_body(graph, outside | self.shared.keys())
        self.plans = [self.plan]
        self.blocks = arena_memory([self.plan])
        self.memory += self.blocks

    def bind(self, outer: BoundSteps) -> BoundLoop:
        """Bind the body, twice if it carries values."""
        return BoundLoop(self, outer)

    def _own(self, value: Value, name: str) -> Value:
        """Return a value like another in outer memory that lives while the loop runs."""
        memory = memory_like(value, name)
        self.memory.append(memory)
        return located(value, memory)

    def _share(self, given: Given) -> tuple[Memory, Memory]:
        """Let the body read an input in place, or a copy of it in the type that it stores."""
        value, outer = self.body.graph.inputs[given.parameter], self.node.inputs[given.input]
        inner, memory = memory_of(value), memory_of(outer)
        if outer.storage is value.storage and memory.place is Place.ARENA:
            return inner, memory
        kept = self._own(value, "kept for a loop")
        self.starts.append(copy_step(self.node, outer, kept, self._target))
        return inner, memory_of(kept)

    def _take_turns(self, index: int) -> tuple[Value, Value]:
        """Make the two pieces of memory of a carried value; the first one starts."""
        each = self.body.carried[index]
        value = self.body.graph.inputs[each.parameter]
        pair = self._own(value, "carried"), self._own(value, "carried")
        self.starts.append(
            copy_step(self.node, self.node.inputs[each.input], pair[0], self._target)
        )
        return pair

    def _part(self, given: Given) -> PartCopy:
        assert given.slicing is not None
        outer, part = self.node.inputs[given.input], self.body.graph.inputs[given.parameter]
        if outer.memory is None or outer.memory.place is not Place.ARENA:
            constant, outer = outer, self._own(outer, "sliced")
            self.starts.append(copy_step(self.node, constant, outer, self._target))
        axis = normalize_axis(given.slicing.axis, outer.rank)
        size = outer.shape[axis]
        self.most = min(self.most, given.slicing.count(size))
        first, second = (given.slicing.part(number, size).start for number in (0, 1))
        return PartCopy.between(
            self.node, outer, part, axis, (first, second), self._target, into=False
        )

    def _is_joined(self, taken: Taken) -> bool:
        return taken.slicing is not None and not self.node.outputs[taken.output].on_host

    def _join(self, taken: Taken) -> PartCopy:
        assert taken.slicing is not None
        whole, part = self.node.outputs[taken.output], self.body.graph.outputs[taken.result]
        axis = normalize_axis(taken.slicing.axis, whole.rank)
        size = part.shape[axis]
        starts = (0, size)
        if size:
            self.most = min(self.most, whole.shape[axis] // size)
        if taken.slicing.stride < 0:
            last = whole.shape[axis] - size
            starts = (last, last - size)
        return PartCopy.between(self.node, whole, part, axis, starts, self._target, into=True)

    def _end(self, taken: Taken, odd: bool) -> Step:
        """Copy what the last iteration gave, or what it would have read if there is none."""
        source = self.body.graph.outputs[taken.result]
        for each, pair in zip(self.body.carried, self.turns, strict=True):
            if taken.first == each.parameter or (not taken.first and taken.result == each.result):
                source = pair[odd]
        return copy_step(self.node, source, self.node.outputs[taken.output], self._target)


def arena_memory(plans: list[Plan]) -> list[Memory]:
    """Return memory for the arenas of plans of which one runs at a time."""
    sizes: list[int] = []
    for plan in plans:
        for number, size in enumerate(plan.arena.blocks):
            if number == len(sizes):
                sizes.append(0)
            sizes[number] = max(sizes[number], size)
    return [Memory(Place.ARENA, size, ElementType.u8, name="arena of a body") for size in sizes]


class BoundLoop:
    """A loop with the memory of one request."""

    def __init__(self, step: LoopStep, outer: BoundSteps) -> None:
        self._step, self._body = step, step.body
        self._outer: BoundSteps = weakref.proxy(outer)  # which holds this: no cycle keeps memory
        turns = [[outer.region(memory_of(value)) for value in pair] for pair in step.turns]
        blocks = [outer.region(memory) for memory in step.blocks]
        graph = step.body.graph
        self._twins: list[BoundSteps] = []
        for number in range(2 if turns else 1):
            given = {inner: outer.region(memory) for inner, memory in step.shared.items()}
            for each, pair in zip(step.body.carried, turns, strict=True):
                given[memory_of(graph.inputs[each.parameter])] = pair[number]
                given[memory_of(graph.outputs[each.result])] = pair[1 - number]
            twin = BoundSteps(step.plan, blocks, outer.backlog, given)
            for inner, memory in step.shared.items():
                outer.watch(memory, functools.partial(twin.connect, inner))
            self._twins.append(twin)
        self._inner = {value.memory for value in (*graph.inputs.values(), *graph.outputs.values())}
        self._starts = self._launches(step.starts, self._twins[0])
        self._before = self._launches([part.step for part in step.parts], self._twins[0])
        joins = [part.step for part in step.joins]
        self._after = [self._launches(joins, twin) for twin in self._twins]
        self._ends = [self._launches(ends, self._twins[0]) for ends in step.ends]
        gathered = [out for out in step.body.taken if out.slicing and not step._is_joined(out)]
        self._gathered = [(out, graph.outputs[out.result]) for out in gathered]
        # As much again as for the parts is needed to join them.
        self._gathered_bytes = 2 * sum(
            value.elements * value.storage.dtype.itemsize for _, value in self._gathered
        )
        self._counter = graph.inputs.get(step.body.counter)
        self._sums = Sums(step.node)

    def _launches(self, steps: list[Step], twin: BoundSteps) -> cl.LaunchList:
        """Make launches that copy between the outer plan and the body."""
        made = cl.LaunchList(self._outer.plan.device)

        def region(memory: Memory) -> cl.Buffer:
            return (twin if memory in self._inner else self._outer).region(memory)

        for step in steps:
            self._outer.add_launches(made, step, region)
        return made

    @property
    def uses_host(self) -> bool:
        """Whether the host has to wait for a value, or computes layers of the body."""
        body = self._body
        asks = body.count is None or body.starts is None or bool(body.condition)
        return asks or bool(self._gathered) or self._twins[0].uses_host

    def enqueue(self, queue: cl.Queue, on_host: OnHost) -> None:
        """Run all iterations.

        Raises:
            InferenceError: there is no end, no iteration and no value, or too few slices.
        """
        self._sums.clear()
        count, goes_on = self._bounds(queue, on_host)
        parts: list[list[Array]] = [[] for _ in self._gathered]
        self._starts.enqueue(queue)
        self._note_times(queue, self._starts)
        done = 0
        while goes_on and done < count:
            if done >= min(self._step.most, ITERATION_LIMIT):
                raise self._error(done)
            if self._gathered_bytes:
                what = f"{self._step.node.name!r}, after {done + 1} iterations,"
                current_bounds().admit(self._gathered_bytes * (done + 1), what)
            goes_on = self._iterate(queue, done, parts)
            done += 1
        if not done and any(not each.first and not each.slicing for each in self._body.taken):
            raise InferenceError(
                f"{self._step.node.name!r} ran no iteration, so an output has no value"
            )
        ends = self._ends[done % 2]
        ends.enqueue(queue)
        self._note_times(queue, ends)
        if self._gathered:
            self._gather(queue, parts, on_host)

    def _bounds(self, queue: cl.Queue, on_host: OnHost) -> tuple[int, bool]:
        """Return the number of iterations at most, and whether there is a first one."""
        count, starts = self._body.count, self._body.starts
        inputs = self._step.node.inputs
        asked = [inputs[0]] if count is None else []
        asked += [inputs[1]] if starts is None else []
        if any(value not in on_host for value in asked):
            self._outer.fetch(queue, asked, on_host)
        if count is None:
            trips = int(on_host[inputs[0]].reshape(-1)[0])
            count = trips if trips >= 0 else MANY
        return count, bool(on_host[inputs[1]].all()) if starts is None else starts

    def _iterate(self, queue: cl.Queue, number: int, parts: list[list[Array]]) -> bool:
        """Enqueue one iteration; return whether another one may follow."""
        self._outer.backlog.add(queue)
        turn = number % len(self._twins)
        twin, after = self._twins[turn], self._after[turn]
        for index, part in enumerate(self._step.parts):
            part.move(self._before, index, number)
        for index, part in enumerate(self._step.joins):
            part.move(after, index, number)
        if self._counter is not None:
            pattern = self._counter.storage.dtype.type(number).tobytes()
            memory = memory_of(self._counter)
            queue.fill(twin.region(memory), pattern, memory.bytes)
        self._before.enqueue(queue)
        here: OnHost = {}
        twin.run(queue, here)
        after.enqueue(queue)
        for each, (_, value) in zip(parts, self._gathered, strict=True):
            each.append(_downloaded(queue, twin, value, here))
        self._note_times(queue, self._before, after, twin)
        if not self._body.condition:
            return True
        condition = self._body.graph.outputs[self._body.condition]
        if condition not in here:
            twin.fetch(queue, [condition], here)
        return bool(here[condition].all())

    def _gather(self, queue: cl.Queue, parts: list[list[Array]], on_host: OnHost) -> None:
        """Join the results whose number was not known."""
        queue.finish()
        for arrays, (out, value) in zip(parts, self._gathered, strict=True):
            assert out.slicing is not None
            axis = normalize_axis(out.slicing.axis, value.rank)
            none = np.empty([0 if a == axis else n for a, n in enumerate(value.shape)])
            ordered = arrays if out.slicing.stride > 0 else arrays[::-1]
            joined = np.concatenate(ordered, axis) if ordered else none
            target = self._step.node.outputs[out.output]
            on_host[target] = joined.astype(target.element_type.dtype, copy=False)

    def _error(self, done: int) -> InferenceError:
        if done < self._step.most:
            what = f"has run {done} iterations without an end"
        else:
            what = f"has more iterations than the {done} that its inputs or outputs have parts for"
        return InferenceError(f"{self._step.node.name!r} {what}")

    def _note_times(self, queue: cl.Queue, *lists: cl.LaunchList | BoundSteps) -> None:
        """Add up times before the lists are enqueued again, which forgets them."""
        if not queue.profiling:
            return
        for each in lists:
            if isinstance(each, cl.LaunchList):
                self._sums.add_copies(each.profile())
            else:
                self._sums.add(each.layer_times(), each.plan.running)

    def times(self) -> Times:
        """Return the sums of the last run: of the loop, and of each layer of its body."""
        return self._sums.times


def _downloaded(queue: cl.Queue, steps: BoundSteps, value: Value, here: OnHost) -> Array:
    """Return a result as the host will have it once the queue got there."""
    if value in here:
        return np.array(here[value])
    array: Array = np.empty(value.shape, value.storage.dtype)
    if value.elements:
        queue.download(steps.region(memory_of(value)), array, wait=False)
    return array


def memory_of(value: Value) -> Memory:
    """Return the memory of a value that has some."""
    assert value.memory is not None, f"{value.name} has no memory"
    return value.memory
