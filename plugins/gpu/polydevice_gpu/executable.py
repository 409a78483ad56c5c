"""GpuExecutable: a network loaded on a device; one plan per concrete set of input shapes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from polydevice.errors import DeviceError, InferCancelledError, ModelFormatError, PolydeviceError
from polydevice.executable_network import ExecutableNetwork
from polydevice.exported import export_network
from polydevice.files.container import pack
from polydevice.inspection.placement import Placement
from polydevice.memory_budget import MemoryBudget
from polydevice.network import Network
from polydevice.node import Node
from polydevice.ops.io import Constant, Parameter, Result
from polydevice.profiling import LayerCount
from polydevice.runtime.executor import Executor
from polydevice.runtime.follower import Follower
from polydevice.runtime.plan_cache import PlanCache, Shapes, plans_limit
from polydevice_gpu import cl
from polydevice_gpu.blobs.context import GpuContext
from polydevice_gpu.cl.queues.turn_lock import TurnLock
from polydevice_gpu.compiler.compiler import Compiler
from polydevice_gpu.compiler.new_shapes.pauses import Pauses
from polydevice_gpu.compiler.new_shapes.specialiser import RUNS, TWICE, Specialiser
from polydevice_gpu.compiler.new_shapes.template import PlanTemplate
from polydevice_gpu.compiler.preparation import Prepared
from polydevice_gpu.compiler.query import likely_shapes, takes
from polydevice_gpu.host_layers import why_always_on_host, why_left_on_host
from polydevice_gpu.options import GpuOptions
from polydevice_gpu.reports.execution_graph import execution_graph
from polydevice_gpu.reports.report import explanation, layer_counts
from polydevice_gpu.runtime.plan import HostStep, NestedStep, Plan
from polydevice_gpu.runtime.runner import GpuRunner
from polydevice_gpu.runtime.stream_queues import StreamQueues
from polydevice_gpu.runtime.trials.plan_trial import is_faster
from polydevice_gpu.runtime.weights import WeightStore
from polydevice_gpu.tuning.tuner import Tuner, TuningMode
from polydevice_gpu.tuning.tuning_file import TuningFile

KERNELS = "compiled kernels"
"""Name of the part of an exported network that holds program binaries by their keys."""

CHOICES = "choices of kernels"
"""Likewise of the kernels that tuning chose, as rows of kind, text, kernel and mode."""


class GpuExecutable(ExecutableNetwork):
    """A compiled network on one OpenCL device."""

    def __init__(
        self,
        prepared: Prepared,
        compiler: Compiler,
        options: GpuOptions,
        context: GpuContext,
        executor: Executor | None = None,
    ) -> None:
        """Compile a network; one with dynamic shapes gets its plans when its shapes are known.

        Args:
            prepared: the network, by this compiler.
            compiler: makes its plans.
            options: the configuration.
            context: whose memory, and queue if the user gave one, the network uses.
            executor: shared by several networks, or None.

        Raises:
            UnsupportedNetworkError: listing every node that the device cannot run.
            OptionValueError: for a priority or throttle that the device does not have, or for
                what a user's queue makes impossible.
        """
        network = prepared.network
        streams = 1 if context.has_queue else options.streams
        name = context.device_name
        super().__init__(network, name, options, streams=streams, executor=executor)
        self.context = context
        self.profiling = options.perf_count
        self._prepared = prepared
        self._compiler = compiler
        self._host_nodes = {  # a plan says what the host does besides, once it is made
            node.name: reason
            for node in network.nodes()
            if _is_computed(node) and (reason := why_always_on_host(node))
        }
        self.batch_limit = prepared.batch_limit
        """The network's batch, when requests may compute less of it; else 0."""
        self.size_inputs = prepared.size_inputs
        """Inputs whose values stand for their shapes where plans are asked for."""
        self.variables, self.starts = prepared.variables, prepared.starts
        """What requests carry; variable → its first value, None where inputs say it."""
        device = context.device
        own = f"network {network.name!r} on {name}"
        self.device_memory = (
            self.memory
            if self.memory.is_set
            else MemoryBudget(device.facts.global_memory_bytes, own)
        )
        """What the device may hold of the network: a limit that was set is that of host values."""
        self._weights = WeightStore(device, memory=self.device_memory)
        self.plans = PlanCache[Plan](plans_limit(self.device_memory))
        """By the shapes of inputs and then variables; None while one has its initial value."""
        self.inferring: set[object] = set()
        """Runners with an inference under way that is none of the last ones again."""
        self._latest: Plan | None = None
        self._specialiser = Specialiser(compiler.builder, self._remake, self._join, self._patience)
        self._ahead: frozenset[cl.Program] = frozenset()
        """Programs for likely sizes, of a network that leaves its own open."""
        if not prepared.varies:
            self._compile_ahead()
        elif compiler.builds_ahead and not (self.variables or self.size_inputs):
            self._ahead = self._build_ahead()
        self._queues = StreamQueues(context, options, streams)  # last: its context is being made

    def _compile_ahead(self) -> None:
        """Compile for the shapes that the first inferences will have."""
        sizes = [node.output.desc.shape.static for node in self._prepared.network.parameters]  # type: ignore[union-attr]
        starts = [self.starts[variable.name] for variable in self.variables]
        plan = self.plan((*sizes, *(None if start is None else start.shape for start in starts)))
        following = [plan.graph.outputs.get(variable.output) for variable in self.variables]
        if all(value is not None and not value.on_host for value in following):
            self.plan((*sizes, *(value.shape for value in following if value is not None)))

    def _build_ahead(self) -> frozenset[cl.Program]:
        """Build for the likely shapes that the network takes; nothing if it takes none."""
        found: set[cl.Program] = set()
        single = bool(self._prepared.matrices)
        network, has_refused = self._prepared.network, False
        likely = likely_shapes(network, single=single)
        for alternatives in likely:
            is_general = alternatives is likely[0]  # those of odd sizes
            for shapes in alternatives:
                # Once some were refused, others are asked for first: that is less than to plan.
                if has_refused and not takes(network, shapes):
                    continue
                has_refused = True
                with contextlib.suppress(PolydeviceError), np.errstate(all="ignore"):
                    work = self._prepared, shapes, self._weights, self.memory
                    template = self._compiler.learn(*work, is_general=is_general)
                    plan = template.source if template else self._compiler.plan(*work)
                    found |= plan.programs
                    has_refused = False
                    break
        return frozenset(found)

    def placement(self) -> list[Placement]:
        """Say which layers run on the host."""
        graphs = [plan.graph for plan in self.plans.plans()]
        reasons = dict(self._host_nodes)
        for node in (n for graph in graphs for n in graph.nodes if n.on_host and not n.is_late):
            for name in node.origins:
                reasons.setdefault(name, why_left_on_host(node))
        return [
            dataclasses.replace(place, device="CPU", reason=reasons[place.node])
            if place.node in reasons
            else place
            for place in super().placement()
        ]

    def get_context(self) -> GpuContext:
        """Return the context in which the network was loaded."""
        return self.context

    def plan(self, shapes: Shapes) -> Plan:
        """Return the plan for these shapes of inputs and variables, in the network's order.

        Raises:
            InferCancelledError: the network was closed.
        """
        self.check_going_on()
        plan = self.plans.get(shapes, lambda: self._compile(shapes))
        if not plan.is_final:
            self._specialiser.note(shapes, plan)
        return plan

    def _patience(self) -> int:
        """Return how many inferences have to want a choice that their plan has made otherwise.

        On processors many, unless there is one set of shapes: choices cost more than they gain.
        """
        return TWICE if self._compiler.builds_ahead or len(self.plans) < 2 else RUNS

    def _remake(self, shapes: Shapes, plan: Plan) -> None:
        """Put a plan with the programs and choices that it wanted in its place, if it is faster.

        Its class of sizes gets a template, from which that plan and others are filled in.
        """
        self.check_going_on()
        if plan.may_serve and not plan.wanted and self._prepared.templates.serves(shapes):
            plan.may_serve = False  # a template was made while this plan was
            return
        if not (plan.others or plan.wanted or plan.may_serve):
            return  # all choices stay as they are
        learned, alone = None, plan.has_loops_of_sizes
        made = None if plan.may_serve else self._compile(shapes, alone=alone)
        if made is None or (made.others and not alone):
            with np.errstate(all="ignore"):
                work = self._prepared, shapes, self._weights, self.memory
                learned = self._compiler.learn(*work, self._pauses())
            if plan.may_serve and not plan.wanted:
                plan.may_serve = False
                return
            made = self._compile(shapes, alone=alone)
        elif made.template is not None and made.template is plan.template:
            plan.keep_choices()  # which were timed for other sizes meanwhile
            return
        if not is_faster(made, plan):
            if isinstance(plan.template, PlanTemplate):
                plan.template.accepted.add(plan.others)
            if learned is not None:
                self._prepared.templates.drop(learned)
            plan.keep_choices()
            return
        self.plans.remake(shapes, plan, lambda: made)

    def _join(self, shapes: Shapes, plan: Plan, goes_on: Callable[[], bool]) -> None:
        """Put a plan in the place of one that has run often: its launches as one, if faster."""
        self.check_going_on()
        work = self._weights, self.memory, goes_on
        with np.errstate(all="ignore"):  # constants may be infinite, or none
            made = self._compiler.join(self._prepared, shapes, plan, *work)
        if made is not None:
            if made.contents is not plan.contents:
                self._introduce(made)
            self.check_going_on()
            self.plans.remake(shapes, plan, lambda: made)

    def _pauses(self) -> Pauses:
        return Pauses(self._check_wanted, lambda: bool(self.inferring))

    def _check_wanted(self) -> None:
        """Raise InferCancelledError where nobody waits for what is made in the background."""
        self.check_going_on()
        if not threading.main_thread().is_alive():
            raise InferCancelledError("the process ends")

    def _compile(self, shapes: Shapes, *, alone: bool = False) -> Plan:
        varies, first = self._prepared.varies, self.plans.latest() is None
        with np.errstate(all="ignore"):  # constants may be infinite, or none
            plan = self._compiler.plan(
                *(self._prepared, shapes, self._weights, self.memory),
                stand_in=varies and self._compiler.builds_ahead and bool(self._ahead or not first),
                alone=alone,
            )
        self._introduce(plan)
        self.check_going_on()
        return plan

    def _introduce(self, plan: Plan) -> None:
        """Tell a new plan of the model's layers, and followers of what the host does in it."""
        plan.layers = self.layers
        for follower in self.followers:
            _follow_on_host(plan, follower)

    def follow(self, follower: Follower) -> None:
        """Tell a follower of inferences, and of what runs in them on the device and on the host.

        Meanwhile inferences run on other queues, which record times; on a user's queue only whole
        inferences are told.
        """
        self.check_open()
        super().follow(follower)
        self._record()
        for plan in self.plans.plans():
            _follow_on_host(plan, follower)

    def leave(self, follower: Follower) -> None:
        """Tell a follower nothing more."""
        super().leave(follower)
        for plan in self.plans.plans():
            for executable in _on_host(plan):
                executable.leave(follower)
        self._record()

    def _record(self) -> None:
        asked = [follower.batches_every for follower in self.followers]
        self._queues.record(bool(asked), min((every for every in asked if every), default=0))

    def note_plan(self, plan: Plan) -> None:
        """Note which plan the latest timed inference ran."""
        self._latest = plan

    def layer_counts(self, plan: Plan) -> list[LayerCount]:
        """Return a row for every layer of the model, with its time on average."""
        return layer_counts(plan, plan.times.averages())

    def get_exec_graph_info(self) -> Network:
        """Return the graph that runs; with times after an inference under PERF_COUNT.

        Raises:
            DeviceError: for a network with dynamic shapes before its first inference, or closed.
        """
        plan = self.latest_plan()
        return execution_graph(plan, plan.times.averages())

    def explain(self) -> str:
        """Say what became of each layer, and why; one line a layer.

        Raises:
            DeviceError: for a network with dynamic shapes before its first inference, or closed.
        """
        plan, others = self.latest_plan(), None
        if self._prepared.varies:
            others = [other for other in self.plans.plans() if other is not plan]
        return "\n".join([explanation(plan, others), *self.noted_lines])

    def latest_plan(self) -> Plan:
        """Return the plan of the latest timed inference, else the one made or used last.

        Raises:
            DeviceError: for a network with dynamic shapes before its first inference, or closed.
        """
        if (latest := self._latest) is not None:
            return latest
        if (plan := self.plans.latest()) is not None:
            return plan
        self.check_open()
        raise DeviceError(
            f"network {self.name!r} has dynamic shapes and is compiled at its first inference; "
            "infer once, then ask again"
        )

    def queue(self, stream: int) -> tuple[cl.Queue, TurnLock]:
        """Return a stream's queue and the lock to hold while using it."""
        return self._queues.of(stream)

    def note_time(self, plan: Plan, queue: cl.Queue, seconds: float) -> None:
        """Take notice of what an inference took that followers are told of."""
        self._queues.note_time(plan, queue, seconds)

    def export(self) -> bytes:
        """Return network, configuration and compiled kernels, for a device of the same kind.

        Of a network with dynamic shapes, the kernels for the shapes used lately.
        """
        plans = self.plans.plans()
        used = self._ahead.union(*(plan.programs for plan in plans))
        programs = {program.key.hex(): program for program in used}
        kernels = {key: program.binary for key, program in sorted(programs.items())}
        tuner = self._compiler.settings.tuner
        choices = [[*key, *entry] for key, entry in tuner.applied.items()] if tuner else []
        extra = {KERNELS: pack(KERNELS, kernels), CHOICES: json.dumps(choices).encode()}
        return export_network(
            self.device.partition(".")[0], self._prepared.network, self.options, extra
        )

    def metrics(self) -> dict[str, Any]:
        """Two requests per stream, so that one is prepared while the other runs."""
        return {
            "OPTIMAL_NUMBER_OF_INFER_REQUESTS": 2 * self.streams,
            "DEVICE_MEMORY_PEAK_BYTES": self.context.device.memory.peak_bytes,
        }

    def create_runner(self) -> GpuRunner:
        """Make what replays the plans for one request."""
        return GpuRunner(self)

    def stop(self) -> None:
        """Build no further program."""
        self._specialiser.stop()

    def release(self) -> None:
        """Let go of the plans and of the constants on the device."""
        self._specialiser.wait(self.closing_end)
        self._prepared.templates.clear()
        self._prepared.parts.close(self.closing_end)
        self._ahead = frozenset()
        self._queues.finish()
        self.plans.clear()
        self._latest = None
        self._weights.clear()


