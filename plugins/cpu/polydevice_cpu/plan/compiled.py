"""CompiledNetwork: plans by input shapes; RequestPlans: one request's bound plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.errors import ModelFileError
from polydevice.locks import RLock
from polydevice.memory_budget import MemoryBudget
from polydevice.network import Network
from polydevice.runtime.plan_cache import LEAST_BYTES, Bindings, PlanCache, Shapes, plans_limit
from polydevice.runtime.templates import Templates
from polydevice.shape import Shape
from polydevice.symbolic_trace import Trace
from polydevice_cpu.implement import evaluate
from polydevice_cpu.onednn.ahead import ahead
from polydevice_cpu.passes import prepare
from polydevice_cpu.plan.binding.bound import BoundPlan
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.places import SMALL_BYTES, Places
from polydevice_cpu.plan.binding.workspace import Workspace
from polydevice_cpu.plan.building.builder import PlanBuilder, Settings
from polydevice_cpu.plan.building.decisions import Decisions, Unlike
from polydevice_cpu.plan.building.sizes import Sized, Sizes
from polydevice_cpu.plan.building.weights import WeightStore
from polydevice_cpu.plan.garbage import collected_later
from polydevice_cpu.plan.in_tiles import in_tiles, tiles_of
from polydevice_cpu.plan.plan import Plan, PlanParts
from polydevice_cpu.plan.settling import Pauses, Settling
from polydevice_cpu.plan.step import PrimitiveStep, TailStep
from polydevice_cpu.proof.ledger import keep_verdicts

if TYPE_CHECKING:
    from polydevice.ops.control_flow import Iteration
    from polydevice_cpu.plan.binding.loops.growing import Growing
    from polydevice_cpu.plan.binding.loops.rounds import Rounds
    from polydevice_cpu.plan.filling.template import PlanTemplate
    from polydevice_cpu.plan.tails.tail import Tails

BEGINNINGS = 16
"""Sizes with which a loop begins that a request remembers: with other ones, others may be bound."""

PATIENCE = 1
"""Plans that are made with numbers before one is made with formulas."""


MOST_CLASSES = 4
"""Templates for classes of sizes for which another one might have chosen otherwise: plans that have
run often are of one that did not."""


class BodyStore:
    """Compiled bodies of a network's operations, by identity of what they are made of."""

    def __init__(self) -> None:
        self._lock = RLock()  # bodies have bodies
        self._made: dict[int, tuple[Network, CompiledNetwork]] = {}

    def get(self, body: Network, make: Callable[[], CompiledNetwork]) -> CompiledNetwork:
        """Return what is compiled of a body, which is kept so that its identity stays unique."""
        with self._lock:
            known = self._made.get(id(body))
            if known is None:
                known = self._made[id(body)] = (body, make())
            return known[1]

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._made.clear()


def shapes_of(arrays: Sequence[Array]) -> Shapes:
    """Return the key of the plan for these inputs."""
    return tuple([None if array.dtype.hasobject else array.shape for array in arrays])


def _templates(shapes: Sequence[Shape | None]) -> Templates[Plan]:
    """Return none as yet."""
    return Templates[Plan](shapes, patience=PATIENCE, is_one_alike=True)


