"""Specialiser: makes in the background what plans would rather be than what stands in for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable

from polydevice.errors import InferCancelledError
from polydevice.locks import Lock
from polydevice.runtime.plan_cache import Shapes
from polydevice_gpu import cl
from polydevice_gpu.runtime.plan import Plan

_log = logging.getLogger(__name__)

RUNS = 256
"""Inferences of a plan after which a kernel for its launches as one is built: 5 to 18 s of a core
(H200), for 0.05 to 0.2 ms an inference. A process that ends after fewer would build it for nothing,
and so would sizes that come more rarely. Where sizes vary, likewise inferences that want a choice
after which a processor makes it: two to fifteen programs, 0.1 to 0.3 s of a core each (PoCL), for
-30 to 5 % of an inference."""

TWICE = 2
"""One inference alone is no reason to compile."""

Remake = Callable[[Shapes, Plan], None]
"""Makes the plan for these shapes anew, when its programs are built."""

Join = Callable[[Shapes, Plan, Callable[[], bool]], None]
"""Lets the launches of the plan for these shapes become one, as long as the function says so."""


class Specialiser:
    """Of one network: builds programs, and makes other choices, once they are wanted often enough.

    By shapes that have come back, or by others of the same class. A plan that could serve others of
    its class, and has all its programs, is made a template at once. What runs a plan's launches as
    one is built after `RUNS` inferences with it, when it has the choices that it keeps, in a child
    process, which ends with the network and with this process. One thread works at a time, and ends
    when there is nothing to do.
    """

    def __init__(
        self,
        builder: cl.ProgramBuilder,
        remake: Remake,
        join: Join,
        patience: Callable[[], int] = lambda: TWICE,
    ) -> None:
        """Begin without anything to do.

        Args:
            builder: builds programs.
            remake: makes other choices.
            join: lets launches become one.
            patience: returns how many inferences have to want a program or choice.
        """
        self._builder = builder
        self._patience = patience
        self._remake = remake
        self._join = join
        self._lock = Lock()
        self._wanted: Counter[Hashable] = Counter()
        self._jobs: deque[tuple[Shapes, Plan]] = deque()
        self._taken: set[Plan] = set()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def note(self, shapes: Shapes, plan: Plan) -> None:
        """Take notice of an inference with a plan that wants other programs."""
        with self._lock:
            if self._is_stopped or plan in self._taken or not self._is_due(plan):
                return
            self._taken.add(plan)
            self._jobs.append((shapes, plan))
            if self._thread is None:
                # No daemon: compilers must not be interrupted by the end of the process.
                thread = threading.Thread(target=self._work, name="polydevice-specialise")
                try:
                    thread.start()
                except RuntimeError:  # the system has no more, or the interpreter ends
                    self._jobs.clear()
                    self._taken.clear()
                else:
                    self._thread = thread

    def _is_due(self, plan: Plan) -> bool:
        """Whether what a plan wants was wanted often, or its inferences are many."""
        plan.runs += plan.may_join
        if not plan.is_makeshift:
            return plan.runs > RUNS
        if plan.may_serve and not plan.wanted:
            return True
        wanted: list[Hashable] = [*plan.wanted, *([plan.wanted_choices] if plan.doubts else [])]
        self._wanted.update(wanted)
        return max(map(self._wanted.__getitem__, wanted), default=0) >= self._patience()

    def stop(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._is_stopped = True
            self._jobs.clear()

    def wait(self, end: float | None = None) -> None:
        """Wait until nothing is done any more, or until `end`, of ``time.monotonic()``."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(None if end is None else max(end - time.monotonic(), 0))

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                shapes, plan = self._jobs.popleft()
            try:
                self._specialise(shapes, plan)
            except InferCancelledError:
                pass  # the network was closed
            except Exception as error:  # noqa: BLE001 - it keeps what stands in, which is right
                level = logging.WARNING if plan.wanted else logging.INFO
                _log.log(level, "programs for inputs of shapes %s are not built: %s", shapes, error)
                if plan.is_makeshift:
                    plan.keep_choices()
                else:
                    reason = str(error).partition("\n")[0]
                    plan.keep_apart(f"their kernel was not built: {reason}")
            finally:
                with self._lock:
                    self._taken.discard(plan)

    def _specialise(self, shapes: Shapes, plan: Plan) -> None:
        if not plan.is_makeshift:
            self._join(shapes, plan, self._goes_on)
            return
        with cl.compiling_aside(self._goes_on):
            wanted = self._builder.build_all(list(plan.wanted.values()))
            self._remake(shapes, plan)
            del wanted  # held until the plan holds them

    def _goes_on(self) -> bool:
        return not self._is_stopped and threading.main_thread().is_alive()
