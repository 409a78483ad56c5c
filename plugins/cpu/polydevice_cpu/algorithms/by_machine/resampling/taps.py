"""Taps: sums of a few weighted elements along an axis for each result, by AVX-512.

NumPy takes a pass over all results for each tap, and a product with a matrix of weights, most of
them zeros, as many terms as the axis is long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from polydevice.dtype import Array
from polydevice.processor.machine_code import function_of
from polydevice_cpu.algorithms.by_machine.code import Code, Told, parts_of
from polydevice_cpu.algorithms.by_machine.instructions import (
    LOAD,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
    RAX,
    RBP,
    RDI,
    RDX,
    RSI,
    STORE,
    Instructions,
)
from polydevice_cpu.onednn.engine import address_of

SIDE_BY_SIDE = 8
"""From so many elements behind the axis on they are loaded as they lie; of fewer, each is fetched
by itself."""

SHARED = 1 << 16
"""From so many products on threads share the work."""

FETCHED, VECTOR = 0.5, 2.0
"""Cycles of a product whose element is fetched by itself, and of a vector of products."""

LANES, _AT_ONCE = 16, 4
_FMA, _COPIED_BYTES = 0xB8, 4

(_SOURCE, _RESULT, _INDEX, _WEIGHTS, _OUTER, _ROWS, _TAPS, _BLOCKS, _VECTORS, _REST,
 _SOURCE_BYTES, _SKIPPED) = range(12)  # fmt: skip
"""What is told: addresses; how many slices there are before the axis, results of each, taps, blocks
of vectors, vectors behind them and elements behind those; bytes between slices of the source, and
of results of other parts of the work."""


class Table(NamedTuple):
    """What is added up for each result.

    Attributes:
        read: [results, taps]: elements of the axis.
        weight: likewise, f32.
    """

    read: Array
    weight: Array


def cycles(shape: Sequence[int], axis: int, table: Table) -> float:
    """Return about how many cycles of a core it takes, for a source of this shape."""
    inner = math.prod(shape[axis + 1 :])
    count = math.prod(shape[:axis]) * table.read.size
    if inner < SIDE_BY_SIDE:
        return FETCHED * count * inner
    return VECTOR * count * -(-inner // LANES)


def code_of(shape: Sequence[int], axis: int, table: Table, threads: int) -> Code:
    """Return code that is told where a source and the result are.

    Args:
        shape: of the source, f32, row-major, without an axis of no elements.
        axis: the axis.
        table: of the axis.
        threads: how many may share the work.
    """
    outer, size = math.prod(shape[:axis]), shape[axis]
    inner, results = math.prod(shape[axis + 1 :]), len(table.read)
    is_much = outer * inner * table.read.size >= SHARED
    told: list[Told] = []
    kept: list[tuple[Array, Array]] = []
    for first, behind in parts_of(results, threads, is_worth_it=is_much):
        some = slice(first, behind)
        index, weight = table.read[some], table.weight[some].astype(np.float32)
        count, taps = index.shape
        if inner >= SIDE_BY_SIDE:
            places = np.ascontiguousarray(index, np.int64) * (4 * inner)
            vectors, rest = divmod(inner, LANES)
            blocks, vectors = divmod(vectors, _AT_ONCE)
            how, sizes = _by_vectors(), (count, taps, blocks, vectors, rest)
        else:
            places = _each_place(index, inner)
            weight = _in_vectors(weight.repeat(inner, axis=0))
            vectors, rest = divmod(count * inner, LANES)
            how, sizes = _by_fetching(), (1, taps, 0, vectors, rest)
        weight = np.ascontiguousarray(weight)
        kept.append((places, weight))
        addresses = 0, 4 * first * inner, address_of(places), address_of(weight)
        skipped = 4 * inner * (results - count)
        told.append(
            (function_of(how), (*addresses, outer, *sizes, 4 * size * inner, skipped)),
        )
    return Code.shared(told, threads, kept)


def may_copy(shape: Sequence[int], axis: int, item_bytes: int) -> bool:
    """Whether `copying` copies such elements, and whole rows would take longer."""
    return item_bytes == _COPIED_BYTES and math.prod(shape[axis + 1 :]) < SIDE_BY_SIDE


def copying(shape: Sequence[int], axis: int, index: Array) -> Code:
    """Return code that copies elements of 4 bytes, told where a source and the result are.

    Args:
        shape: of the source, row-major, without an axis of no elements.
        axis: the axis.
        index: [results]: elements of it.
    """
    outer, size, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    places = _each_place(index[:, None], inner)
    sizes = 1, 1, 0, *divmod(len(index) * inner, LANES)
    told = 0, 0, address_of(places), 0, outer, *sizes, 4 * size * inner, 0
    return Code.of([(function_of(_by_fetching(weighs=False)), told)], places)


def _each_place(index: Array, inner: int) -> Array:
    """Return where each element of the results finds its taps, in vectors."""
    places = index[:, None] * inner + np.arange(inner)[:, None]
    return _in_vectors(places.reshape(-1, index.shape[1]).astype(np.int32))


def _in_vectors(table: Array) -> Array:
    """Return [vectors, taps, 16] of a table [results, taps], filled up with zeros."""
    count, taps = table.shape
    filled = np.zeros((-(-count // LANES) * LANES, taps), table.dtype)
    filled[:count] = table
    return np.ascontiguousarray(filled.reshape(-1, LANES, taps).transpose(0, 2, 1))


def _begun(code: Instructions) -> int:
    """Append what comes before a slice; return where that begins.

    R8: the slice; R9: results; R13: slices left; k1: the elements of the last vector.
    """
    code.begin(0)
    code.load(R8, RDI, _SOURCE)
    code.load(R9, RDI, _RESULT)
    code.load(R13, RDI, _OUTER)
    code.load(RAX, RDI, _REST)
    code.raw("beffffffff")  # mov esi, -1
    code.raw("c4e278f5f6")  # bzhi esi, esi, eax
    code.set_mask(1, RSI)
    return len(code.text)


def _ended(code: Instructions, slice_: int) -> bytes:
    code.add(R8, RDI, _SOURCE_BYTES)
    code.add(R9, RDI, _SKIPPED)
    code.again(R13, slice_)
    code.end(0)
    return code.assembled()


@lru_cache(maxsize=1)
def _by_vectors() -> bytes:
    """Code for elements that lie side by side behind the axis."""
    code = Instructions()
    slice_ = _begun(code)
    code.load(R10, RDI, _INDEX)
    code.load(R11, RDI, _WEIGHTS)
    code.load(R12, RDI, _ROWS)
    row = len(code.text)
    code.move(R15, R8)
    for number, vectors in ((_BLOCKS, _AT_ONCE), (_VECTORS, 1)):
        code.load(R14, RDI, number)
        code.compare(R14, 0)
        none = code.ahead("0f84")
        block = len(code.text)
        _append_sums(code, vectors)
        code.again(R14, block)
        code.here(none)
    code.load(R14, RDI, _REST)
    code.compare(R14, 0)
    none = code.ahead("0f84")
    _append_sums(code, 1, mask=1)
    code.scaled(R9, R9, R14, 4)
    code.step(R9, -4 * LANES)
    code.here(none)
    # Where the next result's taps begin: RSI and RDX are there unless nothing was added up.
    code.move(R10, RSI)
    code.move(R11, RDX)
    code.again(R12, row)
    return _ended(code, slice_)


def _append_sums(code: Instructions, vectors: int, mask: int = 0) -> None:
    """Append what adds up vectors at R15 by R10's places and R11's weights, and stores them."""
    for vector in range(vectors):
        code.clear(vector)
    code.move(RSI, R10)
    code.move(RDX, R11)
    code.load(RBP, RDI, _TAPS)
    tap = len(code.text)
    code.load(RAX, RSI)
    code.add(RAX, R15)
    code.spread(_AT_ONCE, RDX)
    for vector in range(vectors):
        code.vector(_FMA, vector, _AT_ONCE, RAX, behind=vector, kind=2, prefix=1, mask=mask)
    code.step(RSI, 8)
    code.step(RDX, 4)
    code.again(RBP, tap)
    for vector in range(vectors):
        code.vector(STORE, vector, 0, R9, behind=vector, mask=mask)
    code.step(R9, 4 * LANES * vectors)
    code.step(R15, 4 * LANES * vectors)


@lru_cache(maxsize=2)
def _by_fetching(*, weighs: bool = True) -> bytes:
    """Code that fetches each element by itself, and weighs it or does not."""
    code = Instructions()
    slice_ = _begun(code)
    code.load(RSI, RDI, _INDEX)
    code.load(RDX, RDI, _WEIGHTS)
    append = _append_fetched if weighs else _append_copied
    code.load(R14, RDI, _VECTORS)
    code.compare(R14, 0)
    none = code.ahead("0f84")
    vector = len(code.text)
    append(code)
    code.again(R14, vector)
    code.here(none)
    code.load(R14, RDI, _REST)
    code.compare(R14, 0)
    none = code.ahead("0f84")
    append(code, mask=1)
    code.scaled(R9, R9, R14, 4)
    code.step(R9, -4 * LANES)
    code.here(none)
    return _ended(code, slice_)


_SUMS, _READ, _PLACES, _ALL = 0, 1, 2, 2
"""Vectors of results, elements and their places; the mask of all of them."""


def _append_fetched(code: Instructions, mask: int = 0) -> None:
    """Append what adds up one vector of results, of which places and weights lie at RSI and RDX."""
    code.clear(_SUMS)
    code.load(RBP, RDI, _TAPS)
    tap = len(code.text)
    _append_fetch(code)
    code.vector(_FMA, _SUMS, _READ, RDX, kind=2, prefix=1)
    code.step(RDX, 4 * LANES)
    code.again(RBP, tap)
    code.vector(STORE, _SUMS, 0, R9, mask=mask)
    code.step(R9, 4 * LANES)


def _append_copied(code: Instructions, mask: int = 0) -> None:
    """Append what copies one vector of results, of which places lie at RSI."""
    _append_fetch(code)
    code.vector(STORE, _READ, 0, R9, mask=mask)
    code.step(R9, 4 * LANES)


def _append_fetch(code: Instructions) -> None:
    code.vector(LOAD, _PLACES, 0, RSI)
    code.raw("b8ffff0000")  # mov eax, 0xffff
    code.set_mask(_ALL, RAX)
    code.clear(_READ)
    code.gather(_READ, R8, _PLACES, _ALL)
    code.step(RSI, 4 * LANES)
