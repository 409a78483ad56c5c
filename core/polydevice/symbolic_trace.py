"""Traces: what is done with symbolic sizes while something is made of them.

`Trace.formulas` says for other sizes what would have come out, or nothing if a guard does not hold,
so that a decision would have been another one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

from polydevice.dataclass import dataclass
from polydevice.symbolic_formulas import Formulas
from polydevice.symbolic_operators import CALLED
from polydevice.symbolic_size import (
    Number,
    SymbolicSize,
    UntraceableError,
    elsewhere,
    is_symbolic,
    mentions_sizes,
    named,
    names_in,
    number_of,
    written,
)

T = TypeVar("T")

_COMPUTED = re.compile(r"t\d+ = ")
_NAME = re.compile(r"\bt\d+\b")


@dataclass(frozen=True)
class Asked:
    """What becomes of a choice for other sizes.

    Attributes:
        other: says what would be chosen of what takes a thing's place; empty for the same.
        is_possible: whether the choice as it was made is right there all the same.
        about: the thing.
    """

    other: Callable[[Any], str]
    is_possible: Callable[[Any], bool]
    about: Any


@dataclass(frozen=True)
class Otherwise:
    """Something that is wanted only where a choice may be another one; None where it is not.

    Attributes:
        choice: its number.
        wanted: it.
    """

    choice: int
    wanted: object


class Trace:
    """What is done with sizes while something is made of them.

    Attributes:
        is_live: whether it still takes notes; afterwards the sizes are plain numbers.
        is_attempt: whether an `attempt` is made.
        is_general: whether nothing is gained by what holds for some sizes by chance; see `gains`.
        is_open: whether nothing was made for one number alone yet.
        steps: lines of a function of the sizes, in their order.
        asked: number of a choice → how to find out whether it stays the same.
    """

    def __init__(
        self, pause: Callable[[], None] | None = None, *, is_general: bool = False
    ) -> None:
        """Begin with nothing noted.

        Args:
            pause: called at every note, so that other threads get on while much is noted.
            is_general: whether what is made is to serve as many sizes as possible.
        """
        self.is_live = self.is_open = True
        self.is_general = is_general
        self.steps: list[str] = []
        self._read: list[tuple[str | None, list[str]]] = []
        """Of each step, once nothing more is noted."""
        self.asked: dict[int, Asked] = {}
        self._pause = pause
        self._known: dict[tuple[object, ...], SymbolicSize] = {}
        self._guards: set[str] = set()
        self._named: dict[str, SymbolicSize] = {}
        self._inputs: list[SymbolicSize] = []
        self._others: dict[int, int] = {}
        self._made = 0
        self._choices: dict[str, int] = {}
        self._functions: dict[str, tuple[Callable[..., object], object]] = {}
        self._given: dict[Callable[..., Number], str] = {}
        self.is_attempt = self._is_forgone = False

    def input(self, value: int) -> SymbolicSize:
        """Return a size from which others are computed."""
        name = f"s{len(self._inputs)}"
        other = self._others.get(value, 2 * value + 5)
        while value not in self._others and other in self._others.values():
            other += 1
        self._others[value] = other
        made = self._named[name] = SymbolicSize(self, name, value, other)
        self._inputs.append(made)
        return made

    def known(self, name: str) -> Number:
        """Return the number that the size of a name has; what is made with it serves no other."""
        return self._named[name].known()

    def named(self, name: str) -> SymbolicSize:
        """Return the size of a name."""
        return self._named[name]

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        """Take no notes in the block, of which nothing is used for other sizes."""
        self.is_live, before = False, self.is_live
        try:
            yield
        finally:
            self.is_live = before

    def named_in(self, text: str) -> list[SymbolicSize]:
        """Return the sizes that a text names."""
        return [self._named[name] for name in names_in(text)]

    def computed(
        self, key: tuple[object, ...], text: str, value: Number, other: Number = None
    ) -> Number:
        """Return what a formula gives; one that was noted before is computed once.

        Args:
            key: of the formula.
            text: what it is.
            value: for these sizes.
            other: what it would be for others, if that is known.
        """
        known = self._known.get(key)
        if known is None:
            self._made += 1
            known = self._known[key] = SymbolicSize(self, f"t{self._made}", value, other)
            self._named[known.name] = known
            self.steps.append(f"{known.name} = {text}")
            if self._pause is not None:
                self._pause()
        return known

    @contextlib.contextmanager
    def choice(self) -> Iterator[list[int]]:
        """Note a choice among ways that all are right, by a model of costs, say.

        Where a guard in it does not hold, the choice may still be the same: `formulas` then tells
        its number, which is in the list once the block has ended. Choices by equal formulas have
        one. What is computed in the block may be used outside of it.
        """
        around = self.steps, self._guards, self._is_forgone
        self.steps, self._guards, self._is_forgone = [], set(self._guards), False
        number: list[int] = []
        try:
            yield number
        finally:
            own, is_forgone = self.steps, self._is_forgone
            self.steps, self._guards, self._is_forgone = around
        self.steps += [line for line in own if _COMPUTED.match(line)]
        guards = [line for line in own if not _COMPUTED.match(line)]
        if not guards:
            return  # it does not depend on sizes
        text = "\n".join([*guards, "forgone"][: len(guards) + is_forgone])
        known = self._choices.get(text)
        if known is None:
            known = self._choices[text] = len(self._choices)
            other = f"others.append({known})"
            lines = [
                line.replace("return None", "break" if is_forgone else f"{other}; break")
                for line in guards
            ]
            lines += [other] if is_forgone else []
            self.steps += ["while chooses:", *(f" {line}" for line in lines), " break"]
        number.append(known)

    def depends(self) -> bool:
        """Whether the choice that is being made has found something of sizes so far."""
        return not all(map(_COMPUTED.match, self.steps))

    def forgo(self) -> None:
        """Say in a `choice` that it is made as if its guards did not hold.

        Others are to be made of sizes for which all of them hold.
        """
        self._is_forgone = True

    def attempt(self, make: Callable[[], T]) -> tuple[T | None, int | None]:
        """Return what is made with formulas; None where it is for these sizes alone.

        Whether it is right for other sizes is a choice, see `choice`; its number is returned as
        well, None where it is right for all. What was computed may be used outside of it.
        """
        made, before, choices = None, self.is_attempt, dict(self._choices)
        with self.choice() as number:
            self.is_attempt = True
            with contextlib.suppress(UntraceableError):
                made = make()
            self.is_attempt = before
            if made is None:
                self.steps, self._choices = list(filter(_COMPUTED.match, self.steps)), choices
        return made, number[0] if number else None

    def pin(self, size: SymbolicSize) -> None:
        """Note that something is made with the number that a size has.

        Raises:
            UntraceableError: in an `attempt`.
        """
        if self.is_attempt:
            raise UntraceableError(f"something is for {size.value} alone")
        self.is_open = False
        self.guard(f"{size.name} == {size.value!r}", True)

    def called(self, name: str, *arguments: Number) -> Number:
        """Return what one of the functions that formulas call gives of numbers or sizes."""
        value = CALLED[name](*map(number_of, arguments))
        if not any(map(is_symbolic, arguments)):
            return value
        texts = [named(each, {}, {}) for each in arguments]
        other = elsewhere(CALLED[name], *arguments)
        return self.computed((name, *texts), f"{name}({', '.join(texts)})", value, other)

    def computed_by(self, function: Callable[..., Number], *arguments: Number) -> Number:
        """Return what a function gives of numbers or sizes, which is asked for other sizes, too.

        Args:
            function: it gives something of any numbers, also of sizes that a guard excludes.
            arguments: what it is given.
        """
        value = function(*map(number_of, arguments))
        if not any(map(is_symbolic, arguments)):
            return value
        name = self._given.setdefault(function, f"g{len(self._given)}")
        texts = [named(each, {}, {}) for each in arguments]
        other = elsewhere(function, *arguments)
        return self.computed((name, *texts), f"{name}({', '.join(texts)})", value, other)

    def ask(self, number: int, asked: Asked) -> None:
        """Note how to find out what becomes of a choice."""
        self.asked.setdefault(number, asked)

    def guard(self, text: str, holds: bool) -> None:
        """Note what was found to hold, or not to."""
        line = f"if not ({text}): return None" if holds else f"if {text}: return None"
        if line not in self._guards:
            self._guards.add(line)
            self.steps.append(line)

    def outcome(self, function: Callable[..., T], sizes: Sequence[Number]) -> T:
        """Return what a function that no formula tells makes of sizes; it guards all that follows.

        For other sizes it is asked again, and has to answer something equal.
        """
        found = function(*map(number_of, sizes))
        if self.is_live:
            name = f"f{len(self._functions)}"
            self._functions[name] = function, found
            arguments = ", ".join(named(size, {}, {}) for size in sizes)
            self.steps.append(f"if {name}({arguments}) != {name}_answer: return None")
        return found

    def formulas(self, wanted: Sequence[object]) -> Formulas:
        """Take no more notes; return the function from sizes to what is wanted of them.

        Args:
            wanted: sizes, and tuples, lists, slices and partial functions of sizes; or anything
                else, which stays as it is. Each may be `Otherwise`.
        """
        self.is_live = False
        self._read = list(map(_read, self.steps))
        tuples: dict[str, str] = {}  # text → name: what is alike is made once
        others: dict[str, object] = {}
        seldom: dict[int, dict[str, object]] = {}
        results = []
        for place, each in enumerate(wanted):
            if isinstance(each, Otherwise):
                results.append(f"result{place}")
                seldom.setdefault(each.choice, {})[results[-1]] = each.wanted
            else:
                results.append(named(each, tuples, others))
        names = "".join(f"{item.name}, " for item in self._inputs)
        told = self._needed([*tuples, *results])
        lines = ["def formulas(sizes):", *([f"{names} = sizes"] if names else []), "others = []"]
        lines += [*told, *(f"{name} = {text}" for text, name in tuples.items())]
        for choice, own in seldom.items():
            lines += self._seldom(choice, own, told, tuples, others)
        lines.append(f"return [{', '.join(results)}], others")
        every = self.steps, self._read, self._known, self._guards, self._named, self._choices
        for notes in every:
            notes.clear()  # they take more than what was made
        scope: dict[str, Any] = {**CALLED, **others, "chooses": True, "partial": partial}
        for name, (function, answer) in self._functions.items():
            scope[name], scope[f"{name}_answer"] = function, answer
        given = {name: function for function, name in self._given.items()}
        scope.update(given)
        exec(compile("\n ".join(lines), "<formulas>", "exec"), scope)  # noqa: S102 - our own text
        outcomes = {name: function for name, (function, _) in self._functions.items()}
        return Formulas(scope.pop("formulas"), outcomes, given)

    def _seldom(
        self,
        choice: int,
        wanted: Mapping[str, object],
        told: Sequence[str],
        tuples: dict[str, str],
        others: dict[str, object],
    ) -> list[str]:
        """Lines that compute, where a choice may be another one, what is wanted then, by name."""
        own = dict(tuples)
        made = {name: named(each, own, others) for name, each in wanted.items()}
        texts = {name: text for text, name in own.items() if text not in tuples} | made
        known = set(told)
        lines = [line for line in self._needed(list(texts.values())) if line not in known]
        lines += [f"{name} = {text}" for name, text in texts.items()]
        return [
            f"{' = '.join(wanted)} = None",
            f"if {choice} in others:",
            *(f" {line}" for line in lines),
        ]

    def _needed(self, results: Sequence[str]) -> list[str]:
        """The steps without what nothing reads, as attempts leave behind that were given up."""
        names = set(_NAME.findall("\n".join(results)))
        kept = []
        for line, (computed, mentioned) in zip(
            reversed(self.steps), reversed(self._read), strict=True
        ):
            if computed is None or computed in names:
                kept.append(line)
                names.update(mentioned)
        return kept[::-1]


def _read(line: str) -> tuple[str | None, list[str]]:
    """What a step computes, if it does nothing else, and which names it mentions."""
    name = line.partition(" = ")[0] if _COMPUTED.match(line) else None
    return name, _NAME.findall(line)


_TRACE: ContextVar[Trace | None] = ContextVar("trace", default=None)


def current_trace() -> Trace | None:
    """Return the trace of what is going on in this thread; None where sizes are numbers."""
    return _TRACE.get()


@contextlib.contextmanager
def tracing(
    pause: Callable[[], None] | None = None, *, is_general: bool = False
) -> Iterator[Trace]:
    """Take notes of what is done with sizes until the end of the block; see `Trace`."""
    trace = Trace(pause, is_general=is_general)
    token = _TRACE.set(trace)
    try:
        yield trace
    finally:
        trace.is_live = False
        _TRACE.reset(token)


def gains(condition: Callable[[], bool], *, by_chance: bool = False) -> bool:
    """Whether something holds that makes things faster, and is never needed.

    What is made because it does not hold is right for all sizes, so that this is a choice.

    Args:
        condition: tells whether it holds.
        by_chance: whether it holds for some sizes and not for their neighbours: what is general
            does without it.
    """

    def gained() -> bool:
        trace = _TRACE.get()
        holds = condition()
        if not (holds and by_chance and trace is not None and trace.is_general):
            return holds
        if not trace.depends():
            return True
        trace.forgo()
        return False

    return _chosen(gained, lambda holds: not holds)


def chosen(choose: Callable[[], T]) -> T:
    """Return what a function chooses, of ways that differ in time alone: each is right for all."""
    return _chosen(choose, lambda _: True)


def _chosen(choose: Callable[[], T], serves_others: Callable[[T], bool]) -> T:
    trace = _TRACE.get()
    if trace is None:
        return choose()
    with trace.choice() as number:
        made = choose()
    is_possible = serves_others(made)
    for each in number:
        trace.ask(each, Asked(lambda _: "what gains by sizes", lambda _: is_possible, None))
    return made


def settled(text: str) -> str:
    """Return a text that decides something with the numbers of the sizes that it names."""
    trace = _TRACE.get()
    return text if trace is None or not mentions_sizes(text) else written(text, trace.known)
