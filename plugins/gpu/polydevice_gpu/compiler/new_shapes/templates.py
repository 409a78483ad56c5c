"""Templates: plans with formulas, from which those for other sizes are filled in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from polydevice.errors import InferCancelledError, PolydeviceError
from polydevice.runtime.plan_cache import Shapes
from polydevice.runtime.templates import varying_sizes
from polydevice.shape import Shape
from polydevice.symbolic_size import is_formula, tracing
from polydevice_gpu.compiler.new_shapes.template import PlanTemplate
from polydevice_gpu.compiler.plan_stages import NotBuiltError
from polydevice_gpu.graph import GpuGraph, GpuNode
from polydevice_gpu.runtime.plan import Plan

_log = logging.getLogger(__name__)

MOST = 16
"""Templates of a network: classes of sizes for which it is planned alike."""

FAILURES = 2
"""Plans that could not be made with formulas, after which no more are tried."""


class UntraceableError(Exception):
    """A network has bodies, or what the host computes in it is made for one size."""


def serves_one_size(node: GpuNode) -> bool:
    """Whether plans for other sizes have to be made stage by stage, because of a layer.

    A body has a plan of its own; constants of what the host computes are numbers.
    """
    made = node.on_host and any(is_formula(value.constant) for value in node.inputs)
    return node.nested is not None or made


class Templates:
    """Of one network: the plans with formulas from which others are filled in.

    Attributes:
        filled: how many plans were filled in from one that was there.
    """

    def __init__(
        self,
        shapes: Sequence[Shape | None] | None,
        memory_pool: bool,
        choosing: Callable[[GpuGraph], bool],
    ) -> None:
        """Begin with none.

        Args:
            shapes: of the inputs, some of whose sizes vary; None for a network of which every plan
                is made stage by stage.
            memory_pool: whether values share memory.
            choosing: whether tuning would make other choices for a graph.
        """
        shapes = [] if shapes is None else shapes
        self._shapes = [shape for shape in shapes if shape is not None]
        self._memory_pool = memory_pool
        self._choosing = choosing
        self._may_trace = len(self._shapes) == len(shapes) and not all(
            shape.is_static for shape in self._shapes
        )
        self._found: list[PlanTemplate] = []
        self._lock = threading.Lock()
        self.filled = self._made = self._failed = 0

    def plan(self, shapes: Shapes, make: Callable[[Shapes], Plan]) -> Plan:
        """Return the plan for these shapes: filled in, or made where no template fits.

        The first one made becomes a template. Later ones do by `learn`, since that takes two to
        four times as long as making a plan; until then a template is taken whose choices are
        possible, or the plan is made stage by stage.

        Args:
            shapes: of the inputs.
            make: makes a plan stage by stage.

        Raises:
            Exception: what `make` raises.
        """
        sizes = self._sizes(shapes)
        if sizes is None:
            return make(shapes)
        plan = self._filled(sizes)
        if plan is None and not self._made and self.learn(shapes, make):
            plan = self._filled(sizes)
            if plan is not None and isinstance(plan.template, PlanTemplate):
                plan.programs_compiled = plan.template.source.programs_compiled
        if plan is not None:
            return make(shapes) if self._choosing(plan.graph) else plan
        plan = make(shapes)
        plan.may_serve = self._may_learn
        return plan

    def _filled(self, sizes: Sequence[int]) -> Plan | None:
        """Return a plan from the template of which fewest choices may be others; None without."""
        with self._lock:
            known = list(self._found)
        ready = [
            (each, found)
            for each in known
            if (found := each.numbers(sizes)) is not None and each.is_possible(found[1])
        ]
        ready.sort(key=lambda pair: len(pair[1][1]))  # fewest choices that may be others
        # Which choices would be others takes 10 ms to find out of 26 (an H200): of one template.
        filled = ((each, each.plan(*found)) for each, found in ready)
        template, plan = next((pair for pair in filled if pair[1] is not None), (None, None))
        if template is None or plan is None:
            return None
        with self._lock:
            self.filled += 1
            if template in self._found:  # the network may have been closed
                self._found.remove(template)
                self._found.insert(0, template)
        return plan

    @property
    def _may_learn(self) -> bool:
        """Whether it is still worth while to make templates."""
        return self._may_trace and (self._made < MOST or self.filled > self._made)

    def learn(
        self,
        shapes: Shapes,
        make: Callable[[Shapes], Plan],
        pause: Callable[[], None] | None = None,
    ) -> PlanTemplate | None:
        """Make a template of these shapes' class of sizes; None where that is not possible.

        Args:
            shapes: of the inputs.
            make: makes a plan stage by stage.
            pause: called again and again meanwhile.
        """
        if self._sizes(shapes) is None or not self._may_learn:
            return None
        self._made += 1
        traced = self._traced(shapes, make, pause)
        with self._lock:
            if traced is None or not self._may_trace:
                return None
            self._found.insert(0, traced)
            del self._found[MOST:]
        return traced

    def accept(self, plan: Plan, instead: PlanTemplate | None) -> None:
        """Keep the choices of a plan's template where those of another one are not faster."""
        if isinstance(plan.template, PlanTemplate):
            plan.template.accepted.add(plan.others)
        with self._lock:
            if instead in self._found:
                self._found.remove(instead)

    def _sizes(self, shapes: Shapes) -> list[int] | None:
        """Return the sizes that vary; None where no template could be for these shapes."""
        return varying_sizes(self._shapes, shapes) if self._may_trace else None

    def clear(self) -> None:
        """Forget all templates, and make no more."""
        with self._lock:
            self._found.clear()
            self._may_trace = False

    def _traced(
        self, shapes: Shapes, make: Callable[[Shapes], Plan], pause: Callable[[], None] | None
    ) -> PlanTemplate | None:
        """Make a plan with symbolic sizes; None where that is not possible."""
        try:
            with tracing(pause) as trace:
                symbolic: Any = tuple(
                    tuple(
                        size if isinstance(declared, int) else trace.input(size)
                        for declared, size in zip(own, given or (), strict=True)
                    )
                    for own, given in zip(self._shapes, shapes, strict=True)
                )
                return PlanTemplate(make(symbolic), trace, self._memory_pool)
        except InferCancelledError:
            raise
        except NotBuiltError:
            return None
        except PolydeviceError as error:  # the shapes may be at fault
            _log.debug("no plan with symbolic sizes: %s", error)
            return None
        except UntraceableError:
            self._may_trace = False
            return None
        except Exception as error:  # noqa: BLE001 - made with numbers, it works or says what is wrong
            _log.debug("no plan with symbolic sizes: %s", error)
            self._failed += 1
            self._may_trace = self._may_trace and self._failed < FAILURES
            return None
