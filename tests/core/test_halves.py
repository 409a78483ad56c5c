"""Between f32 and f16 as NumPy does it, by the processor's instructions and without."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.processor import halves


@pytest.fixture(params=["instruction", "without"])
def _rounding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without":
        monkeypatch.setattr(halves, "processor_flags", frozenset)


@pytest.mark.usefixtures("_rounding")
def test_every_kind_of_number_rounds_to_halves_as_in_numpy() -> None:
    """Ties, numbers below the smallest normal one, those that become 0 or infinite, and NaN."""
    numbers = np.arange(0, 1 << 32, 9973, np.uint64).astype(np.uint32).view(np.float32)
    ties = (np.arange(0, 1 << 16, dtype=np.uint32) << 16 | 0x1000).view(np.float32)
    given = np.concatenate([numbers, ties, np.float32([0, -0.0, np.inf, -np.inf, 65520, 65519.99])])
    given = given[~np.isnan(given)]
    with np.errstate(over="ignore", under="ignore"):
        expected = given.astype(np.float16)
        made = halves.as_halves(given)
    assert np.array_equal(made.view(np.uint16), expected.view(np.uint16))
    assert np.isnan(halves.as_halves(np.full(9, np.nan, np.float32))).all()


@pytest.mark.usefixtures("_rounding")
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (7,), (8,), (3, 5, 17), (1, 4, 1, 16)])
def test_arrays_round_to_halves_in_memory_order_however_they_lie(shape) -> None:
    plain = np.array(np.random.default_rng(5).standard_normal(shape), np.float32)
    plain.flags.writeable = False
    for given in (
        plain,
        plain.T,
        np.asfortranarray(plain),
        np.flip(plain),
        np.broadcast_to(plain, (3, *shape)),
        np.moveaxis(np.stack([plain, plain * 3]), 0, -1)[..., 1],
    ):
        made = halves.as_halves(given)
        assert made.flags.c_contiguous
        assert made.dtype == np.float16
        assert np.array_equal(made, given.astype(np.float16))


@pytest.mark.usefixtures("_rounding")
def test_every_half_is_widened() -> None:
    given = np.arange(1 << 16, dtype=np.uint16).view(np.float16)[:-3]  # no multiple of eight
    for order in (given, given[::-1], given[1:], given[:7]):
        made = np.full(order.shape, -1, np.float32)
        halves.convert_halves(order, made)
        np.testing.assert_array_equal(made, order.astype(np.float32))


@pytest.mark.usefixtures("_rounding")
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 5, 17)])
def test_arrays_are_written_in_any_order(shape) -> None:
    rng = np.random.default_rng(6)
    for kinds in ((np.float32, np.float16), (np.float16, np.float32)):
        plain = np.array(rng.standard_normal(shape), kinds[0])
        for given in (plain, plain.T, np.asarray(np.flip(plain))):
            for made in (np.empty(given.shape, kinds[1]), np.empty(given.T.shape, kinds[1]).T):
                halves.convert_halves(given, made)
                np.testing.assert_array_equal(made, given.astype(kinds[1]))
