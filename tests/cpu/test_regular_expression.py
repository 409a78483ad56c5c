"""Regular expressions, against Python's engine where both agree on the syntax."""

from __future__ import annotations

import random
import re

import pytest

from polydevice_cpu.algorithms.by_machine import texts as by_machine
from polydevice_cpu.algorithms.texts import automaton
from polydevice_cpu.algorithms.texts.automaton import Matcher
from polydevice_cpu.algorithms.texts.regular_expression import Pattern, PatternError
from tests.cpu.loading import at_once

PATTERNS = [
    r"a*b+c?", r"(ab|a)*", r"[a-c]{2,3}x?", r"(a|b)*abb", r"^ab$", r"\w+@\w+\.com", r"(?i)AbC",
    r"[^ab]*", r"a{0}b", r"(a{1,2}){2}", r"\bab\b c", r".*", r"(?:a|)b", r"[]a]+", r"[a\-b]+",
    r"x{2", r"(a+)+b", r"()", r"", r"(?P<n>a)b", r"[\d_]+", r"\x41+", r"(?s).*", r"\D\S\W?",
    r"(?i:a)b", r"a??b", r"a{2,}", r"[^\d\s]+", r"(a|b|c){0,2}",
]  # fmt: skip


def matchers(monkeypatch, pattern):
    """What matches many texts at once: by machine code if there is some, and without."""
    yield Matcher(pattern)
    with monkeypatch.context() as patch:
        patch.setattr(by_machine, "is_there", lambda: False)
        yield Matcher(pattern)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matches_what_pythons_engine_matches(monkeypatch, pattern):
    rng = random.Random(pattern)
    texts = ["", "b", "abab", "aab", "ab c", "x{2", "ABC", "AAA", "aaab", "a@b.com"]
    texts += [
        "".join(rng.choice("abcxAB@. 1_\n-]{") for _ in range(rng.randrange(7))) for _ in range(300)
    ]
    compiled = Pattern(pattern)
    wanted = [re.fullmatch(pattern, text, re.ASCII) is not None for text in texts]
    for text, expected in zip(texts, wanted, strict=True):
        assert compiled.fullmatch(text) == expected, text
    for matcher in matchers(monkeypatch, pattern):
        for _ in range(2):
            assert matcher.matches(texts).tolist() == wanted


def test_what_only_re2_has():
    assert Pattern(r"[[:alpha:]]+[[:^digit:]]").fullmatch("ab-")
    assert not Pattern(r"[[:alpha:]]+[[:^digit:]]").fullmatch("ab1")
    assert Pattern(r"\Qa.b*\E+").fullmatch("a.b*")
    assert Pattern(r"\x{65e5}").fullmatch("日")
    assert Pattern(r"(?m)a$\n^b").fullmatch("a\nb")


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        (r"(?i)[^a-z]", "é1_ßẞσςΣı\0\6"), (r"(?i)[^\W]", "AakK1_Ssſ\u212a"), (r"(?i)s", "Ssſ"),
        (r"(?i)\w", "AakK1_Ssſ\u212a"), (r"(?i)\W", "éßẞσςΣı\0\6"), (r"(?i)σ", "σςΣ"),
        (r"(?i)ß", "ßẞ"), (r"(?i)[[:^lower:]]", "éßẞσςΣ1_ı\0\6"), (r"(?i)[J-L]", "kK\u212a"),
        (r"(?i:[\x{3a3}])", "σςΣ"), (r"(?i)\Qk\E", "kK\u212a"), (r"(?i)ı", "ı"),
        (r"\101|\0", "A\0"), (r"\137", "_"), (r"[\60\0061]", "1\6"), (r"\C", "AakK1_Ss\0\6"),
        (r"\C\C", "éßσςΣıſ"), (r"\C{3}", "ẞ\u212a"), (r"\C\B\C", "éßσςΣıſ"), (r"\C\b\C", ""),
    ],
)  # fmt: skip
def test_characters_as_re2_takes_them(monkeypatch, pattern, matching):
    """Case is Unicode's simple folding, before a class is negated; a byte may be part of one."""
    texts = list("AakK1_Ssſ\u212aéßẞσςΣı\0\6")
    wanted = [text in matching for text in texts]
    assert [Pattern(pattern).fullmatch(text) for text in texts] == wanted
    for matcher in matchers(monkeypatch, pattern):
        assert matcher.matches(texts).tolist() == wanted


