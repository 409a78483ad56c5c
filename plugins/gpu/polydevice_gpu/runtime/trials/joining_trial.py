"""Whether a plan of one launch is faster than one of many: both are timed when it is made.

From and to device memory, and with the copies of inputs and outputs that lie on the host. The host
enqueues launches while an input is copied and others run; one launch begins when all is there.
EfficientNet-Lite0 in f32 from arrays on the host took 0.522 ms as one and 0.510 launch by launch
(H200), where without copies one launch was faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from polydevice.dtype import Array
from polydevice.errors import DeviceMemoryError, KernelBuildError
from polydevice.files.file_cache import FileCache, digest_of
from polydevice_gpu import cl
from polydevice_gpu.graph import Value
from polydevice_gpu.one_launch.joined_launches import WaitInVainError
from polydevice_gpu.one_launch.turns import turn_of
from polydevice_gpu.runtime.backlog import Backlog
from polydevice_gpu.runtime.bound_steps import BoundSteps
from polydevice_gpu.runtime.plan import HostStep, NestedStep, Plan, Step
from polydevice_gpu.runtime.transfer import Transfer

Way = Callable[[cl.Queue], None]
"""Enqueues an inference, or a part of one."""

_ROUNDS, _RUNS = 15, 5
_WARM_UP_SECONDS = 0.1
"""A GPU that had nothing to do is slow at first, and the host is not: the clock of an idle H200 is
345 MHz, and 1,980 under load."""
_FASTER = b"one launch is faster"
_GAIN, _LOSS = 0.97, 1.05
"""What joining has to bring in the mean of both cases, and what it may cost in one of them: beyond
the first, what is timed is noise. ResNet-50 in int8 took 0.373 ms launch by launch and 0.309 as one
on an H200, and 0.410 and 0.421 from arrays on the host."""


def faster_of(plan: Plan, launched: Callable[[], Plan], known: FileCache | None = None) -> Plan:
    """Return a plan whose launches run as one where that is faster, else the one that never joins.

    A plan that may become one launch is not the fastest one launch by launch: layers share
    functions, and normalisations are computed twice. Both run on zeros, in memory that is given
    back.

    Args:
        plan: what joined of it, and why the rest did not, is decided.
        launched: makes the plan that `GPU_SINGLE_LAUNCH` = NO has; not asked where one launch is
            known to be faster.
        known: keeps what was faster, which is not timed again: that takes 0.2 s. What was not is
            timed whenever it is loaded, as others may have used the device.
    """
    key = _key(plan) if plan.joined and known is not None else b""
    if key and known is not None and known.load(key) == _FASTER:
        return plan
    try:
        other = launched()
    except (DeviceMemoryError, KernelBuildError) as error:
        reason = str(error).partition("\n")[0]
        plan.apart.update(dict.fromkeys(plan.joined, f"nothing could be timed beside: {reason}"))
        plan.joined.clear()
        return plan
    try:
        slower = _slower(plan, other) if plan.joined else ""
    except DeviceMemoryError as error:
        slower = f"there was no memory to time them: {error}"
    if plan.joined and not slower:
        if known is not None:
            known.store(key, _FASTER)
        return plan
    other.apart = _reasons(plan, other, slower)
    other.tried |= plan.programs  # the next to load it wants them again
    other.programs_compiled += plan.programs_compiled
    return other


def _key(plan: Plan) -> bytes:
    """Return the digest of all that decides what is faster: kernels, their device, sizes."""
    values = (*plan.graph.inputs.values(), *plan.graph.outputs.values())
    parts: list[bytes | str] = [f"{value.element_type} {value.shape}" for value in values]
    for stretch in dict.fromkeys(plan.joined.values()):
        parts += [stretch.kernel.program.key, str(stretch.groups)]
        for stage in stretch.stages:
            parts += [stage.launch.text, str(stage.groups)]
    return digest_of("one launch beside a plan without", *parts)


def _reasons(plan: Plan, other: Plan, slower: str) -> dict[int, str]:
    """Return why each step of the other plan is not one with its neighbours."""
    known = {_name(plan.steps[number]): reason for number, reason in plan.apart.items()}
    usual = slower or next(iter(known.values()), "")
    return {number: known.get(_name(step), usual) for number, step in enumerate(other.steps)}


def _name(step: Step | HostStep | NestedStep) -> str:
    return step.group.nodes[0].name if isinstance(step, HostStep) else step.node.name


def _slower(plan: Plan, other: Plan) -> str:
    """Say where a plan is slower, with copies or without; empty where it pays in the mean."""
    device = plan.device
    bound = [
        BoundSteps(
            each,
            [device.memory.zeros(size, "trial of an arena") for size in each.arena.blocks],
            Backlog(),
        )
        for each in (plan, other)
    ]
    copied = [_with_copies(each) for each in bound]
    with device.queue() as queue:
        one, many, one_copied, many_copied = times((*map(_launches, bound), *copied), queue, device)
        try:
            bound[0].check()
        except WaitInVainError as error:
            return f"a trial failed: {error}"
    part, part_copied = one / many, one_copied / many_copied
    if part * part_copied < _GAIN**2 and max(part, part_copied) < _LOSS:
        return ""
    where = ""
    if part < part_copied:
        one, many, where = one_copied, many_copied, " with inputs and outputs on the host"
    return f"they took {many * 1e6:.0f} us one by one, and {one * 1e6:.0f} as one{where}"


def _launches(bound: BoundSteps) -> Way:
    """Return what enqueues all that is launched; not what the host or loops do between."""

    def run(queue: cl.Queue) -> None:
        for launches in bound.launch_lists:
            launches.enqueue(queue)

    return run


def _with_copies(bound: BoundSteps) -> Way:
    """Return what also copies the plan's inputs and outputs, as for arrays on the host."""
    graph, way = bound.plan.graph, _launches(bound)

    def staged(values: Iterable[Value]) -> list[tuple[cl.Buffer, Array]]:
        pairs = []
        for value in values:
            if not value.on_host and value.elements:
                port = Transfer(value)
                array = port.staging(np.empty(value.shape, value.element_type.dtype))
                array.fill(0)  # pages that nobody wrote are all the same, and copied in no time
                pairs.append((bound.region(port.memory), array))
        return pairs

    inputs, outputs = staged(graph.inputs.values()), staged(graph.outputs.values())

    def run(queue: cl.Queue) -> None:
        for buffer, array in inputs:
            queue.upload(buffer, array, wait=False)
        way(queue)
        for buffer, array in outputs:
            queue.download(buffer, array, wait=False)

    return run


def times(ways: Sequence[Way], queue: cl.Queue, device: cl.Device) -> tuple[float, ...]:
    """Return the seconds of each way, timed in turn.

    The least of several means. Inferences that go on beside it wait for some milliseconds at a
    time: while they did not, MobileNetV2 took 0.55 ms as one and 0.41 launch by launch on an H200,
    0.21 and 0.47 without them.
    """
    found: list[list[float]] = [[] for _ in ways]
    warm = time.perf_counter() + _WARM_UP_SECONDS
    while True:
        for way in ways:
            way(queue)
            queue.finish()
        if time.perf_counter() >= warm:
            break
    for _ in range(_ROUNDS):
        for way, means in zip(ways, found, strict=True):
            with turn_of(device).lock, device.enqueuing:
                way(queue)  # behind what others began before
                queue.finish()
                begin = time.perf_counter()
                for _ in range(_RUNS):
                    way(queue)
                    queue.finish()
                means.append((time.perf_counter() - begin) / _RUNS)
    return tuple(map(min, found))
