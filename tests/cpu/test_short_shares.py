"""SoftMax by code that is emitted for AVX2, between pages that must not be touched."""

from __future__ import annotations

import math

import numpy as np
import pytest

from polydevice_cpu.algorithms.by_machine import instructions
from polydevice_cpu.algorithms.by_machine.avx2 import shares as short_shares
from polydevice_cpu.algorithms.by_machine.rows import shares
from polydevice_cpu.onednn.engine import address_of
from tests.cpu.machine_code import with_avx2, with_vectors
from tests.guard_pages import SIDES, guarded

pytestmark = [with_avx2, with_vectors]

F = np.float32
SHAPES = [(5, 40, 1), (1, 1, 1), (3, 7, 1), (7, 130, 1), (2, 9, 5), (3, 40, 16), (2, 33, 21),
          (4, 1, 9), (1, 300, 3)]  # fmt: skip


@pytest.fixture(autouse=True)
def without_avx512(monkeypatch):
    monkeypatch.setattr(instructions, "has_avx512", lambda *_: False)
    monkeypatch.setattr(shares, "has_avx512", lambda *_: False)
    monkeypatch.setattr(short_shares, "function", short_shares.function.__wrapped__)


def wanted(x, *, logarithm):
    """What it is in twice the precision."""
    less = x.astype(np.float64) - x.max(1, keepdims=True)
    sums = np.exp(less).sum(1, keepdims=True)
    return less - np.log(sums) if logarithm else np.exp(less) / sums


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("spread", [1, 30, 200])
def test_rows_and_columns(side, logarithm, spread):
    rng = np.random.default_rng(spread)
    for shape in SHAPES:
        size_bytes = 4 * math.prod(shape)
        x, y = (guarded(side, size_bytes).view(F).reshape(shape) for _ in range(2))
        x[...] = rng.normal(size=shape) * spread
        assert shares.softmax(x, y, logarithm=logarithm)
        limits = {"rtol": 2e-6, "atol": 1e-6 * spread if logarithm else 1e-7}
        np.testing.assert_allclose(y, wanted(x, logarithm=logarithm), **limits)
        assert shares.softmax(x, x, logarithm=logarithm)
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("is_turned", [False, True])
def test_what_is_no_number_makes_its_row_none(logarithm, is_turned):
    x = np.random.default_rng(1).normal(size=(5, 21)).astype(F)
    x[1, 3], x[2, 20], x[3], x[4, :20] = np.nan, np.inf, -np.inf, -np.inf
    given = np.ascontiguousarray(x.T)[None] if is_turned else x[..., None]
    y = np.empty_like(given)
    shares.softmax(given, y, logarithm=logarithm)
    rows = y[0].T if is_turned else y[..., 0]
    assert np.isnan(rows).all(1).tolist() == [False, True, True, True, False]
    assert not np.isnan(rows[[0, 4]]).any()
    np.testing.assert_array_equal(rows[4, :20], -np.inf if logarithm else 0)


def test_threads_share_the_work():
    """One call takes some rows at a time; the next one goes on where that ended."""
    rng = np.random.default_rng(2)
    for shape in ((37, 24, 1), (3, 11, 50)):
        x = rng.normal(size=shape).astype(F)
        y = np.full_like(x, np.nan)
        function, told = shares._prepared(shape, 1, logarithm=False)
        given = bytearray(shares.placed(told, address_of(x), address_of(y)))
        given[24:32] = (4).to_bytes(8, "little")  # taken at a time
        assert not function(bytes(given))
        np.testing.assert_allclose(y, wanted(x, logarithm=False), rtol=2e-6, atol=1e-7)