def choices_from(extra: Mapping[str, bytes]) -> Tuner | None:
    """Return a tuner that makes the choices of an exported network again.

    Raises:
        ModelFormatError: they are not what `GpuExecutable.export` writes.
    """
    made = Tuner(TuningMode.USE_EXISTING, TuningFile(None))
    try:
        rows = json.loads(extra.get(CHOICES, b"[]"))
        for kind, text, kernel, mode in rows:
            made.exported[str(kind), str(text)] = (str(kernel), int(mode))
    except (ValueError, TypeError) as error:
        raise ModelFormatError(f"the exported network is not consistent: {error}") from None
    return made if rows else None


def _on_host(plan: Plan) -> Iterator[ExecutableNetwork]:
    """Yield the networks that the host computes in a plan."""
    for step in plan.steps:
        if isinstance(step, HostStep):
            yield step.executable
        elif isinstance(step, NestedStep):
            for inner in step.plans:
                yield from _on_host(inner)


def _follow_on_host(plan: Plan, follower: Follower) -> None:
    for executable in _on_host(plan):
        executable.follow(follower)


def _is_computed(node: Node) -> bool:
    """Whether a layer is computed in an inference; compiling tells of those with bodies."""
    if isinstance(node.op, (Parameter, Constant, Result)) or node.op.has_bodies:
        return False
    return any(port.desc.constant is None for port in node.outputs)
