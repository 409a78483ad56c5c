"""Compiler: makes plans of networks for one device, by the stages of `stages.py`."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from polydevice.bounds import Bounds, within
from polydevice.errors import KernelBuildError
from polydevice.executable_network import ExecutableNetwork
from polydevice.memory_budget import MemoryBudget
from polydevice.network import Network
from polydevice.plugin import Services
from polydevice.runtime.plan_cache import Shapes
from polydevice.symbolic_size import UntraceableError, is_symbolic
from polydevice.symbolic_trace import Trace
from polydevice_gpu import cl
from polydevice_gpu.compiler.device_target import target_of
from polydevice_gpu.compiler.joining import joined_behind, joins_behind, rules_for
from polydevice_gpu.compiler.new_shapes.filling import FilledContents
from polydevice_gpu.compiler.new_shapes.template import PlanTemplate, why_for_one_size
from polydevice_gpu.compiler.plan_stages import UPLOADING, NotBuiltError, PlanWork
from polydevice_gpu.compiler.preparation import Prepared
from polydevice_gpu.compiler.query import unsupported_nodes
from polydevice_gpu.compiler.settings import CompileSettings
from polydevice_gpu.compiler.stages import GRAPH, PLAN, PREPARE, SPECIALISE, build_graph
from polydevice_gpu.graph import GpuGraph, Memory
from polydevice_gpu.kernels.target import Target
from polydevice_gpu.one_launch.choose import FEWEST
from polydevice_gpu.runtime.plan import MadeContents, Plan
from polydevice_gpu.runtime.trials.joining_trial import faster_of
from polydevice_gpu.runtime.weights import WeightStore
from polydevice_gpu.tuning.tuner import Tuner


class Compiler:
    """Compiles networks for one device.

    Attributes:
        device: the opened device.
        target: what kernels know of it.
        settings: what the configuration says about compiling.
        services: evaluates constants, and loads what runs on the host.
        builder: builds and caches programs.
        load_part: loads a part of a network on the device; None where the host computes all that
            is behind late sizes.
    """

    load_part: Callable[[Network], ExecutableNetwork] | None = None

    def __init__(
        self,
        device: cl.Device,
        settings: CompileSettings,
        services: Services,
        builder: cl.ProgramBuilder | None = None,
    ) -> None:
        """Prepare to compile; without a builder, programs are kept nowhere."""
        self.device = device
        self.target = target_of(device)
        rules = rules_for(settings, device)
        may_join = not rules.refuses_all()
        side_by_side = may_join and not rules.alone
        self.settings = replace(settings, may_join=may_join, side_by_side=side_by_side)
        self.services = services
        self.builder = builder or cl.ProgramBuilder(device)

    @property
    def builds_ahead(self) -> bool:
        """Whether a network of unknown sizes has programs for likely ones, for others to run.

        Processor cores have kernels that serve nearly all sizes, and no time to spare for others.
        """
        tuner = self.settings.tuner
        return self.target.is_throughput and (tuner is None or not tuner.mode.times)

    def prepare(self, network: Network) -> Prepared:
        """Do what is the same for all shapes.

        Args:
            network: the plugin's own copy, which is changed.

        Raises:
            UnsupportedNetworkError: what the configuration asks for is not possible with it.
            ModelLimitError: for a value that is too large for the device.
        """
        prepared = Prepared(network, self.device, self.services, self.settings, self.load_part)
        for stage in PREPARE:
            stage(prepared)
        return prepared

    def unsupported_nodes(self, network: Network) -> dict[str, str]:
        """Return layer name to reason for the layers that no kernel takes; see `query`."""
        custom_layers = self.settings.custom_layers
        return unsupported_nodes(network, self.device, self.services.evaluate, custom_layers)

    def plan(
        self,
        prepared: Prepared,
        shapes: Shapes,
        weights: WeightStore,
        memory: MemoryBudget,
        *,
        stand_in: bool = False,
        alone: bool = False,
    ) -> Plan:
        """Compile a network for these shapes.

        Args:
            prepared: what `prepare` returned.
            shapes: of inputs and variables, in the network's order.
            weights: uploads constants, those of all plans once.
            memory: limit of what layers on the host may hold.
            stand_in: whether programs that are built already stand in for those that are not,
                which the plan then says.
            alone: whether it is to be for these shapes alone, whatever templates there are.

        Raises:
            UnsupportedNetworkError: listing every node that no kernel takes.
            NetworkError: the network does not take these shapes.
            ModelLimitError: for a value that is too large for the device.
        """

        def make(shapes: Shapes) -> Plan:
            return self._plan_for(prepared, shapes, weights, memory, stand_in=stand_in)

        def trace(shapes: Shapes, notes: Trace) -> PlanTemplate | None:
            return self._template(make, shapes, notes)

        if alone:
            return make(shapes)
        templates, tuner = prepared.templates, self.settings.tuner
        plan = templates.plan(shapes, make, trace)
        if plan.template is None:
            plan.may_serve = templates.may_learn(shapes)
        elif tuner is not None and self._has_others(tuner, plan):
            return make(shapes)
        return plan

    def _has_others(self, tuner: Tuner, plan: Plan) -> bool:
        """Whether a tuner knows choices for these sizes that a plan, filled in, does not have."""
        template, contents = plan.template, plan.contents
        assert isinstance(template, PlanTemplate)
        assert isinstance(contents, FilledContents)
        template.lookups = tuner.lookups(template.source.graph, self.device, template.lookups)
        nodes = map(contents.node, template.lookups.nodes(contents.sizes))
        return tuner.has_others(nodes, self.device)

    def learn(
        self,
        prepared: Prepared,
        shapes: Shapes,
        weights: WeightStore,
        memory: MemoryBudget,
        pause: Callable[[], None] | None = None,
        *,
        is_general: bool = False,
    ) -> PlanTemplate | None:
        """Make a template of the class of sizes that these shapes are of, with all its programs.

        Args:
            prepared: what `prepare` returned.
            shapes: of inputs and variables, in the network's order.
            weights: uploads constants.
            memory: limit of what layers on the host may hold.
            pause: called again and again; `Pauses` beside inferences.
            is_general: whether it is to serve as many sizes as possible.
        """

        def make(shapes: Shapes) -> Plan:
            return self._plan_for(prepared, shapes, weights, memory, stand_in=False)

        def trace(shapes: Shapes, notes: Trace) -> PlanTemplate | None:
            return self._template(make, shapes, notes)

        template = prepared.templates.learn(shapes, trace, pause, is_general=is_general)
        assert template is None or isinstance(template, PlanTemplate)
        return template

    def _template(
        self, make: Callable[[Shapes], Plan], shapes: Shapes, notes: Trace
    ) -> PlanTemplate | None:
        """Make a template for symbolic sizes; None where others stand in for its programs."""
        try:
            plan, pool = make(shapes), self.settings.memory_pool
            # A processor is the host's: six networks took 1.3 to 6 times as long with layers.
            return PlanTemplate(plan, notes, pool, in_lockstep=self.target.is_throughput)
        except NotBuiltError:
            return None

    def join(
        self,
        prepared: Prepared,
        shapes: Shapes,
        plan: Plan,
        weights: WeightStore,
        memory: MemoryBudget,
        goes_on: Callable[[], bool],
    ) -> Plan | None:
        """Return what takes the place of a plan that has run often: one launch, if that is faster.

        Args:
            prepared: what `prepare` returned.
            shapes: of the plan.
            plan: is not changed.
            weights: uploads constants.
            memory: limit of what layers on the host may hold.
            goes_on: asked ten times a second while programs are built.

        Returns:
            The plan; None where nobody waits for it any longer.
        """
        known = prepared.joined_kernels
        try:
            made = joined_behind(plan, self.settings, self.builder, known, goes_on)
        except KernelBuildError as error:
            reason = f"their kernel was not built: {error}".partition("\n")[0]
            made = replace(plan, apart=dict(plan.apart))
            made.keep_apart(reason)
        if made is None:
            return None

        def launched() -> Plan:
            varies = joins_behind(self.settings, self._target(prepared))
            if varies or not self.settings.side_by_side:
                return replace(plan, may_join=False)  # which was made without regard to that
            with cl.compiling_aside(goes_on):
                return self._launched(prepared, shapes, weights, memory)

        return faster_of(made, launched, self.builder.cache)

    def _plan_for(
        self,
        prepared: Prepared,
        shapes: Shapes,
        weights: WeightStore,
        memory: MemoryBudget,
        *,
        stand_in: bool,
    ) -> Plan:
        """Make a plan stage by stage; of its own accord launches run as one where that is faster.

        Raises:
            UntraceableError: sizes are symbolic, and a layer is planned for numbers alone.
        """
        settings = self.settings
        given = prepared, shapes, weights, memory
        plan = self._made(*given, settings, stand_in=stand_in)
        if settings.single_launch != "AUTO" or not settings.may_join or plan.may_join:
            return plan
        if not plan.joined and sum(len(step.launches) for step in plan.launching) < FEWEST:
            return plan  # nothing of it was made for neighbours
        if not (plan.joined or settings.side_by_side):
            return plan

        def launched() -> Plan:
            return self._launched(*given) if settings.side_by_side else replace(plan, joined={})

        return faster_of(plan, launched, self.builder.cache)

    def _launched(
        self, prepared: Prepared, shapes: Shapes, weights: WeightStore, memory: MemoryBudget
    ) -> Plan:
        """Make the plan of a network whose launches are never to become one."""
        apart = replace(self.settings, single_launch="NO", may_join=False, side_by_side=False)
        return self._made(prepared, shapes, weights, memory, apart, stand_in=False)

    def _made(
        self,
        prepared: Prepared,
        shapes: Shapes,
        weights: WeightStore,
        memory: MemoryBudget,
        settings: CompileSettings,
        *,
        stand_in: bool,
    ) -> Plan:
        """Make a plan stage by stage; see `_plan_for`."""
        graph, target = self._graph(prepared, shapes, settings)
        if any(is_symbolic(size) for shape in shapes for size in shape or ()):
            reason = next(filter(None, map(why_for_one_size, graph.nodes)), "")
            if reason:
                raise UntraceableError(reason)
        with within(Bounds(memory=memory)):  # which layers on the host share
            constants = weights.for_plan(prepared.constants)
            work = self._work(graph, target, settings, constants, stand_in)
            work.parts, work.made = prepared.parts, prepared.choices
            return self._plan(work)

    def _target(self, prepared: Prepared) -> Target:
        return replace(self.target, sizes_vary=prepared.varies)

    def _graph(
        self, prepared: Prepared, shapes: Shapes, settings: CompileSettings
    ) -> tuple[GpuGraph, Target]:
        """Return the finished graph for these shapes, and what it is made for."""
        network = prepared.folded.clone()
        network.evaluate = self.services.evaluate
        for stage in SPECIALISE:
            stage(prepared, network, shapes)
        target = self._target(prepared)
        return build_graph(network, target, self.services.evaluate, settings), target

    def _work(
        self,
        graph: GpuGraph,
        target: Target,
        settings: CompileSettings,
        weights: WeightStore,
        stand_in: bool,
        outside: AbstractSet[Memory] = frozenset(),
        programs: dict[str, cl.Program] | None = None,
    ) -> PlanWork:
        """Begin the plan of a graph; that of a body shares programs with the one around."""
        built = {} if programs is None else programs

        def compile_body(body: GpuGraph, outside: AbstractSet[Memory]) -> Plan:
            work = self._work(body, target, settings, weights, stand_in, outside, built)
            return self._plan(work)

        return PlanWork(
            *(graph, target, self.builder, weights, self.services, settings),
            *(compile_body, outside, built, len(GRAPH) + 1, stand_in),
        )

    def _plan(self, work: PlanWork) -> Plan:
        """Make the plan that was begun."""
        with ThreadPoolExecutor(UPLOADING, "polydevice-upload") as work.uploaders:
            try:
                for stage in PLAN:
                    stage(work)
            except BaseException:
                work.uploaders.shutdown(wait=False, cancel_futures=True)
                raise
        assert work.arena is not None
        contents = MadeContents(work.graph, work.steps)
        plan = Plan(self.device, contents, work.arena, work.weights, work.compiled)
        plan.joined, plan.apart = work.joined, work.apart
        plan.wanted, plan.may_join = work.wanted, work.may_join
        for inner in plan.inner_plans:
            plan.programs_compiled += inner.programs_compiled
            plan.wanted.update(inner.wanted)
            more = inner.arena.sum_bytes - inner.arena.size_bytes
            plan.arena = replace(plan.arena, more_bytes=plan.arena.more_bytes + more)
        return plan
