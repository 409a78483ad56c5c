"""Regular expressions, against Python's engine where both agree on the syntax."""

from __future__ import annotations

import random
import re

import pytest

from polydevice_cpu.algorithms.regular_expression import Pattern, PatternError

PATTERNS = [
    r"a*b+c?", r"(ab|a)*", r"[a-c]{2,3}x?", r"(a|b)*abb", r"^ab$", r"\w+@\w+\.com", r"(?i)AbC",
    r"[^ab]*", r"a{0}b", r"(a{1,2}){2}", r"\bab\b c", r".*", r"(?:a|)b", r"[]a]+", r"[a\-b]+",
    r"x{2", r"(a+)+b", r"()", r"", r"(?P<n>a)b", r"[\d_]+", r"\x41+", r"(?s).*", r"\D\S\W?",
    r"(?i:a)b", r"a??b", r"a{2,}", r"[^\d\s]+", r"(a|b|c){0,2}",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matches_what_pythons_engine_matches(pattern):
    rng = random.Random(pattern)
    texts = ["", "b", "abab", "aab", "ab c", "x{2", "ABC", "AAA", "aaab", "a@b.com"]
    texts += [
        "".join(rng.choice("abcxAB@. 1_\n-]{") for _ in range(rng.randrange(7))) for _ in range(300)
    ]
    compiled = Pattern(pattern)
    for text in texts:
        expected = re.fullmatch(pattern, text, re.ASCII) is not None
        assert compiled.fullmatch(text) == expected, text


def test_what_only_re2_has():
    assert Pattern(r"[[:alpha:]]+[[:^digit:]]").fullmatch("ab-")
    assert not Pattern(r"[[:alpha:]]+[[:^digit:]]").fullmatch("ab1")
    assert Pattern(r"\Qa.b*\E+").fullmatch("a.b*")
    assert Pattern(r"\x{65e5}").fullmatch("日")
    assert Pattern(r"(?m)a$\n^b").fullmatch("a\nb")


def test_a_pattern_that_makes_backtracking_engines_hang():
    assert not Pattern(r"(a*)*b").fullmatch("a" * 5000)
    assert not Pattern(r"(a|a|aa)+b").fullmatch("a" * 5000)


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
