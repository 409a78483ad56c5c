"""How far a right answer may be from another right answer.

Two parts. The first is the rounding of one operator, in the table below. Only where that is not
enough, the second is asked for: how much the network itself magnifies small errors, measured by
computing it again with every value disturbed (`disturbance`). Ties of rounding, comparisons and the
order of equal values all come under the second, and need no exception of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tests.fuzz.builder import Rng
from tests.fuzz.evaluate import Value, is_float


class Tolerance(NamedTuple):
    """Of one element type.

    Attributes:
        relative: to each element.
        of_largest: to the largest magnitude in the tensor: sums cancel.
        noise: relative size of the disturbance that stands for a node's own rounding.
    """

    relative: float
    of_largest: float
    noise: float


# relative: 2^-24, 2^-53, 2^-11, 2^-8 are the units in the last place of the four types.
# float32: 100 of them; functions such as Gelu's and Pow's are computed to about 10 by everyone.
# float64: attributes are float32, and functions that ONNX defines with them (HardSwish's 1/6) carry
#   its rounding, 6e-8; devices may keep the exact number.
# float16, bfloat16: the value is rounded twice at most, and once more by whoever compares; the
#   products in between are kept in float32 by one side and rounded by the other.
# noise: 8 units, as much as a sum of a few dozen terms in another order differs; for the narrow
#   types 1 unit, since every node rounds to them anyway.
TOLERANCES = {
    "float32": Tolerance(6e-6, 1e-6, 2**-20),
    "float64": Tolerance(2e-7, 2e-8, 2**-46),
    "float16": Tolerance(2e-3, 1e-3, 2**-10),
    "bfloat16": Tolerance(1.6e-2, 8e-3, 2**-7),
}
MAGNIFIED = 8.0
"""Devices may be this many times as far off as the worst of the disturbed runs."""
FIRST_RUNS, RUNS = 8, 40
"""Disturbed runs: most cases need the first alone. With eight, one tie in 256 fell to one side in
all of them, and a network may have thousands."""


def wrong(
    found: np.ndarray, right: np.ndarray, disturbed: Sequence[np.ndarray] | None = None
) -> str:
    """Say how an array differs from the right one by more than it may; "" when it does not.

    Args:
        found: from the device.
        right: from other people's runtime.
        disturbed: the same with values disturbed; None for the first part of the tolerance alone.
    """
    if found.dtype != right.dtype:
        return f"type {found.dtype}, right is {right.dtype}"
    if disturbed and any(d.shape != right.shape for d in disturbed):
        return ""  # how large it is depends on rounding
    if found.shape != right.shape:
        return f"shape {found.shape}, right is {right.shape}"
    if right.dtype.kind == "O":
        bad = np.array([str(f) != str(r) for f, r in zip(found.flat, right.flat)], bool)
        bad = bad.reshape(right.shape)
    else:
        bad = _outside(found, right, disturbed)
    if not bad.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"values: {bad.sum()} of {bad.size}; at {at} {found[at]!r}, right is {right[at]!r}"


def _outside(
    found: np.ndarray, right: np.ndarray, disturbed: Sequence[np.ndarray] | None
) -> np.ndarray:
    if not right.size:
        return np.zeros(right.shape, bool)
    wide = np.float64 if is_float(right.dtype) or right.dtype.kind == "b" else np.longdouble
    f, r = found.astype(wide), right.astype(wide)
    with np.errstate(all="ignore"):
        allowed = np.zeros(r.shape, wide)
        if right.dtype.name in TOLERANCES:
            relative, of_largest, _ = TOLERANCES[right.dtype.name]
            finite = np.abs(np.where(np.isfinite(r), r, 0))
            allowed = relative * finite + of_largest * finite.max()
        if disturbed:
            spread = np.max([np.abs(d.astype(wide) - r) for d in disturbed], axis=0)
            allowed = allowed + MAGNIFIED * spread
        same = (f == r) | (np.isnan(f) & np.isnan(r)) | ~np.isfinite(allowed)
        return ~(same | (np.abs(f - r) <= allowed))


def disturbance(rng: Rng):
    """Return a function that changes every floating-point element by about its rounding."""

    def disturb(value: Value, largest: float) -> Value:
        if isinstance(value, list):
            return [disturb(each, largest) for each in value]
        if value is None or value.dtype.name not in TOLERANCES:
            return value
        noise = TOLERANCES[value.dtype.name].noise
        wide = value.astype(np.float64)
        signs = rng.choice((-1.0, 1.0), value.shape)
        # Small results of sums such as 1 + erf(x) are off by parts of the large ones.
        of = np.max(np.abs(wide), initial=largest)
        # A zero is exact, unless it is such a difference.
        size = np.abs(wide) + of / 16 * ((wide != 0) | (largest > 0))
        return np.asarray(wide + noise * signs * size).astype(value.dtype)  # not a scalar

    return disturb
