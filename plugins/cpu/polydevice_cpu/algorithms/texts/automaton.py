"""Automaton: the states of a pattern that a text may be in, taken together as one.

To follow them one by one takes a text of 12 characters 4 µs; to look the next set up, once it has
been found (Rabin and Scott, 1959), 0.5 µs, and 0.1 with machine code. Sets are found as texts lead
to them, and there are at most so many of them: a pattern that has more is matched the first way.
"""

from __future__ import annotations

from array import array
from functools import cached_property

import numpy as np

from polydevice.bounds import current_bounds
from polydevice.dtype import Array
from polydevice.locks import Lock
from polydevice_cpu.algorithms.by_machine import texts as by_machine
from polydevice_cpu.algorithms.texts.regular_expression import Pattern, bytes_of, is_word
from polydevice_cpu.onednn.engine import address_of

MOST_STATES = 1024
MOST_CLASSES = 1 << by_machine.CLASSES_SHIFT
MOST_CODES = 1 << 16
"""Characters below have a place each for their classes, once a text is not ASCII."""

MOST_CHARACTERS = 1 << 14
"""So many are remembered with their classes."""

MOST_CONSUMING = 4096
"""States of a pattern that take a character: what each takes is asked once for every character."""

AT_ONCE = 1 << 12
"""Texts that are matched together; others may end the inference in between."""

MOST_TOGETHER = 1 << 17
"""States of the pattern in all that are remembered, which take some 32 bytes each."""

_UNKNOWN, _START = -1, 0
_NEITHER, _WORD, _LINE = " ", "a", "\n"
"""Characters that stand for those that came before, as far as edges of lines and words ask."""


class _TooLargeError(Exception):
    """There are more states or classes of characters than are remembered."""


class Matcher:
    """A pattern that whole texts match; threads may share it.

    Raises:
        PatternError: with the reason.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = Pattern(pattern)
        self._lock = Lock()
        self._automaton: _Automaton | None = None
        if len(self._pattern.consuming) <= MOST_CONSUMING:
            self._automaton = _Automaton(self._pattern)

    def matches(self, texts: list[str]) -> Array:
        """Return [texts] bool: whether each as a whole matches; raises a TypeError for others."""
        check = current_bounds().check
        if len(texts) <= AT_ONCE:
            check()
            return self._matches(texts)
        found = np.empty(len(texts), np.bool_)
        for first in range(0, len(texts), AT_ONCE):
            check()
            some = texts[first : first + AT_ONCE]
            found[first : first + len(some)] = self._matches(some)
        return found

    def _matches(self, texts: list[str]) -> Array:
        with self._lock:
            if self._automaton is not None:
                try:
                    return self._automaton.matches(texts)
                except _TooLargeError:
                    self._automaton = None
        texts = list(map(str.__str__, texts))  # raises a TypeError, as `join` does above
        return np.array([self._pattern.fullmatch(text) for text in texts], np.bool_)


class _Classes(dict[int, int]):
    """Characters → classes: to which a pattern's states are all the same."""

    def __init__(self, pattern: Pattern) -> None:
        super().__init__()
        self._accepts = [pattern.states[index].accepts for index in pattern.consuming]
        self._has_bytes = pattern.has_bytes
        self._numbers: dict[tuple[int, ...], int] = {}
        self.characters: list[str] = []
        """One of each."""

    def of(self, text: str) -> bytes:
        """Return the classes of characters, of a byte each; raises _TooLargeError.

        Python looks up those of a text that is not ASCII one by one: 400 in 40 us instead of 5.
        """
        if text.isascii():
            return text.translate(self).encode("ascii")
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        if np.maximum.reduce(codes) >= MOST_CODES:
            return text.translate(self).encode("ascii")
        found = self._table.take(codes)
        new = found == MOST_CLASSES
        if new.any():
            for code in {*codes[new].tolist()}:
                self._table[code] = self[code]
            found = self._table.take(codes)
        return found.tobytes()

    @cached_property
    def _table(self) -> Array:
        return np.full(MOST_CODES, MOST_CLASSES, np.uint8)

    def __missing__(self, code: int) -> int:
        character = chr(code)
        taken = [accepts is not None and accepts(character) for accepts in self._accepts]
        size = bytes_of(character) if self._has_bytes else 1
        key = (*taken, is_word(character), character == _LINE, size)
        number = self._numbers.get(key)
        if number is None:
            number = len(self._numbers)
            if number == MOST_CLASSES:
                raise _TooLargeError
            self._numbers[key] = number
            self.characters.append(character)
        if len(self) >= MOST_CHARACTERS:
            self.clear()
        self[code] = number
        return number


class _Automaton:
    """What a text may be in, and what comes next: states of a pattern, and what came before.

    Edges of lines and words ask for the characters on both sides, so that what is reached without
    one is found when the next one is known.
    """

    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._classes = _Classes(pattern)
        self._known: list[tuple[frozenset[int], str]] = []
        self._numbers: dict[tuple[frozenset[int], str], int] = {}
        self._together = 0
        self._next = array("h")
        self._accepts = array("b")
        self._state(frozenset([pattern.start]), "")
        self._state(frozenset(), _NEITHER)  # by_machine.DEAD
        self._by_machine = by_machine.is_there()

    def matches(self, texts: list[str]) -> Array:
        """Return [texts] bool; raises _TooLargeError."""
        classes = self._classes.of("".join(texts))
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        found = np.empty(len(texts), np.bool_)
        if not self._by_machine or not len(texts) or np.add.reduce(lengths) != len(classes):
            self._walk(texts, found)
            return found
        given = np.frombuffer(classes or b"\0", np.uint8)
        places = address_of(given), address_of(lengths), address_of(found)
        walk = by_machine.Walk(places, len(texts), int(lengths[0]))
        while True:
            state = walk.go_on(self._next.buffer_info()[0], self._accepts.buffer_info()[0])
            if state is None:
                return found
            self._found_next(state, classes[walk.character - places[0]])

    def _walk(self, texts: list[str], found: Array) -> None:
        """The same without machine code."""
        for number, text in enumerate(texts):
            state = _START
            for class_ in text.translate(self._classes).encode("ascii"):
                following = self._next[(state << by_machine.CLASSES_SHIFT) + class_]
                state = self._found_next(state, class_) if following == _UNKNOWN else following
            found[number] = self._accepts[state]

    def _found_next(self, state: int, class_: int) -> int:
        """Find what comes next, and remember it."""
        states, before = self._known[state]
        character = self._classes.characters[class_]
        closed = self._pattern.closure([*states], before + character, len(before))
        reached = frozenset(self._pattern.taken(closed, character))
        number = self._state(reached, self._kind(character)) if reached else by_machine.DEAD
        self._next[(state << by_machine.CLASSES_SHIFT) + class_] = number
        return number

    def _kind(self, character: str) -> str:
        """Return what stands for a character once it is the one before."""
        if not self._pattern.has_edges:
            return _NEITHER
        return _LINE if character == _LINE else _WORD if is_word(character) else _NEITHER

    def _state(self, states: frozenset[int], before: str) -> int:
        """Return the number of a state."""
        key = states, before
        number = self._numbers.get(key)
        if number is None:
            number = len(self._known)
            self._together += len(states)
            if number == MOST_STATES or self._together > MOST_TOGETHER:
                raise _TooLargeError
            ends = self._pattern.end in self._pattern.closure([*states], before, len(before))
            self._next.extend([_UNKNOWN] * MOST_CLASSES)
            self._accepts.append(ends)
            self._known.append(key)
            self._numbers[key] = number
        return number
