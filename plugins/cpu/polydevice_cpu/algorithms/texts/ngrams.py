"""N-grams of a pool, counted in rows of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from polydevice.bounds import bounded, current_bounds
from polydevice.dtype import Array
from polydevice_cpu.algorithms.by_machine import texts as by_machine
from polydevice_cpu.algorithms.texts.labels import LEAST
from polydevice_cpu.onednn.engine import address_of

AT_ONCE = 1 << 24
"""About how many tokens are looked at in one call, which nothing can interrupt."""

MOST_SPREAD = 1 << 16
"""How far apart whole tokens may be whose numbers are looked up by what they are."""

MOST_PROBES = 64
"""Places where a branch is looked for."""

_NODE_SHIFT = 32


class Grams:
    """N-grams as ways from token to token, of which those with a common beginning share that."""

    def __init__(
        self, grams: Sequence[tuple[Any, ...]], shortest: int, longest: int, distances: int
    ) -> None:
        """Take those of so many tokens.

        Args:
            grams: the pool; of equal ones the first counts.
            shortest: tokens of an n-gram at least.
            longest: the same at most.
            distances: tokens of an n-gram may be 1 to so many places apart.
        """
        self.count = len(grams)
        self._distances = distances
        wanted = [(n, gram) for n, gram in enumerate(grams) if shortest <= len(gram) <= longest]
        self._longest = max((len(gram) for _, gram in wanted), default=0)
        self._numbers: dict[Any, int] = {}  # from 1
        for _, gram in wanted:
            for token in gram:
                self._numbers.setdefault(token, len(self._numbers) + 1)
        self._branches: dict[int, int] = {}
        ends = [-1] * (len(self._numbers) + 1)
        for number, gram in wanted:
            node = self._numbers[gram[0]]
            for token in gram[1:]:
                key = node << _NODE_SHIFT | self._numbers[token]
                node = self._branches.setdefault(key, len(ends))
                if node == len(ends):
                    ends.append(-1)
            if ends[node] < 0:
                ends[node] = number
        self._ends = np.array(ends, np.int32)
        self._table = _hashed(self._branches)
        are_whole = all(type(token) is int for token in self._numbers)
        self._places = (0, 0)
        if self._table is not None:
            self._places = address_of(self._table), address_of(self._ends)
        known = sorted(self._numbers) if are_whole else []
        self._known = np.array(known, np.int64)
        self._known_numbers = np.array([self._numbers[token] for token in known], np.int32)
        self._spread = np.empty(0, np.int32)
        self._before = known[0] - 1 if known else 0
        if known and known[-1] - self._before <= MOST_SPREAD and self._before >= LEAST:
            self._spread = np.zeros(known[-1] - self._before + 2, np.int32)  # 0 at both ends
            self._spread[self._known - self._before] = self._known_numbers

    def counted(self, x: Array) -> Array:
        """Return [rows, n-grams] i32: how often each is in rows of tokens [rows, tokens]."""
        rows, tokens = x.shape
        current_bounds().admit(rows * self.count * 4, "TfIdfVectorizer")
        counts = np.zeros((rows, self.count), np.int32)
        if not self._longest or not x.size:
            return counts
        ids, most = self._ids(x), max(min(self._distances, tokens - 1), 1)
        if self._longest == 1:
            most = 1
        if self._table is None or not by_machine.is_there():
            self._count(ids, counts, most)
        elif rows * tokens * most <= AT_ONCE:
            current_bounds().check()
            self._count_by_machine(ids, counts, range(1, most + 1))
        else:
            some_rows = max(AT_ONCE // (tokens * most), 1)
            some_distances = max(AT_ONCE // tokens, 1)
            for first in bounded(range(0, rows, some_rows)):
                part = slice(first, first + some_rows)
                for start in bounded(range(1, most + 1, some_distances)):
                    distances = range(start, min(start + some_distances, most + 1))
                    self._count_by_machine(ids[part], counts[part], distances)
        return counts

    def _count_by_machine(self, ids: Array, counts: Array, distances: range) -> None:
        """Count in rows of numbers, which follow each other."""
        assert self._table is not None
        places = address_of(ids), address_of(counts), *self._places
        sizes = *ids.shape, distances, self._longest, self.count
        by_machine.count_grams(places, len(self._table) - 1, *sizes)

    def _ids(self, x: Array) -> Array:
        """Return the numbers of tokens, i32."""
        if x.dtype.kind == "i" and len(self._known):
            if len(self._spread):
                # Differences may be too large for 64 bits, and lie far beyond the other end then.
                places = x.astype(np.int64, copy=False) - self._before
                return np.asarray(self._spread.take(places, mode="clip"))
            place = self._known.searchsorted(x)
            place = np.minimum(place, len(self._known) - 1)
            return np.where(self._known[place] == x, self._known_numbers[place], np.int32(0))
        items = x.reshape(-1).tolist()
        ids = np.fromiter(map(self._numbers.get, items, repeat(0)), np.int32, len(items))
        return ids.reshape(x.shape)

    def _count(self, ids: Array, counts: Array, most: int) -> None:
        """Count without machine code."""
        for row, found in zip(ids.tolist(), counts, strict=True):
            for distance in bounded(range(1, most + 1)):
                for start, node in enumerate(bounded(row)):
                    if distance == 1 and self._ends[node] >= 0:
                        found[self._ends[node]] += 1
                    for token in row[start + distance : len(row) : distance]:
                        node = self._branches.get(node << _NODE_SHIFT | token, 0)
                        if not node:
                            break
                        if self._ends[node] >= 0:
                            found[self._ends[node]] += 1


def _hashed(branches: dict[int, int]) -> Array | None:
    """Return [places, 2] i64: where `by_machine.count_grams` finds branches; at most half full.

    None where too many of them have to be looked for in one place, as those of hostile pools.
    """
    bits = (2 * len(branches)).bit_length()
    for size in (1 << bits, 4 << bits):
        table = np.zeros((size, 2), np.int64)
        if all(_entered(table, key, node) for key, node in branches.items()):
            return table
    return None


def _entered(table: Array, key: int, node: int) -> bool:
    """Enter a branch; False where there is no free place near."""
    mask = len(table) - 1
    first = (key * by_machine.MULTIPLIER & (1 << 64) - 1) >> 32
    for place in range(first, first + MOST_PROBES):
        if not table[place & mask, 0]:
            table[place & mask] = key, node
            return True
    return False
