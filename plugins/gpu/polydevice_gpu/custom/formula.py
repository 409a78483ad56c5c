"""Formulas of work sizes: integers, B F Y X, + - * / %, parentheses; parsed, never evaluated."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

_TOKEN = re.compile(r"\s*(?:(\d+)|([BFYXbfyx])(?![A-Za-z0-9_])|([-+*/%()]))")
_OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.floordiv,
    "%": operator.mod,
}
_DEPTH_LIMIT = 50


def calculate(formula: str, sizes: Mapping[str, int]) -> int:
    """Return the value of a formula.

    Args:
        formula: such as ``((F + 7) / 8) * B``; integers only, usual precedence, left to right.
        sizes: values of "B", "F", "Y" and "X".

    Raises:
        ValueError: saying what is wrong and where.
    """
    return _Parser(formula, sizes).whole()


class _Parser:
    def __init__(self, formula: str, sizes: Mapping[str, int]) -> None:
        self._formula = formula
        self._sizes = sizes
        self._depth = 0
        self._place = 0
        self._symbol = ""
        self._next()

    def whole(self) -> int:
        value = self._sum()
        if self._symbol:
            raise self._error(f"{self._symbol!r} is not expected")
        return value

    def _sum(self) -> int:
        value = self._product()
        while self._symbol in {"+", "-"}:
            value = self._apply(value, self._product)
        return value

    def _product(self) -> int:
        value = self._factor()
        while self._symbol in {"*", "/", "%"}:
            value = self._apply(value, self._factor)
        return value

    def _apply(self, left: int, read_right: Callable[[], int]) -> int:
        sign = self._symbol
        self._next()
        right = read_right()
        if sign in "/%" and right == 0:
            raise self._error("division by zero")
        return _OPERATORS[sign](left, right)

    def _factor(self) -> int:
        symbol = self._symbol
        if symbol == "(":
            self._depth += 1
            if self._depth > _DEPTH_LIMIT:
                raise self._error("too many parentheses")
            self._next()
            value = self._sum()
            if self._symbol != ")":
                raise self._error("a parenthesis is not closed")
            self._depth -= 1
        elif symbol.isdigit():
            value = int(symbol)
        elif symbol.upper() in self._sizes and symbol:
            value = self._sizes[symbol.upper()]
        else:
            raise self._error(f"{symbol!r} is not expected" if symbol else "something is missing")
        self._next()
        return value

    def _next(self) -> None:
        rest = self._formula[self._place :]
        if not rest.strip():
            self._symbol = ""
            return
        found = _TOKEN.match(rest)
        if found is None:
            raise self._error(
                f"{rest.strip()[:10]!r} is neither a number, B, F, Y, X nor one of +-*/%()"
            )
        self._symbol = next(group for group in found.groups() if group is not None)
        self._place += found.end()

    def _error(self, reason: str) -> ValueError:
        return ValueError(f"formula {self._formula.strip()!r}: {reason} (character {self._place})")
