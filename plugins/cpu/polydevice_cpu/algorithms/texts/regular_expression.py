"""Regular expressions of RE2's syntax, matched in time linear in the text.

Python's own engine backtracks, so that a pattern from an untrusted model could run for ever. Here
a pattern becomes an automaton (Thompson, 1968) whose states are followed all at once.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from polydevice_cpu.algorithms.texts.case_folding import folded

MAX_STATES = 20_000
MAX_REPEAT = 1_000
MAX_DEPTH = 200

Accepts = Callable[[str], bool]
"""Whether a character belongs to a class."""


class PatternError(ValueError):
    """The pattern is not valid, not supported, or too large."""


@dataclass
class _State:
    """Consume a character of `accepts`, or go on to `next` at once if `check` allows it.

    One that takes a byte of UTF-8 accepts characters of one byte, and parts of others.
    """

    next: list[int] = field(default_factory=list)
    accepts: Accepts | None = None
    check: Callable[[str, int], bool] | None = None
    takes_byte: bool = False


class Pattern:
    """A compiled pattern.

    Attributes:
        states: of the automaton.
        start: the first one.
        end: the one that a text which matches ends in.
        consuming: those that take a character.
        has_edges: whether some go on only at an edge of a line or a word.
        has_bytes: whether some take a byte of UTF-8.

    Raises:
        PatternError: with the reason.
    """

    def __init__(self, text: str) -> None:
        self.states: list[_State] = []
        self.start, self.end = _Parser(text, self.states).parse()
        self.consuming = [n for n, state in enumerate(self.states) if state.accepts is not None]
        self.has_edges = any(state.check is not None for state in self.states)
        self.has_bytes = any(state.takes_byte for state in self.states)

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text matches."""
        current = self.closure([self.start], text, 0)
        for position, character in enumerate(text):
            current = self.closure(self.taken(current, character), text, position + 1)
            if not current:
                return False
        return self.end in current

    def taken(self, current: Iterable[int], character: str) -> list[int]:
        """Return the states that are reached from these by a character."""
        found = [
            state.next[0]
            for index in current
            if (state := self.states[index]).accepts is not None and state.accepts(character)
        ]
        if self.has_bytes and (count := bytes_of(character)) > 1:
            found += self._taken_in_bytes(current, count)
        return found

    def _taken_in_bytes(self, current: Iterable[int], count: int) -> list[int]:
        """Return the states that are reached by taking one byte after the other."""
        reached: list[int] = []
        for taken in range(count):
            if taken:
                current = self.closure(reached, _INSIDE, 1)
            reached = [self.states[i].next[0] for i in current if self.states[i].takes_byte]
        return reached

    def closure(self, found: list[int], text: str, position: int) -> set[int]:
        """Return the states that are reached without a character."""
        seen: set[int] = set()
        stack = list(found)
        while stack:
            index = stack.pop()
            if index in seen:
                continue
            seen.add(index)
            state = self.states[index]
            if state.accepts is None and (state.check is None or state.check(text, position)):
                stack.extend(state.next)
        return seen


_INSIDE = "\x80\x80"
"""What is around a place between bytes of a character: nothing that has edges."""


def bytes_of(character: str) -> int:
    """Return how many bytes of UTF-8 a character has."""
    return 1 + (character > "\x7f") + (character > "\u07ff") + (character > "\uffff")


Part = tuple[int, int]
"""First and last state of a piece of the automaton."""


