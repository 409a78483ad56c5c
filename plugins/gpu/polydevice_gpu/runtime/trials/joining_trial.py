"""Whether launches that became one are faster so: both are timed when a network is loaded."""

from __future__ import annotations

import time
from collections.abc import Callable

from polydevice.errors import DeviceMemoryError
from polydevice_gpu import cl
from polydevice_gpu.one_launch.joined_launches import JoinedLaunches, WaitInVainError
from polydevice_gpu.one_launch.turns import turn_of
from polydevice_gpu.runtime.backlog import Backlog
from polydevice_gpu.runtime.bound_steps import BoundSteps
from polydevice_gpu.runtime.plan import Plan

_ROUNDS, _RUNS = 15, 5
_WARM_UP_SECONDS = 0.1
"""A GPU that had nothing to do is slow at first, and the host is not: the clock of an idle H200 is
345 MHz, and 1,980 under load."""
_GAIN = 0.97
"""What joining has to bring: below it, what is timed is noise."""


def keep_faster(plan: Plan) -> None:
    """Leave launches alone that are not faster as one; the plan says so.

    Both run on zeros, in memory that is given back; where there is none, nothing joins.
    """
    try:
        _keep_faster(plan)
    except DeviceMemoryError as error:
        plan.apart.update(dict.fromkeys(plan.joined, f"there was no memory to time them: {error}"))
        plan.joined.clear()


def _keep_faster(plan: Plan) -> None:
    device = plan.device
    blocks = [device.memory.zeros(size, "trial of an arena") for size in plan.arena.blocks]
    bound = BoundSteps(plan, blocks, Backlog())
    with device.queue() as queue:
        for joined in bound.joined:
            one, many = both_times(joined, queue, device)
            try:
                joined.check()
            except WaitInVainError as error:
                reason = f"a trial failed: {error}"
            else:
                if one < _GAIN * many:
                    continue
                reason = f"they took {many * 1e6:.0f} us one by one, and {one * 1e6:.0f} as one"
            plan.tried |= {joined.stretch.kernel.program, joined.stretch.note.program}
            for number in [n for n, each in plan.joined.items() if each is joined.stretch]:
                del plan.joined[number]
                plan.apart[number] = reason


def both_times(joined: JoinedLaunches, queue: cl.Queue, device: cl.Device) -> tuple[float, float]:
    """Return the seconds of launches as one, and of each by itself, timed in turn.

    The least of several means. Inferences that go on beside it wait for some milliseconds at a
    time: while they did not, MobileNetV2 took 0.55 ms as one and 0.41 launch by launch on an H200,
    0.21 and 0.47 without them.
    """
    ways: tuple[Callable[[cl.Queue], None], ...] = (joined.enqueue, joined.enqueue_one_by_one)
    found: list[list[float]] = [[], []]
    warm = time.perf_counter() + _WARM_UP_SECONDS
    while True:
        for way in ways:
            way(queue)
            queue.finish()
        if time.perf_counter() >= warm:
            break
    for _ in range(_ROUNDS):
        for way, times in zip(ways, found, strict=True):
            with turn_of(device).lock, device.enqueuing:
                way(queue)  # behind what others began before
                queue.finish()
                begin = time.perf_counter()
                for _ in range(_RUNS):
                    way(queue)
                    queue.finish()
                times.append((time.perf_counter() - begin) / _RUNS)
    one, many = map(min, found)
    return one, many