class CompiledNetwork:
    """A network ready to be planned for any input shapes it admits; shared by its requests."""

    def __init__(
        self,
        network: Network,
        settings: Settings,
        weights: WeightStore,
        memory: MemoryBudget,
        bodies: BodyStore | None = None,
        again: Callable[[], Network] | None = None,
        share: int = 1,
        settling: Settling | None = None,
    ) -> None:
        """Begin without plans.

        Args:
            network: with the passes applied.
            settings: how to plan it.
            weights: where constants are packed.
            memory: of the network.
            bodies: what is compiled of bodies of operations; None for none yet.
            again: makes the network again, from what is kept anyway; None where it is kept.
            share: how many parts of a network share what plans may take.
            settling: of the network that this is a part of.
        """
        self._network: Network | None = network
        self._again = again
        self.settings = settings
        self.weights = weights
        self.memory = memory
        self.bodies = BodyStore() if bodies is None else bodies
        self.decisions = Decisions()
        self.sizes = Sizes(lambda: self.network)
        self.plans_bytes = plans_limit(memory) // share
        self.plans = PlanCache[Plan](self.plans_bytes, LEAST_BYTES // share)
        shapes = [parameter.output.shape for parameter in network.parameters]
        self.templates = _templates(shapes)
        self._shapes = shapes
        self._templates_of_classes: list[PlanTemplate] = []  # by the thread that settles alone
        self._settling = Settling() if settling is None else settling

    @cached_property
    def _tails(self) -> Tails:
        from polydevice_cpu.plan.tails.tail import Tails  # 0.3 MB, for sizes that data tells alone

        are_open = not all(shape is not None and shape.is_static for shape in self._shapes)
        return Tails(self._part, are_shared=are_open, is_limited=self.memory.is_set)

    @property
    def network(self) -> Network:
        """The network with the passes applied; made again where it was let go."""
        network = self._network
        if network is None:
            assert self._again is not None
            network = self._again()
        return network

    def let_go(self) -> bool:
        """Keep plans alone, where the network can be made again: weights are packed in them.

        EfficientNet-Lite0, stored in f16, takes 48 MB so, and 63 with plain weights in f32 besides.

        Returns:
            Whether it can.
        """
        if self._again is None:
            return False
        self._network = None
        steps = [step for plan in self.plans.plans() for step in plan.steps]
        if any(isinstance(step, TailStep) for step in steps):  # which infers nodes of the network
            self.sizes.clear()
        else:
            self.sizes.take_apart()
        self.weights.forget_sources()
        return True

    def plan(self, shapes: Shapes) -> Plan:
        """Return the plan for these input shapes; makes it when they are new.

        Raises:
            NetworkError: when an operation does not accept the shapes.
        """
        plan = self.plans.get(shapes, lambda: self._make(shapes))
        self.note(shapes, plan)
        return plan

    def note(self, shapes: Shapes, plan: Plan, runs: int = 1) -> None:
        """Take notice that a plan for these shapes runs, or has run so often."""
        if not plan.is_final:
            self._settling.note(shapes, plan, self._replace, runs)

    def _replace(self, shapes: Shapes, plan: Plan, made: Plan) -> None:
        self._check_memory(shapes, made)
        keep_verdicts()
        self.plans.remake(shapes, plan, lambda: made)

    def plan_alone(self, plan: Plan, shapes: Shapes) -> Plan | None:
        """Return a plan that computes what `plan` does in one thread; None if oneDNN differs then.

        Equal code gives equal bits, whichever thread runs which part of it. None as well where
        weights were let go of, and the file they came from has changed.
        """
        try:
            alone = self._in_one_thread.plan(shapes)
            whole = alone.whole  # which who settles it takes away
            if plan.is_final and whole is not None:  # its first one is for now
                alone = whole() or alone
        except ModelFileError:
            return None
        self._in_one_thread.let_go()
        codes = [[step.implementation for step in each.steps] for each in (plan, alone)]
        return alone if codes[0] == codes[1] else None

    @cached_property
    def _in_one_thread(self) -> CompiledNetwork:
        settings = replace(self.settings, threads=1, is_alone=True)
        return CompiledNetwork(
            *(self.network, settings, self.weights, self.memory, self.bodies, self._again),
            settling=self._settling,
        )

    def _make(self, shapes: Shapes) -> Plan:
        if None in self._shapes and None not in shapes:
            self._take_ranks(shapes)
        plan = self.templates.plan(shapes, self._make_of_numbers, self._make_template)
        keep_verdicts()
        self._check_memory(shapes, plan)
        return plan

    def _take_ranks(self, shapes: Shapes) -> None:
        """Expect the ranks of the first inference where the network tells none."""
        self._shapes = [
            Shape([None] * len(given or ())) if known is None else known
            for known, given in zip(self._shapes, shapes, strict=True)
        ]
        self.templates = _templates(self._shapes)

    def _check_memory(self, shapes: Shapes, plan: Plan) -> None:
        needed = plan.arena_bytes + plan.scratchpad_bytes
        self.memory.check(needed, f"the plan for inputs of shapes {shapes}")

    def _make_of_numbers(self, shapes: Shapes) -> Plan:
        parts = self._parts(shapes)
        steps = list(map(in_tiles, parts.steps))
        for array in tiles_of(steps):
            self.weights.note(array)
        plan = Plan(replace(parts, steps=steps))
        with ahead() as codes:
            for step in plan.steps:
                if isinstance(step, PrimitiveStep):
                    codes.add(step.primitive)
        return plan

    def _parts(self, shapes: Shapes) -> PlanParts:
        network = self.sizes.fill(shapes, self._prepared)
        try:
            return self._build(network, self.decisions)
        except Unlike as unlike:
            self.decisions.vary(unlike.assumed)
            with self.decisions.asked():
                return self._build(network, self.decisions)

    def _make_template(self, shapes: Shapes, trace: Trace) -> PlanTemplate:
        """Plan for symbolic sizes.

        Raises:
            UntraceableError: something in the network is planned for numbers only.
            NoFormulaError: something is, with these sizes.
        """
        from polydevice_cpu.plan.filling.template import PlanTemplate  # 1 MB, for open sizes alone

        network = self.sizes.formulas(shapes, self._prepared)
        decisions = self.decisions.copy()
        try:
            parts = self._settled(network, decisions)
        except Unlike:  # as in a plan of numbers
            with decisions.asked():
                parts = self._settled(network, decisions)
        return PlanTemplate(
            *(parts, trace, self.weights.in_layout, self._settling.learn, self._decided)
        )

    def _decided(self, sizes: Sequence[int]) -> Plan | None:
        """A plan of a template that was made for sizes like these, for their sizes alone."""
        from polydevice_cpu.plan.filling.template import PlanTemplate  # see `_make_template`

        for template in self._templates_of_classes:
            if (plan := template.settled(sizes)) is not None:
                return plan
        if len(self._templates_of_classes) == MOST_CLASSES or self._network is None:
            return None
        given = self.templates.shapes(sizes), self._make_template, Pauses()
        made = self.templates.learn(*given, is_kept=False)
        if not isinstance(made, PlanTemplate):
            return None
        self._templates_of_classes.append(made)
        return made.settled(sizes)

    def _settled(self, network: Sized, decisions: Decisions) -> PlanParts:
        parts = self._build(network, decisions)
        parts.settle()
        return parts

    def _prepared(self, body: Network) -> Network:
        return self.body(body).network

    def _build(self, network: Sized, decisions: Decisions) -> PlanParts:
        builder = PlanBuilder(
            network,
            self.settings,
            self.weights,
            decisions,
            lambda made, nodes: self._tails.step(made, nodes, self._network),
        )
        return builder.build()

    def _part(self, network: Network, share: int = 1) -> CompiledNetwork:
        return CompiledNetwork(
            *(network, self.settings, self.weights, self.memory, self.bodies),
            share=share,
            settling=self._settling,
        )

    def body(self, network: Network) -> CompiledNetwork:
        """Return the compiled form of the body of an operation; made once for all requests."""

        def make() -> CompiledNetwork:
            copy = network.clone()
            copy.evaluate = evaluate
            prepare(copy, self.settings.integers)
            return self._part(copy)

        return self.bodies.get(network, make)

    def release(self) -> None:
        """Let go of plans, bodies and packed weights, once nothing infers any more."""
        self._settling.stop()
        if "_in_one_thread" in vars(self):
            self._in_one_thread.plans.clear()
            self._in_one_thread.sizes.clear()
            self._in_one_thread.templates.clear()
            self._in_one_thread._clear_tails()
        self.plans.clear()
        self.sizes.clear()
        self.templates.clear()
        self._templates_of_classes.clear()
        self.bodies.clear()
        self._clear_tails()
        self.weights.clear()

    def _clear_tails(self) -> None:
        if "_tails" in vars(self):
            self._tails.clear()

    def request_plans(self, context: Context, workspace: Workspace | None = None) -> RequestPlans:
        """Return what a request runs this network with, in memory of its own or in this one."""
        return RequestPlans(self, context, workspace or Workspace(self.memory))


class RequestPlans:
    """The plans that one request has bound to memory of its own."""

    def __init__(self, compiled: CompiledNetwork, context: Context, workspace: Workspace) -> None:
        self.compiled = compiled
        self.context = context
        self.bindings = Bindings[Plan, BoundPlan](compiled.plans, compiled.plans_bytes)
        self._workspace = workspace
        self._latest: tuple[Shapes, BoundPlan] | None = None
        self._found: dict[Shapes, BoundPlan] = {}
        self._changes = -1
        self._latest_rounds: Rounds | None = None
        self._growing: dict[Shapes, Growing | None] = {}
        self._read: frozenset[int] | None = None
        self._is_read = False

    def release(self) -> None:
        """Let go of the memory for computing."""
        self.bindings.clear()
        self._workspace = Workspace(self.compiled.memory)
        self._latest = None
        self._found = {}
        self.context.rounds.clear()
        self._latest_rounds = None
        self._growing = {}

    def rounds(self, op: Iteration, shapes: Shapes) -> Rounds | None:
        """Return the body of `op`, bound for all iterations; None where they may differ."""
        if None in shapes:
            return None
        from polydevice_cpu.plan.binding.loops.rounds import Rounds  # as `growing`, for loops alone

        latest = self._latest_rounds
        if latest is None or latest.shapes != shapes or not latest.plan.is_final:
            plan = self.compiled.plan(shapes)
            if latest is None or latest.plan is not plan:
                bindings = self._rounds()
                found = bindings.known(plan)
                if found is None:
                    if not Rounds.suit(op, plan):
                        return None
                    parts = op, plan, shapes, self.context, self._workspace
                    with collected_later():
                        found = bindings.get(plan, lambda: Rounds(*parts))
                if latest is not None:
                    latest.leave()
                latest = self._latest_rounds = found
        return latest

    def _rounds(self) -> Bindings[Plan, Rounds]:
        """What the request has bound of the body for all iterations, whoever runs the loop."""
        known: Bindings[Plan, Rounds] | None = self.context.rounds.get(self.compiled)
        if known is None:
            known = Bindings(self.compiled.plans, self.compiled.plans_bytes)
            self.context.rounds[self.compiled] = known
        return known

    def note(self, rounds: Rounds | None, iterations: int) -> None:
        """Take notice of iterations, as of inferences: the next loop may have a better plan."""
        if rounds is not None:
            self.compiled.note(rounds.shapes, rounds.plan, iterations)

    def growing(self, op: Iteration, shapes: Shapes) -> Growing | None:
        """Return iterations of `op` that begin with inputs of these shapes for the second time."""
        from polydevice_cpu.plan.binding.loops.growing import Growing

        if not self._is_read:  # walking through the body takes 50 us
            self._read, self._is_read = Growing.read(op, self.compiled.network), True
        if self._read is None or None in shapes:
            return None
        known = self._growing.get(shapes)
        if known is None:
            is_new = shapes not in self._growing
            if is_new and len(self._growing) >= BEGINNINGS:
                self._growing.pop(next(iter(self._growing)))
            if not is_new:
                parts = self.compiled.plan, self.context, self._workspace
                known = Growing(op, shapes, self._read, *parts)
            self._growing[shapes] = known
        return known

    def bound(self, shapes: Shapes) -> BoundPlan:
        """Return the bound plan for these input shapes."""
        plans = self.compiled.plans
        if self._changes == plans.changes:  # iterations whose sizes grow: 1 instead of 10 µs
            known = self._found.get(shapes)
            if known is not None and known.plan.is_final:
                plans.touch(shapes)
                return known
        changes = plans.changes
        if changes != self._changes:
            self._found.clear()  # or plans would stay that are kept no longer
        with collected_later():
            plan = self.compiled.plan(shapes)
            bound = self.bindings.get(plan, lambda: self._bound(plan, shapes))
        self._found[shapes], self._changes = bound, changes
        return bound

    def _bound(self, plan: Plan, shapes: Shapes) -> BoundPlan:
        self._found.clear()  # others may be bound no longer
        alone = partial(self.compiled.plan_alone, plan, shapes)
        return BoundPlan(plan, self.context, self._workspace, alone)

    def infer_new(self, inputs: Sequence[Array], wanted: Sequence[int]) -> list[Array]:
        """Run once on these values; return some results as arrays that nobody else has.

        Raises:
            DeviceMemoryError: they are more than the network may use.
        """
        computed = self.infer(inputs)
        assert self._latest is not None
        new = self._latest[1].plan.new_results
        if len({*wanted}) == len(wanted) and new.issuperset(wanted):
            return [computed[number] for number in wanted]
        left, found = set(new), []
        for number in wanted:
            result = computed[number]
            if number not in left:
                current_bounds().admit(result.nbytes, "a result of a body")
                result = result.copy(order="C")
            left.discard(number)
            found.append(result)
        return found

    def infer(self, inputs: Sequence[Array], shapes: Shapes | None = None) -> list[Array]:
        """Run once on these values; results of planned steps are new arrays.

        Args:
            inputs: the values.
            shapes: see `shapes_of`; None where nobody has asked.

        Raises:
            DeviceMemoryError: they are more than the network may use.
        """
        if shapes is None:
            shapes = shapes_of(inputs)
        latest = self._latest  # the iterations of a loop are alike
        if latest is None or latest[0] != shapes or not latest[1].plan.is_final:
            latest = self._latest = shapes, self.bound(shapes)
        bound = latest[1]
        places = bound.places
        if places is None:
            places = bound.places = Places(bound, inputs)
        elif bound.lacks_arrays:
            places.point(bound)
        if bound.plan.result_bytes > SMALL_BYTES:
            self.compiled.memory.check(bound.plan.result_bytes, "the results of a body")
        return places.run(bound, inputs)
