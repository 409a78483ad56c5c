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

from polydevice.dataclass import dataclass
from polydevice.errors import (
    InferCancelledError,
    InferTimeoutError,
    InternalError,
    PolydeviceError,
)
from polydevice.foreign_errors import REPORT_TO
from polydevice.locks import Lock
from polydevice.runtime.plan_cache import Shapes
from polydevice.shape import Shape
from polydevice.symbolic_size import UntraceableError
from polydevice.symbolic_trace import Trace, tracing

_log = logging.getLogger(__name__)

MOST = 16
"""Templates of a network: classes of sizes for which it is planned alike."""

IN_VAIN = 4
"""Templates besides one for each plan that was filled in, after which `plan` makes no more: where
each is for one set of sizes alone, it is made for nothing, in the time of two to four plans."""

FAILURES = 2
"""Plans that could not be made with formulas, after which no more are tried."""

P_co = TypeVar("P_co", covariant=True)
P = TypeVar("P")


@dataclass(frozen=True)
class Fit(Generic[P_co]):
    """What a template says of sizes for which its guards hold.

    Attributes:
        plan: returns the plan; None where another one might be made for these sizes after all.
        doubts: how many of its choices might be others. The template with fewest is taken.
    """

    plan: Callable[[], P_co | None]
    doubts: int = 0


class Template(Protocol[P_co]):
    """A plan with formulas."""

    def fit(self, sizes: Sequence[int]) -> Fit[P_co] | None:
        """Return what it says of these sizes; None where another plan might be made for them."""


Making = Callable[[Shapes, Trace], "Template[P] | None"]
"""Plans with formulas, for shapes of which some sizes are symbolic; None where that has to wait."""


def varying_sizes(
    declared: Sequence[Shape], shapes: Shapes, *, may_be_empty: bool = False
) -> list[int] | None:
    """Return the sizes that shapes leave open, of shapes given for them; None where they differ.

    None where one is 0, too, unless it may be: of what is empty most steps fall away.
    """
    found = []
    for own, given in zip(declared, shapes, strict=False):
        if given is None or len(own) != len(given):
            return None
        for dim, size in zip(own, given, strict=True):
            if isinstance(dim, int):  # nearly every one, or any; asked for every new shape
                if dim != size:
                    return None
            elif (
                not (size or may_be_empty)
                or size < dim.min
                or (dim.max is not None and size > dim.max)
            ):
                return None
            else:
                found.append(size)
    return found


