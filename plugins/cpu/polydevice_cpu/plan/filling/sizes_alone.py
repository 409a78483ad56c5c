"""Which steps depend on sizes alone, so that the first inference with a plan computes them for all.

Places in a text, what is added to scores for their distances, masks of what lies before: a plan of
numbers has them as constants, one that is filled in computes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from polydevice_cpu.plan.step import ArrayStep, PrimitiveStep, Step, TailStep
from polydevice_cpu.plan.value import Kind, Storage, Value

KEPT_BYTES = 1 << 22
"""Of what depends on sizes alone, so much is kept for each plan of a request; more is computed in
each inference."""


def may_be_kept(storages: Sequence[Storage]) -> bool:
    """Whether what depends on sizes alone is kept for each plan of a request."""
    return sum(storage.size_bytes for storage in storages) <= KEPT_BYTES


def of_sizes_alone(steps: Sequence[Step]) -> tuple[frozenset[int], set[int]]:
    """Return the numbers of such steps, and identities of what they write and others read.

    Args:
        steps: of a plan without variables and bodies.
    """
    shared: set[int] = set()  # what other steps write, too
    while True:
        once, known = _found(steps, shared)
        others = [step for number, step in enumerate(steps) if number not in once]
        more = {id(root) for step in others for root in _roots(_sides(step)[1])} & known
        if not more:
            read = {id(root) for step in others for root in _roots(_sides(step)[0])}
            return frozenset(once), known & read
        shared |= more


def _found(steps: Sequence[Step], shared: set[int]) -> tuple[set[int], set[int]]:
    """Numbers of steps that read constants and what such steps write, and identities of that."""
    once: set[int] = set()
    known: set[int] = set()
    written: set[int] = set()
    for number, step in enumerate(steps):
        read, made = map(_roots, _sides(step))
        # What was written before may be read: a sum is added to what its place holds.
        read += [root for root in made if id(root) in written]
        written.update(map(id, made))
        if isinstance(step, TailStep) or (isinstance(step, ArrayStep) and step.draws):
            continue
        if all(root.kind is Kind.CONSTANT or id(root) in known for root in read) and all(
            root.kind is Kind.ARENA and id(root) not in shared for root in made
        ):
            once.add(number)
            known.update(map(id, made))
    return once, known


def _sides(step: Step) -> tuple[Sequence[Value], Sequence[Value]]:
    """What a step reads, and what it writes."""
    if isinstance(step, PrimitiveStep):
        made = [step.arguments[index] for index in step.outputs]
        return [each for at, each in step.arguments.items() if at not in step.outputs], made
    return step.inputs, step.outputs if isinstance(step, ArrayStep) else []


def _roots(values: Sequence[Value]) -> list[Storage]:
    return [value.storage.root for value in values]
