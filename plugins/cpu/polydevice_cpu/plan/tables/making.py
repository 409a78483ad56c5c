"""Making a `TableTemplate`: steps are filled in with symbolic sizes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from polydevice.foreign_errors import REPORT_TO
from polydevice.processor.machine_code import CALL
from polydevice.runtime.arena import Life, Lived, place_in_one
from polydevice.symbolic_formulas import Formulas
from polydevice.symbolic_size import (
    Number,
    UntraceableError,
    is_symbolic,
    largest,
    number_of,
)
from polydevice.symbolic_trace import Otherwise, Trace, tracing
from polydevice_cpu.algorithms.by_machine.code import Code
from polydevice_cpu.onednn.ahead import ahead
from polydevice_cpu.onednn.constants import Arg
from polydevice_cpu.onednn.descriptor import DATA_TYPES
from polydevice_cpu.onednn.engine import ALIGNMENT_BYTES
from polydevice_cpu.onednn.primitive import SymbolicPrimitive
from polydevice_cpu.plan.filling.filled import Filled, UnfitError
from polydevice_cpu.plan.filling.needs import Known
from polydevice_cpu.plan.filling.recipe import StepForm
from polydevice_cpu.plan.filling.sizes_alone import may_be_kept
from polydevice_cpu.plan.instead_of_primitives import by_machine
from polydevice_cpu.plan.plan import PlanParts
from polydevice_cpu.plan.step import (
    ArrayStep,
    ByMachine,
    CodeStep,
    Compute,
    PrimitiveStep,
)
from polydevice_cpu.plan.tables.form import (
    ARENA,
    NOTHING,
    SIZES,
    TABLE,
    ArrayForm,
    Home,
    StripForm,
    TableForm,
    Way,
)
from polydevice_cpu.plan.tables.template import Contents, TableTemplate
from polydevice_cpu.plan.tables.traced import NO_CONTEXT, WORD_BYTES, Traced
from polydevice_cpu.plan.value import Kind, Value

_log = logging.getLogger(__name__)

_Adding = Callable[[], None]

_WORDS = CALL.itemsize // WORD_BYTES


def table_template(
    formulas: Formulas,
    contents: Contents,
    parts: PlanParts,
    sizes: Sequence[int],
    pause: Callable[[], None] | None = None,
) -> TableTemplate | None:
    """Return the table of a template for the class of some sizes; None where it is not worth it.

    Args:
        formulas: of the template.
        contents: what its plans consist of.
        parts: of the template.
        sizes: of a plan that was filled in.
        pause: called again and again meanwhile.
    """
    try:
        with tracing(pause) as trace:
            numbers = formulas.traced(trace, [trace.input(size) for size in sizes])
            if numbers is None:
                return None
            making = Making(trace, numbers, contents)
            making.make(parts)
    except UntraceableError:
        return None
    except Exception:  # noqa: BLE001 - without it everything works, in more time
        _log.warning(
            "no table for sizes %s; please report it to %s", sizes, REPORT_TO, exc_info=True
        )
        return None
    found = formulas(sizes)
    if found is None or 2 * len(making.late) > len(contents[1].steps):
        return None
    return making.template(parts, found[0])


def places(lives: Sequence[Lived], sizes: Sequence[Number]) -> tuple[list[Number], Number]:
    """Return offsets of pieces in one block of memory, and its size, by formulas of their sizes.

    Each lies above those that lie below it as they are placed for the sizes of now: of any sizes,
    two that live at the same time have places of their own so.
    """
    now = [
        Life(life.first, life.last, number_of(size))
        for life, size in zip(lives, sizes, strict=True)
    ]
    order, _ = place_in_one(now, ALIGNMENT_BYTES)
    offsets, ends = [0] * len(now), [0] * len(now)
    below: dict[int, set[int]] = {}
    for at in sorted(range(len(now)), key=order.__getitem__):
        lower = [
            other
            for other in below
            if now[other].first <= now[at].last and now[at].first <= now[other].last
        ]
        covered = set[int]().union(*(below[other] for other in lower))
        direct = [ends[other] for other in lower if other not in covered]
        below[at] = covered.union(lower)
        size = -(-sizes[at] // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        offsets[at] = largest(direct) if direct else 0
        ends[at] = offsets[at] + (size or ALIGNMENT_BYTES)
    return offsets, largest(ends) if ends else 0


class _Recorded(list[Any]):
    """Sizes of which it is noted which are asked for."""

    def __init__(self, numbers: Sequence[Any]) -> None:
        super().__init__(numbers)
        self.asked: dict[int, None] = {}

    def __getitem__(self, place: Any) -> Any:
        self.asked[place] = None
        return super().__getitem__(place)


class Making:
    """What is collected for a table, of one trace.

    Attributes:
        calls: step → its first call, and the one behind the last.
        arrays: steps that NumPy computes.
        strips: steps in strips.
        late: numbers of the other steps.
    """

    def __init__(self, trace: Trace, numbers: list[Any], contents: Contents) -> None:
        self._trace, self._contents = trace, contents
        self._recipe = contents[1]
        self._filled = Traced(numbers, contents)
        self._numbers = numbers
        self._homes = [Home(Kind.CONSTANT) for _ in range(SIZES + 1)]
        self._homes[ARENA] = Home(Kind.ARENA)
        self._number_of_home: dict[tuple[Kind, int], int] = {}
        self._heads: list[Any] = []
        self._told: list[Any] = []
        self._bases: list[int] = []
        self._pointers: list[tuple[bool, int, int]] = []
        self._alive: list[object] = []
        self._offsets: dict[int, Any] = {}
        self._kept: list[int] = []
        self._once: frozenset[int] = frozenset()
        self._refusing: dict[int, int] = {}
        self.calls: dict[int, tuple[int, int]] = {}
        self.arrays: dict[int, tuple[ArrayForm, tuple[Compute | None, tuple[Any, ...]]]] = {}
        self.strips: dict[int, tuple[StripForm, tuple[Any, ...]]] = {}
        self.late: list[int] = []
        self._doubts: dict[int, list[tuple[int, Way]]] = {}
        self._first_doubts: dict[int, tuple[Way, int]] = {}
        self._arena_bytes: Any = 0
        self._threads = 1

    def make(self, parts: PlanParts) -> None:
        """Fill in all steps that may be numbers.

        Raises:
            UntraceableError: what is no step is for these sizes alone.
        """
        recipe, filled = self._recipe, self._filled
        kept = [filled.storage(number) for number in recipe.kept]
        self._arena = recipe.arena
        if may_be_kept(kept):
            self._kept, self._once = recipe.kept, recipe.once
            self._arena = [number for number in recipe.arena if number not in recipe.kept]
        self._kept_bytes = tuple(storage.size_bytes for storage in kept) if self._kept else ()
        self._place()
        for number, form in enumerate(recipe.steps):
            if not self._is_made(number, form):
                self.late.append(number)
        self._shapes = tuple(
            filled.value(number).shape if form.place >= 0 else form.given.shape
            for number in recipe.outputs
            if number >= 0
            for form in (recipe.values[number],)
        )

    def _is_made(self, number: int, form: StepForm) -> bool:
        """Fill in a step in the ways that there are, up to one that is right for all sizes."""
        ways: dict[Way, Callable[[int, StepForm, Any], _Adding | None]] = {}
        if isinstance(form.given, ArrayStep):
            ways = {Way.CODE: self._by_own_code, Way.NUMPY: self._by_arrays}
        elif form.place >= 0:
            ways = {Way.CODE: self._by_code, Way.NUMPY: self._by_numpy, Way.STRIPS: self._in_strips}
        elif isinstance(form.given, PrimitiveStep):
            ways = {Way.CODE: self._by_code_of_numbers}
        is_made = False
        for way, fill in ways.items():
            self._filled.forget()
            made, doubt = self._trace.attempt(partial(fill, number, form, form.given))
            if made is None:
                continue
            made()
            is_made = True
            if doubt is None:
                break
            self._doubts.setdefault(doubt, []).append((number, way))
            self._first_doubts.setdefault(number, (way, doubt))
        return is_made

    def _place(self) -> None:
        """Place storages in the arena."""
        lives = [self._recipe.storages[number].given for number in self._arena]
        sizes = [self._filled.storage(number).size_bytes for number in self._arena]
        offsets, self._arena_bytes = places(lives, sizes)
        self._offsets = dict(zip(self._arena, offsets, strict=True))

    def _by_code(self, number: int, form: StepForm, _: PrimitiveStep) -> _Adding | None:
        """Fill in a step by machine code; return what adds it, None where there is none."""
        made = self._filled.by_machine(form) if self._filled.has_code(form.place) else None
        if made is None:
            return None
        return partial(self._add_code, number, made.code, list(map(self._at, made.values)))

    def _by_code_of_numbers(
        self, number: int, form: StepForm, given: PrimitiveStep
    ) -> _Adding | None:
        """The same of a step whose sizes are none of formulas."""
        values = {index: self._filled.value(each) for index, each in form.arguments.items()}
        step = by_machine(replace(given, arguments=values), as_onednn=True)
        if not isinstance(step, CodeStep):
            return None
        return partial(self._add_code, number, step.code, list(map(self._at, step.values)))

    def _by_numpy(self, number: int, form: StepForm, given: PrimitiveStep) -> _Adding | None:
        """The same of a step that NumPy computes."""
        if not self._filled.may_be_by_numpy(form.place):
            return None
        values = {index: self._filled.value(each) for index, each in form.arguments.items()}
        compute = self._filled.by_numpy(given.primitive, form.place, values)
        if compute is None:
            return None
        target = values.pop(Arg.DST)
        return self._arrays(number, None, compute, list(values.values()), [target])

    def _by_own_code(self, number: int, form: StepForm, given: ArrayStep) -> _Adding | None:
        """The same of a step whose own function is machine code."""
        compute = None if given.draws else given.start(NO_CONTEXT)
        if not isinstance(compute, ByMachine):
            return None
        values = [self._filled.value(each) for each in (*form.inputs, *form.outputs)]
        code = compute.code(values)
        if code is None:
            return None
        first = code.starts[0]
        if compute.may_refuse and any(code.numbers[first : first + len(values)]):
            raise UntraceableError("code that may refuse begins within what it reads")
        if compute.may_refuse and code.kept is not None:
            raise UntraceableError("it keeps something, which may be room of its own")
        places = list(map(self._at, values))
        return partial(self._add_code, number, code, places, may_refuse=compute.may_refuse)

    def _by_arrays(self, number: int, form: StepForm, given: ArrayStep) -> _Adding | None:
        """The same of a step that is NumPy's own, or has no code for these sizes."""
        compute = None if given.draws else given.start(NO_CONTEXT)
        if compute is None:
            return None
        read, written = (
            [self._filled.value(each) for each in side] for side in (form.inputs, form.outputs)
        )
        if isinstance(compute, ByMachine) and compute.code([*read, *written]) is not None:
            return None  # whose bits may be others
        return self._arrays(number, given, None, read, written)

    def _arrays(
        self,
        number: int,
        given: ArrayStep | None,
        compute: Compute | None,
        read: Sequence[Value],
        written: Sequence[Value],
    ) -> _Adding:
        """What adds a step on arrays, of which one of both tells what computes it."""
        found = [(self._view(value), value.dtype) for value in (*read, *written)]
        homes = [(home, dtype) for (home, _), dtype in found]
        array = ArrayForm(number, len(self.arrays), given, homes, len(read))
        return partial(self._add_array, array, (compute, tuple(view for (_, view), _ in found)))

    def _in_strips(self, number: int, form: StepForm, given: PrimitiveStep) -> _Adding | None:
        """The same of a step in strips."""
        if not self._filled.may_be_in_strips(form.place):
            return None
        assert isinstance(given.primitive, SymbolicPrimitive)
        cut = self._filled.cut(given.primitive, form.place)
        if cut is None or not cut.positions > 1:
            return None
        homes, constants, types, seen = {}, {}, {}, []
        packed = None
        for index, each in form.arguments.items():
            value_form = self._recipe.values[each]
            if value_form.is_packed:
                if index != Arg.WEIGHTS or form.weights < 0:
                    raise UntraceableError("a constant is packed for each size")
                packed = index, value_form
                continue
            value = self._filled.value(each)
            if value.storage.root.array is not None:
                if value_form.place >= 0:
                    raise UntraceableError("a constant is made for each size")
                constants[index] = value
                continue
            if value.strides is None:
                raise UntraceableError("its layout is told by oneDNN")
            homes[index], offset = self._at(value)
            types[index] = DATA_TYPES[value.dtype]
            seen.append((offset, value.shape, value.strides))
        made = StripForm(number, cut.key, homes, types, constants, packed)
        return partial(self._add_strips, made, (cut.positions, cut.twice, tuple(seen)))

    def _add_strips(self, form: StripForm, found: tuple[Any, ...]) -> None:
        self.strips[form.step] = form, found
        self._filled.is_for_now = True

    def _at(self, value: Value) -> tuple[int, Any]:
        """The home of a value, and where it begins there."""
        root = value.storage.root
        if root.array is not None:
            self._alive.append(root)
            return NOTHING, root.address + value.offset_bytes
        if root in self._filled.places:
            return SIZES, WORD_BYTES * self._filled.places[root] + value.offset_bytes
        if root.kind in (Kind.INPUT, Kind.OUTPUT):
            return self._home(root.kind, root.index), value.offset_bytes
        number = next(n for n, each in enumerate(self._filled.storages) if each is root)
        if number in self._kept:
            return self._home(Kind.KEPT, number), value.offset_bytes
        return ARENA, self._offsets[number] + value.offset_bytes

    def _home(self, kind: Kind, number: int) -> int:
        known = self._number_of_home.get((kind, number))
        if known is None:
            known = self._number_of_home[kind, number] = len(self._homes)
            self._homes.append(Home(kind, number))
        return known

    def _view(self, value: Value) -> tuple[int, tuple[Any, ...]]:
        """The home of a value, and how it is seen there."""
        if value.strides is None or not all(value.shape):
            raise UntraceableError("NumPy does not see it")
        home, offset = self._at(value)
        if home == NOTHING:
            home, offset = len(self._homes), value.offset_bytes
            self._homes.append(Home(Kind.CONSTANT, data=value.storage.root.data))
        steps = tuple(step * value.dtype.itemsize for step in value.strides)
        return home, (value.shape, offset, steps)

    def _add_code(
        self,
        number: int,
        code: Code,
        places: Sequence[tuple[int, Any]],
        *,
        may_refuse: bool = False,
    ) -> None:
        """Put calls, and what they are told, behind what there is."""
        told, head = list(code.numbers), _WORDS * code.size
        bases = [NOTHING] * len(told)
        for start in code.starts:
            for at, (home, offset) in enumerate(places, start):
                told[at], bases[at] = told[at] + offset, home
        first, behind = len(self._heads) // _WORDS, len(self._told) - head
        if may_refuse:
            self._refusing[number] = code.starts[0] + behind
        for at, to in code.pointers:
            self._pointers.append(
                (at < head, at + (len(self._heads) if at < head else behind), to + behind)
            )
        self._heads += told[:head]
        self._told += told[head:]
        self._bases += bases[head:]
        self._alive.append(code.kept)
        self._threads = max(self._threads, code.threads)
        self.calls[number] = first, first + code.size

    def _add_array(self, form: ArrayForm, found: tuple[Compute | None, tuple[Any, ...]]) -> None:
        self.arrays[form.step] = form, found
        self._filled.is_for_now |= form.given is None

    def template(self, parts: PlanParts, numbers: list[Any]) -> TableTemplate | None:
        """Return the template; None where a step is not made for the sizes that there are.

        Args:
            parts: of the plans' template.
            numbers: what its formulas give of them.
        """
        asked = self._asked(numbers)
        if asked is None:
            return None
        words, bases = [*self._heads, *self._told], [NOTHING] * len(self._heads) + self._bases
        for is_head, at, to in self._pointers:
            place = at if is_head else len(self._heads) + at
            words[place], bases[place] = 8 * (len(self._heads) + to), TABLE
        varying = [place for place, word in enumerate(words) if is_symbolic(word)]
        distinct = {words[place].name: words[place] for place in varying}
        order = {name: which for which, name in enumerate(distinct)}
        which = [order[words[place].name] for place in varying]
        for place in varying:
            words[place] = 0
        based = np.array(bases, np.intp)
        moving = {
            number: np.flatnonzero(based == number)
            for number, home in enumerate(self._homes)
            if home.kind in (Kind.INPUT, Kind.OUTPUT)
        }
        form = TableForm(
            np.array(words, np.int64),
            np.array(varying, np.intp),
            np.array(which, np.intp),
            len(distinct),
            based,
            self._homes,
            moving,
            self.calls,
            {number: form for number, (form, _) in self.arrays.items()},
            {number: form for number, (form, _) in self.strips.items()},
            self._kept,
            self._once,
            {number: len(self._heads) + place for number, place in self._refusing.items()},
            len(self._recipe.steps),
            self._threads,
            self._alive,
        )
        wanted = [
            *distinct.values(),
            self._arena_bytes,
            self._kept_bytes,
            self._shapes,
            tuple(self._numbers[place] for place in asked),
            tuple(self._offsets.values()),
            tuple(self._filled.read),
            tuple(self._numbers[self._contents[0].places[id(desc)]] for desc in parts.inputs()),
            *(self._wanted(n, Way.NUMPY, found) for n, (_, found) in self.arrays.items()),
            *(self._wanted(n, Way.STRIPS, found) for n, (_, found) in self.strips.items()),
        ]
        return TableTemplate(
            *(form, self._trace.formulas(wanted), self._contents, parts),
            *(self._doubts, asked, list(self._offsets)),
            is_for_now=self._filled.is_for_now,
        )

    def _wanted(self, number: int, way: Way, found: object) -> object:
        """What is found of a step, which is wanted where a way that is chosen first is no choice.

        Of 66 steps that NumPy may compute in a network that detects objects, 51 have code as well.
        """
        first, doubt = self._first_doubts.get(number, (way, 0))
        return found if first is way else Otherwise(doubt, found)

    def _asked(self, numbers: list[Any]) -> Sequence[int] | None:
        """Places of the sizes that late steps are made with; None where they cannot be."""
        seen = _Recorded(numbers)
        try:
            with ahead() as codes:
                found = self._contents[0]
                anew = Known(found.places, found.varying)  # of what is there nothing is asked
                filled = Filled(seen, *self._contents, codes, may_be_in_strips=True, known=anew)
                for number in self.late:
                    filled.step(self._recipe.steps[number])
        except UnfitError:
            return None
        return list(seen.asked)
