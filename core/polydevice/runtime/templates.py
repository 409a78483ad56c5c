"""Templates: plans with formulas, from which those for other sizes are filled in.

A network whose sizes vary is planned once with sizes as symbols (`polydevice.symbolic_size`).
What was decided by comparing them is guarded, so that one template serves a class of sizes, and a
network has a few of them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from polydevice.errors import InferCancelledError, InferTimeoutError, PolydeviceError
from polydevice.runtime.plan_cache import Shapes
from polydevice.shape import Shape
from polydevice.symbolic_size import Trace, tracing

_log = logging.getLogger(__name__)

MOST = 16
"""Templates of a network: classes of sizes for which it is planned alike."""

FAILURES = 2
"""Plans that could not be made with formulas, after which no more are tried."""

P_co = TypeVar("P_co", covariant=True)
P = TypeVar("P")


class UntraceableError(Exception):
    """Something in a network cannot be planned with formulas, whatever its sizes are."""


class Template(Protocol[P_co]):
    """A plan with formulas."""

    def plan(self, sizes: Sequence[int]) -> P_co | None:
        """Return the plan for these sizes; None where another one might be made for them."""


def varying_sizes(declared: Sequence[Shape], shapes: Shapes) -> list[int] | None:
    """Return the sizes that shapes leave open, of shapes given for them; None where they differ."""
    pairs = list(zip(declared, shapes, strict=False))
    if any(given is None or not own.admits(given) for own, given in pairs):
        return None
    return [
        size
        for own, given in pairs
        for dim, size in zip(own, given or (), strict=True)
        if not isinstance(dim, int)
    ]


class Templates(Generic[P]):
    """Of one network; may be used from any thread.

    Attributes:
        filled: how many plans were filled in from a template that was there.
    """

    def __init__(
        self,
        shapes: Sequence[Shape | None],
        trace: Callable[[Shapes, Trace], Template[P]],
        patience: int = 0,
    ) -> None:
        """Begin with none.

        Args:
            shapes: of the inputs, as the network leaves them open.
            trace: plans with formulas, for shapes of which some sizes are symbolic.
            patience: how many plans are made with numbers first: to plan with formulas takes a few
                times as long.
        """
        self._shapes = [shape for shape in shapes if shape is not None]
        self._trace = trace
        self._patience = patience
        self._may_trace = len(self._shapes) == len(shapes) and not all(
            shape.is_static for shape in self._shapes
        )
        self._found: list[Template[P]] = []
        self._lock = threading.Lock()
        self.filled = self._made = self._failed = 0

    def plan(self, shapes: Shapes, make: Callable[[Shapes], P]) -> P:
        """Return the plan for these shapes: filled in, or made where no template fits.

        Args:
            shapes: of the inputs.
            make: makes a plan with numbers.

        Raises:
            Exception: what `make` raises.
        """
        sizes = self._sizes(shapes)
        if sizes is None:
            return make(shapes)
        with self._lock:
            known = list(self._found)
        for template in known:
            plan = template.plan(sizes)
            if plan is not None:
                with self._lock:
                    self.filled += 1
                    if template in self._found:  # the network may have been closed
                        self._found.remove(template)
                        self._found.insert(0, template)
                return plan
        self._made += 1
        pays = self._made <= self._patience + MOST or self.filled > self._made
        if self._made > self._patience and pays:
            traced = self._traced(shapes)
            plan = None if traced is None else traced.plan(sizes)
            if traced is not None and plan is not None:
                with self._lock:
                    if self._may_trace:
                        self._found.insert(0, traced)
                        del self._found[MOST:]
                return plan
        return make(shapes)

    def clear(self) -> None:
        """Forget all templates, and make no more."""
        with self._lock:
            self._found.clear()
            self._may_trace = False

    def _sizes(self, shapes: Shapes) -> list[int] | None:
        return varying_sizes(self._shapes, shapes) if self._may_trace else None

    def _traced(self, shapes: Shapes) -> Template[P] | None:
        """Plan with symbolic sizes; None where that is not possible."""
        try:
            with tracing() as trace:
                symbolic: Any = tuple(
                    tuple(
                        size if isinstance(declared, int) else trace.input(size)
                        for declared, size in zip(own, given or (), strict=True)
                    )
                    for own, given in zip(self._shapes, shapes, strict=True)
                )
                return self._trace(symbolic, trace)
        except (InferCancelledError, InferTimeoutError):
            raise
        except PolydeviceError as error:  # the shapes may be at fault
            _log.debug("no plan with symbolic sizes: %s", error)
        except UntraceableError as error:
            _log.debug("no plan with symbolic sizes: %s", error)
            self._may_trace = False
        except Exception as error:  # noqa: BLE001 - made with numbers, it works or says what is wrong
            _log.debug("no plan with symbolic sizes: %s", error, exc_info=True)
            self._failed += 1
            self._may_trace = self._may_trace and self._failed < FAILURES
        return None
