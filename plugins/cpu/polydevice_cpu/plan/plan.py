"""Plan: steps, memory layout and outputs for one set of input shapes; shared by all requests."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from polydevice.runtime import follower
from polydevice.runtime.arena import place_in_one
from polydevice.runtime.layer_times import LayerTimes
from polydevice.tensor import TensorDesc
from polydevice_cpu.onednn.engine import ALIGNMENT_BYTES
from polydevice_cpu.plan.building.accumulate import accumulate
from polydevice_cpu.plan.instead_of_primitives import by_machine
from polydevice_cpu.plan.joined.attention import joined_attention
from polydevice_cpu.plan.joined.steps import joined_steps
from polydevice_cpu.plan.step import PrimitiveStep, Step, TailStep, name_of
from polydevice_cpu.plan.value import Kind, Storage, Value

PRIMITIVE_BYTES = 80_000
"""What a primitive takes, most of it generated code: 69 to 82 kB on average in a MiniLM and in
networks that detect and read text."""

ARRAY_BYTES = 4_000
"""What a step on arrays takes."""


Result = tuple[tuple[int, ...], np.dtype[Any]]
"""Shape and type of an output."""

OF_TAIL: Result = ((0,), np.dtype(np.float32))
"""What is said of one that a tail computes."""


@dataclass(frozen=True)
class PlanParts:
    """What a plan is made of.

    Attributes:
        steps, outputs, refused, origins: see `Plan`.
        inputs: returns those of `Plan`, which are seldom asked for.
        arena: the storages that need a place, where it is noted already how long they live.
        once: numbers of the steps that the first inference alone runs.
        is_alone: whether one thread has to compute what several do in another plan.
    """

    steps: list[Step]
    outputs: list[Value | None]
    inputs: Callable[[], Sequence[TensorDesc]]
    refused: Mapping[str, str]
    origins: Mapping[str, tuple[str, ...]]
    arena: Sequence[Storage] | None = None
    once: frozenset[int] = frozenset()
    is_alone: bool = False

    def settle(self) -> None:
        """Note how long values live, and let steps write where their operands lay."""
        for number, step in enumerate(self.steps):
            for value in step.values:
                value.storage.touch(number)
        accumulate(self.steps)


def inputs_of(steps: Iterable[Step]) -> frozenset[int]:
    """Return which inputs steps read."""
    roots = (value.storage.root for step in steps for value in step.values)
    return frozenset(root.index for root in roots if root.kind in (Kind.INPUT, Kind.OBJECTS))


class Plan:
    """What a request needs, besides memory, to infer with inputs of these shapes.

    Attributes:
        once: numbers of the steps that the first inference alone runs, as they depend on sizes
            alone.
        refused: layer → why oneDNN does not compute it, or not in one step with what precedes it.
        origins: node → the layers of the model that it computes.
        arena_bytes: memory that a request needs for intermediate values.
        scratchpad_bytes: memory that a request needs for the primitives' own use.
        results: shape and type of each output; of no elements where a tail computes it.
        whole_outputs: which outputs are values.
        new_results: which outputs nobody else has, where the plan runs within another one.
        result_bytes: memory of the outputs that are values.
        times: by number of the step, of all inferences that were timed.
        held_bytes: estimate of what the plan takes by itself.
        is_compiled: whether it is known that all code is there.
        is_final: whether it stays; one in strips is replaced after some inferences.
        runs: how many those were.
        whole: makes the plan without strips; None where there is none.
    """

    is_table: ClassVar[bool] = False
    """Whether it is a `TablePlan`."""

    def __init__(self, parts: PlanParts) -> None:
        if parts.arena is None:
            if not parts.once:
                parts = replace(parts, steps=joined_attention(parts.steps, parts.outputs))
            if not (parts.once or parts.is_alone):
                parts = replace(parts, steps=joined_steps(parts.steps, parts.outputs))
            parts.settle()
        # What takes the place of a plan that was filled in gives the same answers as that.
        is_filled = parts.arena is not None
        self._steps = steps = [
            by_machine(step, as_onednn=is_filled, is_alone=parts.is_alone) for step in parts.steps
        ]
        self._outputs = outputs = parts.outputs
        results = [OF_TAIL if each is None else (each.shape, each.dtype) for each in outputs]
        self._note(parts, parts.once, results)
        self.whole_outputs = [index for index, each in enumerate(outputs) if each is not None]
        tails = [step for step in steps if isinstance(step, TailStep)]
        self.new_results = frozenset(self.whole_outputs).union(*(step.new for step in tails))
        self.result_bytes = sum(
            math.prod(value.shape) * value.dtype.itemsize for value in outputs if value is not None
        )
        primitives = [step for step in steps if isinstance(step, PrimitiveStep)]
        arrays = len(steps) - len(primitives)
        self.held_bytes = self._held(len(primitives), arrays)
        self.arena_bytes = self._place(
            self._arena_storages() if parts.arena is None else parts.arena
        )
        self.scratchpad_bytes = max([step.scratchpad_bytes for step in primitives], default=0)

    def _note(self, parts: PlanParts, once: frozenset[int], results: list[Result]) -> None:
        """Note what every kind of plan has."""
        self._inputs = parts.inputs
        self.once, self.results = once, results
        self.refused, self.origins = parts.refused, parts.origins
        self.times: LayerTimes[int] = LayerTimes()
        self.is_compiled = False
        self.is_final = True
        self.runs = 0
        self.whole: Callable[[], Plan | None] | None = None

    @staticmethod
    def _held(primitives: int, arrays: int) -> int:
        """Estimate of what so many steps of these kinds take."""
        return PRIMITIVE_BYTES * primitives + ARRAY_BYTES * arrays

    @property
    def steps(self) -> list[Step]:
        """The steps in order of execution."""
        return self._steps

    @property
    def outputs(self) -> list[Value | None]:
        """One value per result of the network, dense; None where a tail computes it."""
        return self._outputs

    def step(self, number: int) -> Step:
        """Return a step by its number."""
        return self.steps[number]

    @property
    def step_count(self) -> int:
        """How many steps there are."""
        return len(self._steps)

    def compile(self) -> None:
        """See to it that all code is there; an inference does so step by step."""
        if self.is_compiled:
            return
        for step in reversed(self.steps):  # another thread may have begun with the first one
            if isinstance(step, PrimitiveStep):
                for primitive in step.primitives:
                    primitive.compile()
        self.is_compiled = True

    @property
    def inputs(self) -> Sequence[TensorDesc]:
        """Type and shape of the network's parameters."""
        return self._inputs()

    @functools.cached_property
    def read(self) -> frozenset[int]:
        """Which inputs some step reads."""
        return inputs_of(self.steps)

    @functools.cached_property
    def labels(self) -> list[follower.Step]:
        """What followers are told of the steps."""
        return [
            follower.Step(name_of(step, index), step.type, step.implementation)
            for index, step in enumerate(self.steps)
        ]

    @staticmethod
    def _place(storages: Sequence[Storage]) -> int:
        """Give every storage its place in the arena; return the arena's size in bytes."""
        offsets, size = place_in_one(storages, ALIGNMENT_BYTES)
        for storage, offset in zip(storages, offsets, strict=True):
            storage.offset_bytes = offset
        return size

    def _arena_storages(self) -> list[Storage]:
        """The storages that need a place; one that is shared lives as long as its sharers."""
        found: dict[int, Storage] = {}
        for number, step in enumerate(self.steps):
            for value in step.values:
                root = value.storage
                if root.is_shared:  # its lives are noted already, but those of what it shares
                    root = root.root
                    root.touch(number)
                if root.kind is Kind.ARENA:
                    found[id(root)] = root
        return list(found.values())
