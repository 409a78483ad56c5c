"""How far answers may differ from OpenVINO's, and why."""

from __future__ import annotations

import numpy as np

TOLERANCES: dict[str, tuple[float, float]] = {
    # By element type of the output: (relative, absolute).
    "float64": (1e-5, 1e-6),  # OpenVINO's CPU plugin computes f64 in f32
    "float32": (1e-4, 1e-5),  # sums of up to a thousand terms, in another order
    "float16": (5e-3, 5e-3),  # 11 bits; one side rounds after every step, the other at the end
    "bfloat16": (2e-2, 2e-2),  # 8 bits, likewise
    # By name, where the operation itself asks for more.
    "transcendental": (5e-4, 1e-5),  # OpenVINO approximates exp, erf and tanh by polynomials
    "recurrent": (1e-3, 1e-4),  # the same, fed back over the steps of a sequence
    "division by a root": (1e-3, 1e-4),  # 1/sqrt of a variance amplifies its rounding
    "image": (1e-3, 1e-3),  # coordinates computed in f32 in another order, times the contrast
    "quantized": (1e-4, 2.5e-2),  # a value on the border of two levels may round to either
}


def differences(got: np.ndarray, want: np.ndarray, tolerance: str) -> str:
    """Describe how an answer differs from the expected one; empty when it does not."""
    if got.shape != want.shape:
        return f"shape {list(got.shape)}, OpenVINO has {list(want.shape)}"
    if got.dtype != want.dtype:
        return f"element type {got.dtype}, OpenVINO has {want.dtype}"
    relative, absolute = TOLERANCES.get(tolerance or str(want.dtype), (0.0, 0.0))
    if got.dtype == object or got.dtype.kind in "bUS":
        wrong = np.asarray(got != want)
    else:
        a, b = got.astype(np.float64), want.astype(np.float64)
        wrong = ~np.isclose(a, b, relative, absolute, equal_nan=True)
    if not wrong.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} elements, first at {list(first)}: {got[first]!r}, "
        f"OpenVINO has {want[first]!r}"
    )