class _Parser:
    def __init__(self, text: str, states: list[_State]) -> None:
        self.text = text
        self.states = states
        self.at = 0
        self.depth = 0
        self.ignore_case = False
        self.dot_all = False
        self.multi_line = False

    def parse(self) -> Part:
        part = self.alternatives()
        if self.at < len(self.text):
            raise PatternError(f"unmatched ) at position {self.at}")
        return part

    # -- building ---------------------------------------------------------------------------

    def state(
        self, *, accepts: Accepts | None = None, check: Callable[[str, int], bool] | None = None
    ) -> int:
        if len(self.states) >= MAX_STATES:
            raise PatternError(f"the pattern needs more than {MAX_STATES} states")
        self.states.append(_State([], accepts, check))
        return len(self.states) - 1

    def single(
        self, *, accepts: Accepts | None = None, check: Callable[[str, int], bool] | None = None
    ) -> Part:
        first, last = self.state(accepts=accepts, check=check), self.state()
        self.states[first].next.append(last)
        return first, last

    def link(self, one: int, other: int) -> None:
        self.states[one].next.append(other)

    # -- syntax -----------------------------------------------------------------------------

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        if self.at >= len(self.text):
            raise PatternError("the pattern ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def alternatives(self) -> Part:
        flags = (self.ignore_case, self.dot_all, self.multi_line)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise PatternError(f"groups are nested more than {MAX_DEPTH} deep")
        parts = [self.sequence()]
        while self.peek() == "|":
            self.at += 1
            parts.append(self.sequence())
        self.depth -= 1
        self.ignore_case, self.dot_all, self.multi_line = flags
        if len(parts) == 1:
            return parts[0]
        first, last = self.state(), self.state()
        for start, end in parts:
            self.link(first, start)
            self.link(end, last)
        return first, last

    def sequence(self) -> Part:
        first = last = self.state()
        while self.peek() not in ("", "|", ")"):
            start = self.at
            part = self.atom()
            while self.peek() and self.peek() in "*+?{":
                repeated = self.repeated(part, start)
                if repeated is None:
                    break
                part = repeated
            self.link(last, part[0])
            last = part[1]
        return first, last

    def repeated(self, part: Part, start: int) -> Part | None:
        """Apply the quantifier here to the atom that begins at `start`; None for a plain brace."""
        end_of_atom = self.at
        sign = self.take()
        low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(sign, (0, None))
        if sign == "{":
            limits = self.braces()
            if limits is None:
                self.at = end_of_atom
                return None
            low, high = limits
        if self.peek() == "?":  # lazy: the same texts match
            self.at += 1
        behind = self.at
        copies = [part]
        for _ in range(max(low, high or 0, 1) - 1):
            self.at = start
            copies.append(self.atom())
        self.at = behind
        first = last = self.state()
        for number, (begin, end) in enumerate(copies):
            if high == 0:
                break
            self.link(last, begin)
            after = self.state()
            self.link(end, after)
            if number >= low:
                self.link(last, after)
            if high is None and number == len(copies) - 1:
                self.link(end, begin)
            last = after
        return first, last

    def braces(self) -> tuple[int, int | None] | None:
        """Read ``n}``, ``n,}`` or ``n,m}``; None when it is none of these."""
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at : max(end, self.at)].partition(",")
        if end < 0 or not low.isdigit() or (high and not high.isdigit()):
            return None
        self.at = end + 1
        least = int(low)
        most = int(high) if high else None if comma else least
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise PatternError(
                f"repetition {{{low}{comma}{high}}} is not possible; at most {MAX_REPEAT}"
            )
        return least, most

    def atom(self) -> Part:
        character = self.take()
        if character == "(":
            return self.group()
        if character == "[":
            return self.single(accepts=self.bracket())
        if character == ".":
            every = self.dot_all
            return self.single(accepts=lambda c: every or c != "\n")
        if character in "^$":
            return self.single(check=_line_edge(character, self.multi_line))
        if character in "*+?":
            raise PatternError(f"nothing to repeat before {character!r} at {self.at - 1}")
        if character == "\\":
            return self.escape()
        return self.single(accepts=self.character(character))

    def group(self) -> Part:
        if self.peek() != "?":
            return self.closed(self.alternatives())
        self.at += 1
        if self.text.startswith("P<", self.at) or (
            self.peek() == "<" and self.text[self.at + 1 : self.at + 2] not in ("=", "!")
        ):
            self.at = self.text.find(">", self.at) + 1
            if self.at == 0:
                raise PatternError("a group's name has no end")
            return self.closed(self.alternatives())
        kept = (self.ignore_case, self.dot_all, self.multi_line)
        on = True
        while self.peek() and self.peek() not in ":)":
            flag = self.take()
            if flag == "-":
                on = False
            elif flag == "i":
                self.ignore_case = on
            elif flag == "s":
                self.dot_all = on
            elif flag == "m":
                self.multi_line = on
            elif flag != "U":  # greediness does not change which texts match
                raise PatternError(f"(?{flag} is not supported; RE2 has no look-around")
        if self.take() == ")":
            return self.single()  # the flags hold for the rest of the group
        part = self.closed(self.alternatives())
        self.ignore_case, self.dot_all, self.multi_line = kept
        return part

    def closed(self, part: Part) -> Part:
        if self.peek() != ")":
            raise PatternError("a ( has no )")
        self.at += 1
        return part

    def escape(self) -> Part:
        letter = self.peek()
        checks = {
            "A": lambda _, i: i == 0,
            "z": lambda t, i: i == len(t),
            "b": _at_word_edge,
            "B": lambda t, i: not _at_word_edge(t, i),
        }
        if letter in checks and letter:
            self.at += 1
            return self.single(check=checks[letter])
        if letter == "Q":
            end = self.text.find("\\E", self.at)
            literal = self.text[self.at + 1 : end if end >= 0 else len(self.text)]
            self.at = end + 2 if end >= 0 else len(self.text)
            return self.literal(literal)
        if letter == "C":
            self.at += 1
            part = self.single(accepts=str.isascii)
            self.states[part[0]].takes_byte = True
            return part
        return self.single(accepts=self.escaped_class())

    def literal(self, text: str) -> Part:
        first = last = self.state()
        for character in text:
            part = self.single(accepts=self.character(character))
            self.link(last, part[0])
            last = part[1]
        return first, last

    def folded(self, accepts: Accepts) -> Accepts:
        """Ignore the case where the flags say so; what is negated is folded before."""
        return folded(accepts) if self.ignore_case else accepts

    def character(self, character: str) -> Accepts:
        return self.folded(lambda c: c == character)

    def escaped_class(self) -> Accepts:
        letter = self.take()
        known = _CLASSES.get(letter.lower())
        if known is not None:
            accepts = self.folded(known)
            return accepts if letter.islower() else lambda c: not accepts(c)
        return self.character(self.escaped_character(letter))

    def escaped_character(self, letter: str) -> str:
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "0" or (letter in _OCTAL and self.peek() in _OCTAL):
            digits = letter
            while len(digits) < 3 and self.peek() in _OCTAL:
                digits += self.take()
            return chr(int(digits, 8))
        if letter == "x":
            if self.peek() == "{":
                end = self.text.find("}", self.at)
                digits, self.at = self.text[self.at + 1 : max(end, 0)], end + 1
            else:
                digits, self.at = self.text[self.at : self.at + 2], self.at + 2
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise PatternError(f"\\x{digits} is no character") from None
        if letter.isalnum() and letter.isascii():
            reason = "RE2 has no back references" if letter.isdigit() else f"legal: {_ESCAPES}"
            raise PatternError(f"\\{letter} is not supported; {reason}")
        return letter

    def bracket(self) -> Accepts:
        negated = self.peek() == "^"
        self.at += negated
        parts: list[Accepts] = []
        first = True
        while first or self.peek() != "]":
            first = False
            name = self.posix_name()
            if name is not None:
                parts.append(name)
                continue
            character = self.take()
            if character == "\\":
                letter = self.peek()
                if letter.lower() in _CLASSES:
                    parts.append(self.escaped_class())
                    continue
                self.at += 1
                character = self.escaped_character(letter)
            parts.append(self.range_from(character))
        self.at += 1
        if negated:
            return lambda c: not any(p(c) for p in parts)
        return lambda c: any(p(c) for p in parts)

    def range_from(self, low: str) -> Accepts:
        """Read the rest of ``a-z``, or return the single character."""
        if self.peek() != "-" or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            return self.character(low)
        self.at += 1
        high = self.take()
        if high == "\\":
            high = self.escaped_character(self.take())
        if high < low:
            raise PatternError(f"range {low}-{high} is empty")
        return self.folded(lambda c: low <= c <= high)

    def posix_name(self) -> Accepts | None:
        """Read ``[:alpha:]`` within brackets; None when it does not stand here."""
        end = self.text.find(":]", self.at + 2)
        if not self.text.startswith("[:", self.at) or end < 0:
            return None
        name = self.text[self.at + 2 : end]
        members = _POSIX.get(name.lstrip("^"))
        if members is None:
            raise PatternError(f"[:{name}:] is no class; legal: {', '.join(_POSIX)}")
        self.at = end + 2
        accepts = self.folded(lambda c: c in members)
        return (lambda c: not accepts(c)) if name.startswith("^") else accepts


