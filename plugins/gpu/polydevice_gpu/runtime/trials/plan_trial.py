"""Whether a plan is faster than the one that runs in its place: both are timed."""

from __future__ import annotations

import time

from polydevice.errors import DeviceMemoryError
from polydevice_gpu import cl
from polydevice_gpu.runtime.backlog import Backlog
from polydevice_gpu.runtime.bound_steps import BoundSteps
from polydevice_gpu.runtime.plan import Plan

_ROUNDS = 5
_MOST_SECONDS = 0.1
"""After which no further round begins: inferences wait meanwhile."""


def is_faster(plan: Plan, other: Plan) -> bool:
    """Whether a plan is better than another one for the same shapes.

    Both run on zeros, in memory that is given back. Nothing is timed, and the plan counts as
    better, where there is no memory for it, or where the host or loops take part, whose course
    depends on values.
    """
    if not (plan.contents.launches_only and other.contents.launches_only):
        return True
    try:
        mine, others = _times(plan, other)
    except DeviceMemoryError:
        return True
    return mine < others


def _times(*plans: Plan) -> tuple[float, ...]:
    """Return the least seconds of each plan, timed in turn."""
    least = [float("inf")] * len(plans)
    bound = []
    for plan in plans:
        blocks = [plan.device.memory.zeros(size, "trial") for size in plan.arena.blocks]
        bound.append(BoundSteps(plan, blocks, Backlog()))
    with plans[0].device.queue() as queue:
        begin = time.perf_counter()
        for number in range(1 + _ROUNDS):
            for place, steps in enumerate(bound):
                seconds = _time(steps, queue)
                if number:  # the first one warms up
                    least[place] = min(least[place], seconds)
            if number and time.perf_counter() - begin > _MOST_SECONDS:
                break
    return tuple(least)


def _time(steps: BoundSteps, queue: cl.Queue) -> float:
    queue.finish()
    start = time.perf_counter()
    steps.run(queue, {})
    queue.finish()
    return time.perf_counter() - start
