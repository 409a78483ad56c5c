"""Formulas of work sizes in CONFIG_FILE."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydevice_gpu.custom.formula import calculate

ONE = dict.fromkeys("BFYX", 1)
SIZES = {"B": 2, "F": 3, "Y": 5, "X": 7}


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("B*F*Y*X", 210),
        ("b + f * y", 17),
        ("(B + F) * Y", 25),
        ("X / 2 * 2", 6),
        ("X - Y - 1", 1),
        ("100 / 7 / 2", 7),
        ("((X+15)/16)*16", 16),
        ("X % 4 + 1", 4),
        (" 7 ", 7),
    ],
)
def test_formula(formula, value) -> None:
    assert calculate(formula, SIZES) == value


@pytest.mark.parametrize(
    "formula",
    ["", " ", "+", "B F", "2B", "B(", ")", "(B", "B)", "-B", "B--F", "B**2", "Z", "BF", "1.5",
     "B//F", "B % 0", "__import__('os')", "(" * 1000 + "B"],
)  # fmt: skip
def test_formula_that_is_none(formula) -> None:
    with pytest.raises(ValueError, match="formula"):
        calculate(formula, ONE)


@given(st.recursive(
    st.sampled_from(["B", "F", "y", "x", "1", "16"]),
    lambda inner: st.tuples(inner, st.sampled_from("+*-"), inner).map(lambda t: f"({' '.join(t)})"),
    max_leaves=20,
))  # fmt: skip
def test_formula_agrees_with_python(formula) -> None:
    assert calculate(formula, SIZES) == eval(formula.upper(), {}, SIZES)
