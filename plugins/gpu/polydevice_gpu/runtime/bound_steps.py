"""BoundSteps: the steps of a plan with memory and kernel objects.

What a request replays between its inputs and outputs, and a loop in every iteration.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.runtime.layer_times import LayerTime
from polydevice_gpu import cl
from polydevice_gpu.graph import GpuNode, Memory, Place, Value
from polydevice_gpu.one_launch.joined_launches import JoinedLaunches, WaitInVainError
from polydevice_gpu.one_launch.stretch import Stretch
from polydevice_gpu.runtime.backlog import Backlog
from polydevice_gpu.runtime.filled_stretch import FilledStretch
from polydevice_gpu.runtime.host import HostRun, Requests
from polydevice_gpu.runtime.layer_times import Times, time_of
from polydevice_gpu.runtime.plan import HostStep, NestedStep, Plan, Step, argument_of
from polydevice_gpu.runtime.transfer import Transfer

Use = Callable[[cl.Buffer], None]
"""Lets launches read or write another buffer than before."""

OnHost = dict[Value, Array]
"""Values of one run that the host has."""


class BoundNested(Protocol):
    """A loop or If with memory."""

    @property
    def uses_host(self) -> bool:
        """Whether the host has to wait for a value, or computes layers."""

    def enqueue(self, queue: cl.Queue, on_host: OnHost) -> None:
        """Run the bodies; adds to `on_host` what is not for device memory."""

    def times(self) -> Times:
        """Return the times of the last run: of the layer, and of those in its bodies."""


class BoundSteps:
    """A plan's steps, ready to run any number of times, one after the other."""

    def __init__(
        self,
        plan: Plan,
        blocks: Sequence[cl.Buffer],
        backlog: Backlog,
        given: Mapping[Memory, cl.Buffer] | None = None,
        requests: Requests | None = None,
    ) -> None:
        """Set every kernel argument.

        Args:
            plan: what to run.
            blocks: those of its arena.
            backlog: keeps count of what loops enqueue.
            given: memory of inputs and outputs that lies elsewhere.
            requests: of what the host computes, which other plans use, too.
        """
        self.plan = plan
        self._requests = requests
        self.backlog = backlog
        self._blocks = blocks
        self._regions: dict[Memory, cl.Buffer] = dict(given or {})
        self._stretches: list[cl.LaunchList | HostRun | BoundNested] = []
        self._timed: dict[int, list[int]] = {}  # stretch → its steps
        contents = plan.contents
        ports = (*contents.inputs.values(), *contents.outputs.values())
        self._uses: dict[Memory, list[Use]] = {
            value.memory: [] for value in ports if value.memory is not None
        }
        self._crossings: dict[Value, tuple[Transfer, Array]] = {}
        copies = plan.device.capabilities.kernel_copies
        filled = contents.stretches() if copies and not plan.joined else None
        with plan.binding:
            self._make_kept(plan.steps if filled is None else filled)
            if filled is not None:
                self._add_filled(filled)
            else:
                for number, step in enumerate(plan.steps):
                    self._add(number, step, plan.joined.get(number))
        self.joined = [each for each in self._stretches if isinstance(each, JoinedLaunches)]
        """What runs several launches as one."""
        for each in self.joined:
            each.complete()
        self.launch_lists = [each for each in self._stretches if isinstance(each, cl.LaunchList)]
        """Launches that follow each other, in execution order."""
        is_all = len(self.launch_lists) == len(self._stretches)
        self.launches_only = self.launch_lists if is_all else None
        """All there is, where nothing waits and nothing is copied."""

    def _add_filled(self, stretches: Sequence[FilledStretch | HostStep]) -> None:
        """Add launches that were filled in, each stretch at once."""
        plan, count = self.plan, 0
        for each in stretches:
            if isinstance(each, HostStep):
                self._add(count, each, None)
                count += 1
                continue
            launches = each.bind(plan.device, plan.weights, self.region)
            for word, memory in each.memories.items():
                if memory in self._uses:
                    for use in each.table.uses[word]:
                        self.watch(memory, functools.partial(launches.set_argument, *use))
            steps = len(each.table.steps)
            self._timed[len(self._stretches)] = list(range(count, count + steps))
            self._stretches.append(launches)
            count += steps

    def _add(self, number: int, step: Step | HostStep | NestedStep, joined: Stretch | None) -> None:
        """Add launches to the present stretch, or something else as a stretch of its own."""
        if isinstance(step, HostStep):
            self._stretches.append(HostRun(step.group, step.executable, step.spare, self._requests))
            return
        if isinstance(step, NestedStep):
            self._stretches.append(step.bind(self))
            return
        launches = self._launches_of(joined)
        self._timed.setdefault(len(self._stretches) - 1, []).append(number)
        self.add_launches(launches, step, self.region)

    def _launches_of(self, joined: Stretch | None) -> cl.LaunchList:
        """Return the present stretch if launches of a step belong to it, else a new one."""
        last = self._stretches[-1] if self._stretches else None
        if isinstance(last, cl.LaunchList):
            present = last.stretch if isinstance(last, JoinedLaunches) else None
            if present is joined:
                return last
        device = self.plan.device
        made = JoinedLaunches(device, joined) if joined else cl.LaunchList(device)
        self._stretches.append(made)
        return made

    def _make_kept(self, parts: Sequence[Step | HostStep | NestedStep | FilledStretch]) -> None:
        """Make memory that launches keep, all at once: 14 times 40 µs otherwise (PoCL)."""
        found: list[Memory] = []
        for part in parts:
            if isinstance(part, FilledStretch):
                found += part.memories.values()
            elif isinstance(part, Step):
                found += part.scratch.values()
        kept = dict.fromkeys(each for each in found if each.place is Place.KEPT)
        memory = self.plan.device.memory
        step = memory.region_alignment_bytes
        sizes = [-(-each.bytes // step) * step for each in kept]
        if not sizes:
            return
        whole, start = memory.zeros(sum(sizes), "kept memory"), 0
        for each, size in zip(kept, sizes, strict=True):
            self._regions[each] = whole.region(start, each.bytes, each.name)
            start += size

    def check(self) -> None:
        """See that what ran as one launch ended, after the queue got there.

        Raises:
            WaitInVainError: one did not; all of this plan launch one by one from now on.
        """
        try:
            for joined in self.joined:
                joined.check()
        except WaitInVainError:
            for joined in self.joined:
                joined.give_up(joined.stretch.failed or "others of the network did not end")
            raise

    def clear_kept(self, queue: cl.Queue) -> None:
        """Make memory that launches keep for the next run as it was before the first one."""
        for memory, buffer in self._regions.items():
            if memory.place is Place.KEPT:
                queue.upload(buffer, np.zeros(memory.bytes, np.uint8))

    def add_launches(
        self, launches: cl.LaunchList, step: Step, region: Callable[[Memory], cl.Buffer]
    ) -> int:
        """Add a step's launches with their arguments; return the number of the first.

        Those that read or write inputs and outputs of the plan follow when these are connected.

        Args:
            launches: where to add them.
            step: what they do.
            region: returns the buffer of a piece of memory that is no weight.
        """
        first = len(launches)
        for launch, kernel in zip(step.launches, step.kernels, strict=True):
            given = launch.arguments
            arguments = [argument_of(a, step.scratch, self.plan.weights, region) for a in given]
            name = f"{kernel.name} of {step.node.name}"
            sizes = launch.global_size, launch.local_size
            number = launches.add(kernel, *sizes, arguments, name=name)
            for position, argument in enumerate(given):
                memory = argument.memory if isinstance(argument, Value) else argument
                if isinstance(memory, Memory) and memory in self._uses:
                    self.watch(memory, functools.partial(launches.set_argument, number, position))
                    if isinstance(launches, JoinedLaunches):
                        launches.may_change(number, position, memory)
        return first

    def watch(self, memory: Memory, use: Use) -> None:
        """Have a function called when memory of an input or output is connected elsewhere."""
        if memory in self._uses:
            self._uses[memory].append(use)

    def connect(self, memory: Memory, buffer: cl.Buffer) -> None:
        """Make a buffer the memory of an input or output."""
        if self.region(memory) is buffer:
            return
        self._regions[memory] = buffer
        for use in self._uses[memory]:
            use(buffer)

    def region(self, memory: Memory) -> cl.Buffer:
        """Return the buffer behind a piece of memory: of the arena, own, or what was connected."""
        found = self._regions.get(memory)
        if found is None:
            if memory.place is Place.KEPT:
                found = self.plan.device.memory.zeros(memory.bytes, memory.name)
            else:
                found = self._blocks[self.plan.arena.places[memory]]
            self._regions[memory] = found
        return found

    @functools.cached_property
    def _read(self) -> set[Value]:
        """What launches and bodies read, or the caller."""
        return self.plan.contents.read()

    @property
    def uses_host(self) -> bool:
        """Whether the host computes layers, or waits for values that say how to go on."""
        return any(
            isinstance(stretch, HostRun)
            or (not isinstance(stretch, cl.LaunchList) and stretch.uses_host)
            for stretch in self._stretches
        )

    def run(self, queue: cl.Queue, on_host: OnHost) -> None:
        """Enqueue all steps; waits only where the host has to know or compute something.

        Args:
            queue: in order.
            on_host: values that the host has; those that it computes are added.

        Raises:
            InferCancelledError: (or InferTimeoutError) the inference may not go on.
            WaitInVainError: what ran as one launch before host or loop did not end.
        """
        check = current_bounds().check
        if self.launches_only is not None:
            for launches in self.launches_only:
                check()
                launches.enqueue(queue)
            return
        for stretch in self._stretches:
            check()
            if self.joined and not isinstance(stretch, cl.LaunchList):
                queue.finish()
                self.check()  # before the host reads what is void, or a loop goes by it
            if isinstance(stretch, HostRun):
                self._run_host(stretch, queue, on_host)
            elif isinstance(stretch, cl.LaunchList):
                stretch.enqueue(queue)
            else:
                stretch.enqueue(queue, on_host)

    def _run_host(self, step: HostRun, queue: cl.Queue, on_host: OnHost) -> None:
        """Fetch what a group reads, compute it, and bring back what launches read."""
        self.fetch(queue, step.group.inputs, on_host)
        with self.backlog.lent(queue):
            results = step.run([on_host[value] for value in step.group.inputs])
        for value, result in zip(step.group.outputs, results, strict=True):
            on_host[value] = result
            if not value.on_host and value.elements and value in self._read:
                port, array = self._crossing(value)
                np.copyto(array, result)
                queue.upload(self.region(port.memory), port.to_device(array), wait=False)

    def fetch(self, queue: cl.Queue, values: Sequence[Value], on_host: OnHost) -> None:
        """Wait for values, and bring those that the host does not have."""
        waiting = []
        for value in values:
            if value.constant is not None:
                on_host[value] = value.constant
            elif value not in on_host:
                port, array = self._crossing(value)
                if value.elements:
                    queue.download(self.region(port.memory), port.staging(array), wait=False)
                on_host[value] = array
                waiting.append((port, array))
        queue.finish()
        for port, array in waiting:
            port.finish(array)

    def _crossing(self, value: Value) -> tuple[Transfer, Array]:
        """Return the place of a value that host and device exchange, and host memory for it."""
        if value not in self._crossings:
            array = np.empty(value.shape, value.element_type.dtype)
            self._crossings[value] = (Transfer(value), array)
        return self._crossings[value]

    def layer_times(self) -> dict[GpuNode, LayerTime]:
        """Return how long each node took in the last run; needs a profiling queue."""
        found: dict[GpuNode, LayerTime] = {}
        for number, stretch in enumerate(self._stretches):
            if isinstance(stretch, cl.LaunchList):
                spent: dict[GpuNode, list[cl.LaunchTime]] = {}
                steps = [self.plan.steps[step] for step in self._timed[number]]
                nodes = [s.node for s in steps if isinstance(s, Step) for _ in s.kernels]
                for node, time in zip(nodes, stretch.profile(), strict=True):
                    spent.setdefault(node, []).append(time)
                found.update({node: time_of(times) for node, times in spent.items()})
            else:
                found.update(stretch.times())
        return found

    def times(self) -> list[cl.LaunchTime]:
        """Return when each launch of the last run, loops apart, was on the device."""
        return [time for launches in self.launch_lists for time in launches.profile()]
