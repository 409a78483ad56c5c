"""Ifs on the device: the plan of the body that the condition chooses runs in the outer one's place.

The body reads the inputs and writes the outputs of the If in place. The host reads the condition,
one element, unless it has it already.
"""

from __future__ import annotations

import functools
import weakref

from polydevice.errors import InferenceError
from polydevice_gpu import cl
from polydevice_gpu.control_flow.copies import copy_step, located, memory_like
from polydevice_gpu.control_flow.loop import CompileBody, arena_memory, memory_of
from polydevice_gpu.control_flow.nested import Branch, Branches
from polydevice_gpu.control_flow.sums import Sums
from polydevice_gpu.graph import GpuNode, Memory, Place
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.runtime.bound_steps import BoundSteps, OnHost
from polydevice_gpu.runtime.layer_times import Times
from polydevice_gpu.runtime.plan import NestedStep, Plan, Step


class BranchStep:
    """One body of an If.

    Attributes:
        plan: of the body.
        shared: memory of the body → outer memory that it stands for.
        starts: copies of inputs that are stored in another type.
        ends: likewise of outputs.
        memory: outer memory of those copies.
    """

    def __init__(
        self, node: GpuNode, branch: Branch, compile_body: CompileBody, target: Target
    ) -> None:
        graph = branch.graph
        self.shared: dict[Memory, Memory] = {}
        self.starts: list[Step] = []
        self.ends: list[Step] = []
        self.memory: list[Memory] = []
        for given in branch.given:
            inner, outer = graph.inputs[given.parameter], node.inputs[given.input]
            if outer.storage is inner.storage and memory_of(outer).place is Place.ARENA:
                self.shared[memory_of(inner)] = memory_of(outer)
                continue
            self.memory.append(memory_like(inner, "input of a body"))
            self.shared[memory_of(inner)] = self.memory[-1]
            made = located(inner, self.memory[-1])
            self.starts.append(copy_step(node, outer, made, target))
        for taken in branch.taken:
            inner, outer = graph.outputs[taken.result], node.outputs[taken.output]
            if outer.storage is inner.storage:
                self.shared[memory_of(inner)] = memory_of(outer)
                continue
            self.memory.append(memory_like(inner, "output of a body"))
            self.shared[memory_of(inner)] = self.memory[-1]
            made = located(inner, self.memory[-1])
            self.ends.append(copy_step(node, made, outer, target))
        self.plan = compile_body(graph, self.shared.keys())


class IfStep(NestedStep):
    """An If in a plan; a body that does not accept the inputs' sizes is None."""

    def __init__(
        self, node: GpuNode, branches: Branches, compile_body: CompileBody, target: Target
    ) -> None:
        self.node = node
        self.branches = [
            None if each is None else BranchStep(node, each, compile_body, target)
            for each in (branches.otherwise, branches.then)
        ]
        possible = [branch for branch in self.branches if branch is not None]
        self.plans: list[Plan] = [branch.plan for branch in possible]
        self.copies = [step for each in possible for step in (*each.starts, *each.ends)]
        self.blocks = arena_memory(self.plans)
        self.memory = [*self.blocks, *(memory for each in possible for memory in each.memory)]

    def bind(self, outer: BoundSteps) -> BoundIf:
        """Bind both bodies."""
        return BoundIf(self, outer)


class BoundIf:
    """An If with the memory of one request."""

    def __init__(self, step: IfStep, outer: BoundSteps) -> None:
        self._step = step
        self._outer: BoundSteps = weakref.proxy(outer)  # which holds this: no cycle keeps memory
        self._branches = [
            None if branch is None else _BoundBranch(branch, step.blocks, outer)
            for branch in step.branches
        ]
        self._ran: _BoundBranch | None = None
        self._sums = Sums(step.node)

    @property
    def uses_host(self) -> bool:
        """The host has to know the condition."""
        return True

    def enqueue(self, queue: cl.Queue, on_host: OnHost) -> None:
        """Run the body that the condition chooses.

        Raises:
            InferenceError: that body does not accept inputs of these sizes.
        """
        condition = self._step.node.inputs[0]
        if condition.constant is not None:
            on_host[condition] = condition.constant
        elif condition not in on_host:
            self._outer.fetch(queue, [condition], on_host)
        chosen = bool(on_host[condition].all())
        branch = self._branches[chosen]
        if branch is None:
            raise InferenceError(
                f"the condition of {self._step.node.name!r} is {chosen}, but the body for that "
                "does not accept inputs of these sizes"
            )
        self._ran = branch
        branch.enqueue(queue)

    def times(self) -> Times:
        """Return the times of the body that ran, and their sum."""
        self._sums.clear()
        if self._ran is None:
            return {}
        self._ran.add_times(self._sums)
        return self._sums.times


class _BoundBranch:
    def __init__(self, branch: BranchStep, blocks: list[Memory], outer: BoundSteps) -> None:
        given = {inner: outer.region(memory) for inner, memory in branch.shared.items()}
        self._steps = BoundSteps(
            branch.plan, [outer.region(memory) for memory in blocks], outer.backlog, given
        )
        for inner, memory in branch.shared.items():
            outer.watch(memory, functools.partial(self._steps.connect, inner))
        self._starts = cl.LaunchList(outer.plan.device)
        self._ends = cl.LaunchList(outer.plan.device)
        for launches, steps in ((self._starts, branch.starts), (self._ends, branch.ends)):
            for step in steps:
                outer.add_launches(launches, step, outer.region)

    def enqueue(self, queue: cl.Queue) -> None:
        self._starts.enqueue(queue)
        self._steps.run(queue, {})
        self._ends.enqueue(queue)

    def add_times(self, sums: Sums) -> None:
        sums.add_copies([*self._starts.profile(), *self._ends.profile()])
        sums.add(self._steps.layer_times(), self._steps.plan.running)