def test_a_pattern_that_makes_backtracking_engines_hang():
    for pattern in (r"(a*)*b", r"(a|a|aa)+b"):
        assert not Pattern(pattern).fullmatch("a" * 5000)
        assert Matcher(pattern).matches(["a" * 50_000, "a" * 50_000 + "b"]).tolist() == [
            False,
            True,
        ]


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|b)*a" + "(a|b)" * 12,  # more sets of states than are remembered
        "".join(map(chr, range(0x100, 0x1A0))),  # more classes of characters
        "(a{900}){5}|a*",  # more states that take a character
    ],
)
def test_what_is_too_large_to_remember_is_matched_all_the_same(pattern):
    rng = random.Random(1)
    texts = ["".join(rng.choice("ab") for _ in range(40)) for _ in range(60)]
    texts += ["a" * 30, "", "".join(map(chr, range(0x100, 0x1A0))), "é"]
    wanted = [re.fullmatch(pattern, text) is not None for text in texts]
    assert True in wanted
    matcher = Matcher(pattern)
    for _ in range(2):
        assert matcher.matches(texts).tolist() == wanted


def test_characters_of_all_kinds(monkeypatch):
    """Of which some are remembered, and as many as there are in between."""
    monkeypatch.setattr(automaton, "MOST_CHARACTERS", 50)
    rng = random.Random(2)
    texts = ["".join(chr(rng.randrange(1, 0xD000)) for _ in range(30)) + "z" * k for k in (0, 1, 3)]
    texts += ["\U0001f600z", "\0", "\n", "z"]
    for pattern in (r"[^a-y]*z", r"(?s).*z{3}", r"\W+z", r".*\bz"):
        wanted = [re.fullmatch(pattern, text, re.ASCII) is not None for text in texts]
        for matcher in matchers(monkeypatch, pattern):
            assert matcher.matches(texts).tolist() == wanted


def test_characters_of_several_texts_that_are_not_ascii(monkeypatch):
    """Known and new ones in any order, some beyond those with a place each, and half a pair."""
    rng = random.Random(2)
    letters = "aä日\u00fc\uffff\U0001f600\ud800z1 .\n"
    for pattern in (r"[aä]+.?", "(日|\U0001f600)*[^z]{1,2}", r"(?s).*1", "[^ä\uffff]*"):
        for matcher in matchers(monkeypatch, pattern):
            for end in (3, 6, len(letters), 4):
                texts = [
                    "".join(rng.choice(letters[:end]) for _ in range(rng.randrange(5)))
                    for _ in range(200)
                ]
                wanted = [re.fullmatch(pattern, text) is not None for text in texts]
                assert matcher.matches(texts).tolist() == wanted


def test_many_texts_and_none(monkeypatch):
    monkeypatch.setattr(automaton, "AT_ONCE", 7)
    for matcher in matchers(monkeypatch, r"\d+"):
        texts = [str(number) if number % 3 else "x" for number in range(100)]
        assert matcher.matches(texts).tolist() == [number % 3 > 0 for number in range(100)]
        assert matcher.matches([]).tolist() == []
        assert matcher.matches(["", ""]).tolist() == [False, False]


def test_threads_share_what_is_remembered():
    texts = [f"{number:b}" for number in range(3000)]
    wanted = [number % 3 == 0 for number in range(3000)]
    for _ in range(5):
        matcher = Matcher("(0|1(01*0)*1)*")  # multiples of 3
        at_once(lambda _: assert_equal(matcher.matches(texts).tolist(), wanted), 4)  # noqa: B023


def assert_equal(got, wanted):
    assert got == wanted


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "no )"), ("a)", "unmatched"), ("*a", "nothing to repeat"), ("(?=a)", "look-around"),
        (r"(a)\1", "back references"), ("a{2000}", "at most 1000"),
        ("((((a{1000}){1000}){1000}){1000}", "20000 states"), ("[z-a]", "empty"),
        ("[", "too early"), ("\\", "too early"), ("(" * 300, "deep"), (r"\x{zz}", "no character"),
        ("[[:foo:]]", "no class"),
    ],
)  # fmt: skip
def test_refuses(pattern, reason):
    with pytest.raises(PatternError, match=re.escape(reason)):
        Pattern(pattern)