class Templates(Generic[P]):
    """Of one network; may be used from any thread.

    Attributes:
        filled: how many plans were filled in from a template that was there.
    """

    def __init__(
        self,
        shapes: Sequence[Shape | None],
        *,
        patience: int = 0,
        at_once: int = MOST,
        is_one_alike: bool = False,
        may_be_empty: bool = False,
    ) -> None:
        """Begin with none.

        Args:
            shapes: of the inputs, as the network leaves them open; one that is None, or none that
                is open, for a network of which no plan is made with formulas.
            patience: how many plans are made with numbers first: to plan with formulas takes a few
                times as long.
            at_once: how many templates `plan` makes while its caller waits; more are made by
                `learn`. Those for sizes of 0 count apart: a text that begins without a cache says
                nothing of what is planned for all that follows.
            is_one_alike: whether what is planned for other sizes is right where they are 1, too:
                templates that `plan` makes have 2 in the place of 1 first.
            may_be_empty: whether there are templates for sizes of 0 as well, each for where the
                same ones are; or else these are planned with numbers.
        """
        self._shapes = [shape for shape in shapes if shape is not None]
        self._patience = patience
        self._at_once = at_once
        self._is_one_alike = is_one_alike
        self._may_be_empty = may_be_empty
        self._may_trace = len(self._shapes) == len(shapes) and not all(
            shape.is_static for shape in self._shapes
        )
        self._found: list[Template[P]] = []
        self._empty: dict[Template[P], tuple[int, ...]] = {}
        """Template → which of its sizes are 0."""
        self._lock = Lock()
        self.filled = self._missed = self._tried = self._failed = self._made = 0
        self._tried_of_empty = 0
        """Those tried that are for sizes of 0."""

    def plan(self, shapes: Shapes, make: Callable[[Shapes], P], trace: Making[P]) -> P:
        """Return the plan for these shapes: filled in, or made where no template fits.

        Args:
            shapes: of the inputs.
            make: makes a plan with numbers.
            trace: makes one with formulas.

        Raises:
            Exception: what `make` raises.
            InferCancelledError: the caller was told to give up; or InferTimeoutError, likewise.
        """
        sizes = self._sizes(shapes)
        if sizes is None:
            return make(shapes)
        plan = self._filled(sizes)
        if plan is not None:
            return plan
        self._missed += 1
        is_hopeful = self._made < IN_VAIN + self.filled and self._pays
        tried = self._tried if 0 in sizes else self._tried - self._tried_of_empty
        if self._missed > self._patience and tried < self._at_once and is_hopeful:
            plan = self._of_new(shapes, sizes, trace)
            if plan is not None:
                return plan
        return make(shapes)

    def _of_new(self, shapes: Shapes, sizes: Sequence[int], trace: Making[P]) -> P | None:
        """Return the plan of a new template, which is kept if there is one; None where not."""
        likely = self._without_ones(shapes) if self._is_one_alike else shapes
        for witness in (likely, shapes)[likely == shapes :]:
            template = self._traced(witness, trace)
            fit = None if template is None else template.fit([size for size in sizes if size])
            plan = None if fit is None else fit.plan()
            if template is not None and plan is not None:
                self._keep(template, witness)
                self._made += 1
                return plan
            self._is_one_alike = False  # sizes of 1 mean something
        return None

    def _without_ones(self, shapes: Shapes) -> Shapes:
        """Return shapes with 2 in the place of 1, where it is open and may be 2."""
        return tuple(
            given
            and tuple(
                2 if size == 1 and not isinstance(dim, int) and dim.max != 1 else size
                for dim, size in zip(own, given, strict=True)
            )
            for own, given in zip(self._shapes, shapes, strict=True)
        )

    def learn(
        self,
        shapes: Shapes,
        trace: Making[P],
        pause: Callable[[], None] | None = None,
        *,
        is_kept: bool = True,
        is_general: bool = False,
    ) -> Template[P] | None:
        """Make a template of these shapes' class of sizes; None where that is not possible.

        Args:
            shapes: of the inputs.
            trace: makes a plan with formulas.
            pause: called again and again meanwhile.
            is_kept: whether plans are filled in from it for who asks for one; one that is not is
                made as `plan` makes them.
            is_general: whether it is to serve as many sizes as possible.

        Raises:
            InferCancelledError: the caller was told to give up, or the process ends; or
                InferTimeoutError, likewise.
        """
        if not self.may_learn(shapes):
            return None
        if not is_kept and self._is_one_alike:
            shapes = self._without_ones(shapes)
        template = self._traced(shapes, trace, pause, is_general=is_general)
        if template is None or not is_kept or self._keep(template, shapes):
            return template
        return None

    def serves(self, shapes: Shapes) -> bool:
        """Whether a plan for these shapes can be filled in from a template that is there."""
        sizes = self._sizes(shapes)
        return sizes is not None and self._fitting(sizes) is not None

    def may_learn(self, shapes: Shapes) -> bool:
        """Whether it is still worth while to make a template of these shapes' class of sizes."""
        return self._pays and self._sizes(shapes) is not None

    def shapes(self, sizes: Sequence[int]) -> Shapes:
        """Return the shapes of inputs with these sizes where the network leaves them open."""
        given = iter(sizes)
        return tuple(
            tuple(dim if isinstance(dim, int) else next(given) for dim in own)
            for own in self._shapes
        )

    def drop(self, template: Template[P]) -> None:
        """Fill in nothing from a template any more."""
        with self._lock:
            if template in self._found:
                self._found.remove(template)
                del self._empty[template]

    def clear(self) -> None:
        """Forget all templates, and make no more."""
        with self._lock:
            self._found.clear()
            self._empty.clear()
            self._may_trace = False

    @property
    def _pays(self) -> bool:
        return self._tried < MOST or self.filled > self._tried

    def _sizes(self, shapes: Shapes) -> list[int] | None:
        if not self._may_trace:
            return None
        found = varying_sizes(self._shapes, shapes, may_be_empty=self._may_be_empty)
        return None if found and not any(found) else found  # nothing is left open

    def _filled(self, sizes: Sequence[int]) -> P | None:
        """Return a plan from the template of which fewest choices may be others; None without."""
        found = self._fitting(sizes)
        if found is None:
            return None
        template, plan = found
        self._note_use(template)
        return plan

    def _fitting(self, sizes: Sequence[int]) -> tuple[Template[P], P] | None:
        """Return the template of which fewest choices may be others, and its plan."""
        empty, sizes = _empty(sizes), [size for size in sizes if size]
        with self._lock:
            known = [each for each in self._found if self._empty[each] == empty]
        doubtful = []
        for template in known:
            fit = template.fit(sizes)
            if fit is not None and fit.doubts:
                doubtful.append((template, fit))
            elif fit is not None and (plan := fit.plan()) is not None:
                return template, plan
        # Which choices would be others takes 10 ms to find out of 26 (an H200): of one template.
        for template, fit in sorted(doubtful, key=lambda pair: pair[1].doubts):
            plan = fit.plan()
            if plan is not None:
                return template, plan
        return None

    def _note_use(self, template: Template[P]) -> None:
        with self._lock:
            self.filled += 1
            if template in self._found:  # the network may have been closed
                self._found.remove(template)
                self._found.insert(0, template)

    def _keep(self, template: Template[P], shapes: Shapes) -> bool:
        """Keep a new template, unless the network was closed meanwhile."""
        with self._lock:
            sizes = self._sizes(shapes)
            if sizes is not None:
                self._found.insert(0, template)
                self._empty[template] = _empty(sizes)
                for old in self._found[MOST:]:
                    del self._empty[old]
                del self._found[MOST:]
            return sizes is not None

    def _traced(
        self,
        shapes: Shapes,
        make: Making[P],
        pause: Callable[[], None] | None = None,
        *,
        is_general: bool = False,
    ) -> Template[P] | None:
        """Plan with symbolic sizes; None where that is not possible."""
        self._tried += 1
        self._tried_of_empty += any(0 in (each or ()) for each in shapes)
        try:
            with tracing(pause, is_general=is_general) as trace:
                symbolic: Any = tuple(
                    tuple(
                        size if isinstance(declared, int) or not size else trace.input(size)
                        for declared, size in zip(own, given or (), strict=True)
                    )
                    for own, given in zip(self._shapes, shapes, strict=True)
                )
                return make(symbolic, trace)
        except (InferCancelledError, InferTimeoutError):
            raise
        except UntraceableError as error:
            _log.debug("no plan with symbolic sizes: %s", error)
            if not any(0 in (each or ()) for each in shapes):  # else others may have one
                self._may_trace = False
        except InternalError as error:
            self._note_failure(shapes, error)
        except PolydeviceError as error:  # the shapes may be at fault
            _log.debug("no plan with symbolic sizes: %s", error)
        except Exception as error:  # made with numbers, it works or says what is wrong
            if not threading.main_thread().is_alive():  # then no pool of threads takes work
                raise InferCancelledError("the process ends") from error
            if isinstance(error, TypeError) and "which has no callable" in str(error):
                # What NumPy says of the cosine, say, of an array that has symbolic sizes among it.
                _log.debug("no plan with symbolic sizes: %s", error)
                self._may_trace = False
            else:
                self._note_failure(shapes, error)
        return None

    def _note_failure(self, shapes: Shapes, error: Exception) -> None:
        """Tell of a defect, once of a network: plans made with numbers are right without it."""
        if not self._failed:
            _log.warning(
                "plans for other sizes are made one by one, which takes longer, as planning for "
                "shapes %s with sizes as symbols failed: %s: %s; please report it to %s with the "
                "model",
                *(shapes, type(error).__name__, error, REPORT_TO),
                exc_info=_log.isEnabledFor(logging.DEBUG),
            )
        self._failed += 1
        self._may_trace = self._may_trace and self._failed < FAILURES


def _empty(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return which sizes are 0."""
    return tuple(place for place, size in enumerate(sizes) if not size) if 0 in sizes else ()