def is_word(character: str) -> bool:
    """Whether a character belongs to words, for edges of these."""
    return character == "_" or (character.isascii() and character.isalnum())


def _at_word_edge(text: str, position: int) -> bool:
    before = position > 0 and is_word(text[position - 1])
    return before != (position < len(text) and is_word(text[position]))


def _line_edge(sign: str, multi_line: bool) -> Callable[[str, int], bool]:
    if sign == "^":
        return lambda t, i: i == 0 or (multi_line and t[i - 1] == "\n")
    return lambda t, i: i == len(t) or (multi_line and t[i] == "\n")


_CLASSES: dict[str, Accepts] = {
    "d": lambda c: "0" <= c <= "9",
    "s": lambda c: c in " \t\n\r\f",
    "w": is_word,
}
_ESCAPES = r"\A \b \B \C \d \D \Q \s \S \w \W \z \a \f \n \r \t \v \101 \x41 \x{41}, punctuation"
_OCTAL = frozenset(string.octdigits)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_POSIX = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "ascii": "".join(map(chr, range(128))),
    "blank": " \t",
    "cntrl": "".join(map(chr, range(32))) + "\x7f",
    "digit": string.digits,
    "graph": string.ascii_letters + string.digits + string.punctuation,
    "lower": string.ascii_lowercase,
    "print": string.ascii_letters + string.digits + string.punctuation + " ",
    "punct": string.punctuation,
    "space": " \t\n\r\f\v",
    "upper": string.ascii_uppercase,
    "word": string.ascii_letters + string.digits + "_",
    "xdigit": string.hexdigits,
}
