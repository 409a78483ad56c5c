"""Matrices in memory order, however they lie."""

from __future__ import annotations

import numpy as np
import pytest

from polydevice.processor.strips import copy_matrix, row_major

SHAPES = [(0, 3), (40, 0), (1, 1), (1, 100), (100, 1), (31, 33), (32, 32), (64, 65), (200, 97)]


def ways(shape, kind):
    """A matrix of random bytes of that shape, as it may lie in memory."""
    rng = np.random.default_rng(sum(shape))
    size = np.dtype(kind).itemsize
    plain = rng.integers(0, 256, (*shape, size), np.uint8).view(kind)[..., 0]
    wide = rng.integers(0, 256, (shape[1] * 2, shape[0] * 3, size), np.uint8).view(kind)[..., 0]
    return [
        np.ascontiguousarray(plain),
        np.asfortranarray(plain),
        np.flip(np.asfortranarray(plain), 0),
        np.flip(np.asfortranarray(plain), 1),
        wide[::2, ::3].T,
        np.broadcast_to(plain[:1], shape),
        np.broadcast_to(plain[:, :1], shape),
    ]


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("shape", SHAPES)
def test_matrices_in_memory_order(shape, kind) -> None:
    for given in ways(shape, kind):
        before = given.copy()
        made = row_major(given)
        assert made.flags.c_contiguous
        assert made.dtype == given.dtype
        np.testing.assert_array_equal(made, before)
        wide = np.full((shape[0] + 2, shape[1] + 3), 7, kind)
        copy_matrix(wide[: shape[0], : shape[1]], given)
        np.testing.assert_array_equal(wide[: shape[0], : shape[1]], before)
        assert (wide[shape[0] :] == 7).all()
        assert (wide[:, shape[1] :] == 7).all()


@pytest.mark.parametrize("shape", [(), (5,), (3, 4, 5)])
def test_arrays_that_are_no_matrices(shape) -> None:
    plain = np.random.default_rng(1).standard_normal(shape)
    for given in (plain, plain.T):
        made = row_major(given)
        assert made.shape == given.shape
        assert made.flags.c_contiguous
        np.testing.assert_array_equal(made, given)


def test_what_lies_right_is_not_copied() -> None:
    plain = np.zeros((50, 60), np.float16)
    assert row_major(plain) is plain
