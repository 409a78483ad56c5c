"""Plan: steps, memory layout and outputs for one set of input shapes; shared by all requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from polydevice.tensor import TensorDesc
from polydevice_cpu.plan.accumulate import accumulate
from polydevice_cpu.plan.arena import assign
from polydevice_cpu.plan.step import PrimitiveStep, Step
from polydevice_cpu.plan.times import StepTimes
from polydevice_cpu.plan.value import Kind, Storage, Value


class Plan:
    """What a request needs, besides memory, to infer with inputs of these shapes.

    Attributes:
        steps: in order of execution.
        outputs: one value per result of the network, dense; None where a tail computes it.
        inputs: type and shape of the network's parameters.
        refused: layer → why oneDNN does not compute it, or not in one step with what precedes it.
        arena_bytes: memory that a request needs for intermediate values.
        scratchpad_bytes: memory that a request needs for the primitives' own use.
        result_bytes: memory of the outputs that are values.
        times: of all inferences that were timed.
    """

    def __init__(
        self,
        steps: list[Step],
        outputs: list[Value | None],
        inputs: Sequence[TensorDesc],
        refused: Mapping[str, str],
    ) -> None:
        self._note_lives(steps)
        accumulate(steps)
        self.steps = steps
        self.outputs = outputs
        self.inputs = list(inputs)
        self.refused = dict(refused)
        self.times = StepTimes()
        self.result_bytes = sum(
            math.prod(value.shape) * value.dtype.itemsize for value in outputs if value is not None
        )
        for step in steps:
            if isinstance(step, PrimitiveStep):
                step.primitive.compile()
        self.arena_bytes = assign(self._arena_storages())
        self.scratchpad_bytes = max(
            (s.primitive.scratchpad_bytes for s in steps if isinstance(s, PrimitiveStep)),
            default=0,
        )

    @staticmethod
    def _note_lives(steps: Sequence[Step]) -> None:
        for number, step in enumerate(steps):
            for value in step.values:
                value.storage.touch(number)

    def _arena_storages(self) -> list[Storage]:
        """The storages that need a place; one that is shared lives as long as its sharers."""
        found: dict[int, Storage] = {}
        for number, step in enumerate(self.steps):
            for value in step.values:
                root = value.storage.root
                root.touch(number)
                if root.kind is Kind.ARENA:
                    found[id(root)] = root
        return list(found.values())
