"""Growing: a loop's iterations whose sizes change alike every time, each bound once.

A beam search that appends to what it has found, say. From Python each iteration would be looked
up, and what it reads and gives copied: 20 µs. Where NumPy computes a step, or only the data tells
what an iteration gives besides what it carries, they run one by one, but without that.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.errors import DeviceMemoryError
from polydevice.network import Network
from polydevice.ops.control_flow import Iteration, Loop
from polydevice.processor.machine_code import CALL, Calls, calls_at
from polydevice.runtime.plan_cache import Shapes
from polydevice_cpu.algorithms.by_machine import between_iterations
from polydevice_cpu.onednn import openmp
from polydevice_cpu.onednn.engine import address_of
from polydevice_cpu.plan.binding.bound import BoundPlan
from polydevice_cpu.plan.binding.context import Context
from polydevice_cpu.plan.binding.loops.iterations import CALLS, Iterations, numbers_of, record_of
from polydevice_cpu.plan.binding.loops.rounds import holds
from polydevice_cpu.plan.binding.stretches import Call
from polydevice_cpu.plan.binding.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from polydevice_cpu.plan.plan import Plan

MOST_LINKS, LINKS_BYTES = 64, 1 << 23
"""Iterations that are bound, and what they may take; those behind them run one by one."""

COPIED_BYTES = 1 << 18
"""Up to which what all iterations read is copied: to point them to it takes 2 to 8 µs each."""


class _Link(NamedTuple):
    """An iteration.

    Attributes:
        bound: its plan, bound to read what the iteration before wrote.
        calls: of its steps; None where some are not machine code's.
        results: what it writes; nothing of those whose sizes the data tells.
        shapes: of what it reads.
        begin: number of its first call.
    """

    bound: BoundPlan
    calls: Sequence[Call] | None
    results: Sequence[Array]
    shapes: Shapes
    begin: int

    def result(self, number: int) -> Array:
        """Return a result, once it has run."""
        found = self.bound.tail_outputs.get(number)
        return self.results[number] if found is None else found


class Growing:
    """The iterations of a loop that begins with inputs of some sizes."""

    def __init__(
        self,
        op: Iteration,
        shapes: Shapes,
        read: frozenset[int],
        plan_of: Callable[[Shapes], Plan],
        context: Context,
        workspace: Workspace,
    ) -> None:
        """Bind nothing yet.

        Args:
            op: the loop.
            shapes: of what its first iteration reads.
            read: which parameters of the body something reads.
            plan_of: returns the body's plan.
            context: the request's.
            workspace: of the body's plans.
        """
        self._first, self._read, self._plan_of = shapes, read, plan_of
        self._context, self._workspace = context, workspace
        self._carried = {edge.parameter: edge.result for edge in op.back_edges}
        self._counter = op.current_iteration if isinstance(op, Loop) else None
        self._condition = op.execution_condition if isinstance(op, Loop) else None
        self._links: list[_Link] = []
        self._own: dict[int, Array] = {}
        self._pointed: dict[int, ref[Array]] = {}  # they are others' to keep
        self._told: list[Array] = []
        self._records = np.empty(0, CALL)
        self._held_bytes = 0
        self._may_grow = self._are_calls = True

    @staticmethod
    def read(op: Iteration, body: Network) -> frozenset[int] | None:
        """Return which parameters something reads; None where iterations cannot be bound so.

        They read nothing but what they carry, and what is the same for all. Bodies in the body
        would be bound as often.

        Args:
            op: the loop.
            body: what is planned of its body.
        """
        if any(tie.slicing is not None for tie in op.body_inputs):
            return None
        users = body.consumers()
        if any(node.op.has_bodies for node in body.nodes()):
            return None
        ports = [parameter.output for parameter in body.parameters]
        return frozenset(number for number, port in enumerate(ports) if users.get(port))

    def run(
        self, given: dict[int, Array], end: int, taken: Sequence[tuple[int, list[Array]]]
    ) -> tuple[int, bool, Sequence[Array] | None]:
        """Run iterations, from the first one on, as far as they are bound, or can be.

        Args:
            given: what the first one reads; then, what the next one would.
            end: how many there are at most.
            taken: numbers of results, and lists to which those of every iteration are appended;
                they stay until the next call.

        Returns:
            how many there were, whether there is to be another one, and the results of the last.
        """
        if any(not link.bound.plan.is_final for link in self._links):
            self._forget()
        iteration, goes_on = 0, True
        self._begin(given)
        while goes_on and iteration < end:
            if iteration == len(self._links) and not self._append(given):
                break
            until = min(len(self._links), end)
            if self._are_calls:
                with openmp.threads(1):
                    iteration, goes_on = self._run(iteration, until)
            else:
                iteration, goes_on = self._run_each(iteration, until)
        if not iteration:
            return 0, True, None
        for result, parts in taken:
            parts += [link.result(result) for link in self._links[:iteration]]
        last = self._links[iteration - 1]
        results = [last.result(number) for number in range(len(last.results))]
        given.update({parameter: results[result] for parameter, result in self._carried.items()})
        return iteration, goes_on, results

    def _forget(self) -> None:
        """Begin again, as plans have been replaced that were for the first few inferences."""
        self._links, self._told, self._held_bytes = [], [], 0
        self._own, self._pointed = {}, {}
        self._may_grow = self._are_calls = True

    def _begin(self, given: Mapping[int, Array]) -> None:
        """Put what iterations read where they do."""
        for parameter, array in given.items():
            own = self._own.get(parameter)
            if parameter == self._counter:
                array.fill(0)
            if own is not None:
                np.copyto(own, array)
            elif parameter in self._pointed and self._pointed[parameter]() is not array:
                self._pointed[parameter] = ref(array)
                for link in self._links[: 1 if parameter in self._carried else None]:
                    link.bound.set_input(parameter, array)

    def _append(self, given: Mapping[int, Array]) -> bool:
        """Bind one more iteration; False where there can be none."""
        if not self._may_grow:
            return False
        try:
            link = self._link(given) if len(self._links) < MOST_LINKS else None
        except DeviceMemoryError:
            link = None  # they run one by one
        if link is None:
            self._may_grow = False
            return False
        self._links.append(link)
        if link.calls is None:
            self._are_calls = False
        if self._are_calls:
            self._records = np.concatenate([self._records[: link.begin], self._between(link)])
        return True

    def _link(self, given: Mapping[int, Array]) -> _Link | None:
        before = self._links[-1] if self._links else None
        shapes = list(self._first if before is None else before.shapes)
        carried = self._carried.items()
        if before is not None:
            for parameter, result in carried:
                if result in before.bound.plan.whole_outputs:
                    shapes[parameter] = before.results[result].shape
        plan = self._plan_of(tuple(shapes))
        read, whole = self._read, {*plan.whole_outputs}
        is_much = self._held_bytes + plan.held_bytes + plan.result_bytes > LINKS_BYTES
        if is_much or any(name in read and result not in whole for name, result in carried):
            return None
        what = "the iterations of a loop"
        self._context.compiled.memory.check(self._held_bytes + plan.result_bytes, what)
        bound = BoundPlan(plan, self._context, self._workspace)
        results = [np.empty(*result) for result in plan.results]
        for index, array in enumerate(results):
            bound.set_output(index, array)
        for parameter, desc in enumerate(plan.inputs):
            if parameter not in read and parameter != self._counter:
                continue
            if before is not None and parameter in self._carried:
                array = before.results[self._carried[parameter]]
            else:
                array = self._source(parameter, given[parameter])
            if array.dtype != desc.element_type.dtype:
                return None
            bound.set_input(parameter, array)
        calls = bound.recorded(frozenset()) if len(whole) == len(results) else None
        conditions = None if self._condition is None else [results[self._condition]]
        if not Iterations.suit(self._number, conditions):
            calls = None
        self._held_bytes += plan.held_bytes + bound.held_bytes + plan.result_bytes
        begin = 0
        if before is not None and before.calls is not None:
            begin = before.begin + len(before.calls) + self._each
        return _Link(bound, calls, results, tuple(shapes), begin)

    @property
    def _number(self) -> Array | None:
        return None if self._counter is None else self._own[self._counter]

    @property
    def _each(self) -> int:
        """Calls between iterations."""
        return (self._counter is not None) + (self._condition is not None)

    def _source(self, parameter: int, array: Array) -> Array:
        """Where iterations read what is the same for all, or the first one what it is given."""
        if parameter in self._pointed:
            return array
        if parameter not in self._own:
            if array.nbytes > COPIED_BYTES and parameter != self._counter:
                self._pointed[parameter] = ref(array)
                return array
            self._own[parameter] = array.copy(order="C")
        return self._own[parameter]

    def _between(self, link: _Link) -> Array:
        """The calls of an iteration, and those behind it."""
        assert link.calls is not None
        behind = []
        if self._number is not None:
            behind.append(between_iterations.count(address_of(self._number), self._number.itemsize))
        if self._condition is not None:
            behind.append(between_iterations.holds(address_of(link.results[self._condition])))
        told = [numbers_of(numbers) for _, numbers in behind]
        self._told += told
        records = [call.record for call in link.calls]  # type: ignore[attr-defined]
        for (function, _), numbers in zip(behind, told, strict=True):
            records.append(record_of(function, numbers))
        return np.array(records, CALL)

    def _run_each(self, iteration: int, until: int) -> tuple[int, bool]:
        """Run bound iterations as `_run` does, one by one."""
        number, condition, check = self._number, self._condition, current_bounds().check
        for link in self._links[iteration:until]:
            check()
            if number is not None:
                number.fill(iteration)
            link.bound.run()
            iteration += 1
            if condition is not None and not holds(link.result(condition)):
                return iteration, False
        return until, True

    def _run(self, iteration: int, until: int) -> tuple[int, bool]:
        """Run bound iterations; return the number of the next one, and whether it is wanted."""
        links, check = self._links, current_bounds().check
        begins = [link.begin for link in links[:until]]
        end = len(self._records) if until == len(links) else links[until].begin
        done, begin = begins[iteration], self._records.ctypes.data
        call = calls_at(begin, 0, Calls)
        assert call is not None
        function = call.func
        while done < end:
            check()
            wanted = min(end - done, CALLS)
            place = begin + done * CALL.itemsize
            left = function(ctypes.c_void_p(place), ctypes.c_size_t(wanted))
            done += wanted
            if not left:
                continue
            done -= left >> 32  # up to the call that did not return 0
            status, number = left & 0xFFFFFFFF, bisect_right(begins, done) - 1
            if status == between_iterations.ENDED:
                return number + 1, False
            link = links[number]
            assert link.calls is not None
            link.bound.go_on(link.calls[done - link.begin], status)
            done += 1
        return until, True
