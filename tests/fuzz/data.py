"""Data for inputs: kinds of values that suit an operator, made for any shape."""

from __future__ import annotations

import numpy as np

from tests.fuzz.builder import Builder, Maker, Rng, Sizes
from tests.fuzz.evaluate import is_float

WORDS = ("", "a", "b", "abc", "Abc", "a b", " x ", "12", "-3.5", "äöü", "the cat", "7e2", "true")


def floats(dtype: np.dtype, low: float = -4, high: float = 4) -> Maker:
    """Uniform numbers; every third array has halves only, where ties and zeros are."""

    def make(rng: Rng, shape: Sizes) -> np.ndarray:
        values = rng.uniform(low, high, shape)
        if rng.random() < 0.3:
            values = np.clip(np.round(values * 2) / 2, low, high)
        return np.asarray(values).astype(dtype)

    return make


def integers(dtype: np.dtype, low: int = -8, high: int = 8) -> Maker:
    """Integers from low to high, from 0 for types without a sign."""
    low = 0 if np.dtype(dtype).kind == "u" and low < 0 else low

    def make(rng: Rng, shape: Sizes) -> np.ndarray:
        return np.asarray(rng.integers(low, high + 1, shape)).astype(dtype)

    return make


def booleans(rng: Rng, shape: Sizes) -> np.ndarray:
    """Both truth values."""
    return np.asarray(rng.random(shape) < 0.5)


def strings(rng: Rng, shape: Sizes) -> np.ndarray:
    """Words, some empty, some that are numbers, some not ASCII."""
    picked = rng.integers(len(WORDS), size=shape)
    return np.array([WORDS[i] for i in np.ravel(picked)], object).reshape(shape)


def suited(dtype: np.dtype) -> Maker:
    """Return the ordinary data of a type."""
    dtype = np.dtype(dtype)
    if is_float(dtype):
        return floats(dtype)
    if dtype.kind == "b":
        return booleans
    return strings if dtype.kind == "O" else integers(dtype)


def some(b: Builder, dtype: np.dtype | None = None, rank: int | None = None, reuse: float = 0.7):
    """Return a floating-point value of the network, or new data."""
    kind = b.float_type() if dtype is None else np.dtype(dtype)
    if b.chance(reuse):
        found = b.find(
            lambda t: is_float(t.dtype) if dtype is None else t.dtype == kind,
            lambda t: rank is None or t.rank == rank,
        )
        if found is not None:
            return found
    return b.fresh(b.shape(rank), suited(kind), constant=0.1)


def image(b: Builder, spatial: int | None = None, dtype: np.dtype | None = None, least: int = 1):
    """Return a value [N, C, spatial…] of the network, or a new one."""
    spatial = b.choice((1, 2, 2, 2, 3)) if spatial is None else spatial
    kind = np.dtype(np.float32) if dtype is None else dtype
    if b.chance(0.7):
        found = b.find(
            lambda t: t.dtype == kind and t.rank == spatial + 2,
            lambda t: all(size >= least for size in t.shape[2:]) and t.shape[1] > 0,
        )
        if found is not None:
            return found
    return b.fresh(b.image(spatial, least), suited(kind), constant=0.05)


def broadcast(b: Builder, shape: Sizes) -> Sizes:
    """Return a shape that broadcasts with this one, in either direction."""
    sizes = [1 if b.chance(0.3) else size for size in shape]
    drop = b.integer(0, len(sizes)) if b.chance(0.4) else 0
    sizes = sizes[drop:]
    if b.chance(0.1) and len(sizes) < 5:
        sizes = [b.choice((1, 2, 3)), *([1] * (len(shape) - len(sizes))), *sizes]
    return tuple(sizes)


def partner(b: Builder, x, maker: Maker | None = None, reuse: float = 0.4):
    """Return a second operand for x: a value of its type that broadcasts with it, or new data."""
    if b.chance(reuse):
        found = b.find(lambda t: t.dtype == x.dtype, lambda t: fits(t.shape, x.shape))
        if found is not None:
            return found
    return b.fresh(broadcast(b, x.shape), maker or suited(x.dtype), constant=0.5)


def fits(first: Sizes, second: Sizes) -> bool:
    """Say whether two shapes broadcast."""
    try:
        np.broadcast_shapes(first, second)
    except ValueError:
        return False
    return True


def axes(b: Builder, rank: int, least: int = 0) -> list[int]:
    """Return different axes, some counted from the end."""
    count = b.integer(least, rank)
    chosen = sorted(int(a) for a in b.rng.permutation(rank)[:count])
    return [a - rank if b.chance(0.3) else a for a in chosen]
