"""Characters that differ only in their case, as regular expressions of RE2's syntax see it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable


def folded(accepts: Callable[[str], bool]) -> Callable[[str], bool]:
    """Return whether a character, or one that differs from it only in its case, is accepted."""
    others = _others()
    return lambda c: accepts(c) or any(map(accepts, others.get(c, "")))


@functools.lru_cache(maxsize=1)
def _others() -> dict[str, str]:
    """Characters → all others with the same simple folding: k → K and the sign of Kelvin.

    To find them takes 0.1 s, once.
    """
    same: dict[str, set[str]] = {}
    for character in map(chr, range(sys.maxunicode + 1)):
        if character.casefold() != character:
            same.setdefault(_fold(character), set()).add(character)
    orbits = [members | {fold} for fold, members in same.items()]
    return {c: "".join(sorted(orbit - {c})) for orbit in orbits for c in orbit}


def _fold(character: str) -> str:
    """Return the simple folding (Unicode's CaseFolding.txt, C and S), always one character."""
    for fold in (character.casefold(), character.lower()):
        if len(fold) == 1:
            return fold
    return character
